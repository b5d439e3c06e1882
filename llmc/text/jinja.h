// A part of Jinja, the language of chat templates: texts, {{ expressions }}, and the statements if, for
// and set. White space is that of transformers' templates (trim_blocks, lstrip_blocks). Only what is executed
// is understood or refused, so that a template may have parts for tools that nobody calls.
#pragma once
#include <string>

#include "llmc/base/json.h"

// Renders the template with these variables (an object). Error, which names it, if something is not
// understood, or if the template raises one.
std::string render_jinja(const std::string& source, const nlohmann::json& variables);

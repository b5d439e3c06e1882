// Text in HTML, SVG and other XML.
#pragma once
#include <string>

// The text with the characters that mean something in markup replaced; control characters become U+FFFD.
std::string escape_html(const std::string& text);

// Text in HTML, SVG and other XML, and in Markdown.
#pragma once
#include <string>

// The text with the characters that mean something in markup replaced; printable_lines() of it.
std::string escape_html(const std::string& text);

// One line of text in Markdown, which may contain HTML: the same, and without effect as Markdown.
std::string escape_markdown(const std::string& text);

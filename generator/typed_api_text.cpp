// Words of the typed header: names, wrapped comments, shapes.
#include <fmt/format.h>
#include <cctype>

#include "generator/typed_api.hpp"

namespace ejk::generator {

std::string camel_case(const std::string& name) {
  std::string result;
  bool upper = true;
  for (const char c : name) {
    if (c == '_') {
      upper = true;
      continue;
    }
    result += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return result;
}

std::string wrapped(const std::string& text, const std::string& prefix, std::size_t columns) {
  std::string out, line = prefix;
  bool empty = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!empty && line.size() + 1 + word.size() > columns) {
      out += line + "\n";
      // What follows a list's dash stays under its first word.
      line = prefix + (text.starts_with("- ") ? "  " : "");
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return out + line + "\n";
}

std::string shapes_text(const spec::Spec& spec, const spec::TensorSpec& tensor) {
  std::string text;
  for (const spec::Shape& shape : tensor.shapes) {
    std::string extents;
    for (const spec::Extent& extent : shape.extents) extents += (extents.empty() ? "" : ", ") + extent.text;
    text += fmt::format("{}[{}]", text.empty() ? "" : " or ", extents);
    if (!shape.form.empty() && spec.forms.size() > 1) text += " (" + shape.form + ")";
  }
  return text;
}

}  // namespace ejk::generator

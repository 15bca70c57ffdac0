// Words of the typed APIs: names, wrapped comments, shapes, defaults.
#include <fmt/format.h>
#include <cctype>

#include "generator/typed_api.hpp"
#include "spec/expression/no_names.hpp"

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

std::string tensor_text(const spec::Spec& spec, const spec::TensorSpec& tensor) {
  const std::string text = fmt::format("{} {}. {}", tensor.type, shapes_text(spec, tensor), tensor.doc);
  if (tensor.updated_as.empty()) return text;
  return fmt::format("{} Updated in place: after the call this memory is the output {}. {}", text, tensor.updated_as,
                     spec.output(tensor.updated_as)->doc);
}

// A rule's message speaks of the values found; here of their names.
std::string rule_text(const spec::Requirement& requirement) {
  const std::string message = requirement.message.substr(0, requirement.message.find("; found"));
  std::string plain;
  for (std::size_t i = 0; i < message.size(); ++i) {
    if (message.compare(i, 2, "${") == 0) {
      ++i;
    } else if (message[i] != '}') {
      plain += message[i];
    }
  }
  return plain;
}

bool is_literal_default(const spec::Attribute& attribute) {
  return attribute.fallback && attribute.fallback.names().empty() && attribute.fallback.subjects().empty();
}

spec::Value literal_default(const spec::Attribute& attribute) {
  const spec::Value value = attribute.fallback.evaluate(spec::NoNames());
  if (const auto* number = std::get_if<std::int64_t>(&value); number && attribute.type == spec::AttributeType::floating)
    return static_cast<double>(*number);
  return value;
}

}  // namespace ejk::generator

// Image ids: kernel.variant.platform_arch.types.specialisation.config, of [a-z0-9_.] only.
#include "spec/render/image_id.hpp"

#include <fmt/format.h>
#include <cctype>

#include "spec/render/image.hpp"

namespace ejk::spec {
namespace {

std::string cleaned(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    result += std::isalnum(byte) && byte < 128 ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return result;
}

// -5 is n5, 0.5 is 0p5, 1e-05 is 1en05.
std::string number_text(const Value& value) {
  std::string text;
  for (const char c : to_text(value)) text += c == '-' ? 'n' : c == '.' ? 'p' : c;
  return cleaned(text);
}

// "d128", "causal" or nothing, "nhd"
std::string specialisation_part(const std::string& name, const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? cleaned(name) : "";
  if (const auto* word = std::get_if<std::string>(&value)) return cleaned(*word);
  return cleaned(name) + number_text(value);
}

void join(std::string& list, const std::string& part, char separator) {
  if (part.empty()) return;
  if (!list.empty()) list += separator;
  list += part;
}

}  // namespace

// Every parameter shows, so that two configs never share an id.
std::string config_part(const ConfigParameter& parameter, const Value& value) {
  const std::string label = cleaned(parameter.label.empty() ? parameter.name : parameter.label);
  if (const bool* flag = std::get_if<bool>(&value)) return label + (*flag ? "1" : "0");
  if (const auto* word = std::get_if<std::string>(&value)) return label + cleaned(*word);
  return label + number_text(value);
}

std::string image_id(const VariantScope& scope, const Config& config) {
  std::string types, rest, configured;
  for (std::size_t i = 0; i < scope.variant.specialize.size(); ++i) {
    const Value value = scope.specialisation(i);
    const auto* word = std::get_if<std::string>(&value);
    if (word && *word == "none") continue;
    if (word && dtype_named(*word)) {
      join(types, *word, '_');
    } else {
      join(rest, specialisation_part(scope.variant.specialize[i].name, value), '_');
    }
  }
  for (const auto& [name, value] : config)
    for (const ConfigParameter& parameter : scope.variant.config)
      if (parameter.name == name) join(configured, config_part(parameter, value), '_');
  std::string id = fmt::format("{}.{}.{}_{}", cleaned(scope.binding.spec->server().kernel), cleaned(scope.variant.name),
                               cleaned(scope.arch.platform), cleaned(scope.arch.name));
  for (const std::string& part : {types, rest, configured}) join(id, part, '.');
  return id;
}

}  // namespace ejk::spec

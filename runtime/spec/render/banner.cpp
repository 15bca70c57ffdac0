// The banner. Nothing in it depends on the machine, the time or the call. Its line of flags is part of the image's hash.
#include "spec/render/banner.hpp"

#include <fmt/format.h>

#include "spec/render/source_hash.hpp"

namespace ejk::spec {
namespace {

std::string list_of(const std::vector<Value>& values) {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ", ") + to_text(value);
  return text;
}

std::string let_line(const Named& let, const VariantScope& closed) {
  try {
    const auto value = closed.lookup(let.name);
    return fmt::format("//   {} = {}   let: {}\n", let.name, to_text(value.value()), let.expression.text());
  } catch (const ExpressionError&) {
    return fmt::format("//   {}   let, differs from call to call: {}\n", let.name, let.expression.text());
  }
}

}  // namespace

std::string banner(const Image& image, const VariantScope& closed) {
  const Variant& variant = closed.variant;
  std::string text =
      fmt::format("// {}\n// {} To make it: ejk-gen specs --arch {} --select '{}'\n", image.id, generated_mark, image.arch, image.id);
  text += fmt::format("// spec      specs/{}.json {}\n", image.kernel, variant.pointer);
  text += fmt::format("// template  templates/{}\n", variant.template_file);
  text += fmt::format("// arch      {}\n", image.arch);
  text += flags_mark;
  for (const std::string& flag : image.flags) text += " " + flag;
  text += image.flags.empty() ? " none\n" : "\n";
  if (!image.specialisation.empty() || !image.config.empty() || !variant.let.empty() || !closed.shared_lets().empty())
    text += "// values\n";
  for (std::size_t i = 0; i < image.specialisation.size(); ++i)
    text += fmt::format("//   {} = {}   specialize: {}\n", image.specialisation[i].first, to_text(image.specialisation[i].second),
                        variant.specialize[i].expression.text());
  for (const auto& [name, value] : image.config)
    for (const ConfigParameter& parameter : variant.config)
      if (parameter.name == name)
        text += fmt::format("//   {} = {}   config, one of: {}\n", name, to_text(value), list_of(parameter.values));
  for (const Named& let : variant.let) text += let_line(let, closed);
  for (const auto& [let, value] : closed.shared_lets())
    text += fmt::format("//   {} = {}   let of the kernel: {}\n", let->name, to_text(value), let->expression.text());
  return text;
}

}  // namespace ejk::spec

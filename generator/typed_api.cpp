// The typed C++ API of a kernel.
#include "generator/typed_api.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "spec/check/suggest.hpp"
#include "spec/render/banner.hpp"

namespace ejk::generator {
namespace {

using namespace spec;

std::string c_type(AttributeType type) {
  switch (type) {
    case AttributeType::boolean:
      return "bool";
    case AttributeType::integer:
      return "std::int64_t";
    case AttributeType::floating:
      return "double";
    case AttributeType::string:
      return "const char*";
  }
  return "void";
}

// A C++ string literal.
std::string literal(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

std::string default_text(const Attribute& attribute) {
  const Value value = literal_default(attribute);
  return std::holds_alternative<std::string>(value) ? literal(to_text(value)) : to_text(value);
}

struct HeaderWriter {
  const Spec& spec;
  std::string name, options, outputs;  // flash_attention, FlashAttentionOptions, FlashAttentionOutputs
  std::string text;

  explicit HeaderWriter(const Spec& s)
      : spec(s), name(s.kernel), options(camel_case(s.kernel) + "Options"), outputs(camel_case(s.kernel) + "Outputs") {}

  void comment(const std::string& sentence, const std::string& prefix = "// ") { text += wrapped(sentence, prefix); }

  void contract() {
    comment(fmt::format("{}: {}", name, spec.doc));
    text += fmt::format("// {} From specs/{}.json.\n//\n", generated_mark, name);
    if (!spec.forms.empty()) {
      text += "// Forms, the first that fits:\n";
      for (const Form& form : spec.forms) comment(fmt::format("- {} (if {}): {}", form.name, form.when.text(), form.doc));
    }
    text += "// Sizes:\n";
    for (const Dim& dim : spec.dims)
      comment(fmt::format("- {}: {}{}", dim.name, dim.doc, dim.value ? fmt::format(" (= {})", dim.value.text()) : ""));
    if (!spec.types.empty()) text += "// Element types:\n";
    for (const auto& [variable, types] : spec.types) {
      const auto other = spec.type_defaults.find(variable);
      comment(
          fmt::format("- {}: {}{}", variable, listed(types),
                      other == spec.type_defaults.end() ? "" : fmt::format("; of a tensor that the call allocates: {}", other->second)));
    }
    comment(
        "Inputs are strided views: the innermost stride must be 1, the others are free (0 broadcasts). Sizes may be 0. Outputs must "
        "share no memory with inputs or each other" +
        updated_too());
    text += "// Errors (nothing is written, the message names the argument): a wrong type, rank, size or stride, or a broken rule:\n";
    for (const Requirement& requirement : spec.requirements) comment("- " + rule_text(requirement));
    text +=
        "#pragma once\n#include <cstdint>\n#include <optional>\n#include <utility>\n#include <vector>\n\n#include "
        "<ejk/call.hpp>\n\nnamespace ejk {\n\n";
  }

  // "; nor must kv_pages, which the call updates."
  std::string updated_too() const {
    std::string names;
    for (const TensorSpec& tensor : spec.tensors)
      if (!tensor.updated_as.empty()) names += (names.empty() ? "" : " and ") + tensor.name;
    return names.empty() ? "." : fmt::format("; nor must {}, which the call updates and which must not be broadcast.", names);
  }

  void attribute(const Attribute& attribute) {
    comment(attribute.doc, "  // ");
    if (!attribute.choices.empty()) comment("One of: " + listed(attribute.choices) + ".", "  // ");
    if (is_literal_default(attribute)) {
      text += fmt::format("  {} {} = {};\n", c_type(attribute.type), attribute.name, default_text(attribute));
      return;
    }
    if (attribute.fallback) comment(fmt::format("Default: {}.", attribute.fallback.text()), "  // ");
    if (!attribute.fallback && !attribute.optional) comment("Must be given.", "  // ");
    const bool string = attribute.type == AttributeType::string;
    text += string ? fmt::format("  const char* {} = nullptr;\n", attribute.name)
                   : fmt::format("  std::optional<{}> {} = {{}};\n", c_type(attribute.type), attribute.name);
  }

  void options_struct() {
    comment(fmt::format("What may be added to a call of {}. Members are set in this order: {}(..., {{.first = ..., .later = ...}}).", name,
                        name));
    text += fmt::format("struct {} {{\n", options);
    for (const TensorSpec& tensor : spec.tensors) {
      if (tensor.output || !tensor.optional) continue;
      comment(tensor_text(spec, tensor), "  // ");
      text += fmt::format("  TensorView {} = {{}};\n", tensor.name);
    }
    for (const Attribute& each : spec.attributes) attribute(each);
    for (const TensorSpec& tensor : spec.tensors) {
      if (!tensor.output || !tensor.optional || tensor.for_gradient) continue;
      text += fmt::format("  // Also make {}.\n  bool return_{} = false;\n", tensor.name, tensor.name);
    }
    text +=
        "  // An override of the chosen config, as JSON: {\"variant\": ..., \"arch\": ..., and the variant's parameters}, all optional.\n"
        "  const char* config = nullptr;\n};\n\n";
  }

  void outputs_struct() {
    text += fmt::format("struct {} {{\n", outputs);
    for (const TensorSpec& tensor : spec.tensors) {
      if (!tensor.output || tensor.for_gradient) continue;
      comment(tensor_text(spec, tensor) + (tensor.optional ? fmt::format(" Empty unless return_{}.", tensor.name) : ""), "  // ");
      text += fmt::format("  Tensor {};\n", tensor.name);
    }
    text += "};\n\n";
  }

  std::string required_inputs() const {
    std::string list;
    for (const TensorSpec& tensor : spec.tensors)
      if (!tensor.output && !tensor.optional) list += fmt::format("const TensorView& {}, ", tensor.name);
    return list;
  }

  // A parameter list on lines of its own; the last one has no end.
  std::string parameters(const std::string& tensors) const {
    std::string lines = tensors.empty() ? std::string() : wrapped(tensors, "    ");
    lines += fmt::format("    const {}& options = {{}}, Stream stream = {{}}", options);
    return lines;
  }

  // The arguments as the packed call takes them. with_outputs: views of the caller's; otherwise absent, to be allocated.
  std::string packed(bool with_outputs) const {
    std::string tensors, attributes;
    for (const TensorSpec& tensor : spec.tensors) {
      const std::string from = tensor.output ? (with_outputs && !tensor.for_gradient ? "&" + tensor.name : "nullptr")
                                             : (tensor.optional ? "&options." : "&") + tensor.name;
      tensors += (tensors.empty() ? "" : ", ") + from;
    }
    for (const Attribute& attribute : spec.attributes) {
      const std::string value = fmt::format("AttributeValue::of(options.{})", attribute.name);
      const bool absent_string = attribute.type == AttributeType::string && !is_literal_default(attribute);
      attributes +=
          fmt::format("      {},\n", absent_string ? fmt::format("options.{} ? {} : AttributeValue{{}}", attribute.name, value) : value);
    }
    const std::string list = attributes.empty() ? "  const std::span<const AttributeValue> attributes_;\n"
                                                : fmt::format("  const AttributeValue attributes_[] = {{\n{}  }};\n", attributes);
    return fmt::format(
        "  static const KernelHandle* const kernel_ = find_kernel({});\n  const TensorView* const tensors_[] = {{\n{}  }};\n{}",
        literal(name), wrapped(tensors, "      "), list);
  }

  void required_comments() {
    for (const TensorSpec& tensor : spec.tensors)
      if (!tensor.output && !tensor.optional) comment(fmt::format("- {}: {}", tensor.name, tensor_text(spec, tensor)));
  }

  void allocating_function() {
    const bool allocates = std::any_of(spec.tensors.begin(), spec.tensors.end(), [](const auto& tensor) { return tensor.output; });
    comment(allocates ? "Allocates its outputs on the host." : "Has no outputs but the inputs that it updates.");
    required_comments();
    text += fmt::format("inline Result<{}> {}(\n{}) {{\n{}", outputs, name, parameters(required_inputs()), packed(false));
    std::string wanted, members;
    int index = 0;
    for (const TensorSpec& tensor : spec.tensors) {
      if (!tensor.output) continue;
      const int place = index++;
      if (tensor.for_gradient) continue;
      if (!wanted.empty()) wanted += " | ";
      wanted += tensor.optional ? fmt::format("(options.return_{} ? std::uint64_t{{1}} << {} : 0)", tensor.name, place)
                                : fmt::format("std::uint64_t{{1}} << {}", place);
      members += fmt::format("{}std::move((*result_)[{}])", members.empty() ? "" : ", ", place);
    }
    text += fmt::format(
        "  const std::uint64_t wanted_ = {};\n"
        "  auto result_ = call_allocating(kernel_, tensors_, wanted_, attributes_, stream, options.config);\n"
        "  if (!result_) return result_.error();\n"
        "  return {}{{{}}};\n}}\n\n",
        wanted.empty() ? "0" : wanted, outputs, members);
  }

  void into_function() {
    std::string outputs_list, optional;
    for (const TensorSpec& tensor : spec.tensors) {
      if (!tensor.output || tensor.for_gradient) continue;
      outputs_list += fmt::format("const TensorView& {}, ", tensor.name);
      if (tensor.optional) optional += (optional.empty() ? "" : ", ") + tensor.name;
    }
    comment(
        "The same into the caller's memory; allocates nothing once the call's shapes have been seen." +
        (optional.empty() ? std::string() : fmt::format(" {} may be {{}}: not wanted. The return_ options are not looked at.", optional)));
    text += fmt::format(
        "inline Status {}_into(\n{}) {{\n{}"
        "  return call(kernel_, tensors_, attributes_, stream, options.config);\n}}\n\n",
        name, parameters(outputs_list + required_inputs()), packed(true));
  }
};

}  // namespace

std::string typed_api(const Spec& spec) {
  HeaderWriter writer(spec);
  writer.contract();
  writer.options_struct();
  writer.outputs_struct();
  writer.allocating_function();
  writer.into_function();
  return writer.text + "}  // namespace ejk\n";
}

}  // namespace ejk::generator

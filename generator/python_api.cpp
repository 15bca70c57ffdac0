// Python functions and stubs.
#include "generator/python_api.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "generator/typed_api.hpp"
#include "spec/check/suggest.hpp"
#include "spec/render/banner.hpp"

namespace ejk::generator {
namespace {

using namespace spec;

std::string python_type(AttributeType type) {
  switch (type) {
    case AttributeType::boolean:
      return "bool";
    case AttributeType::integer:
      return "int";
    case AttributeType::floating:
      return "float";
    case AttributeType::string:
      return "str";
  }
  return "object";
}

std::string literal(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *text);
  return to_text(value);
}

// Backslashes of a doc are no escapes of the docstring.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\\' ? "\\\\" : std::string(1, c);
  return out;
}

struct ModuleWriter {
  const Spec& spec;
  std::string text;

  // ("a", "b",): names of what the predicate takes.
  template <class Range, class Predicate>
  static std::string names(const Range& range, Predicate&& takes, const char* quote = "\"") {
    std::string list;
    for (const auto& each : range)
      if (takes(each)) list += fmt::format("{0}{1}{0}, ", quote, each.name);
    if (!list.empty()) list.resize(list.size() - (list.find(", ") + 2 == list.size() ? 1 : 2));
    return "(" + list + ")";
  }
  std::string inputs(const char* quote = "\"") const {
    return names(
        spec.tensors, [](const auto& each) { return !each.output; }, quote);
  }
  std::string outputs(const char* quote = "\"") const {
    return names(
        spec.outputs, [](const auto&) { return true; }, quote);
  }
  // What a call gives for each output: None for one that has an input's name.
  std::string given_outputs() const {
    std::string list;
    for (const Output& output : spec.outputs) list += (output.name == output.updates ? "None" : output.name) + ", ";
    list.resize(list.size() - (spec.outputs.size() == 1 ? 1 : 2));
    return "(" + list + ")";
  }
  // ((1, 3),): output 1 is the memory of input 3.
  std::string updates() const {
    std::string list;
    for (std::size_t i = 0; i < spec.outputs.size(); ++i)
      if (!spec.outputs[i].updates.empty())
        list += fmt::format("({}, {}), ", i, spec.tensor(spec.outputs[i].updates) - spec.tensors.data());
    if (!list.empty()) list.resize(list.size() - 1);
    return list.empty() ? "" : "    updates=(" + list + "),\n";
  }
  std::string attributes(bool varying, const char* quote = "\"") const {
    return names(
        spec.attributes, [&](const auto& each) { return each.varies == varying; }, quote);
  }

  using TypeOf = std::function<std::string(const TensorSpec&)>;

  // Each parameter on a line of its own. array: the type of inputs; given, flag: of an output, and of asking for it, with the default.
  std::string parameters(const TypeOf& array, const TypeOf& given, const TypeOf& flag) const {
    std::string lines;
    for (const TensorSpec& tensor : spec.tensors)
      if (!tensor.output && !tensor.optional) lines += fmt::format("    {}: {},\n", tensor.name, array(tensor));
    lines += "    *,\n";
    for (const TensorSpec& tensor : spec.tensors)
      if (!tensor.output && tensor.optional) lines += fmt::format("    {}: {} | None = None,\n", tensor.name, array(tensor));
    for (const Attribute& attribute : spec.attributes) lines += "    " + parameter(attribute) + ",\n";
    for (const Output& output : spec.outputs)
      if (output.name != output.updates) lines += fmt::format("    {}: {},\n", output.name, given(*spec.tensor(output.tensor())));
    for (const TensorSpec& tensor : spec.tensors)
      if (tensor.output && tensor.optional && !tensor.for_gradient) lines += fmt::format("    return_{}: {},\n", tensor.name, flag(tensor));
    return lines + "    cfg: dict | str | None = None,\n    stream: int | None = None,\n";
  }
  static TypeOf always(const std::string& type) {
    return [type](const TensorSpec&) { return type; };
  }

  // Varying ones are None by default, so that a call that gives none of them has nothing to pack.
  static std::string parameter(const Attribute& attribute) {
    const std::string type = python_type(attribute.type);
    if (is_literal_default(attribute) && !attribute.varies)
      return fmt::format("{}: {} = {}", attribute.name, type, literal(literal_default(attribute)));
    return fmt::format("{}: {} | None = None", attribute.name, type);
  }

  void paragraph(const std::string& sentence, const std::string& prefix) { text += wrapped(escaped(sentence), prefix); }
  // "name: text", later lines four further in.
  void entry(const std::string& sentence) {
    std::string lines = wrapped(escaped(sentence), "            ");
    text += "        " + lines.substr(12);
  }

  void attribute_entry(const Attribute& attribute) {
    std::string sentence = attribute.name + ": " + attribute.doc;
    if (!attribute.choices.empty()) sentence += " One of: " + listed(attribute.choices) + ".";
    if (attribute.fallback && (attribute.varies || !is_literal_default(attribute)))
      sentence += fmt::format(" Default: {}.", attribute.fallback.text());
    if (!attribute.fallback && !attribute.optional) sentence += " Must be given.";
    entry(sentence);
  }

  void contract() {
    paragraph(spec.doc, "    ");
    if (!spec.forms.empty()) text += "\n    Forms, the first that fits:\n";
    for (const Form& form : spec.forms) entry(fmt::format("{} (if {}): {}", form.name, form.when.text(), form.doc));
    text += "\n    Sizes:\n";
    for (const Dim& dim : spec.dims)
      entry(fmt::format("{}: {}{}", dim.name, dim.doc, dim.value ? fmt::format(" (= {})", dim.value.text()) : ""));
    if (!spec.types.empty()) text += "\n    Element types:\n";
    for (const auto& [variable, types] : spec.types) entry(fmt::format("{}: {}", variable, listed(types)));
  }

  void docstring() {
    text += "    \"\"\"";
    const std::size_t start = text.size();
    contract();
    text.erase(start, 4);  // the first line follows the quotes
    text += "\n    Args:\n";
    for (const TensorSpec& tensor : spec.tensors)
      if (!tensor.output) entry(tensor.name + ": " + tensor_text(spec, tensor));
    for (const Attribute& attribute : spec.attributes) attribute_entry(attribute);
    for (const Output& output : spec.outputs) {
      if (output.updates.empty())
        entry(fmt::format("{}: where the output is written, an array of the caller's; None: a new one.", output.name));
      else if (output.name != output.updates)
        entry(fmt::format("{}: {} itself, which the call updates, or None.", output.name, output.updates));
    }
    for (const TensorSpec& tensor : spec.tensors)
      if (tensor.output && tensor.optional && !tensor.for_gradient)
        entry(fmt::format("return_{}: also make {}.", tensor.name, tensor.name));
    entry("cfg: an override of the chosen config: {\"variant\": ..., \"arch\": ..., and the variant's parameters}, all optional.");
    entry("stream: the address of a stream on the arrays' GPU; None: the current one of their library.");
    returns();
    errors();
    text += "    \"\"\"\n";
  }

  void returns() {
    const auto [count, optional] = counts();
    text += "\n    Returns:\n";
    if (count == 1)
      entry("An array of the inputs' library:");
    else if (count - optional == 1)
      entry("An array of the inputs' library, or a named tuple of all outputs if an optional one was asked for (None: not asked for):");
    else
      entry("A named tuple of arrays of the inputs' library (None: not asked for):");
    for (const Output& output : spec.outputs)
      entry(output.name + ": " +
            (output.updates.empty() ? tensor_text(spec, *spec.tensor(output.name)) : output.updates + ", updated. " + output.doc));
  }

  // Outputs, and those of them that not every call has.
  std::pair<std::size_t, std::size_t> counts() const {
    std::size_t optional = 0;
    for (const Output& output : spec.outputs) optional += spec.tensor(output.tensor())->optional;
    return {spec.outputs.size(), optional};
  }

  void errors() {
    text += "\n    Raises:\n";
    entry("ejk.InputError: nothing is written, the message names the argument. A wrong type, rank, size or stride, or a broken rule:");
    for (const Requirement& requirement : spec.requirements) entry("- " + rule_text(requirement));
    entry("ejk.EjkError: the other classes, for what cannot be built, loaded or run.");
  }

  void module() {
    text += fmt::format("\"\"\"{}. {} From specs/{}.json.\"\"\"\n\n", spec.kernel, generated_mark, spec.kernel);
    text += "from __future__ import annotations\n\nfrom .._call import Array, Kernel\n\n";
    text += fmt::format("_kernel = Kernel(\n    \"{}\",\n    inputs={},\n    outputs={},\n    fixed={},\n    varying={},\n{})\n\n\n",
                        spec.kernel, inputs(), outputs(), attributes(false), attributes(true), updates());
    text += fmt::format("def {}(\n{}) -> Array:\n", spec.kernel,
                        parameters(always("Array"), always("Array | None = None"), always("bool = False")));
    docstring();
    std::string none_given, wanted;
    for (const Output& output : spec.outputs) {
      const bool optional = output.updates.empty() && spec.tensor(output.name)->optional;
      wanted += (optional ? "return_" + output.name : "True") + ", ";
      if (output.name == output.updates) continue;
      none_given += fmt::format("{}{} is None", none_given.empty() ? "" : " and ", output.name);
    }
    wanted.resize(wanted.size() - (wanted.find(", ") + 2 == wanted.size() ? 1 : 2));
    const std::string given = none_given.empty() ? "None" : fmt::format("None if {} else {}", none_given, given_outputs());
    text += fmt::format(
        "    return _kernel.call(\n        {},\n        {},\n        {},\n        {},\n        ({}),\n        cfg,\n"
        "        stream,\n    )\n",
        inputs(""), attributes(false, ""), attributes(true, ""), given, wanted);
  }

  // A signature of the stub. Other arrays than the first may have elements and dims of their own, which are part of a type in NumPy's
  // stubs.
  void signature(const std::string& returned, const TypeOf& given, const TypeOf& flag) {
    const auto array = [this](const TensorSpec& tensor) { return tensor.name == spec.tensors.front().name ? "Array" : "Any"; };
    text += fmt::format("def {}(\n{}) -> {}: ...\n", spec.kernel, parameters(array, given, flag), returned);
  }

  // One array unless an optional output is asked for or given.
  void overloads(const std::string& all) {
    const auto none = [](const TensorSpec& tensor) { return tensor.optional ? "None = None" : "Any = None"; };
    text += "@overload\n";
    signature("Array", none, always("Literal[False] = False"));
    for (const TensorSpec& one : spec.tensors) {
      if (!one.output || !one.optional || one.for_gradient) continue;
      const auto only = [&](const std::string& type, const std::string& others) -> TypeOf {
        return [&one, type, others](const TensorSpec& tensor) { return tensor.name == one.name ? type : others; };
      };
      text += "@overload\n";
      signature(all, always("Any = None"), only("Literal[True]", "bool = False"));
      text += "@overload\n";
      signature(all, only("Any", "Any = None"), always("bool = False"));
    }
    text += "@overload\n";  // flags that only the program knows
    signature("Array | " + all, always("Any = None"), always("bool = False"));
  }

  void stub() {
    const auto [count, optional] = counts();
    const std::string result = camel_case(spec.kernel) + "Result", all = fmt::format("{}[Array]", result);
    text += fmt::format("# {} From specs/{}.json.\n", generated_mark, spec.kernel);
    text += "from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload\n\nArray = TypeVar(\"Array\")\n\n";
    text += fmt::format("class {}(NamedTuple, Generic[Array]):\n", result);
    for (const Output& output : spec.outputs)
      text += fmt::format("    {}: {}\n", output.name, spec.tensor(output.tensor())->optional ? "Any" : "Array");
    text += "\n";
    const bool updates_optional = std::any_of(spec.outputs.begin(), spec.outputs.end(), [&](const Output& output) {
      return !output.updates.empty() && spec.tensor(output.updates)->optional;
    });
    if (updates_optional && count - optional == 1)  // one array or all, by whether that input is given
      signature("Any", always("Any = None"), always("bool = False"));
    else if (optional && count - optional == 1)
      overloads(all);
    else
      signature(count == 1 ? "Array" : all, always("Any = None"), always("bool = False"));
  }
};

}  // namespace

std::string python_api(const Spec& spec) {
  ModuleWriter writer{spec, {}};
  writer.module();
  return writer.text;
}

std::string python_stub(const Spec& spec) {
  ModuleWriter writer{spec, {}};
  writer.stub();
  return writer.text;
}

std::string python_functions(const std::vector<std::string>& kernel_names) {
  std::string text = fmt::format("\"\"\"One function a kernel. {}\"\"\"\n\n", generated_mark), all;
  for (const std::string& name : kernel_names) {
    text += fmt::format("from .{0} import {0}\n", name);
    all += fmt::format("    \"{}\",\n", name);
  }
  return text + fmt::format("\n__all__ = [\n{}]\n", all);
}

}  // namespace ejk::generator

// Names in expressions.
#include "spec/check/name_check.hpp"

#include <algorithm>

#include "spec/arch_property.hpp"
#include "spec/call/binding.hpp"
#include "spec/check/suggest.hpp"
#include "spec/expression/expression_node.hpp"
#include "spec/read/load_parts.hpp"

namespace ejk::spec {
namespace {

// Of a name that has a value elsewhere in the variant; "" of any other.
std::string why_hidden(const std::string& name, const NameRules& rules) {
  if (!rules.variant) return {};
  const auto has = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& each) { return each.name == name; });
  };
  if (has(rules.variant->config)) return "it is a config parameter, and configs are chosen later";
  if (has(rules.variant->let) && rules.configured) return "it is a let of the variant that is defined later; put it first";
  if (has(rules.variant->let))
    return "it is a let of the variant, which has a value once a config is chosen; a let of the kernel that follows from the call alone is "
           "visible here";
  if (has(rules.variant->specialize)) return "it is a specialisation, which is made of the call's own names and the kernel's lets";
  return {};
}

// One name, or a list of them, as JSON has it.
std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return names.size() == 1 ? text : "[" + text + "]";
}

std::string updated_memory(const Output& output) {
  return "'" + output.name + "' is the memory of '" + output.updates + "', which it updates; say '" + output.updates + "'";
}

}  // namespace

std::vector<std::string> contract_names(const Spec& spec) {
  std::vector<std::string> names = names_of_dims(spec);
  for (const auto& more : {names_of_types(spec), names_of_attributes(spec)}) names.insert(names.end(), more.begin(), more.end());
  if (!spec.forms.empty()) names.push_back("form");
  return names;
}

void NameCheck::judge(const std::string& pointer, const Expression& expression, const NameRules& rules) {
  verdicts_.clear();
  judge_all(pointer, expression, rules);
}

// Whether no fault can be found: as of nearly all expressions, which a process's first call judges by hundreds. Copies no name.
bool NameCheck::is_plain(const Expression& expression, const NameRules& rules) const {
  return all_nodes(expression, [&](const Expression::Node& node) {
    if (node.operation == Operation::name) return is_plain_name(node.name, rules);
    if (node.operation != Operation::name_call) return true;
    const bool any_tensor_will_do = find_function(node.callee)->names == 1 && !reads_data(node.callee) && node.callee != "folded_stride";
    return !rules.only_given && any_tensor_will_do && spec_.tensor(node.name);
  });
}

bool NameCheck::is_plain_name(const std::string& name, const NameRules& rules) const {
  if (!is_in(rules.known, name)) {
    const SharedLet* const let = rules.sound_lets && rules.in_variant ? spec_.shared_let(name) : nullptr;
    return let && rules.sound_lets->contains(let->expression.identity());
  }
  return !names_arch_property(name) && !refuses_varying(name, rules);
}

void NameCheck::judge_all(const std::string& pointer, const Expression& expression, const NameRules& rules) {
  if (is_plain(expression, rules)) return;
  for (const std::string& name : expression.names()) judge_name(pointer, name, rules);
  for (const auto& [function, subject] : expression.name_calls()) judge_call(pointer, function, subject, rules);
}

bool NameCheck::refuses_varying(const std::string& name, const NameRules& rules) const {
  const Attribute* attribute = spec_.attribute(name);
  return attribute && attribute->varies && !rules.varying;
}

void NameCheck::judge_name(const std::string& pointer, const std::string& name, const NameRules& rules) {
  if (names_arch_property(name)) return judge_property(pointer, name, rules);
  if (refuses_varying(name, rules))
    fault(pointer, "the attribute '" + name + "' varies from call to call, so " + rules.place +
                       " cannot use it; pass it to a launch by its bare name");
  else if (is_in(rules.known, name))
    return;
  else if (const SharedLet* let = spec_.shared_let(name))
    judge_let(pointer, *let, rules);
  else
    judge_unknown(pointer, name, rules);
}

// What it is made of must be known where it is used.
void NameCheck::judge_let(const std::string& pointer, const SharedLet& let, const NameRules& rules) {
  if (!rules.in_variant) return fault(pointer, "'" + let.name + "' is a let of the kernel: only variants see it, not " + rules.place);
  if (const auto why = why_no_value(let, rules); !why.empty())
    fault(pointer, "the let '" + let.name + "' has no value in " + rules.place + ": " + why);
}

std::string NameCheck::why_no_value(const SharedLet& let, const NameRules& rules) {
  if (rules.sound_lets && rules.sound_lets->count(let.expression.identity())) return {};
  if (const auto seen = verdicts_.find(&let); seen != verdicts_.end()) return seen->second;
  std::vector<Fault> inner;
  NameCheck(spec_, inner, verdicts_).judge_all("", let.expression, rules);
  if (inner.empty() && rules.sound_lets) rules.sound_lets->insert(let.expression.identity());
  return verdicts_[&let] = inner.empty() ? "" : inner.front().sentence;
}

void NameCheck::judge_unknown(const std::string& pointer, const std::string& name, const NameRules& rules) {
  if (spec_.tensor(name))
    return fault(pointer,
                 "'" + name + "' is a tensor and has no value; ask given(" + name + "), rank(" + name + ") or stride(" + name + ", i)");
  if (const Output* output = spec_.output(name)) return fault(pointer, updated_memory(*output));
  if (const auto why = why_hidden(name, rules); !why.empty())
    return fault(pointer, "'" + name + "' has no value in " + rules.place + ": " + why);
  std::vector<std::string> known = rules.known;
  if (rules.in_variant)
    for (const SharedLet& let : spec_.let) known.push_back(let.name);
  fault(pointer, "unknown name '" + name + "' in " + rules.place + suggestion(name, known));
}

void NameCheck::judge_property(const std::string& pointer, const std::string& name, const NameRules& rules) {
  const auto property = arch_property(name).name;
  if (!rules.in_variant) return fault(pointer, "'" + name + "' has no value in " + rules.place + ": only variants know an arch");
  if (property == "name" || property == "platform") return;
  for (const Arch* arch : rules.archs) {
    if (arch->properties.count(property)) continue;
    std::vector<std::string> known;
    for (const auto& [each, value] : arch->properties) known.push_back(each);
    return fault(pointer, "the arch " + arch->full_name() + " has no property '" + property + "'" + suggestion(property, known));
  }
}

void NameCheck::judge_call(const std::string& pointer, const std::string& function, const std::string& subject, const NameRules& rules) {
  const auto call = [&] { return function + "(" + subject + ")"; };
  if (function == "given" && spec_.attribute(subject)) {
    if (refuses_varying(subject, rules))
      fault(pointer, "the attribute '" + subject + "' varies from call to call, so " + rules.place + " cannot use " + call());
    return;
  }
  const TensorSpec* tensor = spec_.tensor(subject);
  if (const Output* output = spec_.output(subject); !tensor && output) return fault(pointer, call() + ": " + updated_memory(*output));
  if (!tensor) {
    std::vector<std::string> known = names_of_tensors(spec_);
    if (function == "given")
      for (const Attribute& attribute : spec_.attributes) known.push_back(attribute.name);
    return fault(pointer, call() + ": there is no tensor '" + subject + "'" + suggestion(subject, known));
  }
  if (rules.only_given && function != "given")
    return fault(pointer, call() + " has no value in " + rules.place + ": a call's form is chosen before its shapes are looked at. " +
                              "Tensors of several ranks are alternatives of one form: \"shape\": {\"any\": [[...], [...]]}");
  const auto has_rest = [](const Shape& shape) { return shape.has_rest(); };
  if (function == "folded_stride" && std::none_of(tensor->shapes.begin(), tensor->shapes.end(), has_rest))
    return fault(pointer,
                 call() + ": no extent of " + subject + " stands for several dimensions (\"R...\"); ask stride(" + subject + ", i)");
  if (reads_data(function)) judge_data(pointer, function, *tensor, rules);
}

void NameCheck::judge_data(const std::string& pointer, const std::string& function, const TensorSpec& tensor, const NameRules& rules) {
  const std::string call = function + "(" + tensor.name + ")";
  if (!rules.data && rules.may_read)
    fault(pointer, call + " reads data: the rule must say \"reads\": \"" + tensor.name + "\"");
  else if (!rules.data)
    fault(pointer, call + " reads data, which " + rules.place + " cannot; only 'requires', the cost and the values of dims may");
  else if (tensor.output)
    fault(pointer, call + " reads an output, which has no data yet");
  else if (!rules.data_of.empty() && !is_in(rules.data_of, tensor.name))
    fault(pointer, call + " reads the data of '" + tensor.name + "', but the rule says \"reads\": " + quoted(rules.data_of));
}

}  // namespace ejk::spec

// Names in expressions.
#include "spec/name_check.hpp"

#include <algorithm>

#include "spec/binding.hpp"
#include "spec/load_parts.hpp"
#include "spec/suggest.hpp"

namespace ejk::spec {
namespace {

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// One name, or a list of them, as JSON has it.
std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return names.size() == 1 ? text : "[" + text + "]";
}

}  // namespace

std::vector<std::string> contract_names(const Spec& spec) {
  std::vector<std::string> names = names_of_dims(spec);
  for (const auto& more : {names_of_types(spec), names_of_attributes(spec)}) names.insert(names.end(), more.begin(), more.end());
  if (!spec.forms.empty()) names.push_back("form");
  return names;
}

void NameCheck::judge(const std::string& pointer, const Expression& expression, const NameRules& rules) {
  for (const std::string& name : expression.names()) judge_name(pointer, name, rules);
  for (const auto& [function, subject] : expression.name_calls()) judge_call(pointer, function, subject, rules);
}

bool NameCheck::refuses_varying(const std::string& name, const NameRules& rules) const {
  const Attribute* attribute = spec_.attribute(name);
  return attribute && attribute->varies && !rules.varying;
}

void NameCheck::judge_name(const std::string& pointer, const std::string& name, const NameRules& rules) {
  if (name.starts_with("arch.")) return judge_property(pointer, name, rules);
  if (refuses_varying(name, rules))
    fault(pointer, "the attribute '" + name + "' varies from call to call, so " + rules.place +
                       " cannot use it; pass it to a launch by its bare name");
  else if (spec_.tensor(name) && !is_in(rules.known, name))
    fault(pointer, "'" + name + "' is a tensor and has no value; ask given(" + name + "), rank(" + name + ") or stride(" + name + ", i)");
  else if (!is_in(rules.known, name))
    fault(pointer, "unknown name '" + name + "' in " + rules.place + suggestion(name, rules.known));
}

void NameCheck::judge_property(const std::string& pointer, const std::string& name, const NameRules& rules) {
  const std::string property = name.substr(5);
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
  if (!tensor) {
    std::vector<std::string> known = names_of_tensors(spec_);
    if (function == "given")
      for (const Attribute& attribute : spec_.attributes) known.push_back(attribute.name);
    return fault(pointer, call() + ": there is no tensor '" + subject + "'" + suggestion(subject, known));
  }
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

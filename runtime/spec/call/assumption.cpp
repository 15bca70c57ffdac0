// Assumed calls: what is known of them, and all combinations.
#include "spec/call/assumption.hpp"

#include <algorithm>

#include "spec/call/binder.hpp"
#include "spec/expression/no_names.hpp"

namespace ejk::spec {
namespace {

constexpr std::size_t most = 256;  // assumptions that are looked at; attributes are judged by pairs of them

void add(std::vector<std::optional<Value>>& samples, std::optional<Value> value) {
  if (std::find(samples.begin(), samples.end(), value) == samples.end()) samples.push_back(std::move(value));
}

// Legal or not: the contract tells.
std::vector<std::optional<Value>> samples_of(const Attribute& attribute) {
  std::vector<std::optional<Value>> samples;
  if (attribute.optional) add(samples, std::nullopt);
  if (const auto fallback = attribute.fallback.known(NoNames()))
    add(samples, attribute.type == AttributeType::floating ? Value(attribute.fallback.floating(NoNames())) : *fallback);
  if (attribute.type == AttributeType::boolean)
    for (const bool value : {false, true}) add(samples, Value(value));
  if (attribute.type == AttributeType::integer)
    for (const std::int64_t value : {0, 1, 2}) add(samples, Value(value));
  if (attribute.type == AttributeType::floating)
    for (const double value : {0.0, 0.25, 0.5}) add(samples, Value(value));
  for (const std::string& choice : attribute.choices) add(samples, Value(choice));
  return samples;
}

// Each of `all` once a value.
template <class Values, class Set>
std::vector<Assumption> multiplied(const std::vector<Assumption>& all, const Values& values, const Set& set) {
  std::vector<Assumption> result;
  for (const Assumption& one : all)
    for (const auto& value : values) {
      result.push_back(one);
      set(result.back(), value);
    }
  return result;
}

// By a name of the contract: an optional tensor or an attribute. Any other is left out.
std::vector<Assumption> multiplied(const Spec& spec, const std::vector<Assumption>& all, const std::string& name) {
  if (const TensorSpec* tensor = spec.tensor(name); tensor && tensor->optional)
    return multiplied(all, std::vector<bool>{false, true}, [&](Assumption& one, bool given) { one.given[name] = given; });
  if (const Attribute* attribute = spec.attribute(name))
    return multiplied(all, samples_of(*attribute),
                      [&](Assumption& one, const std::optional<Value>& value) { one.attributes[name] = value; });
  return all;
}

// What is known of a let of the kernel: the lets that it is made of are each looked at once.
class KnownLets : public Scope {
 public:
  explicit KnownLets(const Assumption& assumption) : assumption_(assumption) {}
  std::optional<Value> lookup(std::string_view name) const override {
    const SharedLet* const let = assumption_.spec().shared_let(name);
    if (!let) return assumption_.lookup(name);
    if (const auto seen = values_.find(let); seen != values_.end()) return seen->second;
    return values_[let] = let->expression.known(*this);
  }
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override {
    return assumption_.call(function, name, rest);
  }

 private:
  const Assumption& assumption_;
  mutable std::map<const SharedLet*, std::optional<Value>> values_;
};

}  // namespace

bool Assumption::fits_form() const {
  const auto has_shape = [&](const TensorSpec& tensor) {
    return std::any_of(tensor.shapes.begin(), tensor.shapes.end(), [&](const Shape& shape) { return takes_form(shape, form); });
  };
  for (const auto& [name, is_given] : given)
    if (is_given && !has_shape(*spec_->tensor(name))) return false;
  for (const Form& each : spec_->forms) {
    const auto when = each.when.known(*this);
    if (each.name == form) return when != Value(false);
    if (when == Value(true)) return false;
  }
  return true;
}

bool Assumption::legal() const {
  return fits_form() && std::none_of(spec_->requirements.begin(), spec_->requirements.end(),
                                     [&](const Requirement& rule) { return rule.that.known(*this) == Value(false); });
}

bool Assumption::taken_by(const Variant& variant) const {
  return std::none_of(variant.supports.begin(), variant.supports.end(),
                      [&](const Expression& clause) { return clause.known(*this) == Value(false); });
}

std::string Assumption::text() const {
  std::string text;
  const auto say = [&](const std::string& words) { text += (text.empty() ? "" : ", ") + words; };
  for (const auto& [name, is_given] : given)
    if (is_given) say(name);
  for (const auto& [name, value] : attributes) say(name + (value ? " = " + to_text(*value) : " not given"));
  if (!form.empty()) say("form '" + form + "'");
  return text;
}

std::optional<Value> Assumption::lookup(std::string_view name) const {
  if (name == "form" && !form.empty()) return Value(form);
  if (spec_->shared_let(name)) return KnownLets(*this).lookup(name);
  const auto attribute = attributes.find(std::string(name));
  return attribute == attributes.end() ? std::nullopt : attribute->second;
}

std::optional<Value> Assumption::call(std::string_view function, std::string_view name, std::span<const Value>) const {
  if (function != "given") return std::nullopt;
  const std::string key(name);
  if (const auto tensor = given.find(key); tensor != given.end()) return Value(tensor->second);
  if (const TensorSpec* tensor = spec_->tensor(name); tensor && !tensor->optional) return Value(true);
  const Attribute* attribute = spec_->attribute(name);
  const auto assumed = attributes.find(key);
  if (!attribute || !attribute->optional || assumed == attributes.end()) return std::nullopt;  // a default may be given, too
  return Value(assumed->second.has_value());
}

bool VariantAssumption::launches(const Launch& launch) const { return launch.condition.known(*this) != Value(false); }

std::optional<Value> VariantAssumption::lookup(std::string_view name) const {
  if (const auto seen = lets_.find(name); seen != lets_.end()) return seen->second;
  for (const Named& let : variant_.let)
    if (let.name == name) return lets_[let.name] = let.expression.known(*this);
  for (const Named& each : variant_.specialize)
    if (each.name == name) return lets_[each.name] = each.expression.known(assumption_);
  if (const SharedLet* let = assumption_.spec().shared_let(name)) return lets_[let->name] = let->expression.known(*this);
  return assumption_.lookup(name);
}

std::optional<Value> VariantAssumption::call(std::string_view function, std::string_view name, std::span<const Value> rest) const {
  return assumption_.call(function, name, rest);
}

std::vector<Assumption> assumptions(const Spec& spec, const std::string& subject, std::set<std::string> others) {
  for (const Form& form : spec.forms) {
    others.merge(form.when.names());
    others.merge(form.when.subjects());
  }
  others.erase(subject);
  std::vector<Assumption> all = {Assumption(spec)};
  if (!spec.forms.empty()) all = multiplied(all, spec.forms, [](Assumption& one, const Form& form) { one.form = form.name; });
  all = multiplied(spec, all, subject);
  for (const std::string& name : others)
    if (auto more = multiplied(spec, all, name); more.size() <= most) all = std::move(more);
  std::erase_if(all, [](const Assumption& one) { return !one.legal(); });
  const auto count = [](const Assumption& one) {
    return std::count_if(one.given.begin(), one.given.end(), [](const auto& each) { return each.second; });
  };
  std::stable_sort(all.begin(), all.end(), [&](const Assumption& a, const Assumption& b) { return count(a) < count(b); });
  if (all.size() > most) all.resize(most, Assumption(spec));
  return all;
}

}  // namespace ejk::spec

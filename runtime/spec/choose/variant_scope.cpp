// The scope of a variant's expressions, open (for one call) and closed (for templates).
#include <fmt/format.h>

#include "spec/arch_property.hpp"
#include "spec/check/suggest.hpp"
#include "spec/choose/let_values.hpp"
#include "spec/expression/same_name.hpp"
#include "spec/render/image.hpp"

namespace ejk::spec {
namespace {

std::optional<Value> arch_value(const Arch& arch, std::string_view name) {
  if (!names_arch_property(name)) return std::nullopt;
  const auto [property, listed] = arch_property(name);
  if (property == "name") return Value(arch.name);
  if (property == "platform") return Value(arch.platform);
  if (listed)
    if (const auto replaced = arch.replaced.find(property); replaced != arch.replaced.end()) return replaced->second;
  const auto found = arch.properties.find(property);
  if (found != arch.properties.end()) return found->second;
  std::vector<std::string> known = {"name", "platform"};
  for (const auto& [each, value] : arch.properties) known.push_back(each);
  throw ExpressionError(fmt::format("arch {} has no property '{}'{}", arch.full_name(), property, suggestion(property, known)), 0);
}

// Properties that the runtime replaces by what it measures: they may shape launches, never images. A GPU's own, which are the same on many
// machines, may shape a specialisation, whose value is part of the image's id; it is that of the machine, as in launches.
enum class MayFollow { nothing_measured, device };
void refuse_measured(std::string_view name, MayFollow may) {
  const auto refuse = [&](const char* instead) {
    throw ExpressionError(fmt::format("{} is measured on each machine, so it cannot shape an image; {}", name, instead), 0);
  };
  for (const std::string_view property : {"arch.threads", "arch.l1_bytes", "arch.l2_bytes"})
    if (name == property) refuse("pass it as a launch argument");
  if (may == MayFollow::device) return;
  for (const std::string_view property : {"arch.sms", "arch.shared_memory"})
    if (name == property)
      refuse(
          "pass it as a launch argument, name what follows from it in the variant's specialize, or take the file's: "
          "arch.listed.shared_memory");
}

// What a specialisation's expression sees.
class CallScope : public Scope {
 public:
  CallScope(const Arch& arch, const Binding& binding) : arch_(arch), binding_(binding) {}
  std::optional<Value> lookup(std::string_view name) const override {
    refuse_measured(name, MayFollow::device);
    if (const SharedLet* let = binding_.spec->server().shared_let(name)) return lets_.value(*let, *this);
    if (auto value = arch_value(arch_, name)) return value;
    return binding_.lookup(name);
  }
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override {
    return binding_.call(function, name, rest);
  }

 private:
  const Arch& arch_;
  const Binding& binding_;
  mutable LetValues lets_;
};

// The error of a let, by the name of the outermost.
[[noreturn]] void fail_in_let(const std::string& name, const ExpressionError& error) {
  const std::string_view what = error.what();
  throw ExpressionError(what.starts_with("let ") ? std::string(what) : fmt::format("let {}: {}", name, what), 0);
}

bool is_of_the_call(const Spec& spec, std::string_view name) {
  if (name == "form" || spec.attribute(name)) return true;
  for (const Dim& dim : spec.dims)
    if (dim.name == name) return true;
  for (const auto& [variable, types] : spec.types)
    if (variable == name) return true;
  return false;
}

}  // namespace

VariantScope::VariantScope(const Variant& v, const Arch& a, const Binding& b)
    : variant(v), arch(a), binding(b), specialisation_(v.specialize.size()), let_(v.let.size()), let_state_(v.let.size()) {}

void VariantScope::set_config(const Config& config) {
  config_ = &config;
  let_state_.assign(let_state_.size(), State::unknown);
  shared_.clear();
}

void VariantScope::close() {
  closed_ = true;
  let_state_.assign(let_state_.size(), State::unknown);
  shared_.clear();
}

Value VariantScope::specialisation(std::size_t index) const {
  auto& value = specialisation_[index];
  if (!value) value = variant.specialize[index].expression.evaluate(CallScope(arch, binding));
  return *value;
}

Value VariantScope::let(std::size_t index) const {
  if (let_state_[index] == State::evaluating) throw ExpressionError(fmt::format("let {} depends on itself", variant.let[index].name), 0);
  if (let_state_[index] == State::unknown) {
    let_state_[index] = State::evaluating;
    try {
      let_[index] = variant.let[index].expression.evaluate(*this);
    } catch (const ExpressionError& e) {
      let_state_[index] = State::unknown;
      fail_in_let(variant.let[index].name, e);
    }
    let_state_[index] = State::known;
  }
  return let_[index];
}

Value VariantScope::shared(const SharedLet& let) const {
  for (const SharedValue& each : shared_) {
    if (each.let != &let) continue;
    if (each.state == State::known) return each.value;
    if (each.state == State::evaluating) throw ExpressionError(fmt::format("let {} depends on itself", let.name), 0);
  }
  const std::size_t at = shared_.size();
  shared_.push_back({&let, State::evaluating, {}});
  try {
    Value value = let.expression.evaluate(*this);  // others may be added to the list meanwhile
    shared_[at] = {&let, State::known, value};
    return value;
  } catch (const ExpressionError& e) {
    shared_[at].state = State::unknown;
    fail_in_let(let.name, e);
  }
}

std::vector<std::pair<const SharedLet*, Value>> VariantScope::shared_lets() const {
  std::vector<std::pair<const SharedLet*, Value>> known;
  for (const SharedValue& each : shared_)
    if (each.state == State::known) known.emplace_back(each.let, each.value);
  return known;
}

std::optional<Value> VariantScope::lookup(std::string_view name) const {
  if (config_) {
    for (const auto& [parameter, value] : *config_)
      if (same_name(parameter, name)) return value;
    for (std::size_t i = 0; i < variant.let.size(); ++i)
      if (same_name(variant.let[i].name, name)) return let(i);
  }
  for (std::size_t i = 0; i < variant.specialize.size(); ++i)
    if (same_name(variant.specialize[i].name, name)) return specialisation(i);
  if (const SharedLet* const each = binding.spec->server().shared_let(name)) return shared(*each);
  if (closed_) refuse_measured(name, MayFollow::nothing_measured);
  if (auto value = arch_value(arch, name)) return value;
  if (!closed_) return binding.lookup(name);
  if (is_of_the_call(binding.spec->server(), name))
    throw ExpressionError(
        fmt::format("{} is a fact of the call, not of the image, which serves many calls; name it in the variant's specialize", name), 0);
  std::vector<std::string> known;
  for (const Named& each : variant.specialize) known.push_back(each.name);
  for (const ConfigParameter& each : variant.config) known.push_back(each.name);
  for (const Named& each : variant.let) known.push_back(each.name);
  for (const Named& each : binding.spec->server().let) known.push_back(each.name);
  throw ExpressionError(fmt::format("unknown name '{}'{}", name, suggestion(name, known)), 0);
}

std::optional<Value> VariantScope::call(std::string_view function, std::string_view name, std::span<const Value> rest) const {
  if (!closed_) return binding.call(function, name, rest);
  throw ExpressionError(
      fmt::format("{}({}) is a fact of the call, not of the image, which serves many calls; name it in the variant's specialize", function,
                  name),
      0);
}

}  // namespace ejk::spec

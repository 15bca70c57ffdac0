// Look-ups in the spec model.
#include "spec/model.hpp"

#include <mutex>

namespace ejk::spec {
namespace {

template <class Items>
const typename Items::value_type* named(const Items& items, std::string_view name) {
  for (const auto& item : items)
    if (item.name == name) return &item;
  return nullptr;
}

}  // namespace

struct Cases::State {
  std::function<std::vector<Case>()> read;
  std::once_flag once;
  std::vector<Case> cases;
};

Cases::Cases(std::vector<Case> cases) : Cases([] { return std::vector<Case>(); }) {
  std::call_once(state_->once, [&] { state_->cases = std::move(cases); });
}

Cases::Cases(std::function<std::vector<Case>()> read) : state_(std::make_shared<State>()) { state_->read = std::move(read); }

const std::vector<Case>& Cases::all() const {
  std::call_once(state_->once, [this] { state_->cases = state_->read(); });
  return state_->cases;
}

bool SameAs::fixed(std::string_view attribute) const { return named(attributes, attribute) != nullptr; }

const TensorSpec* Spec::tensor(std::string_view name) const { return named(tensors, name); }
const Output* Spec::output(std::string_view name) const { return named(outputs, name); }
const Attribute* Spec::attribute(std::string_view name) const { return named(attributes, name); }
const SharedLet* Spec::shared_let(std::string_view name) const { return named(let, name); }
const Variant* Spec::variant(std::string_view name) const { return named(variants, name); }
const Case* Spec::find_case(std::string_view name) const { return named(cases, name); }

std::string Argument::parameter_name() const {
  return kind == Kind::view ? name + "_view" : kind == Kind::tensor_map ? name + "_map" : name;
}

bool Arch::tests_only() const {
  const auto found = properties.find("tests_only");
  const bool* value = found == properties.end() ? nullptr : std::get_if<bool>(&found->second);
  return value && *value;
}

}  // namespace ejk::spec

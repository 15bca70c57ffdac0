// Look-ups in the spec model.
#include "spec/model.hpp"

#include <algorithm>
#include <mutex>

#include "spec/expression/same_name.hpp"

namespace ejk::spec {
namespace {

template <class Items>
const typename Items::value_type* named(const Items& items, std::string_view name) {
  for (const auto& item : items)
    if (same_name(item.name, name)) return &item;
  return nullptr;
}

}  // namespace

bool Shape::fits(std::size_t rank) const { return has_rest() ? rank + 1 >= extents.size() : rank == extents.size(); }

std::size_t Shape::rest() const {
  const auto found = std::find_if(extents.begin(), extents.end(), [](const Extent& extent) { return extent.kind == Extent::Kind::rest; });
  return static_cast<std::size_t>(found - extents.begin());
}

std::size_t Shape::dimension_of(std::size_t extent, std::size_t rank) const {
  return extent <= rest() ? extent : rank - (extents.size() - extent);
}

const Extent& Shape::extent_of(std::size_t dimension, std::size_t rank) const {
  if (dimension < rest()) return extents[dimension];
  const std::size_t behind = rank - dimension;  // dimensions from this one to the last
  return extents[std::max(rest(), extents.size() < behind ? std::size_t{0} : extents.size() - behind)];
}

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

struct Variants::State {
  std::vector<Variant> list;
  std::vector<bool> left;
  std::function<Variants()> read;
  std::once_flag once;  // of what was left
};

Variants::Variants(std::vector<Variant> variants) : Variants(std::move(variants), {}, {}) {}

Variants::Variants(std::vector<Variant> some, std::vector<bool> left, std::function<Variants()> read) : state_(std::make_shared<State>()) {
  state_->list = std::move(some);
  state_->left = std::move(left);
  state_->read = std::move(read);
}

// What was read at first stays where it is: calls on CPUs use it meanwhile.
const std::vector<Variant>& Variants::all() const {
  if (is_whole()) return state_->list;
  std::call_once(state_->once, [this] {
    const Variants whole = state_->read();
    for (std::size_t i = 0; i < state_->left.size(); ++i)
      if (state_->left[i]) state_->list[i] = whole.at(i);
  });
  return state_->list;
}

std::vector<const Variant*> Variants::ready() const {
  std::vector<const Variant*> variants;
  for (std::size_t i = 0; i < state_->list.size(); ++i)
    if (is_whole() || !state_->left[i]) variants.push_back(&state_->list[i]);
  return variants;
}

bool Variants::is_whole() const { return state_->left.empty(); }

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

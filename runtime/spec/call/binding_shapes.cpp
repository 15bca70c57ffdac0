// Binding a call: presence, ranks, strides, and dims from shapes.
#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "spec/call/binder.hpp"

namespace ejk::spec {
namespace {

// From the first element to the last must fit 64 bits; nothing after this check can overflow.
bool fits_memory(const TensorFacts& facts) {
  std::int64_t total = size_of(facts.type);
  for (std::size_t i = 0; i < facts.shape.size(); ++i) {
    std::int64_t reach = 0;
    if (facts.shape[i] <= 1) continue;
    if (facts.strides[i] == std::numeric_limits<std::int64_t>::min()) return false;
    if (__builtin_mul_overflow(std::abs(facts.strides[i]), facts.shape[i] - 1, &reach)) return false;
    if (__builtin_mul_overflow(reach, size_of(facts.type), &reach) || __builtin_add_overflow(total, reach, &total)) return false;
  }
  return true;
}

void check_layout(const Binder& binder, const std::string& name, TensorFacts& facts) {
  if (facts.shape.size() > static_cast<std::size_t>(max_rank))
    binder.fail(fmt::format("{} has {} dimensions, expected at most {}", name, facts.shape.size(), max_rank));
  for (std::size_t i = 0; i < facts.shape.size(); ++i)
    if (facts.shape[i] < 0)
      binder.fail(fmt::format("{} has shape {}: dimension {} is {}, expected 0 or more", name, shape_text(facts.shape), i, facts.shape[i]));
  if (facts.strides.empty() && !row_major(facts.shape, facts.strides))
    binder.fail(fmt::format("{} has shape {}, more elements than 64 bits count", name, shape_text(facts.shape)));
  if (facts.strides.size() != facts.shape.size())
    binder.fail(fmt::format("{} has {} strides, expected {}, one a dimension of its shape {}", name, facts.strides.size(),
                            facts.shape.size(), shape_text(facts.shape)));
  if (is_empty(facts)) return;  // no element, so no stride matters
  if (!fits_memory(facts))
    binder.fail(fmt::format("{} has shape {} and strides {}, which span more than 2^63 bytes", name, shape_text(facts.shape),
                            shape_text(facts.strides)));
  if (!facts.shape.empty() && facts.shape.back() > 1 && facts.strides.back() != 1)
    binder.fail(fmt::format("{} has strides {}: the innermost is {}, expected 1 (copy it into a contiguous tensor)", name,
                            shape_text(facts.strides), facts.strides.back()));
}

// One tensor given, with the alternative of its shapes that it takes.
struct Bound {
  const TensorSpec* tensor;
  const Shape* shape;
  const TensorFacts* facts;

  std::size_t dimension(std::size_t extent) const { return shape->dimension_of(extent, facts->shape.size()); }
  std::int64_t size(std::size_t extent) const { return facts->shape[dimension(extent)]; }  // of an extent that is one dimension
};

class Dims {
 public:
  explicit Dims(Binder& binder) : binder_(binder), binding_(binder.binding) {}

  // Extents that are a dim, NAME + INT, or a rest: they bind on sight. A tensor that agrees with what is bound changes nothing.
  void plain(const Bound& bound) const {
    for (std::size_t i = 0; i < bound.shape->extents.size(); ++i) {
      const Extent& extent = bound.shape->extents[i];
      if (extent.kind == Extent::Kind::rest) {
        rest(bound, extent, i);
      } else if (extent.kind == Extent::Kind::dim) {
        meet(bound, extent, i, bound.size(i));
      } else if (extent.kind == Extent::Kind::expression && !extent.dim.empty()) {
        if (bound.size(i) < extent.plus) mismatch(bound, i, "", fmt::format("{}, expected at least {}", bound.size(i), extent.plus));
        meet(bound, extent, i, bound.size(i) - extent.plus);
      }
    }
  }

  // "B|1" where nothing else binds B: larger ones first, so that a 1 beside them broadcasts. A 1 does not bind a dim with a definition.
  void broadcast(const Bound& bound, bool ones) const {
    for (std::size_t i = 0; i < bound.shape->extents.size(); ++i) {
      const Extent& extent = bound.shape->extents[i];
      if (extent.kind != Extent::Kind::dim_or_one) continue;  // a rest may have no dimension
      const std::int64_t found = bound.size(i);
      if ((found == 1) != ones) continue;
      if (found == 1 && (binding_.dims.count(extent.dim) || is_defined(extent.dim))) continue;
      meet(bound, extent, i, found);
    }
  }

  // Extents that follow from other dims.
  void expressions(const Bound& bound) const {
    for (std::size_t i = 0; i < bound.shape->extents.size(); ++i) {
      const Extent& extent = bound.shape->extents[i];
      if (extent.kind != Extent::Kind::expression || !extent.dim.empty()) continue;
      std::int64_t expected = 0;
      try {
        expected = extent.expression.integer(binding_);
      } catch (const ExpressionError& e) {
        binder_.fail(fmt::format("the extent `{}` of {} has no value: {}", extent.text, bound.tensor->name, e.what()));
      }
      if (bound.size(i) == expected) continue;
      const bool is_number = extent.text == std::to_string(expected);
      mismatch(bound, i, is_number ? "" : fmt::format(" with {} = {}", extent.text, expected), std::to_string(bound.size(i)));
    }
  }

 private:
  bool is_defined(const std::string& name) const {
    return std::any_of(binder_.spec.dims.begin(), binder_.spec.dims.end(), [&](const Dim& dim) { return dim.name == name && dim.value; });
  }

  [[noreturn]] void mismatch(const Bound& bound, std::size_t i, const std::string& with, const std::string& found) const {
    binder_.fail(fmt::format("{} has shape {}, expected {}{}: dimension {} is {}", bound.tensor->name, shape_text(bound.facts->shape),
                             shape_text(*bound.shape), with, bound.dimension(i), found));
  }

  std::string known(const std::string& dim, const std::string& value) const {
    const auto origin = binder_.origins.find(dim);
    return fmt::format(" with {} = {} (from {})", dim, value, origin == binder_.origins.end() ? "the call" : origin->second);
  }

  void meet(const Bound& bound, const Extent& extent, std::size_t i, std::int64_t value) const {
    const auto [known_dim, fresh] = binding_.dims.emplace(extent.dim, value);
    if (fresh) binder_.origins[extent.dim] = bound.tensor->name;
    if (known_dim->second != value) mismatch(bound, i, known(extent.dim, std::to_string(known_dim->second)), std::to_string(bound.size(i)));
  }

  void rest(const Bound& bound, const Extent& extent, std::size_t first) const {
    const auto begin = bound.facts->shape.begin() + static_cast<std::ptrdiff_t>(first);
    const bool trailing = first + 1 == bound.shape->extents.size();
    const std::vector<std::int64_t> dims(begin,
                                         begin + static_cast<std::ptrdiff_t>(bound.facts->shape.size() + 1 - bound.shape->extents.size()));
    std::int64_t product = 1;
    for (const std::int64_t dim : dims)
      if (__builtin_mul_overflow(product, dim, &product))
        binder_.fail(fmt::format("{} has shape {}: the product of the dimensions that make {} overflows 64 bits", bound.tensor->name,
                                 shape_text(bound.facts->shape), extent.dim));
    const auto [rests, fresh] = binding_.rests.emplace(extent.dim, dims);
    const auto [total, unbound] = binding_.dims.emplace(extent.dim, product);
    if (unbound) binder_.origins[extent.dim] = bound.tensor->name;
    const bool agrees = fresh ? total->second == product : rests->second == dims;
    if (agrees) return;
    const std::string value = fresh ? std::to_string(total->second) : shape_text(rests->second);
    binder_.fail(fmt::format("{} has shape {}, expected {}{}: its {} are {}", bound.tensor->name, shape_text(bound.facts->shape),
                             shape_text(*bound.shape), known(extent.dim, value),
                             trailing ? "trailing dimensions" : fmt::format("dimensions `{}`", extent.text), shape_text(dims)));
  }

  Binder& binder_;
  Binding& binding_;
};

}  // namespace

bool is_empty(const TensorFacts& facts) { return std::find(facts.shape.begin(), facts.shape.end(), 0) != facts.shape.end(); }

bool row_major(const std::vector<std::int64_t>& shape, std::vector<std::int64_t>& strides) {
  strides.assign(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    if (__builtin_mul_overflow(strides[i], std::max<std::int64_t>(shape[i], 1), &strides[i - 1])) return false;
  return true;
}

bool takes_form(const Shape& shape, std::string_view form) {
  if (shape.form.empty()) return true;
  std::string_view list = shape.form;
  while (!list.empty()) {
    const std::size_t bar = list.find('|');
    if (list.substr(0, bar) == form) return true;
    list.remove_prefix(bar == std::string_view::npos ? list.size() : bar + 1);
  }
  return false;
}

const Shape* shape_for(const TensorSpec& tensor, std::string_view form, std::size_t rank) {
  for (const Shape& shape : tensor.shapes) {
    if (takes_form(shape, form) && shape.fits(rank)) return &shape;
  }
  return nullptr;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const Extent& extent : shape.extents) text += (text.empty() ? "" : ", ") + extent.text;
  return "[" + text + "]";
}

std::string expected_shapes(const TensorSpec& tensor, std::string_view form) {
  std::string text;
  for (const Shape& shape : tensor.shapes)
    if (takes_form(shape, form)) text += (text.empty() ? "" : " or ") + shape_text(shape);
  return text;
}

void Binder::check_tensors() {
  const std::string in_form = binding.form.empty() ? "" : fmt::format(" in the {} form", binding.form);
  for (const TensorSpec& tensor : spec.tensors) {
    const std::string expected = expected_shapes(tensor, binding.form);
    const auto given = binding.facts.tensors.find(tensor.name);
    const bool taken = std::any_of(tensor.shapes.begin(), tensor.shapes.end(), [&](const Shape& s) { return takes_form(s, binding.form); });
    if (given == binding.facts.tensors.end()) {
      if (taken && !tensor.optional && !tensor.output)
        fail(fmt::format("input {} is missing{}, expected {}", tensor.name, in_form, expected));
      continue;
    }
    if (!taken) fail(fmt::format("{} is given, but it is not accepted{}", tensor.name, in_form));
    TensorFacts& facts = given->second;
    check_layout(*this, tensor.name, facts);
    if (!shape_for(tensor, binding.form, facts.shape.size()))
      fail(fmt::format("{} has shape {}, expected {}: it has {} dimension{}", tensor.name, shape_text(facts.shape), expected,
                       facts.shape.size(), facts.shape.size() == 1 ? "" : "s"));
  }
}

void Binder::bind_dims() {
  std::vector<Bound> inputs, outputs;
  const auto check_same = [&](const Bound& bound) {  // {"same_as": "x"}
    const auto model = binding.facts.tensors.find(bound.shape->same_as);
    if (model == binding.facts.tensors.end() || model->second.shape == bound.facts->shape) return;
    fail(fmt::format("{} has shape {}, expected {}, the shape of {}", bound.tensor->name, shape_text(bound.facts->shape),
                     shape_text(model->second.shape), model->first));
  };
  for (const TensorSpec& tensor : spec.tensors) {
    const auto given = binding.facts.tensors.find(tensor.name);
    if (given == binding.facts.tensors.end()) continue;
    const Shape* shape = shape_for(tensor, binding.form, given->second.shape.size());
    (tensor.output ? outputs : inputs).push_back({&tensor, shape, &given->second});
  }
  for (const Bound& each : inputs) check_same(each);
  for (const Bound& each : outputs) check_same(each);
  const Dims dims(*this);
  const auto bind_all = [&](const std::vector<Bound>& list, bool strict) {
    for (const Bound& each : list) dims.plain(each);
    for (const bool ones : {false, true})
      for (const Bound& each : list) dims.broadcast(each, ones);
    derive_dims(strict);
    for (const Bound& each : list) dims.expressions(each);
  };
  bind_all(inputs, true);
  bind_all(outputs, false);
}

// strict: a dim that the shapes bound too must agree with its definition.
void Binder::derive_dims(bool strict) {
  for (bool progress = true; progress;) {
    progress = false;
    for (const Dim& dim : spec.dims) {
      if (!dim.value) continue;
      const auto known = binding.dims.find(dim.name);
      if (known != binding.dims.end() && !strict) continue;
      std::int64_t value = 0;
      try {
        value = dim.value.integer(binding);
      } catch (const ExpressionError&) {
        continue;  // needs data or a dim that this call does not have; a use of it says so
      }
      if (known == binding.dims.end()) {
        binding.dims.emplace(dim.name, value);
        origins[dim.name] = fmt::format("its definition {}", dim.value.text());
        progress = true;
      } else if (known->second != value) {
        fail(fmt::format("{} = {} (from {}), but its definition {} gives {}", dim.name, known->second, origins[dim.name], dim.value.text(),
                         value));
      }
    }
  }
}

}  // namespace ejk::spec

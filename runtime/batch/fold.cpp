// Folding: first the strides, then what the spec says of the bits.
#include "batch/fold.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "execute/bound_call.hpp"
#include "execute/facts.hpp"

namespace ejk {
namespace {

// One dimension made of two: `count` steps outside, `size` inside. nullopt: memory does not lie so.
struct Dimension {
  std::int64_t size, stride;
};
std::optional<Dimension> merged(std::int64_t count, std::int64_t outer_stride, Dimension inner) {
  std::int64_t size = 0, step = 0;
  if (__builtin_mul_overflow(count, inner.size, &size)) return std::nullopt;
  if (count == 1 || inner.size == 0) return Dimension{size, inner.stride};
  if (inner.size == 1) return Dimension{size, outer_stride};
  if (__builtin_mul_overflow(inner.size, inner.stride, &step) || step != outer_stride) return std::nullopt;
  return Dimension{size, inner.stride};
}

// Where the batch dim stands in a tensor's shape.
struct Place {
  int index;
  bool or_one;  // "B|1"
};
std::optional<Place> batch_place(const spec::TensorSpec& tensor, const spec::Binding& binding, const std::string& dim, int rank) {
  const auto dimensions = static_cast<std::size_t>(rank);
  const auto* shape = spec::shape_for(tensor, binding.form, dimensions);
  for (std::size_t i = 0; shape && i < shape->extents.size(); ++i) {
    const auto& extent = shape->extents[i];
    const bool whole = extent.kind == spec::Extent::Kind::dim || extent.kind == spec::Extent::Kind::dim_or_one;
    if (whole && extent.dim == dim)
      return Place{static_cast<int>(shape->dimension_of(i, dimensions)), extent.kind == spec::Extent::Kind::dim_or_one};
  }
  return std::nullopt;
}

// The tensor of the one call, or why there is none.
class Folder {
 public:
  Folder(const spec::Binding& binding, std::int64_t calls)
      : binding_(binding), dim_(binding.spec->batch.dim), calls_(calls), size_(binding.dims.at(dim_)) {}

  std::optional<TensorView> tensor(const std::string& name, const MappedTensor& mapped, std::string& why_not) const {
    auto view = mapped.one;
    const auto place = batch_place(*binding_.spec->tensor(name), binding_, dim_, view.rank);
    if (!place && !mapped.mapped) return view;
    if (!place) {
      why_not = fmt::format("{} is mapped, but has no dim {}", name, dim_);
      return std::nullopt;
    }
    const Dimension inner{view.shape[place->index], view.strides[place->index]};
    if (place->or_one && inner.size == 1 && !mapped.mapped) return view;  // shared by all, as it is
    const bool repeats = inner.size != size_ && calls_ > 1;               // one entry for the `size_` of a call: no single stride
    const auto whole = repeats ? std::nullopt : merged(calls_, mapped.stride, inner);
    if (!whole) {
      why_not = mapped.mapped ? fmt::format("the mapped axis of {} (stride {}) and {} ({} of stride {}) are not one strided dimension",
                                            name, mapped.stride, dim_, inner.size, inner.stride)
                              : fmt::format("{} is shared by the calls, but has {} entries of {}", name, inner.size, dim_);
      return std::nullopt;
    }
    view.shape[place->index] = whole->size;
    view.strides[place->index] = whole->stride;
    return view;
  }

 private:
  const spec::Binding& binding_;
  const std::string& dim_;
  std::int64_t calls_, size_;
};

std::string unequal(const spec::Fold& fold, const spec::VariantScope& one, const spec::VariantScope& all) {
  for (const auto* scope : {&one, &all})
    if (fold.condition && !fold.condition.boolean(*scope))
      return fmt::format("the variant's condition `{}` does not hold", fold.condition.text());
  for (const auto& expression : fold.same) {
    const auto alone = expression.evaluate(one), together = expression.evaluate(all);
    if (alone != together)
      return fmt::format("`{}` would be {}, and is {} for a call alone: the bits could differ", expression.text(), spec::to_text(together),
                         spec::to_text(alone));
  }
  return {};
}

// "" if the folded call gives each call the bits it has alone.
std::string bits_differ(const Machine& machine, const spec::Binding& one, const spec::Binding& all, const Config& config) {
  std::string reason;
  const spec::Request request{config.variant, config.arch, config.values};
  const auto alone = decider_of(machine, one).complete(request, reason), together = decider_of(machine, all).complete(request, reason);
  if (!alone || !together) return fmt::format("the config of one call does not serve the folded one: {}", reason);
  const auto& variant = *alone->candidate.variant;
  if (!variant.fold) return fmt::format("variant '{}' does not say that folding keeps the bits", variant.name);
  spec::VariantScope one_scope(variant, *alone->candidate.arch, one), all_scope(variant, *together->candidate.arch, all);
  one_scope.set_config(alone->config);
  all_scope.set_config(together->config);
  if (spec::image_id(one_scope, alone->config) != spec::image_id(all_scope, together->config)) return "the folded call has another image";
  return unequal(*variant.fold, one_scope, all_scope);
}

}  // namespace

std::optional<std::map<std::string, TensorView>> folded(const KernelHandle& kernel, const Machine& machine, const Mapped& mapped,
                                                        const Values& attributes, const spec::Binding& binding, const Config& config,
                                                        std::string& why_not) {
  const auto& spec = *kernel.spec;
  const auto& dim = spec.batch.dim;
  if (dim.empty() || !binding.dims.contains(dim)) {
    why_not = dim.empty() ? "the kernel has no batch dim" : fmt::format("the call has no dim {}", dim);
    return std::nullopt;
  }
  if (spec.batch.condition && !spec.batch.condition.boolean(binding)) {
    why_not = fmt::format("calls are not independent along {}: `{}` does not hold", dim, spec.batch.condition.text());
    return std::nullopt;
  }
  std::map<std::string, TensorView> tensors;
  const Folder folder(binding, mapped.calls);
  for (const auto& [name, tensor] : mapped.tensors) {
    const auto view = folder.tensor(name, tensor, why_not);
    if (!view) return std::nullopt;
    tensors.emplace(name, *view);
  }
  try {
    const auto arguments = positional(kernel, tensors, attributes);
    const auto all = spec::bind(spec, facts_of(kernel, arguments.tensors, arguments.attributes));
    why_not = bits_differ(machine, binding, all, config);
  } catch (const spec::CallError& error) {
    why_not = fmt::format("the folded call is not legal: {}", error.what());
  } catch (const spec::ExpressionError& error) {
    why_not = fmt::format("'fold' has no value: {}", error.what());
  }
  if (!why_not.empty()) return std::nullopt;
  return tensors;
}

}  // namespace ejk

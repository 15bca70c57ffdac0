// Takes the mapped axis out of each tensor.
#include "batch/mapped.hpp"

#include <algorithm>
#include <bit>

#include "describe/values.hpp"
#include "execute/facts.hpp"

namespace ejk {
namespace {

int axis_of(const std::string& name, const TensorView& view, int axis) {
  const int index = axis < 0 ? axis + view.rank : axis;
  if (index < 0 || index >= view.rank) refuse(fmt::format("axis {} of {} is not there: it has {} dimensions", axis, name, view.rank));
  return index;
}

TensorView without_axis(const TensorView& view, int axis) {
  auto result = view;
  std::copy(view.shape + axis + 1, view.shape + view.rank, result.shape + axis);
  std::copy(view.strides + axis + 1, view.strides + view.rank, result.strides + axis);
  --result.rank;
  return result;
}

std::int64_t alignment_of(std::uintptr_t address) { return std::int64_t{1} << std::min(address == 0 ? 6 : std::countr_zero(address), 6); }

}  // namespace

TensorView MappedTensor::at(std::int64_t index) const {
  auto view = one;
  if (view.data) view.data = static_cast<char*>(view.data) + index * stride * size_of(view.type);
  return view;
}

std::int64_t MappedTensor::alignment() const {
  const auto step = static_cast<std::uintptr_t>(stride * size_of(one.type));
  return std::min(alignment_of(reinterpret_cast<std::uintptr_t>(one.data)), alignment_of(step));
}

std::map<std::string, TensorView> Mapped::at(std::int64_t index) const {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.at(index));
  return views;
}

Mapped map_tensors(const KernelHandle& kernel, const std::map<std::string, TensorView>& tensors, const Axes& axes) {
  Mapped result;
  std::string first;
  for (const auto& [name, axis] : axes)
    if (!tensors.contains(name)) refuse(fmt::format("an axis is given for '{}', which is no tensor of the call", name));
  const auto updated = updated_memory(kernel, tensors);  // the input is there too
  for (const auto& [name, view] : tensors) {
    if (!view.given() || std::find(updated.begin(), updated.end(), name) != updated.end()) continue;
    if (view.rank > max_rank) refuse(fmt::format("{} has {} dimensions, expected at most {}", name, view.rank, max_rank));
    const auto chosen = axes.find(name);
    auto& tensor = result.tensors[name];
    tensor.one = view;
    const auto* spec = kernel.spec->tensor(name);
    const bool written = spec && spec->written();
    const char* const what = spec && spec->output ? "output" : "updated input";
    if (chosen != axes.end() && !chosen->second) {
      if (written) refuse(fmt::format("{} {} must be mapped: each call writes its own part", what, name));
      continue;
    }
    const int axis = axis_of(name, view, chosen == axes.end() ? 0 : *chosen->second);
    const auto size = view.shape[axis];
    if (!first.empty() && size != result.calls)
      refuse(fmt::format("the mapped axis of {} has {} entries, but that of {} has {}; all must have the same", name, size, first,
                         result.calls));
    tensor = {without_axis(view, axis), true, view.strides[axis]};
    if (written && tensor.stride == 0 && size > 1)
      refuse(fmt::format("the calls would all write the same memory: {} {} has stride 0 there", what, name));
    if (first.empty()) first = name;
    result.calls = size;
  }
  if (first.empty()) refuse("no tensor is mapped: give at least one an axis");
  return result;
}

}  // namespace ejk

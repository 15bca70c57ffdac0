// Looks for NaN in the outputs of a call.
#include "execute/output_check.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <vector>

#include "common/guard.hpp"
#include "execute/plan.hpp"

namespace ejk {
namespace {

template <class Bits>
Bits bits_at(const std::byte* element) {
  Bits bits;
  std::memcpy(&bits, element, sizeof bits);
  return bits;
}

enum class Class { finite, infinite, nan };

template <class Bits>
Class classify(Bits bits, Bits exponent, Bits fraction) {
  if ((bits & exponent) != exponent) return Class::finite;
  return bits & fraction ? Class::nan : Class::infinite;
}

Class class_of(DType type, const std::byte* element) {
  switch (type) {
    case DType::f32:
      return classify<std::uint32_t>(bits_at<std::uint32_t>(element), 0x7f800000u, 0x007fffffu);
    case DType::f64:
      return classify<std::uint64_t>(bits_at<std::uint64_t>(element), 0x7ff0000000000000u, 0x000fffffffffffffu);
    case DType::f16:
      return classify<std::uint16_t>(bits_at<std::uint16_t>(element), 0x7c00u, 0x03ffu);
    case DType::bf16:
      return classify<std::uint16_t>(bits_at<std::uint16_t>(element), 0x7f80u, 0x007fu);
    case DType::f8_e4m3:
      return (bits_at<std::uint8_t>(element) & 0x7f) == 0x7f ? Class::nan : Class::finite;
    default:
      return Class::finite;
  }
}

// The index of the first element for which `found` holds.
template <class Found>
std::optional<std::vector<std::int64_t>> find(const TensorView& view, const Found& found) {
  if (!is_floating(view.type) || view.elements() == 0) return std::nullopt;
  const auto rank = static_cast<std::size_t>(view.rank);
  std::vector<std::int64_t> index(rank, 0);
  for (;;) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < rank; ++i) offset += index[i] * view.strides[i];
    if (found(class_of(view.type, static_cast<const std::byte*>(view.data) + offset * size_of(view.type)))) return index;
    std::size_t axis = rank;
    while (axis > 0 && ++index[axis - 1] == view.shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return std::nullopt;
  }
}

bool readable(const TensorView* view) { return view && view->given() && view->device.type == DeviceType::cpu; }

}  // namespace

void check_outputs(const Plan& plan, const KernelHandle& kernel, std::span<const TensorView* const> tensors) {
  for (std::size_t i = 0; i < kernel.inputs; ++i)
    if (readable(tensors[i]) && find(*tensors[i], [](Class c) { return c != Class::finite; })) return;
  for (std::size_t i = kernel.inputs; i < tensors.size(); ++i) {
    if (!readable(tensors[i])) continue;
    if (const auto index = find(*tensors[i], [](Class c) { return c == Class::nan; }))
      throw CodedError(ErrorCode::internal,
                       fmt::format("{}: {} is NaN at [{}], though every input is finite (EJKERNEL_CHECK=on); image {}, config {}",
                                   kernel.name, kernel.spec->tensors[i].name, fmt::join(*index, ", "), plan.resolved.image.id,
                                   to_json(public_config({plan.resolved.candidate, plan.resolved.config}))));
  }
}

}  // namespace ejk

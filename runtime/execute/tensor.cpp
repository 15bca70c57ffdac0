// TensorView and Tensor of ejk/tensor.hpp.
#include "ejk/tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace ejk {
namespace {

std::span<const std::int64_t> span_of(std::initializer_list<std::int64_t> list) { return {list.begin(), list.size()}; }

}  // namespace

TensorView::TensorView(void* data_, DType type_, std::span<const std::int64_t> shape_) : data(data_), type(type_) {
  rank = static_cast<std::int8_t>(std::min<std::size_t>(shape_.size(), max_rank + 1));  // max_rank + 1 is refused by every call
  std::int64_t stride = 1;
  for (int i = std::min<int>(rank, max_rank) - 1; i >= 0; --i) {
    shape[i] = shape_[i];
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape_[i], 1);
  }
}

TensorView::TensorView(void* data_, DType type_, std::initializer_list<std::int64_t> shape_) : TensorView(data_, type_, span_of(shape_)) {}

TensorView::TensorView(void* data_, DType type_, std::span<const std::int64_t> shape_, std::span<const std::int64_t> strides_)
    : TensorView(data_, type_, shape_) {
  for (int i = 0; i < std::min<int>(rank, max_rank) && i < static_cast<int>(strides_.size()); ++i) strides[i] = strides_[i];
}

std::int64_t TensorView::elements() const {
  std::int64_t count = 1;
  for (int i = 0; i < rank && i < max_rank; ++i) count *= shape[i];
  return rank < 0 ? 0 : count;
}

Tensor::Tensor(DType type, std::span<const std::int64_t> shape) : view_(nullptr, type, shape) {
  const auto bytes = static_cast<std::size_t>(view_.elements()) * static_cast<std::size_t>(size_of(type));
  const auto padded = (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(64, padded));
  if (!data) throw std::bad_alloc();
  memory_ = std::shared_ptr<std::byte>(data, [](std::byte* p) { std::free(p); });
  view_.data = data;
}

Tensor::Tensor(DType type, std::initializer_list<std::int64_t> shape) : Tensor(type, span_of(shape)) {}

}  // namespace ejk

// TensorView and Tensor of ejk/tensor.hpp.
#include "ejk/tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

namespace ejk {
namespace {

// Throws std::bad_alloc where no memory has so many, or a dim is negative.
std::size_t bytes_of(DType type, std::span<const std::int64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t bytes = size_of(type);
  for (const auto dim : shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) throw std::bad_alloc();
  return static_cast<std::size_t>(bytes);
}

std::span<const std::int64_t> span_of(std::initializer_list<std::int64_t> list) { return {list.begin(), list.size()}; }

}  // namespace

TensorView::TensorView(void* data_, DType type_, std::span<const std::int64_t> shape_) : data(data_), type(type_) {
  rank = static_cast<std::int8_t>(std::min<std::size_t>(shape_.size(), max_rank + 1));  // max_rank + 1 is refused by every call
  std::int64_t stride = 1;
  for (int i = std::min<int>(rank, max_rank) - 1; i >= 0; --i) {
    shape[i] = shape_[i];
    strides[i] = stride;
    // What does not fit is refused by every call: no dim can step over it.
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape_[i], 1), &stride)) stride = std::numeric_limits<std::int64_t>::max();
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
  const auto padded = (std::max<std::size_t>(bytes_of(type, shape), 1) + 63) / 64 * 64;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(64, padded));
  if (!data) throw std::bad_alloc();
  memory_ = std::shared_ptr<std::byte>(data, [](std::byte* p) { std::free(p); });
  view_.data = data;
}

Tensor::Tensor(DType type, std::initializer_list<std::int64_t> shape) : Tensor(type, span_of(shape)) {}

}  // namespace ejk

// A copy of a tensor at strides of the test's choice, in sparse memory: only pages that hold elements exist.
#pragma once
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reference/host_tensor.hpp"

namespace ejk {

class PlacedTensor {
 public:
  // Strides in elements, of any sign; `misalign`: bytes that element 0 lies behind a page's start.
  PlacedTensor(const reference::HostTensor& tensor, std::vector<std::int64_t> strides, std::int64_t misalign = 0)
      : shape_(tensor.shape()), strides_(std::move(strides)), size_(size_of(tensor.type())) {
    std::int64_t low = 0, high = size_;
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      const auto reach = shape_[i] > 0 ? (shape_[i] - 1) * strides_[i] * size_ : 0;
      (reach < 0 ? low : high) += reach;
    }
    bytes_ = static_cast<std::size_t>(high - low + misalign);
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::runtime_error(std::string("mmap: ") + std::strerror(errno));
    auto* origin = static_cast<std::byte*>(memory_) + misalign - low;
    view_ = TensorView(origin, tensor.type(), shape_, strides_);
    const auto source = tensor.row_major_bytes();
    each([&](std::size_t at, std::byte* element) { std::memcpy(element, source.data() + at, static_cast<std::size_t>(size_)); });
  }
  PlacedTensor(const PlacedTensor&) = delete;
  PlacedTensor& operator=(const PlacedTensor&) = delete;
  ~PlacedTensor() { munmap(memory_, bytes_); }

  const TensorView& view() const { return view_; }

  void copy_back(reference::HostTensor& tensor) const {
    auto values = tensor.row_major_bytes();
    each([&](std::size_t at, const std::byte* element) { std::memcpy(values.data() + at, element, static_cast<std::size_t>(size_)); });
    tensor.assign_bytes(values);
  }

 private:
  // visit(byte offset in row-major order, the element's address)
  template <class Visit>
  void each(Visit visit) const {
    std::vector<std::int64_t> index(shape_.size(), 0);
    for (std::int64_t i = 0; i < view_.elements(); ++i) {
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * strides_[d];
      visit(static_cast<std::size_t>(i * size_), static_cast<std::byte*>(view_.data) + offset * size_);
      for (std::size_t d = index.size(); d-- > 0;) {
        if (++index[d] < shape_[d]) break;
        index[d] = 0;
      }
    }
  }

  std::vector<std::int64_t> shape_, strides_;
  std::int64_t size_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  TensorView view_;
};

}  // namespace ejk

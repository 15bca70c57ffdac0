// Boxes of tensors: which of a box's rows and columns lie in the tensor, and where its bytes lie in shared memory.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

// Where the box's bytes lie in shared memory. Rows follow each other; with a swizzle a row takes the swizzle's width, and chunks of 16
// bytes change places within 128 bytes, as address bits 7 to 9 say.
struct Swizzle {
  std::uint32_t width = 0;  // 0, 32, 64 or 128 bytes
  std::uint32_t place(std::uint32_t address) const { return width ? address ^ ((address >> 7 & (width / 16 - 1)) << 4) : address; }
};

// A row of a box: the columns [first, end) are in the tensor, where the first of them is at `memory`; none where first == end.
struct BoxRow {
  std::uint32_t number = 0;
  std::uint32_t first = 0, end = 0;
  char* memory = nullptr;
};

class Box {
 public:
  // Throws Fault if these are not a map's bytes or `rank` is not its own.
  Box(const TensorMap& map, int rank, const std::array<std::int32_t, 5>& at);

  std::uint32_t row_bytes() const { return columns_ * element_; }
  std::uint32_t pitch() const { return swizzle_.width ? swizzle_.width : row_bytes(); }
  std::uint32_t rows() const { return rows_; }
  std::uint32_t bytes() const { return rows_ * row_bytes(); }     // which arrive at an mbarrier
  std::uint32_t shared_bytes() const { return rows_ * pitch(); }  // which it takes in shared memory
  std::uint32_t element() const { return element_; }
  std::string_view type() const { return type_; }  // in words of PTX: "bf16"
  const Swizzle& swizzle() const { return swizzle_; }

  // Throws Fault if what the box has in common with the tensor is not allocated.
  void check(Grid& grid) const;
  BoxRow row(std::uint32_t number) const;

 private:
  struct Range {
    std::uint32_t first, end;  // of the box, in the tensor
  };
  Range range(int dim) const;
  std::uint64_t stride(int dim) const { return dim ? map_.strides[dim - 1] : element_; }
  std::uint64_t address_of(const std::array<std::uint32_t, 5>& in_box) const;

  TensorMap map_;
  std::array<std::int32_t, 5> at_;
  int rank_;
  std::uint32_t element_ = 0, columns_ = 0, rows_ = 1;
  std::string_view type_;
  Swizzle swizzle_;
};

}  // namespace ejk::ptx

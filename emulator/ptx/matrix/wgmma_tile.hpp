// Factors of wgmma in shared memory. (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout")
#pragma once
#include <cstdint>

#include "emulator/ptx/machine.hpp"

namespace ejk::ptx {

// A matrix descriptor's fields, in bytes.
struct WgmmaTile {
  explicit WgmmaTile(std::uint64_t descriptor);
  std::uint32_t start, leading, stride;
  std::uint32_t swizzle;  // 0, 32, 64 or 128
  std::uint32_t base;     // the row of the swizzle's pattern that an address at a multiple of 1024 has, modulo 8
};

// Copies pieces of 16 bytes, 16 for each group of 8 rows of A, or 8 columns of B, from `first` on, as MatrixProduct wants them: two bricks,
// or with `rows` 16 depths. Throws Fault if they reach beyond the CTA's shared memory.
void copy_tile(const Block& block, const WgmmaTile& tile, bool rows, int first, int groups, char* to);

}  // namespace ejk::ptx

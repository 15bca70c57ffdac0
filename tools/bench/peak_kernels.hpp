// The innermost loops behind measure_peaks, one set for each level of instructions.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ejk::tools {

struct PeakKernels {
  const char* name;
  bool (*runs_here)();
  // Does `rounds` rounds of independent multiply-adds; the result only keeps them alive.
  float (*multiply_add)(std::int64_t rounds);
  std::int64_t flops_a_round;
  // Reads bytes [0, size) of `memory`, a multiple of 512 bytes and 64-byte aligned.
  std::uint64_t (*read)(const std::byte* memory, std::size_t size);
};

// The best that runs here.
const PeakKernels& peak_kernels();

}  // namespace ejk::tools

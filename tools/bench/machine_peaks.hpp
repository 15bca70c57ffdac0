// What this machine can do at most, measured: multiply-adds, reading and copying memory.
#pragma once
#include <string>

namespace ejk::tools {

struct Peaks {
  int threads = 1;
  std::string instructions;  // "avx512f", "avx2+fma", "baseline"
  double flops = 0;          // f32 a second: fused multiply-adds on registers
  double read = 0;           // bytes a second: every byte of a large buffer once
  double copy = 0;           // bytes a second, read and written ones
  double buffer = 0;         // bytes of that buffer
};

// About half a second a call, most of it memory. Several calls may be joined with best_of.
Peaks measure_peaks(int threads);
Peaks best_of(const Peaks& a, const Peaks& b);

// Of the largest cache this process can see; 0: unknown.
double last_cache_bytes();

}  // namespace ejk::tools

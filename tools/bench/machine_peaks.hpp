// What this machine can do at most, measured: multiply-adds, reading and copying memory.
#pragma once
#include <memory>
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

// Measures them round by round, so that rounds may stand between others': what else runs on the machine then slows both alike. The best
// round of each counts.
class PeakMeter {
 public:
  explicit PeakMeter(int threads);  // takes memory and touches it
  ~PeakMeter();
  void measure(int rounds);  // some 50 ms a round
  const Peaks& peaks() const { return peaks_; }

 private:
  struct Buffer;
  std::unique_ptr<Buffer> buffer_;
  Peaks peaks_;
};

// By a meter of its own, in half a second.
Peaks measure_peaks(int threads);

// Of the largest cache this process can see; 0: unknown.
double last_cache_bytes();

}  // namespace ejk::tools

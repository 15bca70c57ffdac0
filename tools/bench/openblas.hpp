// OpenBLAS's sgemm, loaded at run time: what `ejk bench --against sgemm` compares with.
#pragma once
#include <string>
#include <vector>

namespace ejk::tools {

class OpenBlas {
 public:
  // path empty: libopenblas.so.0 of the system. Throws UsageError that says how to install it.
  explicit OpenBlas(const std::string& path);
  void set_threads(int threads);
  void sgemm();  // C = A B, all size x size
  // Its threads spin for a while after a call and would take cores from whatever is timed next: wait until they sleep.
  void rest() const;
  std::string description() const { return description_; }  // version and core it detected
  static constexpr int size = 2048;
  static constexpr double flops = 2.0 * size * size * size;

 private:
  using Gemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  void* symbol(const char* name) const;
  void* library_ = nullptr;  // never closed: its threads live on
  Gemm gemm_ = nullptr;
  void (*threads_)(int) = nullptr;
  std::string description_;
  std::vector<float> a_, b_, c_;
};

}  // namespace ejk::tools

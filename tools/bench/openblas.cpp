// OpenBLAS by dlopen.
#include "bench/openblas.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "backends/cpu/cpu_features.hpp"
#include "command_line/arguments.hpp"
#include "reference/random.hpp"

namespace ejk::tools {
namespace {

constexpr int row_major = 101, no_transpose = 111;         // cblas.h
constexpr auto spin_time = std::chrono::milliseconds(40);  // 2^26 cycles, OpenBLAS's THREAD_TIMEOUT

// OpenBLAS 0.3.21 knows CPUs by model numbers and takes new ones for very old ones: tell it what AVX-512 means, unless the user did.
void name_the_core() {
  const auto features = cpu_features();
  if (features.contains("avx512f") && features.contains("avx512bw") && features.contains("avx512vl"))
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
}

void fill(std::vector<float>& values, const char* name) {
  auto rng = reference::Rng::stream(1, name);
  for (auto& value : values) value = static_cast<float>(rng.uniform()) - 0.5f;
}

}  // namespace

OpenBlas::OpenBlas(const std::string& path) : a_(size * size), b_(size * size), c_(size * size) {
  name_the_core();
  const std::string file = path.empty() ? "libopenblas.so.0" : path;
  library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_)
    throw UsageError(fmt::format(
        "--against sgemm needs OpenBLAS, and {} cannot be loaded: {}. Install it (apt-get install libopenblas0-pthread), or name "
        "the library with --openblas PATH",
        file, dlerror()));
  gemm_ = reinterpret_cast<Gemm>(symbol("cblas_sgemm"));
  threads_ = reinterpret_cast<void (*)(int)>(symbol("openblas_set_num_threads"));
  const auto config = reinterpret_cast<char* (*)()>(symbol("openblas_get_config"));
  const auto core = reinterpret_cast<char* (*)()>(symbol("openblas_get_corename"));
  description_ = fmt::format("{}, core {}", config(), core());
  fill(a_, "a");
  fill(b_, "b");
}

void* OpenBlas::symbol(const char* name) const {
  void* found = dlsym(library_, name);
  if (!found) throw UsageError(fmt::format("--openblas: the library has no {}: is it OpenBLAS, built with CBLAS?", name));
  return found;
}

void OpenBlas::set_threads(int threads) { threads_(threads); }

void OpenBlas::sgemm() {
  gemm_(row_major, no_transpose, no_transpose, size, size, size, 1.0f, a_.data(), size, b_.data(), size, 0.0f, c_.data(), size);
}

void OpenBlas::rest() const { std::this_thread::sleep_for(spin_time); }

}  // namespace ejk::tools

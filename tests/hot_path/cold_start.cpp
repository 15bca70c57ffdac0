// A process that makes one call and ends: what a cold start costs. Prints the milliseconds from STARTED (CLOCK_MONOTONIC, in nanoseconds,
// as the one who starts it reads it) to the end of its first launch; fails if anything was compiled or something else than asked for ran.
//   cold_start STORE KERNEL STARTED
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <ejk/ejk.hpp>

namespace {

using Tensors = std::map<std::string, ejk::TensorView>;

ejk::Tensor zeros(std::initializer_list<std::int64_t> shape) {
  ejk::Tensor tensor(ejk::DType::f32, shape);
  std::size_t bytes = sizeof(float);
  for (const auto extent : shape) bytes *= static_cast<std::size_t>(extent);
  std::memset(tensor.view().data, 0, bytes);
  return tensor;
}

ejk::Status call(const std::string& kernel) {
  if (kernel == "mean_pooling") {
    const auto x = zeros({4, 16, 384}), out = zeros({4, 384});
    return ejk::call(kernel, {{"x", x.view()}, {"out", out.view()}}, {});
  }
  const auto q = zeros({1, 64, 2, 64}), k = zeros({1, 64, 2, 64}), v = zeros({1, 64, 2, 64}), out = zeros({1, 64, 2, 64});
  const Tensors tensors = {{"q", q.view()}, {"k", k.view()}, {"v", v.view()}, {"out", out.view()}};
  return ejk::call(kernel, tensors, {{"causal", ejk::Value(true)}});
}

int report(const ejk::Status& status) {
  if (!status) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status ? 0 : 2;
}

}  // namespace

int main(int count, char** values) {
  if (count != 4) return std::fputs("usage: cold_start STORE KERNEL STARTED\n", stderr), 2;
  if (const int code = report(ejk::add_store(values[1]))) return code;
  if (const int code = report(call(values[2]))) return code;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto counters = ejk::counters();
  std::printf("%.3f\n", (static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec) - std::atof(values[3])) / 1e6);
  return counters.compiles || counters.fallbacks ? 1 : 0;
}

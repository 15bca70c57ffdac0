// Images and archs for the CUDA tests, and the compiler where it is.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "backends/cuda/cuda_compile.hpp"
#include "spec/render/sha256.hpp"

namespace ejk::cuda {

inline constexpr const char* cuda_archs[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"};

inline spec::Arch cuda_arch(const std::string& name) {
  spec::Arch arch;
  arch.name = name;
  arch.platform = "cuda";
  return arch;
}

inline spec::Image cuda_image(const std::string& source, const std::string& arch = "sm_90a") {
  spec::Image image;
  image.kernel = "toy";
  image.variant = "gpu";
  image.arch = "cuda:" + arch;
  image.id = "toy.gpu.cuda_" + arch;
  image.source = source;
  image.hash = spec::sha256_hex(source).substr(0, 16);
  return image;
}

inline const std::string small_source =
    "extern \"C\" __global__ void __launch_bounds__(128) fill(float* out, long long n) {\n"
    "  __shared__ float row[256];\n"
    "  row[threadIdx.x] = 1;\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x < n) out[threadIdx.x] = row[127 - threadIdx.x];\n"
    "}\n";

// 64 live values a thread under a bound that leaves 32 registers.
inline const std::string spilling_source =
    "extern \"C\" __global__ void __launch_bounds__(1024, 2) scale(float* p) {\n"
    "  float a[64];\n"
    "  for (int i = 0; i < 64; ++i) a[i] = p[i * 1024 + threadIdx.x];\n"
    "  for (int r = 0; r < 8; ++r)\n"
    "    for (int i = 0; i < 64; ++i) a[i] = a[i] * a[(i + r) % 64] + p[r];\n"
    "  for (int i = 0; i < 64; ++i) p[i * 1024 + threadIdx.x] = a[i];\n"
    "}\n";

// A sum that a product still writes is read: ptxas makes the products wait for each other.
inline const std::string serialised_source =
    "extern \"C\" __global__ void __launch_bounds__(128, 1) multiply(float* out, unsigned long long a, unsigned long long b, int n) {\n"
    "  float d[4] = {0, 0, 0, 0};\n"
    "  for (int i = 0; i < n; ++i) {\n"
    "    asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
    "    asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\"\n"
    "                 : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"l\"(a), \"l\"(b));\n"
    "    asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"
    "    d[0] += 1;\n"
    "    asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
    "  }\n"
    "  for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = d[i];\n"
    "}\n";

// Registers change hands, and no launch bound says how many there are.
inline const std::string unbounded_source =
    "extern \"C\" __global__ void share(float* out) {\n"
    "  if (threadIdx.x < 128)\n"
    "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 24;\");\n"
    "  else\n"
    "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 240;\");\n"
    "  out[threadIdx.x] = 1;\n"
    "}\n";

// A backend as the process's own is: for ever.
inline Backend& lasting(std::unique_ptr<Backend> backend) {
  static auto* all = new std::vector<std::unique_ptr<Backend>>;
  return *all->emplace_back(std::move(backend));
}

#define NEEDS_NVRTC() \
  if (!nvrtc().found()) GTEST_SKIP() << nvrtc().why_not

}  // namespace ejk::cuda

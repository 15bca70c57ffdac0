// Images and archs for the HIP tests, and the compilers where they are.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "backends/hip/hip.hpp"
#include "backends/hip/hip_compile.hpp"
#include "spec/render/sha256.hpp"

namespace ejk::hip {

inline constexpr const char* hip_archs[] = {"gfx90a", "gfx942", "gfx1100", "gfx1200"};

inline spec::Arch hip_arch(const std::string& name) {
  spec::Arch arch;
  arch.name = name;
  arch.platform = "hip";
  return arch;
}

inline spec::Image hip_image(const std::string& source, const std::string& arch = "gfx90a") {
  spec::Image image;
  image.kernel = "toy";
  image.variant = "gpu";
  image.arch = "hip:" + arch;
  image.id = "toy.gpu.hip_" + arch;
  image.source = source;
  image.hash = spec::sha256_hex(source).substr(0, 16);
  return image;
}

inline const std::string small_source =
    "#ifndef __global__\n#define __global__ __attribute__((global))\n#define __shared__ __attribute__((shared))\n#endif\n"
    "extern \"C\" __global__ void __attribute__((amdgpu_flat_work_group_size(1, 128))) fill(float* out, long long n) {\n"
    "  __shared__ float row[256];\n"
    "  int i = __builtin_amdgcn_workitem_id_x();\n"
    "  row[i] = 1;\n"
    "  __builtin_amdgcn_s_barrier();\n"
    "  if (i < n) out[i] = row[127 - i];\n"
    "}\n";

// 128 live values a lane in 32 registers. On CDNA they go into accumulation registers, which is no spill.
inline const std::string spilling_source =
    "#ifndef __global__\n#define __global__ __attribute__((global))\n#endif\n"
    "extern \"C\" __global__ void __attribute__((amdgpu_flat_work_group_size(1024, 1024), amdgpu_num_vgpr(32))) scale(float* p) {\n"
    "  float a[128];\n"
    "  int t = __builtin_amdgcn_workitem_id_x();\n"
    "  for (int i = 0; i < 128; ++i) {\n"
    "    a[i] = p[i * 1024 + t];\n"
    "    asm volatile(\"\" : \"+v\"(a[i]));\n"
    "  }\n"
    "  __builtin_amdgcn_s_barrier();\n"
    "  for (int i = 0; i < 128; ++i) p[i * 1024 + t] = a[i];\n"
    "}\n";

// A backend as the process's own is: for ever.
inline Backend& lasting(std::unique_ptr<Backend> backend) {
  static auto* all = new std::vector<std::unique_ptr<Backend>>;
  return *all->emplace_back(std::move(backend));
}

#define NEEDS_CLANG(arch) \
  if (const auto clang = clang_for(arch); !clang->found()) GTEST_SKIP() << clang->why_not
#define NEEDS_HIPRTC() \
  if (!hiprtc().found()) GTEST_SKIP() << hiprtc().why_not

}  // namespace ejk::hip

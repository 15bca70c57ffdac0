// The kernels' GPU templates with one word changed: a barrier less, a wrong lane, an offset too far. Every one must be found, or the
// emulator and the references would not find the same mistake in a new kernel. A table for each family of kernels, mutants_<family>.cpp;
// removals that change nothing are not listed.
#pragma once
#include <gtest/gtest.h>

#include "emulator/trial.hpp"
#include "tests/paths.hpp"

namespace ejk::kernel_mutants {

struct Mutant {
  const char* name;
  Subject subject;
  Mutation mutation;
  friend void PrintTo(const Mutant& mutant, std::ostream* stream) { *stream << mutant.name; }
};

class KernelMutant : public ::testing::TestWithParam<Mutant> {};
// What is changed is right before: else any mutant would be found. Named by the first mutant of its subject.
class KernelMutantsOriginal : public ::testing::TestWithParam<Mutant> {};
inline std::string name_of(const ::testing::TestParamInfo<Mutant>& info) { return info.param.name; }

using Sizes = std::map<std::string, std::int64_t>;
inline const std::string root = test::source_dir();
constexpr char nothing[] = "";

// On AMD's devices: waves of 64, two warps each, or of 32.
enum Device { cdna = 1, rdna3 = 2, rdna4 = 3 };
inline Subject on(Device device, Subject subject) {
  subject.device = device;
  return subject;
}

// Of several families.
constexpr char wave[] = "flash_attention/forward.wave.gpu.cu", matrix[] = "device/matrix/amd_matrix.h",
               decode_parts[] = "device/attention/decode_parts.h", plain_gradient_rows[] = "flash_attention_bwd/attention_backward_plain.h";
inline const Sizes one_block = {{"B", 1}, {"Sq", 9}, {"Sk", 40}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};

}  // namespace ejk::kernel_mutants

// Cubins, the ELF files that NVIDIA's compilers make: what they are for, whether they are whole, and what their code needs.
#pragma once
#include <cstdint>
#include <string>

namespace ejk::cuda {

struct CubinFacts {
  int sm = 0;  // 90 for sm_90 and sm_90a, which the header does not tell apart
  std::int64_t registers = 0, stack_bytes = 0, code_bytes = 0;
};

// What is wrong with the bytes ("it is a fatbin, ..."); empty: they are a whole cubin, and `facts` is filled.
std::string read_cubin(const std::string& bytes, CubinFacts& facts);

// The section .nv.compat of a whole cubin; empty: there is none.
std::string compatibility_record(const std::string& bytes);

}  // namespace ejk::cuda

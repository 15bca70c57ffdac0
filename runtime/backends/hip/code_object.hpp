// Code objects, the ELF files of AMD's GPUs: what they are for, whether they are whole, and what their kernels need.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ejk::hip {

// Counts are those of the most demanding kernel each.
struct CodeObjectFacts {
  std::string arch;                  // "gfx90a", without target features
  std::vector<std::string> kernels;  // names
  std::int64_t vgprs = 0;            // a lane's vector registers, accumulation registers included where they share a file
  std::int64_t agprs = 0, sgprs = 0;
  std::int64_t spill_bytes = 0;  // of a lane's vector registers to memory
  std::int64_t stack_bytes = 0;  // private memory of a lane, spills included
  std::int64_t shared_bytes = 0, wave_size = 0, code_bytes = 0;
};

// What is wrong with the bytes ("it is an offload bundle, ..."); empty: they are a whole code object, and `facts` is filled.
std::string read_code_object(const std::string& bytes, CodeObjectFacts& facts);

}  // namespace ejk::hip

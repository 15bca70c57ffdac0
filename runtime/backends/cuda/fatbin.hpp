// Fatbins, NVIDIA's containers of one kernel's cubins for several archs: what the driver and `cuobjdump` read.
#pragma once
#include <string>
#include <vector>

#include "backends/cuda/cuda_arch.hpp"

namespace ejk::cuda {

struct FatbinMember {
  Sm sm;
  std::string cubin;
};

// As CUDA's `fatbinary --create=F -64 --image3=kind=elf,sm=...` writes it, byte for byte. Members must be whole cubins.
std::string make_fatbin(const std::vector<FatbinMember>& members);

}  // namespace ejk::cuda

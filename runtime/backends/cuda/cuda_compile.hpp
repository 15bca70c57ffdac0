// One rendered CUDA source to one cubin, in this process.
#pragma once
#include <string>

#include "backends/backend.h"
#include "backends/cuda/cubin.hpp"
#include "backends/cuda/nvrtc.hpp"

namespace ejk::cuda {

// Same source and NVRTC, same bytes. Thread-safe; several at once.
CompileResult compile_cuda_image(const Nvrtc& nvrtc, const spec::Image& image);
// The same of another text than the image's.
CompileResult compile_cuda_source(const Nvrtc& nvrtc, const spec::Image& image, const std::string& source);

// Whether that NVRTC makes code for the arch; why_not: what it lacks.
bool compiles_for(const Nvrtc& nvrtc, const spec::Arch& arch, std::string& why_not);

// registers, spill_bytes (stores and loads), stack_bytes, shared_bytes (static): of the most demanding entry each, as ptxas' words
// (--ptxas-options=-v) say; registers, stack_bytes and code_bytes also as the cubin says. performance_losses: how often ptxas says
// "Potential Performance Loss", which it says nowhere else: wgmma serialised (C7510 to C7514), setmaxnreg ignored (C7507, C7508).
spec::Resources resources_of(const std::string& ptxas_log, const CubinFacts& cubin);

// What ptxas says that each entry took, in seconds.
Stages entry_times(const std::string& ptxas_log);

}  // namespace ejk::cuda

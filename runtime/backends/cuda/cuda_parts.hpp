// Programs of one entry each, made of an image's source, so that they compile side by side.
#pragma once
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/nvrtc.hpp"

namespace ejk::cuda {

// The source once for each of its entries (lines that begin with KERNEL): in it the others are templates, of which nothing is made
// where nobody instantiates them. Empty: it has fewer than two.
std::vector<std::string> sources_by_entry(const std::string& source);

// As compile_cuda_image(), on as many threads as there are entries and processors, in as much time as the slowest entry takes. Each entry's
// code is the same, but that constants may lie elsewhere; the binary of several entries is an archive of cubins (cubin_archive.hpp), each
// with the static shared memory of its own entry alone.
CompileResult compile_cuda_parts(const Nvrtc& nvrtc, const spec::Image& image);

}  // namespace ejk::cuda

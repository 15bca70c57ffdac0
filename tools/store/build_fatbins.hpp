// `ejk build --fatbin`: images that differ only in their CUDA arch, as one fatbin each.
#pragma once
#include <filesystem>
#include <span>

#include "store/build.hpp"

namespace ejk::tools {

struct FatbinReport {
  std::filesystem::path folder;
  std::size_t written = 0;
  std::size_t without = 0;  // CUDA images that the store does not hold: not compiled here, or refused
};

// <store>.fatbin/<kernel>/<image id without its arch>.fatbin, of what the store holds. The runtime reads none of it: they are for programs
// that load kernels themselves. Throws std::runtime_error.
FatbinReport write_fatbins(const store::Store& store, std::span<const store::BuildItem> items);

}  // namespace ejk::tools

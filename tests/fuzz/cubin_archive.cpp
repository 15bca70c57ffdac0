// libFuzzer: any bytes are cubins or a sentence says why not; what was read from an archive makes one that reads the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "backends/cuda/cubin_archive.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::string why_not;
  const auto cubins = ejk::cuda::cubins_of(bytes, why_not);
  if (cubins.empty() == why_not.empty()) std::abort();
  if (!cubins.empty() && ejk::cuda::cubins_of(ejk::cuda::join_cubins(cubins), why_not) != cubins) std::abort();
  return 0;
}

// libFuzzer: of any bytes there is either a hash of their machine code, always the same, or a sentence; within time and memory that the
// bytes account for.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "backends/machine_code.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::string why_not, again;
  const auto hash = ejk::machine_code_hash(bytes, why_not);
  if (hash.empty() == why_not.empty()) std::abort();
  if (ejk::machine_code_hash(bytes, again) != hash || again != why_not) std::abort();
  return 0;
}

// libFuzzer: a safetensors file is refused with its name, or every byte of its data belongs to one tensor that is read.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#include "fuzz/scratch.hpp"
#include "tools/command_line/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  const auto path = scratch.path() / "t.safetensors";
  // The length that stands first is made to fit where it is zero: else few inputs would get past it.
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size >= 8 && bytes.compare(0, 8, std::string(8, '\0')) == 0) {
    const std::uint64_t length = std::min(bytes.find('\n', 8), size) - 8;
    std::copy_n(reinterpret_cast<const char*>(&length), sizeof length, bytes.begin());
  }
  fuzz::write(path, bytes.data(), bytes.size());
  try {
    std::size_t read = 0;
    for (const auto& tensor : ejk::tools::read_safetensors(path)) read += tensor.row_major_bytes().size();
    if (read > size) std::abort();
  } catch (const std::runtime_error& error) {
    if (!std::string(error.what()).starts_with(path.string() + ": ")) std::abort();
  }
  return 0;
}

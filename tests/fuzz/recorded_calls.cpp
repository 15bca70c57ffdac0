// libFuzzer: a line of a recording is refused in words, or read so that it is written and read again as the same.
#include <cstdint>
#include <cstdlib>

#include "ejk/record.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto recorded = ejk::recorded_from_json(line);
  if (!recorded) {
    if (recorded.error().message.empty()) std::abort();
    return 0;
  }
  const auto text = ejk::to_json(*recorded);
  if (!text) return 0;  // numbers that JSON has no word for
  const auto again = ejk::recorded_from_json(*text);
  if (!again || *ejk::to_json(*again) != *text) std::abort();
  return 0;
}

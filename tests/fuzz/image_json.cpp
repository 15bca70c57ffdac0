// libFuzzer: parse_image_info either refuses a text with a sentence or reads it so that it can be written and read again.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "store/store.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ejk::store;
  const std::string text(reinterpret_cast<const char*>(data), size);
  ImageInfo info;
  try {
    info = parse_image_info(text);
  } catch (const std::runtime_error&) {
    return 0;
  }
  const auto written = to_json(info);
  if (to_json(parse_image_info(written)) != written) std::abort();
  return 0;
}

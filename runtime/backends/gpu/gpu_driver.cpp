// An error in the driver's words.
#include "backends/gpu/gpu_driver.hpp"

#include <fmt/format.h>

namespace ejk::gpu {

std::string error_words(const Driver& driver, Result result) {
  const char *name = nullptr, *text = nullptr;
  const auto& call = driver.call;
  if (call.error_name_of) {
    name = call.error_name_of(result);
    text = call.error_text_of(result);
  } else {
    call.error_name(result, &name);
    call.error_text(result, &text);
  }
  if (!name) return fmt::format("{} error {}", driver.vendor->api, result);
  return text ? fmt::format("{}: {}", name, text) : name;
}

}  // namespace ejk::gpu

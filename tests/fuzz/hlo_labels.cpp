// libFuzzer: whatever the text is, what is found in it are labels: each is found again, alone and as itself, also within quotes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "ejk/label.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> damaged;
  for (const auto& label : ejk::extract_labels_from_hlo_text(text, &damaged)) {
    if (ejk::extract_labels_from_hlo_text(label) != std::vector<std::string>{label}) std::abort();
    std::string quoted = "op_name=\"";
    for (const char c : label) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    if (ejk::extract_labels_from_hlo_text(quoted + "\"") != std::vector<std::string>{label}) std::abort();
  }
  return 0;
}

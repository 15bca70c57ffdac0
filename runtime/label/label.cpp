// The text of a label.
#include "ejk/label.hpp"

#include "describe/invocation.hpp"
#include "describe/values.hpp"
#include "label/label_text.hpp"
#include "record/placed_call.hpp"
#include "spec/render/sha256.hpp"

namespace ejk {
namespace {

std::string prefix_of(std::string kernel) {
  for (char& c : kernel)
    if (!is_kernel_letter(c)) c = '_';
  return std::string(label_mark) + kernel + ":";
}

}  // namespace

Result<std::string> label(const std::string& kernel, const std::string& key, Stamp stamp) {
  return guarded([&]() -> Result<std::string> {
    if (stamp == Stamp::none) return std::string();
    if (stamp == Stamp::json)
      if (auto text = prefix_of(kernel) + ascii(parse_json(key, "key")); text.size() <= longest_label) return text;
    return prefix_of(kernel) + spec::sha256_hex(key).substr(0, hash_digits);
  });
}

Result<std::string> label(const Invocation& invocation, Stamp stamp) {
  return guarded([&]() -> Result<std::string> { return label(invocation.kernel, json_of(canonical(invocation)).dump(), stamp); });
}

}  // namespace ejk

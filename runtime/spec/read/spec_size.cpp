// Widths and sizes of a spec's JSON.
#include "spec/read/spec_size.hpp"

namespace ejk::spec {
namespace {

constexpr int most_told = 8;

void check_below(const Json& json, const std::string& pointer, FileFaults& faults, int& told) {
  if (!json.is_structured() || told == most_told) return;
  if (json.size() > widest) {
    ++told;
    return faults.add(pointer, (json.is_array() ? "a list of " : "an object of ") + std::to_string(json.size()) +
                                   " entries; in a spec it has at most " + std::to_string(widest));
  }
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i)
      if (json[i].is_structured()) check_below(json[i], pointer_to(pointer, i), faults, told);
  } else {
    for (const auto& [key, value] : json.items())
      if (value.is_structured()) check_below(value, pointer_to(pointer, key), faults, told);
  }
}

}  // namespace

void check_widths(const Json& kernel, FileFaults& faults) {
  int told = 0;
  check_below(kernel, "", faults, told);
}

std::size_t count_values(const Json& json) {
  std::size_t count = 1;
  if (json.is_structured())
    for (const Json& each : json) count += count_values(each);
  return count;
}

bool CopyRoom::take(const Json& value, const std::string& written) {
  const std::size_t count = count_values(value);
  if (count <= left_) {
    left_ -= count;
    return true;
  }
  if (!told_) faults_.add(written, "what is copied here and before is more than " + std::to_string(most_copied) + " values");
  told_ = true;
  left_ = 0;
  return false;
}

}  // namespace ejk::spec

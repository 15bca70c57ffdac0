// The entry that counts is that of the longest pointer which the place begins with.
#include "spec/read/origins.hpp"

namespace ejk::spec {

std::string Origins::written_at(std::string pointer) const {
  if (written_.empty() && settled_.empty()) return pointer;
  for (std::size_t end = pointer.size(); end != std::string::npos && end > 0; end = pointer.rfind('/', end - 1)) {
    const std::string above = pointer.substr(0, end);
    if (const auto found = written_.find(above); found != written_.end()) return written_at(found->second + pointer.substr(end));
    if (const auto found = settled_.find(above); found != settled_.end()) return found->second + pointer.substr(end);
  }
  return pointer;
}

}  // namespace ejk::spec

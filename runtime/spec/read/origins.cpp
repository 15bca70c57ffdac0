// The entry that counts is that of the longest pointer which the place begins with.
#include "spec/read/origins.hpp"

namespace ejk::spec {

std::string Origins::written_at(std::string pointer) const {
  if (written_.empty()) return pointer;
  for (std::size_t end = pointer.size(); end != std::string::npos && end > 0; end = pointer.rfind('/', end - 1)) {
    const auto found = written_.find(pointer.substr(0, end));
    if (found != written_.end()) return written_at(found->second + pointer.substr(end));
  }
  return pointer;
}

}  // namespace ejk::spec

// Answers of the memory tier that this thread had before, by a hash of the invocation as it is: no JSON, no lock.
#pragma once
#include <cstdint>
#include <memory>

#include "ejk/kernel.hpp"

namespace ejk {

// Everything that an answer of the memory tier depends on. Two words of hash stand for it: among 2^32 of them, two are equal with a chance
// of 2^-64.
struct RecallKey {
  std::uint64_t low = 0, high = 0;
  bool usable = false;  // false: the call is larger than the buffer
};
RecallKey recall_key(std::uint64_t chain, const Kernel& kernel, const Invocation& invocation) noexcept;

std::shared_ptr<const Selection> recall(const RecallKey& key) noexcept;
void note(const RecallKey& key, std::shared_ptr<const Selection> selection);

}  // namespace ejk

// The packed key of a call: everything a plan depends on, as 64-bit words on the stack. No pointers but their alignment, no varying
// attributes, no data.
#pragma once
#include <cstdint>
#include <span>

#include "ejk/call.hpp"
#include "execute/library_state.hpp"

namespace ejk {

struct PlanKey {
  static constexpr std::size_t capacity = 640;
  std::size_t size = 0;
  std::uint64_t hash = 0;
  std::uint64_t words[capacity];
  std::span<const std::uint64_t> span() const { return {words, size}; }
};

// false: the call has more tensors and attributes than a key holds (no spec of ours comes near).
bool pack_key(PlanKey& key, const KernelHandle& kernel, std::span<const TensorView* const> tensors,
              std::span<const AttributeValue> attributes, const char* config) noexcept;

}  // namespace ejk

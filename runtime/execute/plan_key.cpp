// Packs and hashes the key of a call.
#include "execute/plan_key.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <cstring>

#include "common/epoch.hpp"
#include "select/overlay.hpp"
#include "select/policy.hpp"

namespace ejk {
namespace {

constexpr std::size_t words_a_tensor = 2 + 2 * max_rank;

std::uint64_t header_of(const TensorView& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  const auto alignment = static_cast<std::uint64_t>(address & 63 ? std::countr_zero(address) : 6);
  return 1 | static_cast<std::uint64_t>(static_cast<std::uint8_t>(view.rank)) << 8 | static_cast<std::uint64_t>(view.type) << 16 |
         alignment << 24 | static_cast<std::uint64_t>(view.data != nullptr) << 32;
}

// Whole: a number that no device has must not look like one that has been seen.
std::uint64_t device_of(const TensorView& view) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(view.device.type)) << 32 | static_cast<std::uint32_t>(view.device.index);
}

std::uint64_t word_of(const AttributeValue& attribute) {
  switch (attribute.kind) {
    case AttributeValue::Kind::boolean:
      return attribute.boolean;
    case AttributeValue::Kind::integer:
      return static_cast<std::uint64_t>(attribute.integer);
    case AttributeValue::Kind::floating:
      return std::bit_cast<std::uint64_t>(attribute.floating);
    case AttributeValue::Kind::string:
      return XXH3_64bits(attribute.string, attribute.string ? std::strlen(attribute.string) : 0);
    case AttributeValue::Kind::absent:
      break;
  }
  return 0;
}

}  // namespace

bool pack_key(PlanKey& key, const KernelHandle& kernel, std::span<const TensorView* const> tensors,
              std::span<const AttributeValue> attributes, const char* config) noexcept {
  if (5 + tensors.size() * words_a_tensor + attributes.size() * 2 > PlanKey::capacity || attributes.size() != kernel.varies.size())
    return false;
  auto* word = key.words;
  *word++ = reinterpret_cast<std::uintptr_t>(&kernel);
  *word++ = decisions_epoch.load(std::memory_order_relaxed);
  *word++ = overlay_id();
  *word++ = policy_word();
  *word++ = config ? XXH3_64bits(config, std::strlen(config)) : 0;
  for (const auto* view : tensors) {
    if (!view || view->rank < 0) {
      *word++ = 0;
      continue;
    }
    *word++ = header_of(*view);
    *word++ = device_of(*view);
    for (int i = 0; i < view->rank && i < max_rank; ++i) {
      *word++ = static_cast<std::uint64_t>(view->shape[i]);
      *word++ = static_cast<std::uint64_t>(view->strides[i]);
    }
  }
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    *word++ = static_cast<std::uint64_t>(attributes[i].kind);
    if (!kernel.varies[i]) *word++ = word_of(attributes[i]);
  }
  key.size = static_cast<std::size_t>(word - key.words);
  key.hash = XXH3_64bits(key.words, key.size * sizeof(std::uint64_t));
  return true;
}

}  // namespace ejk

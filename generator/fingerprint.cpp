// XXH3: quick, and nobody means to deceive himself about his own output.
#include "generator/fingerprint.hpp"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ejk::generator {

Hash128 hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

std::string to_text(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

void Fingerprint::add(std::string_view name, const Hash128& bytes) {
  const auto file = hash_of(fmt::format("{} {}", to_text(bytes), name));
  sum_.low += file.low;
  sum_.high += file.high;
  ++files_;
}

std::string Fingerprint::text() const { return fmt::format("{} files {}", files_, to_text(sum_)); }

}  // namespace ejk::generator

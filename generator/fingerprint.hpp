// The fingerprint of a set of files: of their names and bytes, in whatever order they come, without holding them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ejk::generator {

struct Hash128 {
  std::uint64_t low = 0, high = 0;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

Hash128 hash_of(std::string_view bytes);
std::string to_text(const Hash128& hash);

class Fingerprint {
 public:
  void add(std::string_view name, const Hash128& bytes);
  std::string text() const;

 private:
  Hash128 sum_;  // of the files' hashes, each half by itself
  std::uint64_t files_ = 0;
};

}  // namespace ejk::generator

// Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011), and the dropout rule made of it.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace ejk::reference {

inline std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// docs/semantics.md, "Dropout".
class Dropout {
 public:
  Dropout(double probability, std::uint64_t seed)
      : threshold_(static_cast<std::int64_t>(std::floor(65536.0 * probability + 0.5))),
        key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {}

  // Factor on the weight of key j for query i, both local to the sequence; row is b * Hq + h.
  double factor(std::int64_t row, std::int64_t i, std::int64_t j) const {
    if (threshold_ == 0) return 1;
    if (threshold_ == 65536) return 0;
    const auto words =
        philox4x32_10({static_cast<std::uint32_t>(j >> 3), static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(row), 0}, key_);
    const std::uint32_t word = words[static_cast<std::size_t>((j & 7) >> 1)];
    const std::uint32_t lane = j & 1 ? word >> 16 : word & 0xffffu;
    return lane >= static_cast<std::uint32_t>(threshold_) ? 65536.0 / static_cast<double>(65536 - threshold_) : 0;
  }

 private:
  std::int64_t threshold_;
  std::array<std::uint32_t, 2> key_;
};

}  // namespace ejk::reference

// Random numbers that are the same on every compiler and machine: the same seed makes the same test data anywhere.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>
#include <set>
#include <span>
#include <string_view>

namespace ejk::reference {

// SplitMix64 (Steele, Lea, Flood 2014). The standard library's distributions differ between implementations, so they are not used.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  // An independent stream of the same seed: data of one tensor does not depend on which others are given.
  static Rng stream(std::uint64_t seed, std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
    Rng rng(seed ^ hash);
    rng.next();
    return rng;
  }

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Integer in [low, high], both included; low if the range is empty.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    if (high <= low) return low;
    return low + static_cast<std::int64_t>(next() % (static_cast<std::uint64_t>(high - low) + 1));
  }

  // A size that kernels trip over: small, odd, or at or beside a tile edge; at most `high`, at least `low`.
  std::int64_t nasty_size(std::int64_t low, std::int64_t high) {
    static constexpr std::int64_t edges[] = {0,  1,  2,  3,  5,  7,  8,  9,   13,  15,  16,  17,  24,  31,
                                             32, 33, 47, 63, 64, 65, 96, 100, 127, 128, 129, 191, 255, 257};
    for (int attempt = 0; attempt < 64; ++attempt)
      if (const std::int64_t size = pick(edges); size >= low && size <= high) return size;
    return between(low, high);
  }

  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  bool chance(double probability) { return uniform() < probability; }

  double normal() {  // mean 0, deviation 1 (Box-Muller)
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    const double angle = 2.0 * std::numbers::pi * uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

  template <class T>
  const T& pick(std::span<const T> choices) {
    return choices[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(choices.size()) - 1))];
  }
  template <class T, std::size_t n>
  const T& pick(const T (&choices)[n]) {
    return pick(std::span<const T>(choices, n));
  }

  template <class Sequence>
  void shuffle(Sequence& sequence) {
    for (std::int64_t i = static_cast<std::int64_t>(sequence.size()) - 1; i > 0; --i)
      std::swap(sequence[static_cast<std::size_t>(i)], sequence[static_cast<std::size_t>(between(0, i))]);
  }

 private:
  std::uint64_t state_;
  double spare_ = 0;
  bool has_spare_ = false;
};

// Some of 0, ..., count - 1, at most `wanted` and one: the last, and others at random.
inline std::set<std::int64_t> some_below(std::int64_t count, int wanted, Rng& rng) {
  std::set<std::int64_t> some;
  if (count <= 0) return some;
  some = {count - 1};
  for (int i = 0; i < wanted; ++i) some.insert(rng.between(0, count - 1));
  return some;
}

}  // namespace ejk::reference

// What of a long test a day has: tools/test gives its seed in EJK_COVER; without one a test is whole.
#pragma once
#include <cstdint>
#include <cstdlib>

namespace ejk::test {

// Whether the day of the seed has this one of many: days in turn have all.
inline bool of_the_day(std::uint64_t number, std::uint64_t days) {
  const char* seed = std::getenv("EJK_COVER");
  return !seed || !*seed || (number + std::strtoull(seed, nullptr, 10)) % days == 0;
}

}  // namespace ejk::test

// What of a long test a day has: tools/test gives its seed in EJK_COVER; without one a test is whole.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace ejk::test {

// Whether the day of the seed has this one of many: days in turn have all.
inline bool of_the_day(std::uint64_t number, std::uint64_t days) {
  const char* seed = std::getenv("EJK_COVER");
  return !seed || !*seed || (number + std::strtoull(seed, nullptr, 10)) % days == 0;
}

// The same of what has a name (numbered by FNV-1a).
inline bool of_the_day(std::string_view name, std::uint64_t days) {
  std::uint64_t number = 14695981039346656037u;
  for (const char letter : name) number = (number ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  return of_the_day(number % days, days);
}

}  // namespace ejk::test

// A number of a dim or an index, which is never negative, as a container's.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ejk::reference {

inline std::size_t spot(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace ejk::reference

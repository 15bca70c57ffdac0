// Operations on an element in memory: those of atom, red, red.async and cp.reduce.async.bulk.
#pragma once
#include <string_view>

namespace ejk::ptx {

// Combines the element at `memory` (aligned to its size) with `value`, at once for all threads of the host; what was there goes to `old`
// unless that is null. cas compares with `value` and writes `second`; the others have no second value.
using Combine = void (*)(char* memory, const char* value, const char* second, char* old);

// "add", "u32": null if there is no such operation.
Combine combine_of(std::string_view operation, std::string_view type);

}  // namespace ejk::ptx

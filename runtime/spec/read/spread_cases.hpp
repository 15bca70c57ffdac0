// A case with "each" stands for several:
//   {"name": "prefill", "D": 64, "each": {"short": {"B": 8, "S": 512}, "long": {"B": 1, "S": 4096}}}
// are the cases prefill_short and prefill_long. Each has every field of the case but those that it says itself; null removes one.
#pragma once
#include "spec/read/spec_size.hpp"

namespace ejk::spec {

// kernel: a whole spec. Afterwards no case has "each"; the faults' origins know where each is written.
void spread_cases(Json& kernel, FileFaults& faults, CopyRoom& room);

}  // namespace ejk::spec

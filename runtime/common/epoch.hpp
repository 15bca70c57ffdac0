// The age of what the process has decided: plans made under another epoch are stale.
#pragma once
#include <atomic>
#include <cstdint>

namespace ejk {

// Grows when stores, threads, the tuner or remembered configs change.
extern constinit std::atomic<std::uint64_t> decisions_epoch;

}  // namespace ejk

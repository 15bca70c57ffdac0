// Scratch for one call: a buffer of the calling thread that grows and stays, so that repeated calls allocate nothing.
#pragma once
#include <cstdint>

namespace ejk {

// 64-byte aligned, contents undefined, valid until this thread's next call. Throws std::bad_alloc.
void* host_workspace(std::int64_t bytes);

}  // namespace ejk

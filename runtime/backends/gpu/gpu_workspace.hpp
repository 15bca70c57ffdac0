// Scratch of calls, in stream order: of the device's pool, or what the device keeps for its default stream.
#pragma once
#include "backends/gpu/gpu_platform.hpp"

namespace ejk::gpu {

constexpr std::int64_t most_kept_workspace = std::int64_t{64} << 20;  // ragged_page_attention has 40 to 52 MB, however small its call

void* acquire_workspace(Platform& platform, int device, void* stream, std::int64_t bytes);
void release_workspace(Platform& platform, int device, void* stream, void* workspace) noexcept;
void zero(Platform& platform, int device, void* stream, void* memory, std::int64_t bytes);

}  // namespace ejk::gpu

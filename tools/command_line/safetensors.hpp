// safetensors files (https://github.com/huggingface/safetensors): a length, a JSON header, and the tensors' bytes, little-endian.
#pragma once
#include <filesystem>
#include <span>
#include <vector>

#include "reference/host_tensor.hpp"

namespace ejk::tools {

// Every tensor of the file, contiguous, sorted by name. Types F32, F16, BF16, F64, I8, I32, I64, U8 and BOOL; at most max_rank dimensions.
// Throws std::runtime_error "<path>: ..." on a file that cannot be read or is malformed: header missing, over 100 MB, cut short or not
// JSON; duplicate names; unknown types; sizes that disagree with shapes; offsets that overlap, leave holes or pass the end; BOOL bytes
// other than 0 and 1.
std::vector<reference::HostTensor> read_safetensors(const std::filesystem::path& path);

// Replaces `path` in one step (a temporary file beside it, then rename). The same tensors give the same bytes. Every tensor starts at a
// multiple of its element size. Throws std::runtime_error "<path>: ...", also on two tensors of one name.
void write_safetensors(const std::filesystem::path& path, std::span<const reference::HostTensor> tensors);

}  // namespace ejk::tools

// Sizes as people write them on a command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace ejk::spec {

// "50MB", "1.5 GB", "64MiB", "800k", "12345": bytes; k, M, G and T are powers of ten, with an i powers of two. nullopt: no such text, below
// 0 or beyond 64 bits.
std::optional<std::int64_t> parse_byte_size(std::string_view text);

}  // namespace ejk::spec

// The hash of a rendered source: of what a compiler makes code of, not of what people read beside it.
#pragma once
#include <string>
#include <string_view>

namespace ejk::spec {

// C++ text without comments, trailing spaces and empty lines. String and character literals, raw ones too, stay as they are.
std::string without_comments(std::string_view source);

// First 16 hex digits of the SHA-256 of the source without comments and of the banner's line of compiler flags (`flags_mark`).
std::string source_hash(std::string_view source);

inline constexpr std::string_view flags_mark = "// flags    ";

}  // namespace ejk::spec

// What labels are made of.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ejk {

inline constexpr std::string_view label_mark = "ejk:";
inline constexpr std::size_t hash_digits = 16;

inline bool is_kernel_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}
inline bool is_hex_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// On one line, without bytes above 127: dumps escape those each in its own way. The node must be UTF-8.
inline std::string ascii(const nlohmann::json& node) { return node.dump(-1, ' ', true); }

}  // namespace ejk

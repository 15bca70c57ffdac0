// 16-bit floats as values, and what stands for undefined memory.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ejk::simt {

// NaN as f16, bf16, f32 and f64; far outside every tensor as an index.
constexpr std::uint32_t undefined_word = 0x7fff7fff;
inline void make_undefined(void* memory, std::size_t bytes) {
  auto* at = static_cast<char*>(memory);
  std::size_t i = 0;
  for (; i + sizeof undefined_word <= bytes; i += sizeof undefined_word) std::memcpy(at + i, &undefined_word, sizeof undefined_word);
  std::memcpy(at + i, &undefined_word, bytes - i);
}

inline float bfloat16_value(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// IEEE binary16: the exponent is moved by a multiplication, which is exact and also right for denormals.
inline float half_value(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = (bits & 0x7fffu) << 13;
  constexpr float scale = 0x1p112f;
  if (magnitude >= 0x7c00u << 13) return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * scale));
}

}  // namespace ejk::simt

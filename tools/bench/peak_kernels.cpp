// Multiply-adds and reads with every level of vector instructions.
#include "bench/peak_kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ejk::tools {
namespace {

// Enough independent chains to hide a multiply-add's latency (4 cycles) on two ports, and few enough for 16 registers.
// Each starts with another value: equal chains would be computed once.
constexpr int chains = 12;
constexpr float start(int chain) { return 1e-3f * static_cast<float>(chain + 1); }

// 16 bytes: what every 64-bit CPU has.
using Floats = float __attribute__((vector_size(16)));
using Words = std::uint64_t __attribute__((vector_size(16)));

float multiply_add_baseline(std::int64_t rounds) {
  Floats sum[chains];
  const Floats a = {0.999f, 0.998f, 0.997f, 0.996f}, b = {1e-3f, 2e-3f, 3e-3f, 4e-3f};
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) sum[i] = b + start(i);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (auto& s : sum) s = s * a + b;
  }
  Floats total{};
#pragma GCC unroll 12
  for (const auto& s : sum) total += s;
  return total[0] + total[1] + total[2] + total[3];
}

std::uint64_t read_baseline(const std::byte* memory, std::size_t size) {
  const auto* words = reinterpret_cast<const Words*>(memory);
  Words a{}, b{}, c{}, d{};
  for (std::size_t i = 0; i < size / sizeof(Words); i += 4) {
    a ^= words[i];
    b ^= words[i + 1];
    c ^= words[i + 2];
    d ^= words[i + 3];
  }
  a ^= b ^ c ^ d;
  return a[0] ^ a[1];
}

bool always() { return true; }

#if defined(__x86_64__)

[[gnu::target("avx2,fma")]] float multiply_add_avx2(std::int64_t rounds) {
  __m256 sum[chains];
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) sum[i] = _mm256_set1_ps(start(i));
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm256_fmadd_ps(s, a, b);
  }
  __m256 total = sum[0];
#pragma GCC unroll 12
  for (int i = 1; i < chains; ++i) total = _mm256_add_ps(total, sum[i]);
  return _mm256_cvtss_f32(total);
}

[[gnu::target("avx2,fma")]] std::uint64_t read_avx2(const std::byte* memory, std::size_t size) {
  const auto* words = reinterpret_cast<const __m256i*>(memory);
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (std::size_t i = 0; i < size / 32; i += 4) {
    a = _mm256_xor_si256(a, _mm256_load_si256(words + i));
    b = _mm256_xor_si256(b, _mm256_load_si256(words + i + 1));
    c = _mm256_xor_si256(c, _mm256_load_si256(words + i + 2));
    d = _mm256_xor_si256(d, _mm256_load_si256(words + i + 3));
  }
  a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
  return static_cast<std::uint64_t>(a[0]);
}

[[gnu::target("avx512f")]] float multiply_add_avx512(std::int64_t rounds) {
  __m512 sum[chains];
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
#pragma GCC unroll 12
  for (int i = 0; i < chains; ++i) sum[i] = _mm512_set1_ps(start(i));
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm512_fmadd_ps(s, a, b);
  }
  __m512 total = sum[0];
#pragma GCC unroll 12
  for (int i = 1; i < chains; ++i) total = _mm512_add_ps(total, sum[i]);
  return _mm512_cvtss_f32(total);
}

[[gnu::target("avx512f")]] std::uint64_t read_avx512(const std::byte* memory, std::size_t size) {
  const auto* words = reinterpret_cast<const __m512i*>(memory);
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (std::size_t i = 0; i < size / 64; i += 4) {
    a = _mm512_xor_si512(a, _mm512_load_si512(words + i));
    b = _mm512_xor_si512(b, _mm512_load_si512(words + i + 1));
    c = _mm512_xor_si512(c, _mm512_load_si512(words + i + 2));
    d = _mm512_xor_si512(d, _mm512_load_si512(words + i + 3));
  }
  a = _mm512_xor_si512(_mm512_xor_si512(a, b), _mm512_xor_si512(c, d));
  return static_cast<std::uint64_t>(a[0]);
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() { return __builtin_cpu_supports("avx512f"); }

#endif

constexpr PeakKernels levels[] = {
#if defined(__x86_64__)
    {"avx512f", has_avx512, multiply_add_avx512, chains * 16 * 2, read_avx512},
    {"avx2+fma", has_avx2, multiply_add_avx2, chains * 8 * 2, read_avx2},
#endif
    {"baseline", always, multiply_add_baseline, chains * 4 * 2, read_baseline},
};

}  // namespace

const PeakKernels& peak_kernels() {
  for (const auto& level : levels)
    if (level.runs_here()) return level;
  return levels[sizeof(levels) / sizeof(levels[0]) - 1];
}

}  // namespace ejk::tools

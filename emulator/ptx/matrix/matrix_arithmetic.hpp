// The arithmetic of MatrixProduct: factors are widened into two arrays whose order is that of D's registers, then multiplied.
#pragma once
#include "emulator/ptx/matrix/matrix_formats.hpp"
#include "emulator/ptx/matrix/matrix_product.hpp"

namespace ejk::ptx::matrix {

constexpr int most_depth = 32, most_groups = 32;

// A: of each depth and half (rows g and 8 + g) one element for each lane, 4 g + t. B: of each group and depth columns 0 2 4 6 1 3 5 7, the
// even ones for the first sum of a lane, the odd ones for the second.
struct Factors {
  alignas(64) std::uint32_t a[most_depth][2][32];
  alignas(64) std::uint32_t b[most_groups * most_depth][8];
};

// Word T of each four for all four.
template <int BYTES, int T>
EJK_PTX_INLINE Words<BYTES> quads_word(const Words<BYTES>& x) {
  if constexpr (BYTES == 64)
    return __builtin_shufflevector(x, x, T, T, T, T, 4 + T, 4 + T, 4 + T, 4 + T, 8 + T, 8 + T, 8 + T, 8 + T, 12 + T, 12 + T, 12 + T,
                                   12 + T);
  else if constexpr (BYTES == 32)
    return __builtin_shufflevector(x, x, T, T, T, T, 4 + T, 4 + T, 4 + T, 4 + T);
  else
    return __builtin_shufflevector(x, x, T, T, T, T);
}

template <FactorType FORMAT, int BYTES, int T>
EJK_PTX_INLINE void widen_word_of_a(const Words<BYTES>& words, std::uint32_t sign, std::uint32_t* to) {
  constexpr int count = elements_per_word(FORMAT);
  const Words<BYTES> word = quads_word<BYTES, T>(words);
  for (int e = 0; e < count; ++e) store(to + (T * count + e) * 64, element_of<FORMAT, BYTES>(word, e) ^ sign);
}

template <FactorType FORMAT, int BYTES>
EJK_PTX_INLINE void widen_a(const MatrixProduct& product, Factors& factors) {
  const std::uint32_t sign = product.negative ? 0x80000000u : 0;
  for (int i = 0; i < 2 * product.bricks; ++i)
    for (int lane = 0; lane < 32; lane += BYTES / 4) {
      const auto words = load<Words<BYTES>>(product.a[i] + lane);
      auto* to = factors.a[i / 2 * 4 * elements_per_word(FORMAT)][i % 2] + lane;
      widen_word_of_a<FORMAT, BYTES, 0>(words, sign, to);
      widen_word_of_a<FORMAT, BYTES, 1>(words, sign, to);
      widen_word_of_a<FORMAT, BYTES, 2>(words, sign, to);
      widen_word_of_a<FORMAT, BYTES, 3>(words, sign, to);
    }
}

// A pair of elements, each four times: row 2 PAIR and the next of depth DEPTH among those in the vectors.
template <int BYTES, int DEPTH, int PAIR>
EJK_PTX_INLINE void spread_pair(const Words<BYTES>& even, const Words<BYTES>& odd, std::uint32_t* to) {
  constexpr int at = 4 * DEPTH + PAIR;
  if constexpr (BYTES == 64 && PAIR % 2 == 0)
    store(to + 8 * PAIR, __builtin_shufflevector(even, odd, at, at, at, at, 16 + at, 16 + at, 16 + at, 16 + at, at + 1, at + 1, at + 1,
                                                 at + 1, 17 + at, 17 + at, 17 + at, 17 + at));
  if constexpr (BYTES == 32) store(to + 8 * PAIR, __builtin_shufflevector(even, odd, at, at, at, at, 8 + at, 8 + at, 8 + at, 8 + at));
  if constexpr (BYTES == 16) {
    store(to + 8 * PAIR, quads_word<16, PAIR>(even));
    store(to + 8 * PAIR + 4, quads_word<16, PAIR>(odd));
  }
}
template <int BYTES, int DEPTH>
EJK_PTX_INLINE void spread_depth(const Words<BYTES>& even, const Words<BYTES>& odd, std::uint32_t* to) {
  if constexpr (DEPTH < BYTES / 16) {
    spread_pair<BYTES, DEPTH, 0>(even, odd, to);
    spread_pair<BYTES, DEPTH, 1>(even, odd, to);
    spread_pair<BYTES, DEPTH, 2>(even, odd, to);
    spread_pair<BYTES, DEPTH, 3>(even, odd, to);
    spread_depth<BYTES, DEPTH + 1>(even, odd, to + 64);
  }
}

// Of each depth four words of two neighbours.
template <FactorType FORMAT, int BYTES>
EJK_PTX_INLINE void widen_rows_of_a(const MatrixProduct& product, Factors& factors) {
  const std::uint32_t sign = product.negative ? 0x80000000u : 0;
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 16; k += BYTES / 16) {
      const auto words = load<Words<BYTES>>(product.a[i] + 4 * k);
      spread_depth<BYTES, 0>(element_of<FORMAT, BYTES>(words, 0) ^ sign, element_of<FORMAT, BYTES>(words, 1) ^ sign, factors.a[k][i]);
    }
}

// A brick's words: of each of the four places along the depth those of columns 0 2 4 6 1 3 5 7.
template <int BYTES>
EJK_PTX_INLINE void turn_brick(const std::uint32_t* from, std::uint32_t* to) {
  if constexpr (BYTES == 64) {
    const auto low = load<Words<64>>(from), high = load<Words<64>>(from + 16);  // columns 0 to 3, 4 to 7
    store(to, __builtin_shufflevector(low, high, 0, 8, 16, 24, 4, 12, 20, 28, 1, 9, 17, 25, 5, 13, 21, 29));
    store(to + 16, __builtin_shufflevector(low, high, 2, 10, 18, 26, 6, 14, 22, 30, 3, 11, 19, 27, 7, 15, 23, 31));
  } else {
    for (int odd = 0; odd < 2; ++odd) {
      const auto* row = from + 4 * odd;  // a transpose of 4 x 4
      const auto a = load<Words<16>>(row), b = load<Words<16>>(row + 8), c = load<Words<16>>(row + 16), d = load<Words<16>>(row + 24);
      const Words<16> ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
      const Words<16> ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      store(to + 4 * odd, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
      store(to + 8 + 4 * odd, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
      store(to + 16 + 4 * odd, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
      store(to + 24 + 4 * odd, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
    }
  }
}

template <FactorType FORMAT, int BYTES>
EJK_PTX_INLINE void widen_b(const MatrixProduct& product, Factors& factors) {
  constexpr int count = elements_per_word(FORMAT), places = BYTES == 64 ? 2 : 1, part = BYTES == 16 ? 16 : 32;
  for (int brick = 0; brick < product.groups * product.bricks; ++brick) {
    alignas(64) std::uint32_t words[4][8];
    turn_brick<BYTES>(product.b + 32 * brick, words[0]);
    auto* to = factors.b[brick * 4 * count];
    for (int place = 0; place < 4; place += places)
      for (int half = 0; half < 32 / part; half += 1)
        for (int e = 0; e < count; ++e) {
          const Words<BYTES> elements = element_of<FORMAT, BYTES>(load<Words<BYTES>>(words[place] + 4 * half), e);
          for (int i = 0; i < places; ++i)
            std::memcpy(to + ((place + i) * count + e) * 8 + 4 * half, reinterpret_cast<const char*>(&elements) + 32 * i, part);
        }
  }
}

template <FactorType FORMAT, int BYTES>
EJK_PTX_INLINE void widen_rows_of_b(const MatrixProduct& product, Factors& factors) {
  constexpr int depths = BYTES / 16;
  for (int piece = 0; piece < product.groups * 16; piece += depths) {
    const auto words = load<Words<BYTES>>(product.b + 4 * piece);
    const Words<BYTES> even = element_of<FORMAT, BYTES>(words, 0), odd = element_of<FORMAT, BYTES>(words, 1);
    auto* to = factors.b[piece];
    if constexpr (BYTES == 64) {
      store(to, __builtin_shufflevector(even, odd, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23));
      store(to + 16, __builtin_shufflevector(even, odd, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31));
    } else if constexpr (BYTES == 32) {
      store(to, __builtin_shufflevector(even, odd, 0, 1, 2, 3, 8, 9, 10, 11));
      store(to + 8, __builtin_shufflevector(even, odd, 4, 5, 6, 7, 12, 13, 14, 15));
    } else {
      store(to, even);
      store(to + 4, odd);
    }
  }
}

template <FactorType FORMAT, int BYTES>
EJK_PTX_INLINE void widen(const MatrixProduct& product, bool is_a, Factors& factors) {
  if constexpr (elements_per_word(FORMAT) == 2) {
    if (is_a && product.a_rows) return widen_rows_of_a<FORMAT, BYTES>(product, factors);
    if (!is_a && product.b_rows) return widen_rows_of_b<FORMAT, BYTES>(product, factors);
  }
  is_a ? widen_a<FORMAT, BYTES>(product, factors) : widen_b<FORMAT, BYTES>(product, factors);
}

template <int BYTES>
EJK_PTX_INLINE void widen(FactorType format, const MatrixProduct& product, bool is_a, Factors& factors) {
  switch (format) {
    case FactorType::bf16:
      return widen<FactorType::bf16, BYTES>(product, is_a, factors);
    case FactorType::f16:
      return widen<FactorType::f16, BYTES>(product, is_a, factors);
    case FactorType::tf32:
      return widen<FactorType::tf32, BYTES>(product, is_a, factors);
    case FactorType::e4m3:
      return widen<FactorType::e4m3, BYTES>(product, is_a, factors);
    case FactorType::e5m2:
      return widen<FactorType::e5m2, BYTES>(product, is_a, factors);
    case FactorType::s8:
      return widen<FactorType::s8, BYTES>(product, is_a, factors);
    case FactorType::u8:
      return widen<FactorType::u8, BYTES>(product, is_a, factors);
  }
}

// Four neighbours in memory for every quad of lanes. (GCC takes several instructions, where the processor has one.)
template <class Vector>
EJK_PTX_INLINE void repeat(const std::uint32_t* from, Vector& to) {
  using Four = Words<16>;
#if defined(__x86_64__) && !defined(__clang__)
  if constexpr (sizeof(Vector) == 64) {
    asm("vbroadcastf32x4 %1, %0" : "=v"(to) : "m"(*reinterpret_cast<const Four*>(from)));
    return;
  }
  if constexpr (sizeof(Vector) == 32) {
    asm("vbroadcastf128 %1, %0" : "=x"(to) : "m"(*reinterpret_cast<const Four*>(from)));
    return;
  }
#endif
  for (std::size_t i = 0; i < sizeof(Vector); i += sizeof(Four)) std::memcpy(reinterpret_cast<char*>(&to) + i, from, sizeof(Four));
}

// The sums of `GROUPS` groups in the lanes of one vector.
template <class Vector, int GROUPS>
EJK_PTX_INLINE void multiply_groups(const MatrixProduct& product, int depth, const Factors& factors, int first, int lane) {
  Vector sums[GROUPS][4];
#pragma GCC unroll 8
  for (int j = 0; j < GROUPS; ++j)
#pragma GCC unroll 4
    for (int e = 0; e < 4; ++e)
      sums[j][e] = product.c ? load<Vector>(product.file + std::size_t{product.c[4 * (first + j) + e]} * 128 + 4 * lane) : Vector{};
  const auto* b = factors.b[first * depth];
  for (int k = 0; k < depth; ++k) {
    const auto low = load<Vector>(&factors.a[k][0][lane]), high = load<Vector>(&factors.a[k][1][lane]);
#pragma GCC unroll 8
    for (int j = 0; j < GROUPS; ++j) {
      Vector even, odd;
      repeat(b + (j * depth + k) * 8, even);
      repeat(b + (j * depth + k) * 8 + 4, odd);
      sums[j][0] += low * even;
      sums[j][1] += low * odd;
      sums[j][2] += high * even;
      sums[j][3] += high * odd;
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < GROUPS; ++j)
#pragma GCC unroll 4
    for (int e = 0; e < 4; ++e) store(product.file + std::size_t{product.d[4 * (first + j) + e]} * 128 + 4 * lane, sums[j][e]);
}

template <class Vector, int GROUPS>
EJK_PTX_INLINE void multiply_factors(const MatrixProduct& product, const Factors& factors) {
  const int depth = product.depth();
  for (int lane = 0; lane < 32; lane += static_cast<int>(sizeof(Vector) / 4)) {
    int group = 0;
    for (; group + GROUPS <= product.groups; group += GROUPS) multiply_groups<Vector, GROUPS>(product, depth, factors, group, lane);
    for (; group < product.groups; ++group) multiply_groups<Vector, 1>(product, depth, factors, group, lane);
  }
}

}  // namespace ejk::ptx::matrix

// GPU vocabulary of the chunked recurrence of halves with the delta rule: its inverse, products with it and what tokens write, times powers of
// two. Part of a template of f16, which includes it after chunk_delta_products.h and chunk_unit.h.
//
// A half cannot hold rows times betas near 0 and take the betas away again. So the inverse is kept without its diagonal, which is 1, rows over
// betas: T' with u = (1 + beta T') X. Of what a token writes u / beta is kept, w_t = y_t + sum over s < t of T'_ts beta_s y_s, where X = beta y;
// and x_s = y_s + sum over t > s of T'_ts beta_t y_t backward. What has no digits left in halves beside larger numbers has none in these sums.
#pragma once

// By all of a block's threads: the unit of all their numbers. They meet behind the columns of the system, where nothing else is.
template <int BLOCK_WARPS> static inline Unit unit_of_block(float largest, Matrices& m) {
  float* place = m.system + CHUNK;
  largest = largest_of_warp(largest);
  if (lane() == 0) place[warp() * PITCH] = largest;
  sync_block();
#pragma unroll
  for (int i = 0; i < BLOCK_WARPS; ++i) largest = larger_of(largest, place[i * PITCH]);
  return Unit(largest, LEAST_SUMMAND);
}

// The inverse below its diagonal, rows over betas, in parts; returns one over its unit.
template <int BLOCK_THREADS> static inline float store_scaled_inverse(Matrices& m, const float* betas, Element* to) {
  float largest = 0;
#pragma unroll 1
  for (int i = thread_x(); i < CHUNK * CHUNK; i += BLOCK_THREADS) {
    const int row = i / CHUNK, column = i % CHUNK;
    if (column < row) largest = larger_size(largest, m.inverse[row * PITCH + column] / betas[row]);
  }
  const Unit unit = unit_of_block<BLOCK_THREADS / WARP>(largest, m);
#pragma unroll 1
  for (int i = thread_x(); i < CHUNK * CHUNK / 8; i += BLOCK_THREADS) {
    const int row = i / 8, column = i % 8 * 8;
    Pack<float, 8> x;
#pragma unroll
    for (int j = 0; j < 8; ++j) x.at[j] = column + j < row ? m.inverse[row * PITCH + column + j] / betas[row] * unit.of : 0;
#pragma unroll
    for (int part = 0; part < INVERSE_PARTS; ++part) {
      Pack<Element, 8> elements;
#pragma unroll
      for (int j = 0; j < 8; ++j) elements.at[j] = from_float<Element>(x.at[j]), x.at[j] -= to_float(elements.at[j]);
      store_pack(to + part * CHUNK * CHUNK + i * 8, elements);
    }
  }
  return unit.inverse;
}

// Largest of values by tokens times a factor of each token, of the warp.
template <class Factor> static inline float largest_weighed(const Sums<4>& numbers, Factor factor) {
  float largest = 0;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float by = factor(8 * n + lane() % 4 * 2 + i);
      largest = larger_size(larger_size(largest, numbers[n][i] * by), numbers[n][2 + i] * by);
    }
  return largest_of_warp(largest);
}

// sums += T' (betas sums) of each value, or (BACK) its transpose's. The square is T', and `inverse` one over its unit.
template <bool BACK> static inline void add_scaled_inverse(Sums<4>& sums, const float* betas, SharedPointer square, float inverse) {
  const Unit unit(largest_weighed(sums, [&](int t) { return betas[t]; }), LEAST_SUMMAND);
  Operands<4> parts[INVERSE_PARTS];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    float x[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[n][i] = sums[2 * c + n][i] * (betas[16 * c + 8 * n + lane() % 4 * 2 + i % 2] * unit.of);
    if constexpr (INVERSE_PARTS > 1) to_operands(parts[0][c], parts[1][c], x[0], x[1]);
    else to_operand(parts[0][c], x[0], x[1]);
  }
  scale_tokens(sums, [&](int) { return unit.of * (1 / inverse); });
#pragma unroll 1
  for (int of_square = INVERSE_PARTS - 1; of_square >= 0; --of_square) {
    const Square part{square + of_square * Square::BYTES};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      sync_warp();
#pragma unroll
      for (int r = BACK ? 0 : c; r < (BACK ? c + 1 : 4); ++r) {
        uint32_t b[4];
        if constexpr (BACK) part.load_b_transposed(b, 16 * c, 16 * r);
        else part.load_b(b, 16 * r, 16 * c);
#pragma unroll
        for (int of_left = INVERSE_PARTS - 1; of_left >= 0; --of_left)
          if (of_left + of_square < INVERSE_PARTS) multiply_two(sums[2 * r], sums[2 * r + 1], parts[of_left][c], b);
      }
    }
  }
  scale_tokens(sums, [&](int) { return unit.inverse * inverse; });
}

// Operands of numbers times a factor of each token, times their unit, which it returns.
template <class Factor> static inline Unit weigh_scaled(Operands<4>& to, Operands<4>& rest, const Sums<4>& numbers, Factor factor) {
  const Unit unit(largest_weighed(numbers, factor));
  weigh_tokens(to, rest, numbers, [&](int t) { return factor(t) * unit.of; });
  return unit;
}

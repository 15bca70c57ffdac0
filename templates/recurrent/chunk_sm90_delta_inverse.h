// Hopper vocabulary of the chunked recurrence with the delta rule: the delta rule's inverse as halves of which several are a number. Part of a template,
// which has defined Piece and INVERSE_PARTS, elements a number of the inverse, before. After chunk_matrix.h and chunk_sm90_value_scales.h.
#pragma once

// The inverse, with its diagonal (1) or without it (0), times a factor of each row, as pieces one after another; over a power of two where it has large
// numbers, which goes to `power`. By all threads, whose numbers of it are in registers in between; `exponents`: a place for one of each warp.
template <int BLOCK_THREADS, class Factor> static inline void store_inverse_pieces(const Matrices& m, int diagonal, int* exponents, Piece* to, float* power, Factor factor_of) {
  constexpr int PACKS = CHUNK * CHUNK / 8 / BLOCK_THREADS, LARGE = 8;
  Pack<float, 8> x[PACKS];
  float largest = 0;
#pragma unroll
  for (int n = 0; n < PACKS; ++n) {
    const int i = thread_x() + n * BLOCK_THREADS, row = i / 8, column = i % 8 * 8;
    const float factor = factor_of(row);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      x[n].at[j] = column + j < row + diagonal ? m.inverse[row * PITCH + column + j] * factor : 0;
      largest = larger_of(largest, absolute(x[n].at[j]));
    }
  }
  const int exponent = largest_in_warp(exponent_of(largest));
  if (lane() == 0) exponents[warp()] = exponent;
  sync_block();
  int most = LARGE;
#pragma unroll
  for (int i = 0; i < BLOCK_THREADS / WARP; ++i) most = exponents[i] > most ? exponents[i] : most;
  const float down = most > LARGE ? power_of(most < 126 ? -most : -126) : 1;
  if (thread_x() == 0) *power = inverse_of_power(down);
#pragma unroll
  for (int n = 0; n < PACKS; ++n)
#pragma unroll
    for (int piece = 0; piece < INVERSE_PARTS; ++piece) {
      Pack<Piece, 8> words;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (piece == 0) x[n].at[j] *= down;
        words.at[j] = from_float<Piece>(x[n].at[j]), x[n].at[j] -= to_float(words.at[j]);
      }
      store_pack(to + piece * CHUNK * CHUNK + (thread_x() + n * BLOCK_THREADS) * 8, words);
    }
}

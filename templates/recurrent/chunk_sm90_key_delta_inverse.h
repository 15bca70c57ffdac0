// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: the delta rule's inverse as halves of which several are a number. After
// chunk_sm90_key_delta_prepare.h and chunk_sm90_value_scales.h.
#pragma once

// The inverse as pieces one after another (forward: for what tokens write to keys of length 1; backward without its diagonal, each row over the token's
// beta, which is a factor of all the rest of it); over a power of two where it has large numbers, which
// goes to `power`. By all threads, whose numbers of it are in registers in between.
static inline void store_inverse_pieces(PrepareMemory& memory, Piece* to, float* power) {
  constexpr int PACKS = CHUNK * CHUNK / 8 / PREPARE_THREADS, LARGE = 8;
  Pack<float, 8> x[PACKS];
  float largest = 0;
#pragma unroll
  for (int n = 0; n < PACKS; ++n) {
    const int i = thread_x() + n * PREPARE_THREADS, row = i / 8, column = i % 8 * 8;
$if backward
    const float factor = reciprocal(memory.betas[row]);
    const int count = row;
$else
    const float factor = memory.key_norms[row] * reciprocal(memory.key_factors[row]);
    const int count = row + 1;
$end
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      x[n].at[j] = column + j < count ? memory.m.inverse[row * PITCH + column + j] * factor : 0;
      largest = larger_of(largest, absolute(x[n].at[j]));
    }
  }
  const int exponent = largest_in_warp(exponent_of(largest));
  int* exponents = reinterpret_cast<int*>(memory.row_sums);
  if (lane() == 0) exponents[warp()] = exponent;
  sync_block();
  int most = LARGE;
#pragma unroll
  for (int i = 0; i < PREPARE_WARPS; ++i) most = exponents[i] > most ? exponents[i] : most;
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
      store_pack(to + piece * CHUNK * CHUNK + (thread_x() + n * PREPARE_THREADS) * 8, words);
    }
}

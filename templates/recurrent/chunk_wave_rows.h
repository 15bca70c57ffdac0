// GPU vocabulary of the chunked recurrence on matrix instructions of a wave: a chunk's rows in shared memory, their norms, and gates. Part of a
// template, which has defined Element, KEYS, WAVES and THREADS before.
#pragma once
#include "device/matrix/wave_rows.h"
#include "device/number/roots.h"
#include "recurrent/chunk_gates.h"

constexpr int TILES = CHUNK / 16, SLICES = KEYS / 16, COLUMNS = 16 * WAVES;  // of tokens; of keys; value features a block
using KeyTile = Tile<Element, CHUNK, KEYS>;
using KeyRows = ChunkRows<Element, KEYS, THREADS>;
constexpr int KEY_PITCH = KeyTile::PITCH * 2, TOKEN_PITCH = TRANSPOSED_PITCH<CHUNK>;  // bytes from token to token; from feature to feature

// Of rows of q and k: factors that make their norms 1.
struct Norms {
  float q[CHUNK], k[CHUNK];
};

// Factors of the rows of two tiles, eight lanes a row.
static inline void put_norms(const char* queries, const char* keys, Norms& to) {
#pragma unroll 1
  for (int row = thread_x() / 8; row < 2 * CHUNK; row += THREADS / 8) {
    const char* tile = row < CHUNK ? queries : keys;
    const Element* from = reinterpret_cast<const Element*>(tile + row % CHUNK * KEY_PITCH);
    float squares = 0;
#pragma unroll 1
    for (int i = thread_x() % 8 * 8; i < KEYS; i += 64) {
      const Pack<Element, 8> x = load_pack<8>(from + i);
#pragma unroll
      for (int j = 0; j < 8; ++j) squares += to_float(x.at[j]) * to_float(x.at[j]);
    }
#pragma unroll
    for (int mask = 1; mask < 8; mask *= 2) squares += shuffle_xor(squares, mask);
    float* norms = row < CHUNK ? to.q : to.k;  // GCC's sanitizers copy the array that `?:` chooses
    if (thread_x() % 8 == 0) norms[row % CHUNK] = rsqrt_of(squares + 1e-6f);
  }
}

// A chunk's numbers, by the block's first warp.
static inline void load_gates(const TokenNumbers& numbers, int token, int count, float gamma, Gates& to) {
  if (warp() != 0) return;
  float gates[2];
  numbers.load(token, count < token + CHUNK ? count : token + CHUNK, gamma, gates);
  put_gates(to, gates);
}
static inline void load_betas(const TokenNumbers& numbers, int token, int count, Gates& to) {
  if (warp() != 0) return;
  float betas[2];
  numbers.load(token, count, 0, betas);
  put_betas(to, betas);
}

// A chunk's rows, transposed: [feature][token], bytes from feature to feature: TOKEN_PITCH.
template <int FEATURES>
static inline void copy_chunk_transposed(SharedPointer to, const ChunkRows<Element, FEATURES, THREADS>& rows, int token, int count) {
  copy_transposed<CHUNK, FEATURES, THREADS>(to, rows.first + static_cast<int64_t>(token) * rows.stride, rows.stride, count - token, rows.columns);
}

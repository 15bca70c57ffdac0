// Hopper vocabulary of the chunked recurrence's gradient with gates of keys: a warpgroup's sums of 64 tokens by keys, as wgmma has them, and what pairs of
// tokens add to them. Part of a template, which has defined KeyFlows and At before.
#pragma once

$if not flat
// Starts copying a step's values of the state before a chunk and of the gradient of that after it.
static inline void load_states(uint32_t to, const TensorMap& kept, uint32_t full, int step, int head, int chunk) {
#pragma unroll 1
  for (int part = 0; part < 2 * PIECES; ++part)
#pragma unroll 1
    for (int box = 0; box < BOXES; ++box) load_tile(to + part * At::STATE + box * At::STEP_STATE_BOX, kept, full, {64 * box, STEP * step, part, head, chunk});
}

$end
static inline int token_row() { return 16 * (warp() % 4) + lane() / 4; }
static inline float* sums_of(char* memory, int place, int token, int key) {
  return reinterpret_cast<float*>(memory + place) + token * SUM_PITCH + key;
}
static inline void put_sums(char* memory, int place, const TokenKeys& sums) {
#pragma unroll
  for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) store_pack(sums_of(memory, place, token_row() + 8 * h, 8 * j + lane() % 4 * 2), Pack<float, 2>{sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]});
}
static inline void put_piece(char* tile, int row, int key, float x) {
  Element* to = reinterpret_cast<Element*>(tile) + row * KeyTile::PITCH + key;
  *to = from_float<Element>(x);
  if (PIECES > 1) *(to + KeyTile::BYTES / 2) = from_float<Element>(x - to_float(*to));
}
static inline float number_of_row(const char* tile, int row, int key) {
  return to_float(reinterpret_cast<const Element*>(tile)[row * KeyTile::PITCH + key]);
}
// Products of pairs: those of different parts as elements to `far`, the others, transposed, as floats.
static inline void put_flows(char* far, char* near, const TokenPairs& pairs) {
#pragma unroll
  for (int slice = 0; slice < 4; ++slice) {
    if (slice > warp() % 4) continue;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float x = pairs[8 * slice + 4 * n + 2 * h], y = pairs[8 * slice + 4 * n + 2 * h + 1];
        const int row = token_row() + 8 * h, column = 16 * slice + 8 * n + lane() % 4 * 2;
        if (slice < warp() % 4) {
          const uint32_t word = pack_pair<Element>(x, y);
          uint32_t* to = reinterpret_cast<uint32_t*>(far + (row * Square::PITCH + column) * 2);
          *to = word;
          if (PIECES > 1) to[Square::BYTES / 4] = rounding_of(x, y, word);
        } else {
          float* to = reinterpret_cast<float*>(near) + slice * PART * PART + column % PART * PART + row % PART;
          to[0] = x, to[PART] = y;
        }
      }
  }
}
// Numbers of eight keys a lane, of slices `first` on, added up over the warp's tokens: a lane gets one of the sums, and puts it away.
static inline void put_left_of_tokens(KeyFlows& flows, int first, float (&left)[8]) {
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = lane() & 4 * half;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float kept = upper ? left[i + half] : left[i], other = upper ? left[i] : left[i + half];
      left[i] = kept + shuffle_xor(other, 4 * half);
    }
  }
  const int own = lane() / 4;
  flows.left[warp() % 4][8 * (first + own / 2) + lane() % 4 * 2 + own % 2] = left[0];
}
// What keys of the warp's part give to its end, of what flows into the state after the chunk: products with `sums`, added up over tokens.
static inline void put_left(const char* memory, KeyFlows& flows, const TokenKeys& sums) {
#pragma unroll
  for (int first = 0; first < KEYS / 8; first += 4) {
    float left[8] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const char* from = memory + At::KEPT + ((token_row() + 8 * h) * KeyTile::PITCH + 8 * (first + j) + lane() % 4 * 2) * 2;
        float k[2] = {};
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
          const uint32_t word = *reinterpret_cast<const uint32_t*>(from + piece * KeyTile::BYTES);
          k[0] += low_of(word), k[1] += high_of(word);
        }
        left[2 * j] += k[0] * sums[4 * (first + j) + 2 * h], left[2 * j + 1] += k[1] * sums[4 * (first + j) + 2 * h + 1];
      }
    put_left_of_tokens(flows, first, left);
  }
}
// sums *= what a part leaves, by key.
static inline void decay_sums(TokenKeys& sums, const float* leaves) {
#pragma unroll
  for (int j = 0; j < KEYS / 8; ++j) {
    const auto left = load_pack<2>(leaves + 8 * j + lane() % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[4 * j + i] *= left.at[i % 2];
  }
}
// sums += pairs rows, of the rows of part `part`; BACK: of the pairs' transpose. Both are PIECES. The product of both rests counts: flows that end before a
// strong gate cancel in its gradient, and each side would lack rests of its own.
template <bool BACK> static inline void add_part(TokenKeys& sums, SharedPointer pairs, SharedPointer rows, int part) {
  const int row = 16 * (warp() % 4);
  uint32_t a[PIECES][4];
#pragma unroll
  for (int piece = 0; piece < PIECES; ++piece) {
    const Square square{pairs + piece * Square::BYTES};
    if constexpr (BACK) load_a_transposed(a[piece], square, 16 * part, row);
    else square.load_a(a[piece], row, 16 * part);
  }
#pragma unroll 1  // once unrolled, it would spill registers
  for (int other = 0; other < PIECES; ++other)
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
      uint32_t b[4];
      KeyTile{rows + other * KeyTile::BYTES}.load_b_transposed(b, 16 * part, 16 * slice);
      float(&x)[2][4] = *reinterpret_cast<float(*)[2][4]>(sums + 8 * slice);
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) multiply_two(x[0], x[1], a[piece], b);
    }
}

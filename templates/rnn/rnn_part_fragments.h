// GPU vocabulary: rnn/rnn_floats.h's words on mma_16x8x16: exact f32 by three parts of bf16 a number (device/matrix/float_parts.h). A template
// defines Element, FEATURES (of a slice), LINES_A_FEATURE, ROWS (of the batch) and CHUNKS (of 32 features a warp) before.
//
// Each of WARPS warps sums over 32 CHUNKS features of its own, 16 at a time. Lane l = 4 g + t has of a batch of states features 2 t, 2 t + 1 and
// 8 more of rows TILE_ROWS g .., as the exchange has them: its first row is a column of the first operand B, the second of the next. Weights lie
// in shared memory as lanes take them. Matrix instructions cut what they add, so that a batch's sums are added to the others apart.
#pragma once
#include "device/matrix/float_parts.h"
#include "device/tile/exchange.h"

constexpr int WARPS = 8, THREADS = WARPS * WARP, CHUNK = 1;
constexpr int LINE_TILES = (LINES_A_FEATURE * FEATURES + 15) / 16;
constexpr int SUM_THREADS = THREADS, SUM_PARTS = WARPS, PART_LINES = 16 * LINE_TILES, DEPTH = 16, WEIGHT_WORDS = 1;
#include "rnn/rnn_sums.h"
static inline void sync_steps() { sync_block(); }  // all threads that go on with sums

constexpr int DEPTHS = 32 * CHUNKS, BATCHES = DEPTHS / DEPTH;
constexpr int TILE_ROWS = ROWS / 8, PACK = TILE_ROWS < 4 ? TILE_ROWS : 4, PACKS = TILE_ROWS / PACK;  // rows of a lane; how many at once
constexpr int AHEAD_OF_IT = 1, TOGETHER = PACKS > 1 ? 1 : 2;  // looks ahead; batches that the loop unrolls
static_assert(TILE_ROWS >= 2 && BATCHES % TOGETHER == 0 && TOGETHER * PACKS % (AHEAD_OF_IT + 1) == 0);

// PACK rows of a batch of this warp's states.
struct Received {
  Pack<uint32_t, PACK> of[4];

  void look_at(const uint32_t* panel, int number) {
    const int batch = number / PACKS;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int feature = (warp() * BATCHES + batch) * DEPTH + k / 2 * 8 + lane() % 4 * 2 + k % 2;
      of[k] = look<PACK>(panel + feature * ROWS + lane() / 4 * TILE_ROWS + number % PACKS * PACK);
    }
  }
  bool lacks_some() const {
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int i = 0; i < PACK; ++i) largest = largest > of[k].at[i] ? largest : of[k].at[i];
    return any_in_warp(largest == NOT_SENT);
  }
  void wait_for(const uint32_t* panel, int number) {
    while (LOOKS_AGAIN && lacks_some()) look_at(panel, number);
  }
  float at(int k, int row) const { return __builtin_bit_cast(float, of[k].at[row]); }
};

struct Fragments {
  float *weights, *parts;  // [warp][batch][tile][half][lane][4]; warps' sums

  explicit Fragments(float* memory) : weights(memory), parts(memory + WARPS * DEPTHS * PART_LINES) {}
  static bool receives() { return false; }
  static void receive(const uint32_t*, int) {}

  static int place_of_weight(int line, int k) {
    const int tile = k / DEPTH * LINE_TILES + line / 16, half = k % DEPTH / 8, lane = line % 8 * 4 + k % 8 / 2;
    return ((tile * 2 + half) * WARP + lane) * 4 + line % 16 / 8 * 2 + k % 2;
  }

  // from(line, k): one element of a line, as a word.
  template <class From> void load(const From& from) {
#pragma unroll 4
    for (int i = thread_x(); i < PART_LINES * WARPS * DEPTHS; i += THREADS) {
      const int k = i % (WARPS * DEPTHS), line = i / (WARPS * DEPTHS);
      weights[place_of_weight(line, k)] = line < LINES ? __builtin_bit_cast(float, from(line, k).at[0]) : 0.0f;
    }
    sync_block();
  }

  // The parts of a batch's weights, as operands A.
  void operands(uint32_t (&a)[LINE_TILES][FLOAT_PARTS][4], int batch) const {
#pragma unroll
    for (int m = 0; m < LINE_TILES; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Pack<float, 4> four = load_pack<4>(weights + ((((warp() * BATCHES + batch) * LINE_TILES + m) * 2 + half) * WARP + lane()) * 4);
        const FloatPair pairs[2] = {{four.at[0], four.at[1]}, {four.at[2], four.at[3]}};
#pragma unroll
        for (int p = 0; p < FLOAT_PARTS; ++p) a[m][p][2 * half] = pairs[0].of[p], a[m][p][2 * half + 1] = pairs[1].of[p];
      }
  }

  // sums of rows first .. of a lane += those of a batch.
  void multiply_some(float (&sums)[LINE_TILES][TILE_ROWS][4], int first, const Received& states, const uint32_t (&a)[LINE_TILES][FLOAT_PARTS][4]) const {
#pragma unroll
    for (int j = 0; j < PACK; ++j) {
      const FloatPair b[2] = {{states.at(0, j), states.at(1, j)}, {states.at(2, j), states.at(3, j)}};
      float some[LINE_TILES][4] = {};
#pragma unroll
      for (int i = 0; i < PART_PRODUCTS; ++i)
#pragma unroll
        for (int m = 0; m < LINE_TILES; ++m) mma_16x8x16<bfloat16>(some[m], a[m][FIRST_PART[i]], b[0].of[SECOND_PART[i]], b[1].of[SECOND_PART[i]]);
#pragma unroll
      for (int m = 0; m < LINE_TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][first + j][i] += some[m][i];
    }
  }

  // All sums of a step of a block: each warp's to its part of shared memory, of which this returns the first. meanwhile() runs while states
  // are on their way.
  template <class Meanwhile> float* multiply(const uint32_t* panel, int, const Meanwhile& meanwhile) const {
    float* const own = parts + warp() * PART_FLOATS;
    float sums[LINE_TILES][TILE_ROWS][4] = {};
    Received states[AHEAD_OF_IT + 1];
#pragma unroll
    for (int i = 0; i < AHEAD_OF_IT; ++i) states[i].look_at(panel, i);
    meanwhile();
#pragma unroll 1
    for (int first = 0; first < BATCHES; first += TOGETHER)
#pragma unroll
      for (int b = 0; b < TOGETHER; ++b) {
        uint32_t a[LINE_TILES][FLOAT_PARTS][4];
        operands(a, first + b);
#pragma unroll
        for (int i = 0; i < PACKS; ++i) {
          const int of = b * PACKS + i, number = first * PACKS + of;
          Received& now = states[of % (AHEAD_OF_IT + 1)];
          now.wait_for(panel, number);
          if (number + AHEAD_OF_IT < BATCHES * PACKS) states[(of + AHEAD_OF_IT) % (AHEAD_OF_IT + 1)].look_at(panel, number + AHEAD_OF_IT);
          multiply_some(sums, i * PACK, now, a);
        }
      }
    sync_block();  // all are done with the sums of the step before
#pragma unroll
    for (int m = 0; m < LINE_TILES; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int first = 0; first < TILE_ROWS; first += PACK) {
          Pack<float, PACK> some;
#pragma unroll
          for (int j = 0; j < PACK; ++j) some.at[j] = sums[m][first + j][i];
          store_pack(own + place_of_sum(16 * m + i / 2 * 8 + lane() / 4, (lane() % 4 * 2 + i % 2) * TILE_ROWS + first), some);
        }
    return parts;
  }
};

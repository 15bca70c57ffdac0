// GPU vocabulary: rnn/rnn_fragments.h's words for f32, exact: a slice of a recurrent layer's weights in shared memory, multiplied by fused
// multiply-adds. A template defines Element, FEATURES (of a slice), LINES_A_FEATURE, ROWS (of the batch) and CHUNKS (of 32 features a
// warp) before.
//
// Each of WARPS warps sums over 32 CHUNKS features of its own, DEPTH of them at a time: its lanes look at their states, lay them
// side by side in the warp's part of shared memory, and each multiplies LANE_LINES lines by LANE_ROWS rows.
#pragma once
#include "device/tile/exchange.h"

constexpr int WARPS = 8, THREADS = WARPS * WARP, CHUNK = 1;
constexpr int SUM_THREADS = THREADS, SUM_PARTS = WARPS, DEPTH = 16, WEIGHT_WORDS = 1;
// A warp's part of shared memory has two batches of its states, then its sums.
constexpr int PART_LINES = LINES_A_FEATURE * FEATURES > 2 * DEPTH ? LINES_A_FEATURE * FEATURES : 2 * DEPTH;
#include "rnn/rnn_sums.h"
static inline void sync_steps() { sync_block(); }  // all threads that go on with sums

constexpr int DEPTHS = 32 * CHUNKS, BATCHES = DEPTHS / DEPTH, LOOKS = ROWS * DEPTH / (4 * WARP);
constexpr int LINE_GROUPS = 4, ROW_GROUPS = WARP / LINE_GROUPS, LANE_LINES = LINES / LINE_GROUPS, LANE_ROWS = ROWS / ROW_GROUPS;
constexpr int LINE_PACK = LANE_LINES % 4 == 0 ? 4 : LANE_LINES % 2 == 0 ? 2 : 1, ROW_PACK = LANE_ROWS % 4 == 0 ? 4 : LANE_ROWS % 2 == 0 ? 2 : 1;
constexpr int STAGE = DEPTH * ROWS;
constexpr bool AT_ONCE = BATCHES * LOOKS <= 8;  // all states of a step are looked at before the first are needed; else one batch ahead
static_assert(LINES % LINE_GROUPS == 0 && LOOKS > 0);

// A batch of this warp's states.
struct Received {
  Pack<uint32_t, 4> of[LOOKS];

  void look_at(const uint32_t* panel, int batch) {
#pragma unroll
    for (int i = 0; i < LOOKS; ++i) of[i] = look<4>(panel + (warp() * BATCHES + batch) * STAGE + (i * WARP + lane()) * 4);
  }
  bool lacks_some() const {
    uint32_t largest = 0;
#pragma unroll
    for (int n = 0; n < LOOKS; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = largest > of[n].at[i] ? largest : of[n].at[i];
    return any_in_warp(largest == NOT_SENT);
  }
  bool wait_for(const uint32_t* panel, int batch) {  // whether it had to look again
    bool again = false;
    for (; LOOKS_AGAIN && lacks_some(); again = true) look_at(panel, batch);
    return again;
  }
  void put(float* stage) const {
#pragma unroll
    for (int i = 0; i < LOOKS; ++i) store_pack(reinterpret_cast<uint32_t*>(stage) + (i * WARP + lane()) * 4, of[i]);
  }
};

struct Fragments {
  float *weights, *parts;  // [feature][group of lines][its lines]; what a warp has of states, then its sums

  explicit Fragments(float* memory) : weights(memory), parts(memory + WARPS * DEPTHS * LINES) {}
  static bool receives() { return false; }
  static void receive(const uint32_t*, int) {}
  static int line_group() { return lane() / ROW_GROUPS; }
  static int row_of(int r) { return r / ROW_PACK * (ROW_GROUPS * ROW_PACK) + lane() % ROW_GROUPS * ROW_PACK + r % ROW_PACK; }

  // from(line, k): one element of a line, as a word.
  template <class From> void load(const From& from) {
#pragma unroll 4
    for (int i = thread_x(); i < LINES * WARPS * DEPTHS; i += THREADS) {
      const int k = i % (WARPS * DEPTHS), line = i / (WARPS * DEPTHS);
      weights[k * LINES + line] = __builtin_bit_cast(float, from(line, k).at[0]);
    }
    sync_block();
  }

  // A batch's features, whose states are in `stage`.
  void multiply_batch(float (&sums)[LANE_LINES][LANE_ROWS], const float* stage, int batch) const {
    const float* line = weights + (warp() * DEPTHS + batch * DEPTH) * LINES + line_group() * LANE_LINES;
#pragma unroll 8
    for (int k = 0; k < DEPTH; ++k, line += LINES) {
      float w[LANE_LINES], state[LANE_ROWS];
#pragma unroll
      for (int l = 0; l < LANE_LINES; l += LINE_PACK) {
        const Pack<float, LINE_PACK> some = load_pack<LINE_PACK>(line + l);
#pragma unroll
        for (int i = 0; i < LINE_PACK; ++i) w[l + i] = some.at[i];
      }
#pragma unroll
      for (int r = 0; r < LANE_ROWS; r += ROW_PACK) {
        const Pack<float, ROW_PACK> some = load_pack<ROW_PACK>(stage + k * ROWS + row_of(r));
#pragma unroll
        for (int i = 0; i < ROW_PACK; ++i) state[r + i] = some.at[i];
      }
#pragma unroll
      for (int l = 0; l < LANE_LINES; ++l)
#pragma unroll
        for (int r = 0; r < LANE_ROWS; ++r) sums[l][r] += w[l] * state[r];
    }
  }

  // All sums of a step of a block: each warp's to its part of shared memory, of which this returns the first. meanwhile() runs while states
  // are on their way.
  template <class Meanwhile> float* multiply(const uint32_t* panel, int, const Meanwhile& meanwhile) const {
    float* const own = parts + warp() * PART_FLOATS;
    float sums[LANE_LINES][LANE_ROWS] = {};
    Received states[AT_ONCE ? BATCHES : 1];
#pragma unroll
    for (int b = 0; b < (AT_ONCE ? BATCHES : 1); ++b) states[b].look_at(panel, b);
    meanwhile();
    bool again = states[0].wait_for(panel, 0);
    sync_block();  // all are done with the sums of the step before
    if constexpr (AT_ONCE) {
#pragma unroll
      for (int b = 0; b < BATCHES; ++b) {
        if (b > 0) again = states[b].wait_for(panel, b);
        if (again)
#pragma unroll
          for (int later = b + 1; later < BATCHES; ++later) states[later].look_at(panel, later);  // what was seen of them is old
        states[b].put(own + b % 2 * STAGE);
        sync_warp();
        multiply_batch(sums, own + b % 2 * STAGE, b);
      }
    } else {
#pragma unroll 1
      for (int b = 0; b < BATCHES; ++b) {
        if (b > 0) states[0].wait_for(panel, b);
        states[0].put(own + b % 2 * STAGE);
        if (b + 1 < BATCHES) states[0].look_at(panel, b + 1);
        sync_warp();
        multiply_batch(sums, own + b % 2 * STAGE, b);
      }
    }
    sync_warp();
#pragma unroll
    for (int l = 0; l < LANE_LINES; ++l)
#pragma unroll
      for (int r = 0; r < LANE_ROWS; r += ROW_PACK) {
        Pack<float, ROW_PACK> some;
#pragma unroll
        for (int i = 0; i < ROW_PACK; ++i) some.at[i] = sums[l][r + i];
        store_pack(own + place_of_sum(line_group() * LANE_LINES + l, row_of(r)), some);
      }
    return parts;
  }
};

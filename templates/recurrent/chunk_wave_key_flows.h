// GPU vocabulary of the chunked recurrence's gradients with gates of keys, on matrix instructions of a wave: what flows past a chunk's gates. Part
// of backward.chunk_keys_wave.gpu.cu.
//
// What flows past a key's gate of a token differs from what flows past the next token's by what is read at the token, of states and tokens before
// it, less what it writes that is read at tokens after it, or is left for later chunks: its query times that gradient, less its key times the
// key's, each without what the token has of itself. The walk forward puts the former to memory, the walk back goes from the last token on and adds
// up. Past a chunk's end flows the product, by key, of the state there and its gradient; past a gate that leaves nothing, nothing.
#pragma once
#include "recurrent/chunk_wave_key_column.h"

// A row's number of a walk's gradient, the lane's column, of tokens before `end`.
static inline void store_number(const WalkRows& to, int token, int end, float x) {
  const int column = 16 * wave() + matrix_column();
  if (token >= end || column >= to.columns) return;
  const int64_t at = static_cast<int64_t>(token) * to.stride + column;
  if (to.sums) static_cast<float*>(to.first)[at] = x;
  else static_cast<Element*>(to.first)[at] = from_float<Element>(x);
}

// A block's places of a head of a sequence.
struct KeyFlows {
  WalkRows read;               // what is read at tokens, f32
  GradientRow gates;           // of keys, from the block's first on
  int64_t gate_stride;         // 0: not asked for
  float *tokens, *kept;        // sums over 16 keys each; states at ends of chunks
  int64_t kept_stride;         // from a kept state to the next
  int token_stride, keys;      // from the block's first

  bool there() const { return 16 * wave() < keys; }
  float* kept_state(int number) const { return kept + number * kept_stride + wave() * (16 * KEYS) + wave_lane(); }
  void keep(const State& state, int number) const {
    if (!there()) return;
    float* to = kept_state(number);
#pragma unroll
    for (int k = 0; k < SLICES; ++k)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) to[(k * SUMS + i) * WAVE] = state[k].at[i];
  }
  // Products with the gradient there, by key.
  float through(const State& gradient, int number) const {
    if (!there()) return 0;
    const float* from = kept_state(number);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      part();
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sum += gradient[k].at[i] * from[(k * SUMS + i) * WAVE];
    }
    return sum_of_column(sum);
  }

  // Of a chunk of a walk, from what its tokens read, which the lane's numbers are; `own`: the rows that they read by; `closed`: KeyColumn's.
  template <bool BACK>
  void take(WaveNumbers& numbers, uint32_t closed, const ValueRows& own, const float* norms, int token, int end, float& past) const {
    const int first = token + PART * own_part();
    if (has_part()) {
      numbers.change_own([&](int i, float x) {
        x *= column_at(own, first + i, end) * (NORMED ? norms[i] : 1);
        return BACK ? read_at(first + i, end) - x : x;
      });
    }
    if constexpr (BACK) {
      add_up(numbers, closed, token, end, past);
    } else if (has_part()) {
      numbers.change_own([&](int i, float x) {
        store_number(read, first + i, end, x);
        return x;
      });
    }
  }

 private:
  float read_at(int token, int end) const {
    const int key = 16 * wave() + matrix_column();
    return token < end && key < read.columns ? static_cast<const float*>(read.first)[static_cast<int64_t>(token) * read.stride + key] : 0;
  }
  // The lane's numbers, changes from token to token, become gradients.
  void add_up(WaveNumbers& numbers, uint32_t closed, int token, int end, float& past) const {
    // Of the part by itself: what flows past its last gate, and whether what flows past the one before the part does, too.
    const float* changes = numbers.own();
    float alone = 0;
#pragma unroll 4
    for (int i = 0; i < PART; ++i) alone = closed >> i & 1 ? 0 : alone + changes[i * WaveNumbers::PITCH];
    const float other = exchange_wave(alone, 16), other_open = exchange_wave(closed ? 0.0f : 1.0f, 16);
    const float before = own_part() == 0 ? past : other + other_open * past;
    const float last = closed ? alone : alone + before, other_last = exchange_wave(last, 16);
    past = own_part() == 0 ? other_last : last;

    const int first = token + PART * own_part(), key = 16 * wave() + matrix_column();
    const bool wanted = gate_stride != 0 && key < keys;
    float flow = before;
    if (has_part()) {
      numbers.change_own([&](int i, float x) {
        flow = closed >> i & 1 ? 0 : flow + x;
        if (wanted && first + i < end) gates.store((first + i) * gate_stride + key, flow);
        return flow;
      });
    }
    sync_wave();  // gradients of all keys are there
    if (!has_part()) return;
    const int t = token + wave_lane();
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < PART; ++i) sum += numbers.at[wave_lane()][i];
    if (there() && t < end) tokens[static_cast<int64_t>(t) * token_stride + wave()] = sum;
  }
};

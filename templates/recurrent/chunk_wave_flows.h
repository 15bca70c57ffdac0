// GPU vocabulary of the chunked recurrence's gradients on matrix instructions of a wave: what flows past a chunk's gates.
//
// What flows past the gate of a token differs from what flows past the next one's by what is read at the token, of states and tokens before it,
// less what it writes that is read at tokens after it, or is left for later chunks. What flows past the end of a group of chunks is the product
// of the state there and its gradient. Pairs of a chunk's tokens are added up in f32 before their weights are rounded.
#pragma once

// Of a chunk and head in memory: pairs' flows; what is read at tokens of the state before, by 16 keys each; what they leave, likewise.
$if dual
#include "ssd/wave_pair_sums.h"
$end
constexpr int FLOW_PARTS = ${dual ? 'PAIR_ROWS' : '1'} + 2 * SLICES;

// A wave's places of a head of a sequence.
struct Flows {
  float *sums, *through, *kept;
  int64_t first_group, head, heads;
  int block, keys;  // of 16 keys

  int64_t group(int chunk) const { return (first_group + chunk / KEPT) * heads + head; }
  float* of_chunk(int chunk) const { return sums + ((first_group * KEPT + chunk) * heads + head) * FLOW_PARTS * CHUNK; }
  bool there() const { return 16 * block < keys; }
  static bool ends_group(int chunk, int chunks) { return chunk % KEPT == KEPT - 1 || chunk == chunks - 1; }

$if dual  // ssd/wave_pair_flows.h
  void store_pairs(char* memory, int pairs, const Sums& weights, int chunk) const;
$else
  // Of a block of pairs' weights, what is read by token, and what is written.
  void put_pairs(char* memory, int pairs, const Sums& weights) const {
    PairFlows& to = *reinterpret_cast<PairFlows*>(memory + PAIR_FLOWS);
    const RowNorms& norms = *reinterpret_cast<const RowNorms*>(memory + NORMS);
    const SharedPointer shared = shared_pointer(memory);
    Sums x = multiply_block(shared + OWN_ROWS, shared + WRITTEN_ROWS, pairs);
    const int t = 16 * block_row(pairs) + matrix_column();
    const float norm = NORMED ? norms.own[t] : 1;
    float read = 0;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int s = 16 * block_column(pairs) + matrix_row(i);
      x.at[i] = s < t ? x.at[i] * norm * weights.at[i] : 0;
      read += x.at[i];
    }
    read = sum_of_column(read);
    if (wave_lane() < 16) to.read[pairs][wave_lane()] = read;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      float written = x.at[i];
      for (int mask = 1; mask < 16; mask *= 2) written += exchange_wave(written, mask);
      if (matrix_column() == 0) to.written[pairs][matrix_row(i)] = written;
    }
  }
  void store_pairs(const char* memory, int chunk) const {
    const PairFlows& from = *reinterpret_cast<const PairFlows*>(memory + PAIR_FLOWS);
    const int t = thread_x(), i = t % 16;
    if (t >= CHUNK) return;
    const float read = t < 16 ? from.read[0][i] : from.read[1][i] + from.read[2][i];
    const float written = t < 16 ? from.written[0][i] + from.written[1][i] : from.written[2][i];
    of_chunk(chunk)[t] = read - written;
  }
$end
  // Of a wave's sums of what tokens read of a state: their products with rows of q, or of k.
  void store_read(const char* memory, const Plan& plan, int chunk, const Sums (&x)[TILES]) const {
    if (!there()) return;
    const RowNorms& norms = *reinterpret_cast<const RowNorms*>(memory + NORMS);
#pragma unroll
    for (int r = 0; r < TILES; ++r) {
      const int t = 16 * r + matrix_column();
      const Element* row = reinterpret_cast<const Element*>(memory + OWN_ROWS + t * KEY_PITCH) + 16 * block;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sum += x[r].at[i] * to_float(row[matrix_row(i)]);
      sum = sum_of_column(sum) * (NORMED ? norms.own[t] : 1);
      if (wave_lane() < 16) of_chunk(chunk)[(${dual ? 'PAIR_ROWS' : '1'} + (plan.way == OF_KEYS ? SLICES : 0) + block) * CHUNK + t] = sum;
    }
  }
  float* kept_state(int chunk) const { return kept + (group(chunk) * SLICES + block) * (16 * KEYS) + wave_lane(); }
  // The state after a group's last chunk.
  void keep(const State& state, int chunk, int chunks) const {
    if (!there() || !ends_group(chunk, chunks)) return;
    float* to = kept_state(chunk);
#pragma unroll
    for (int k = 0; k < SLICES; ++k)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) to[(k * SUMS + i) * WAVE] = state[k].at[i];
  }
  // Its product with the gradient there.
  void store_through(const State& gradient, int chunk, int chunks) const {
    if (!there() || !ends_group(chunk, chunks)) return;
    const float* from = kept_state(chunk);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      part();
#pragma unroll
      for (int i = 0; i < SUMS; ++i) sum += gradient[k].at[i] * from[(k * SUMS + i) * WAVE];
    }
    for (int mask = 1; mask < 16; mask *= 2) sum += exchange_wave(sum, mask);
    sum = sum_of_column(sum);
    if (wave_lane() == 0) through[group(chunk) * SLICES + block] = sum;
  }
};

// Hopper vocabulary of the chunked recurrence's gradient with the delta rule: gradients of two chunks' log gates. Part of
// backward.chunk_delta.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_token_sums.h"

// By a warp, whose lanes have two tokens of each chunk: what flows past their log gates, added up over the turns.
struct GateFlows {
  const GradientPlaces at;
  const DeltaFlows& flows;
  float change[2][2] = {}, left = 0;  // of the earlier chunk's tokens, of the later one's: from the token after it on; past all of them
  float later_sum = 0;                // (store) of the changes of chunks after

  // What a turn left; beside(): what else is read of it.
  template <class Beside> void add(int step, int turn, Beside beside) {
    barrier_wait(at.meeting(FLOWS_THERE), (step * TURNS + turn) % 2);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * lane() + i;
      float reader = flows.read[0][t] + flows.read[1][t], writer = 0;
#pragma unroll
      for (int part = 0; part < 8; ++part) writer -= flows.read_here[part][t];
      if (turn != ACROSS) {
        reader += flows.read_by_keys[t];
        writer -= flows.left[t], left += flows.left[t];
      }
      change[0][i] += (turn == EARLIER ? reader : 0) + (turn == LATER ? 0 : writer);
      change[1][i] += (turn == EARLIER ? 0 : reader) + (turn == LATER ? writer : 0);
    }
    if (turn == LATER && lane() < 8) left += flows.through[0][lane()];
    beside();
    sync_warp();
    barrier_arrive(at.meeting(FLOWS_FREE));
  }
  // Gradients of a chunk's log gates, first the later one's; returns the warp's sum of them.
  float store(bool later, const float (&log_gates)[2], const GradientRow& to, int64_t stride, int token, int count, bool wanted) {
    if (later) left = sum_of_warp(left);
    float sum = change[later][0] + change[later][1];
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const float next = shuffle_down(sum, by);
      if (lane() + by < WARP) sum += next;
    }
    float total = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = 2 * lane() + i;
      const bool none = token + t >= count || log_gates[i] < -3.4e38f;
      const float gradient = none ? 0 : left + later_sum + sum - (i ? change[later][0] : 0);
      if (wanted && token + t < count) to.store((token + t) * stride, gradient);
      total += gradient;
    }
    later_sum += shuffle(sum, 0);
    return sum_of_warp(total);
  }
  static float sum_of_warp(float x) {
#pragma unroll
    for (int mask = 1; mask < WARP; mask *= 2) x += shuffle_xor(x, mask);
    return x;
  }
};

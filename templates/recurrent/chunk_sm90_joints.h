// Hopper vocabulary of the chunked recurrence: the entries that make the states before segments. With the delta rule a segment multiplies such
// a state by a matrix; else it decays by keys. After chunk_sm90_carried.h.
#pragma once
#include "device/tile/launch_order.h"

constexpr int STATE_NUMBERS = WARPGROUP * KEYS;  // of 128 values
constexpr int JOINED_VALUES = 16, ADDED_CHUNKS = 4;  // of a block

// Segments of a row, of which each but the first has a state before it.
struct Joints {
  int segments, tokens, length;
  Joints(int64_t segments, int64_t tokens, int64_t length)
      : segments(static_cast<int>(segments)), tokens(static_cast<int>(tokens)), length(static_cast<int>(length)) {}
  int64_t place(int row, int number) const { return static_cast<int64_t>(row) * (segments - 1) + number - 1; }
  int parts() const { return (tokens / CHUNK + ADDED_CHUNKS - 1) / ADDED_CHUNKS; }
  int all_chunks() const { return (length + CHUNK - 1) / CHUNK; }
  // Chunks of all sequences, or (`row` a head of a sequence) of all heads, before a segment.
  int64_t chunks_before(int row, int number) const { return static_cast<int64_t>(row) * all_chunks() + number * (tokens / CHUNK); }
  int chunks(int number) const {
    const int left = length - number * tokens;
    return ((left < tokens ? left : tokens) + CHUNK - 1) / CHUNK;
  }
};

$if not delta
// Block number: a segment but the first of a head of a sequence. What it leaves of a state before it, by keys, also up to each ADDED_CHUNKS
// chunks; and after how many chunks nothing is left.
KERNEL(KEYS, 1) multiply_decays(${parameters('multiply_decays')}) {
  const int joint = block_x(), row = joint / static_cast<int>(segments - 1), number = joint - row * static_cast<int>(segments - 1) + 1;
  const Joints joints(segments, segment_tokens, q_view.shape[1]);
  const int sequence = row / static_cast<int>(heads), head = row - sequence * static_cast<int>(heads), chunks = joints.chunks(number);
  const int key = thread_x();
  const float* from = decays + (joints.chunks_before(sequence, number) * heads + head) * KEYS + key;
  float* to = decays_before + static_cast<int64_t>(joint) * joints.parts() * KEYS + key;
  constexpr int AHEAD = 16;  // chunks whose decays are on their way at once
  float left = key < static_cast<int>(q_view.shape[3]) ? 1 : 0;  // padded keys are gone from the start
  int chunk = 0;
  let_next_launch_go();
  wait_for_previous_launch();
#pragma unroll 1
  for (; chunk < chunks; chunk += AHEAD) {
    if (chunk > 0 && !any_in_block(left > 1.2e-38f)) break;
    float next[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) next[i] = chunk + i < chunks ? from[(chunk + i) * heads * KEYS] : 1;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      if (chunk + i >= chunks) break;
      if (i % ADDED_CHUNKS == 0) to[(chunk + i) / ADDED_CHUNKS * KEYS] = left;
      left = left * base_of(next[i]) + left * next[i];
    }
  }
  segment_decays[joint * KEYS + key] = left;
  if (key == 0) carried_chunks[joint] = chunk < chunks ? chunk : chunks;
}

$end
// Block number: JOINED_VALUES values of a slice of a head of a sequence. Makes states before segments of those of each alone, and the last one.
KERNEL(256, 1) join_segments(${parameters('join_segments')}) {
  constexpr int OWN = JOINED_VALUES * KEYS / 256, PARTS = WARPGROUP / JOINED_VALUES;
  const Joints joints(segments, segment_tokens, q_view.shape[1]);
  const int row = block_x() / PARTS, item = row / static_cast<int>(slices), slice = row - item * static_cast<int>(slices);
  const int key = thread_x() % KEYS, value = block_x() % PARTS * JOINED_VALUES + thread_x() / KEYS * OWN;
$if delta
  // Shared memory: states before, by values; two segments' matrices, of which one is copied while the other is used.
  float* before = reinterpret_cast<float*>(dynamic_shared()) + thread_x() / KEYS * OWN * KEYS;
  float* matrices = reinterpret_cast<float*>(dynamic_shared()) + JOINED_VALUES * KEYS;
  const auto is_needed = [&](int number) {  // else nothing is left
    return number < joints.segments && carried_chunks[joints.place(item, number)] == joints.chunks(number);
  };
  const auto start = [&](int number) {
    if (is_needed(number)) {
      const float* from = carried_states + joints.place(item, number) * STATE_NUMBERS;
#pragma unroll 8
      for (int i = thread_x() * 4; i < KEYS * KEYS; i += 1024) copy_async_16(shared_pointer(matrices + number % 2 * (KEYS * KEYS) + i), from + i, true);
    }
    copy_async_commit();
  };
$end
  const float* alone = segment_states + static_cast<int64_t>(row) * joints.segments * STATE_NUMBERS + value * KEYS + key;
  float state[OWN];
  let_next_launch_go();
  wait_for_previous_launch();
#pragma unroll
  for (int i = 0; i < OWN; ++i) state[i] = alone[i * KEYS];
  Element* kept = reinterpret_cast<Element*>(states_before) + joints.place(row, 1) * STATE_NUMBERS + value * KEYS + key;
$if delta
  start(1);
#pragma unroll 1
  for (int number = 1; number < joints.segments; ++number, kept += STATE_NUMBERS) {
    alone += STATE_NUMBERS;
    sync_block();
    start(number + 1);
#pragma unroll
    for (int i = 0; i < OWN; ++i) before[i * KEYS + key] = state[i], kept[i * KEYS] = from_float<Element>(state[i]), state[i] = 0;
    copy_async_wait<1>();
    sync_block();
    if (is_needed(number)) {
      const float* matrix = matrices + number % 2 * (KEYS * KEYS) + key;
#pragma unroll 4
      for (int k = 0; k < KEYS; k += 4) {
        float of[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) of[j] = matrix[(k + j) * KEYS];
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
          const Pack<float, 4> x = load_pack<4>(before + i * KEYS + k);
#pragma unroll
          for (int j = 0; j < 4; ++j) state[i] += x.at[j] * of[j];
        }
      }
    }
#pragma unroll
    for (int i = 0; i < OWN; ++i) state[i] += alone[i * KEYS];
  }
$else
  constexpr int AHEAD = 4;  // segments that are read at once
#pragma unroll 1
  for (int number = 1; number < joints.segments; number += AHEAD) {
    float own[AHEAD][OWN];
    float left[AHEAD];
#pragma unroll
    for (int n = 0; n < AHEAD; ++n) {
      if (number + n >= joints.segments) break;
      alone += STATE_NUMBERS;
#pragma unroll
      for (int i = 0; i < OWN; ++i) own[n][i] = alone[i * KEYS];
      left[n] = segment_decays[joints.place(item, number + n) * KEYS + key];
    }
#pragma unroll
    for (int n = 0; n < AHEAD; ++n) {
      if (number + n >= joints.segments) break;
#pragma unroll
      for (int i = 0; i < OWN; ++i) {
        kept[i * KEYS] = from_float<Element>(state[i]);
        state[i] = state[i] * left[n] + own[n][i];
      }
      kept += STATE_NUMBERS;
    }
  }
$end
  const int64_t sequence = item / heads, head = item % heads;
  if (key >= final_state_view.shape[2]) return;
  float* to = static_cast<float*>(final_state_view.data) + sequence * final_state_view.strides[0] + head * final_state_view.strides[1];
  to += key * final_state_view.strides[2];
#pragma unroll
  for (int i = 0; i < OWN; ++i)
    if (slice * 128 + value + i < final_state_view.shape[3]) to[slice * 128 + value + i] = state[i];
}

#include "recurrent/chunk_sm90_add_before.h"

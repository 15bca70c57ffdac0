// Hopper vocabulary of the chunked recurrence: segments of a sequence, which are computed at once, and the entries that make the states
// before them. Part of forward.chunk.sm90.cu.
#pragma once

// Block number: segment % segments of slice % slices of a head of a sequence.
struct Segment {
  int number, row, slice, sequence, head, first, count;  // row: slices of heads of sequences before it; first: token; count: of tokens

  Segment(int64_t heads, int64_t slices, int64_t segments, int64_t segment_tokens, int64_t length) {
    const uint32_t block = static_cast<uint32_t>(block_x()), all = static_cast<uint32_t>(segments);
    row = static_cast<int>(block / all), number = static_cast<int>(block) - row * static_cast<int>(all);
    const uint32_t item = static_cast<uint32_t>(row) / static_cast<uint32_t>(slices), all_heads = static_cast<uint32_t>(heads);
    slice = row - static_cast<int>(item * static_cast<uint32_t>(slices));
    sequence = static_cast<int>(item / all_heads), head = static_cast<int>(item - sequence * all_heads);
    first = number * static_cast<int>(segment_tokens);
    const int left = static_cast<int>(length) - first;
    count = left < static_cast<int>(segment_tokens) ? left : static_cast<int>(segment_tokens);
  }
  Tokens tokens(int64_t sequences) const {
    Tokens tokens(nullptr, sequences, sequence, 0);
    tokens.first = first, tokens.end = first + count;
    return tokens;
  }
  // Where the state after a segment is kept, of one of the two warpgroups that carry it.
  int64_t place(int64_t segments, int number, int part) const { return ((row * (segments - 1) + number) * 2 + part) * (WARPGROUP * (KEYS / 2)); }
};

// Of a segment: its state without those before it, and the log of what it leaves of them. The last one has no block.
KERNEL(3 * WARPGROUP, 1) segment_states_alone(${parameters('segment_states_alone')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  if (thread_x() == 0) {
    at.init();
    fence_barrier_init();
  }
  sync_block();
  const Segment segment(heads, slices, segments - 1, segment_tokens, k_view.shape[1]);
  const int group = uniform(warpgroup());
  Turn<STAGES> turn;
  if (group == 0) {
    give_registers<88>();
    if (warp() > 0) return;
    const auto own = [&](const View& view) { return segment.head / static_cast<int>(heads / view.shape[2]); };
    const int key_head = own(k_view), value_head = own(v_view);
    const TokenNumbers gates(g_view, g_type, segment.tokens(sequences), segment.head, false);
    const float gamma = gamma_of(g_gamma_view, gamma_type, segment.head, heads, layer_idx, num_layers);
    LongSum log = {0, 0};
#pragma unroll 1
    for (int token = 0; token < segment.count; token += CHUNK, turn.next()) {
      float numbers[2];
      gates.load(token, segment.count, gamma, numbers);
      const uint32_t full = at.full(turn.at);
      barrier_wait_all(at.empty(turn.at), turn.parity ^ 1);
      if (lane() == 0) {
        barrier_expect(full, KEY_BOXES + VALUE_BOXES);
#pragma unroll
        for (int box = 0; box < BOXES; ++box)
          load_tile(at.keys(turn.at) + box * BOX, k_map, full, {64 * box, key_head, segment.first + token, segment.sequence});
#pragma unroll
        for (int part = 0; part < 2; ++part)
          load_tile(at.values(turn.at, part), v_map, full, {segment.slice * 128 + 64 * part, value_head, segment.first + token, segment.sequence});
      }
      Gates& to = at.gates(memory, turn.at);
      put_gates(to, numbers);
      sync_warp();
      log = log + LongSum{to.high[CHUNK - 1], to.low[CHUNK - 1]};
      if (lane() == 0) barrier_arrive(full);
    }
    if (lane() == 0) segment_logs[block_x()] = log.high + log.low;
  } else {
    take_registers<208>();
    const int part = group - 1, column = segment.slice * 128 + 64 * part;
    const Carrier carrier{at, memory, v_map, 0, segment.count, segment.sequence, segment.head, column, part, segment.first};
    Column state = {};
    if (segment.number == 0) carrier.begin(state, initial_state_view, nullptr);
#pragma unroll 1
    for (int token = 0; token < segment.count; token += CHUNK, turn.next()) {
      barrier_wait_all(at.full(turn.at), turn.parity);
      carrier.write(state, turn.at);
      sync_warp();
      if (lane() == 0) barrier_arrive(at.empty(turn.at));
    }
    carrier.keep(state, segment_states + segment.place(segments, segment.number, part));
  }
}

#include "recurrent/chunk_sm90_joined.h"

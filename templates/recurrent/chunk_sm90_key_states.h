// Hopper vocabulary of the chunked recurrence's gradient with gates of keys: the entry that walks through each sequence for the states before chunks, and
// from its end for their gradients, and keeps both. Part of backward.chunk_keys.sm90.cu.
#pragma once
#include "recurrent/chunk_sm90_state_walk.h"

// A block has one way through a head of a sequence: warp 0 copies, warpgroups 1 and 2 keep 64 values of the state each in registers, by keys. Of a chunk
// there are rows that are taken in, both pieces of 64 keys, then of the next, values or out's gradients, and decays.
constexpr int STATE_STAGES = 3;
constexpr uint32_t PIECES_OF_ROWS = ROW_PIECES * BOX, STATE_VALUES = BOXES * PIECES_OF_ROWS, STATE_STAGE = STATE_VALUES + 2 * BOX;
static_assert(QUERY_PIECES == ROW_PIECES);

struct StatePlaces {
  static constexpr uint32_t OUT = STATE_STAGES * STATE_STAGE, DECAYS = OUT + 2 * OUT_BUFFERS * BOX, BARRIERS = DECAYS + STATE_STAGES * 4 * KEYS;
  uint32_t first;

  uint32_t stage(uint32_t i) const { return first + i * STATE_STAGE; }
  uint32_t decays(uint32_t i) const { return DECAYS + i * 4 * KEYS; }
  uint32_t full(uint32_t i) const { return first + BARRIERS + 16 * i; }
  uint32_t empty(uint32_t i) const { return full(i) + 8; }
};
static_assert(1024 + StatePlaces::BARRIERS + 16 * STATE_STAGES <= ${state_shared}, "the spec has another size");

// By one thread: chunks in the order in which they are met.
static inline void copy_chunks(const StatePlaces& at, const Walk& walk, const TensorMap& rows, const ${packed ? 'PackedRows' : 'TensorMap'}& values, const float* decays) {
  Turn<STATE_STAGES> turn;
#pragma unroll 1
  for (int step = 0; step < walk.chunks; ++step, turn.next()) {
    const int chunk = walk.chunk(step), number = walk.number(chunk);
    const uint32_t full = at.full(turn.at), stage = at.stage(turn.at);
    barrier_wait(at.empty(turn.at), turn.parity ^ 1);
    barrier_arrive_expect(full, STATE_STAGE + 4 * KEYS);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) load_tile(stage + box * PIECES_OF_ROWS, rows, full, {64 * box, 0, 0, walk.head, number});
#pragma unroll
    for (int part = 0; part < 2; ++part) load_tile(stage + STATE_VALUES + part * BOX, values, full, {64 * part, walk.head, chunk * CHUNK, walk.sequence});
    load_bytes(at.first + at.decays(turn.at), decays + (static_cast<int64_t>(number) * walk.heads + walk.head) * KEYS, 4 * KEYS, full);
  }
}

// Starts taken = values rows, of 64 keys; smaller pieces first: matrix instructions round down.
static inline void take_in(Columns& taken, uint32_t values, uint32_t rows) {
  keep_in_place(taken);
  wgmma_fence();
#pragma unroll
  for (int piece = ROW_PIECES - 1; piece >= 0; --piece) multiply_values_by_columns(taken, values, rows + piece * BOX, piece + 1 < ROW_PIECES);
  wgmma_commit();
}

// By a warpgroup: 64 values of the state from one end of the sequence to the other. What it was before a chunk is kept while products go on.
static inline void carry(const StatePlaces& at, const char* memory, const TensorMap& kept, const Walk& walk, int part, const View& first_state, const View& last_state) {
  Column state = {};
  const int column = 64 * part + 16 * (warp() % 4);
  const StateMemory first(first_state, walk.sequence, walk.head, column);
  if (first.data) first.each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
  OutBuffers buffers{at.first + StatePlaces::OUT + part * OUT_BUFFERS * BOX, 1 + part};
  Turn<STATE_STAGES> turn;
#pragma unroll 1
  for (int step = 0; step < walk.chunks; ++step, turn.next()) {
    barrier_wait_all(at.full(turn.at), turn.parity);
    const uint32_t rows = at.stage(turn.at), values = rows + STATE_VALUES + part * BOX;
    const float* decays = reinterpret_cast<const float*>(memory + at.decays(turn.at));
    Columns taken;
    take_in(taken, values, rows);
    uint32_t seen[SLICES][4], rest[SLICES][4];
    to_factor(seen, state);
    to_rounding(rest, seen, state);
    keep_state<PIECES>(seen, rest, buffers, kept, {0, 64 * part, walk.back ? PIECES : 0, walk.head, walk.number(walk.chunk(step))});
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      wgmma_wait<0>();
      keep_in_place(taken);
      add_to_decayed(state, box, taken, decays);
      if (box + 1 < BOXES) take_in(taken, values, rows + PIECES_OF_ROWS);
    }
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(turn.at));
  }
  buffers.finish();
  const StateMemory last(last_state, walk.sequence, walk.head, column);
  if (walk.back && last.data) last.each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i]; });
}

// Block number: first gradients of states, then states, of a head of a sequence each.
KERNEL(3 * WARPGROUP, 1) states(${parameters('states')}) {
  const StatePlaces at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    for (int i = 0; i < STATE_STAGES; ++i) {
      barrier_init(at.full(i), 1);
      barrier_init(at.empty(i), 8);
    }
    fence_barrier_init();
  }
  sync_block();
  const Walk walk${packed ? ' = Walk::of(heads, sequences, cum_seqlens, v_view.shape[1], static_cast<int>(block_x()))' : '(heads, sequences, v_view.shape[1])'};
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<40>();
    if (thread_x() == 0) copy_chunks(at, walk, walk.back ? queries_before_map : keys_after_map, ${packed ? 'walk.rows(walk.back ? dout_map : v_map, value_copies_map, walk.back ? DOUT_ROWS : V_ROWS, copied_boxes)' : 'walk.back ? dout_map : v_map'}, decays);
  } else {
    take_registers<232>();
    const char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
    carry(at, memory, kept_states_map, walk, group - 1, walk.back ? dfinal_state_view : initial_state_view, dinitial_state_view);
  }
}

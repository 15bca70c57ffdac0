// recurrent, forward, with gates of keys, a chunk of 64 tokens at a time, on Hopper's wgmma: forward.chunk_keys.gpu.cu says what the launch
// `prepare` makes of a chunk. Then a block goes through one sequence and head for 128 columns of the state: a warp copies, warpgroups 1 and 2
// keep 64 columns each in registers, as a matrix of values by keys. Where sequences and heads do not fill the device, sequences are cut into
// segments, and launches after add what they make of the state before them.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16, BOXES = KEYS / 64;  // up to 56 more than there are: zeros
constexpr int STAGES = ${stages}, OUT_BUFFERS = ${out_buffers};
constexpr int WARPS = 8, THREADS = WARPS * WARP;      // of a block that prepares
constexpr bool DELTA = ${delta}, NORMED = ${normed};  // the delta rule; l2_norm
constexpr bool NARROW = false;
#include "recurrent/chunk_gates.h"

using KeyTile = Tile<Element, CHUNK, KEYS>;
using Square = Tile<Element, CHUNK, CHUNK>;
constexpr int QUERY_PIECES = 1, ROW_PIECES = 2, PAIR_PIECES = 1, INVERSE_PARTS = 2;  // elements a number
constexpr int DECAY_ROW = KEYS;
#include "recurrent/chunk_block.h"
constexpr int PREPARE_GROUPS = 1;
#include "recurrent/chunk_prepare.h"
#include "recurrent/chunk_sm90_products.h"
#include "recurrent/chunk_sm90_weighed.h"
constexpr int CARRIED_TURNS = 1;
#include "recurrent/chunk_sm90_carried.h"
#include "recurrent/chunk_sm90_joints.h"

constexpr uint32_t DECAY_BYTES = 4 * KEYS;
// A stage: weighed queries, keys (of 64 keys both pieces, then of the next), values, the pairs' weights. Then the stages' decays, rows of out,
// barriers.
constexpr uint32_t KEY_ROWS = BOXES * BOX, VALUES = 3 * BOXES * BOX, PAIRS = VALUES + 2 * BOX, STAGE = PAIRS + BOX;
constexpr uint32_t OUT_ROWS = STAGES * STAGE, DECAYS = OUT_ROWS + 2 * OUT_BUFFERS * BOX, BARRIERS = DECAYS + STAGES * DECAY_BYTES;
static_assert(1024 + BARRIERS + 16 * STAGES <= ${shared}, "the spec has another size");

struct Places {
  uint32_t first;
  uint32_t stage(uint32_t i) const { return first + i * STAGE; }
  uint32_t full(uint32_t i) const { return first + BARRIERS + 16 * i; }
  uint32_t empty(uint32_t i) const { return full(i) + 8; }
};

// out, and the state after the chunk. In between, products that are started go on while other numbers are made ready.
static inline void compute(Column& state, Columns& sums, uint32_t stage, int part, const float* decays) {
  uint32_t seen[SLICES][4];  // the state as it is read
  Columns taken;
  const uint32_t values = stage + VALUES + part * BOX;
  const auto take_in = [&](int box) {
    keep_in_place(taken);
    wgmma_fence();
    const uint32_t keys = stage + KEY_ROWS + 2 * box * BOX;
    multiply_values_by_columns(taken, values, keys + BOX, false);  // smaller ones first: matrix instructions round down
    multiply_values_by_columns(taken, values, keys, true);
    wgmma_commit();
  };
  take_in(0);
  to_factor(seen, state);
  keep_in_place(sums);
  wgmma_fence();
  multiply_by_rows(sums, seen, stage, false);
  multiply_values_by_rows(sums, values, stage + PAIRS);
  wgmma_commit();
  wgmma_wait<1>();
  keep_in_place(taken);
  add_to_decayed(state, 0, taken, decays);
  if constexpr (BOXES > 1) {
    take_in(1);
    wgmma_wait<0>();
    keep_in_place(taken);
    add_to_decayed(state, 1, taken, decays);
  } else {
    wgmma_wait<0>();
  }
  keep_in_place(sums);
}

// Block number: as Segment has it.
KERNEL(3 * WARPGROUP, 1) recurrent(${parameters('recurrent')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(at.full(i), 1);
      barrier_init(at.empty(i), 8);
    }
    fence_barrier_init();
  }
  sync_block();
  let_next_launch_go();
  wait_for_previous_launch();
  const Segment segment(heads, slices, segments, segment_tokens, 0, v_view.shape[1]);
  const int group = uniform(warpgroup());
  Turn<STAGES> turn;
  if (group == 0) {
    give_registers<40>();
    if (thread_x() != 0) return;
    const int before = segment.sequence * static_cast<int>((v_view.shape[1] + CHUNK - 1) / CHUNK) + segment.first / CHUNK;
    const int value_head = segment.head / static_cast<int>(heads / v_view.shape[2]);
#pragma unroll 1
    for (int chunk = 0; chunk < segment.chunks(); ++chunk, turn.next()) {
      const int number = before + chunk;
      const uint32_t full = at.full(turn.at), stage = at.stage(turn.at);
      barrier_wait(at.empty(turn.at), turn.parity ^ 1);
      barrier_arrive_expect(full, STAGE + DECAY_BYTES);
#pragma unroll
      for (int box = 0; box < BOXES; ++box) {
        load_tile(stage + box * BOX, queries_before_map, full, {64 * box, 0, segment.head, number});
        load_tile(stage + KEY_ROWS + 2 * box * BOX, keys_after_map, full, {64 * box, 0, 0, segment.head, number});
      }
#pragma unroll
      for (int part = 0; part < 2; ++part)
        load_tile(stage + VALUES + part * BOX, v_map, full,
                  {segment.slice * 128 + 64 * part, value_head, segment.first + chunk * CHUNK, segment.sequence});
      load_tile(stage + PAIRS, weights_map, full, {0, 0, segment.head, number});
      load_bytes(at.first + DECAYS + turn.at * DECAY_BYTES, decays + (number * heads + segment.head) * KEYS, DECAY_BYTES, full);
    }
  } else {
    take_registers<232>();
    const int part = group - 1, column = segment.slice * 128 + 64 * part;
    const auto state_at = [&](const View& view) { return StateMemory(view, segment.sequence, segment.head, column + 16 * (warp() % 4)); };
    Column state = {};
    if (segment.first == 0 && is_given(initial_state_view))
      state_at(initial_state_view).each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
    StoreBuffers<Element, OUT_BUFFERS> buffers{at.first + OUT_ROWS + part * OUT_BUFFERS * BOX, 1 + part};
    const char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
#pragma unroll 1
    for (int token = 0; token < segment.count; token += CHUNK, turn.next()) {
      barrier_wait_all(at.full(turn.at), turn.parity);
      Columns sums;
      compute(state, sums, at.stage(turn.at), part, reinterpret_cast<const float*>(memory + DECAYS + turn.at * DECAY_BYTES));
      sync_warp();
      if (lane() == 0) barrier_arrive(at.empty(turn.at));
      store_values(sums, buffers, out_map, {column, segment.head, segment.first + token, segment.sequence});
    }
    buffers.finish();
    if (segments > 1) keep_alone(state, segment_states + (segment.row * segments + segment.number) * STATE_NUMBERS, part);
    else state_at(final_state_view).each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i]; });
  }
}

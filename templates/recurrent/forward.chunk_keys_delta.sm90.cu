// recurrent, forward, with gates of keys and the delta rule, a chunk of 64 tokens at a time, on Hopper's wgmma: forward.chunk_keys.gpu.cu says
// what the launch `prepare` makes of a chunk, but queries and keys that states are read by and take in. Then a block goes through one sequence and
// head for 128 columns of the state: warpgroup 0 weighs queries and keys that a state is read by, warpgroup 1 those that it takes in, 2 and 3 keep 64
// columns each in registers, as a matrix of values by keys. A chunk comes in parts, each of which makes room for the next chunk's as soon as it has
// been read. Numbers of 22 bits are two halves, where they were brought to the halves' range before. Where sequences and heads do not fill the
// device, sequences are cut into segments, and two launches after add what they make of the state before them.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16, BOXES = KEYS / 64;  // up to 56 more than there are: zeros
constexpr int OUT_BUFFERS = ${out_buffers};
constexpr int WARPS = 8, THREADS = WARPS * WARP;      // of a block that prepares
constexpr bool DELTA = ${delta}, NORMED = ${normed};  // the delta rule; l2_norm
constexpr bool NARROW = false, F32_GATES = ${f32_gates};  // gates of keys are f32
#include "recurrent/chunk_gates.h"

using KeyTile = Tile<Element, CHUNK, KEYS>;
using Square = Tile<Element, CHUNK, CHUNK>;
using Piece = half;
constexpr int QUERY_PIECES = 1, ROW_PIECES = 2, PAIR_PIECES = 1, INVERSE_PARTS = 2;  // pieces a number
// A chunk's numbers: decays of keys, betas, betas times what keys over their lengths are short of, what rows of out are times; the power of two that the
// inverse is over; what makes rows of keys and of queries ones of length 1; by key the logs of what gates leave before each part and after it.
constexpr int DECAYS_AND_BETAS = KEYS + CHUNK, OUT_FACTORS = DECAYS_AND_BETAS + CHUNK, INVERSE_POWER = OUT_FACTORS + CHUNK, ROW_FACTORS = INVERSE_POWER + 4;
constexpr int PART_LOGS = ROW_FACTORS + 2 * CHUNK, DECAY_ROW = PART_LOGS + 8 * KEYS;
#include "recurrent/chunk_block.h"
#include "recurrent/chunk_sm90_value_scales.h"
#include "recurrent/chunk_sm90_key_delta_prepare_pairs.h"
#include "recurrent/chunk_sm90_products.h"
#include "recurrent/chunk_sm90_weighed.h"
constexpr int CARRIED_TURNS = 2;
#include "recurrent/chunk_sm90_carried.h"
#include "recurrent/chunk_sm90_joints.h"

// The parts: keys before they write (of 64 keys all pieces, then of the next) and queries; values and betas; the inverse's pieces; the pairs' weights;
// keys that are written, likewise, and decays; what both are weighed of. Then rows of out, numbers of tokens, barriers, what is carried.
enum Part { EARLY, LATE = EARLY + BOXES, VALUES_PART = LATE + BOXES, INVERSE, PAIRS, RAW, PART_COUNT = RAW + BOXES };
constexpr uint32_t QUERIES_AT = ROW_PIECES * BOX, LATE_AT = QUERIES_AT + BOX, RAW_QUERIES = LATE_AT + ROW_PIECES * BOX, RAW_KEYS = RAW_QUERIES + BOX, RAW_GATES = RAW_KEYS + BOX;
constexpr uint32_t GROUP = RAW_GATES + 4 * CHUNK * 64;  // of 64 keys
constexpr uint32_t VALUES = BOXES * GROUP, INVERSE_AT = VALUES + 2 * BOX, PAIRS_AT = INVERSE_AT + INVERSE_PARTS * BOX, OUT_ROWS = PAIRS_AT + BOX;
constexpr uint32_t BETA_ROWS = OUT_ROWS + 2 * OUT_BUFFERS * BOX, OUT_ROW = BETA_ROWS + 8 * CHUNK, POWER = OUT_ROW + 4 * CHUNK, DECAYS = POWER + 16, BARRIERS = DECAYS + 4 * KEYS;
constexpr uint32_t CARRIED = BARRIERS + 16 * PART_COUNT;
static_assert(1024 + CARRIED + sizeof(Carried) <= ${shared}, "the spec has another size");

struct Places {
  uint32_t first;
  uint32_t full(int part) const { return first + BARRIERS + 16 * part; }
  uint32_t empty(int part) const { return full(part) + 8; }
};
#include "recurrent/chunk_sm90_key_delta_feeder.h"

#include "recurrent/chunk_sm90_key_delta_carrier.h"

// Block number: as Segment has it.
KERNEL(4 * WARPGROUP, 1) recurrent(${parameters('recurrent')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  Carried& carried = *reinterpret_cast<Carried*>(memory + CARRIED);
  const Segment segment(heads, slices, segments, segment_tokens, (segments - 1) * heads * sequences, v_view.shape[1]);
  if (thread_x() == 0) {
    for (int part = 0; part < PART_COUNT; ++part) {
      barrier_init(at.full(part), part < LATE ? FEEDERS : part < VALUES_PART ? 1 + FEEDERS : 1);
      barrier_init(at.empty(part), part < RAW ? 8 : FEEDERS);
    }
    carried.init();
    segment.put_place(carried);
    fence_barrier_init();
  }
  sync_block();
  let_next_launch_go();
  wait_for_previous_launch();
  const int group = uniform(warpgroup());
  if (group < 2) {
    give_registers<48>();
    const int before = segment.sequence * static_cast<int>((v_view.shape[1] + CHUNK - 1) / CHUNK) + segment.first / CHUNK;
    const int all_heads = static_cast<int>(heads), head = segment.head;
    const int query_head = head / (all_heads / static_cast<int>(query_heads)), key_head = head / (all_heads / static_cast<int>(key_heads));
    const int value_head = head / (all_heads / static_cast<int>(v_view.shape[2]));
    const Feeder feeder{at, segment, carried, before, query_head, key_head, value_head, q_map, k_map, v_map, gk_map, inverses_map, weights_map,
                        decays + (static_cast<int64_t>(before) * heads + head) * DECAY_ROW, all_heads * DECAY_ROW};
    if (group == 0) feeder.feed_early();
    else feeder.feed_late();
  } else {
    take_registers<208>();
    const int part = group - 2, column = segment.slice * 128 + 64 * part;
    const auto state_at = [&](const View& view) { return StateMemory(view, segment.sequence, segment.head, column + 16 * (warp() % 4)); };
    Column state = {};
    ValueScales scales;
    if (segment.carries) {
      begin_carrying(state, part, static_cast<int>(final_state_view.shape[2]));
      clear_values(memory + VALUES + part * BOX, part);
    } else if (segment.first == 0 && is_given(initial_state_view)) {
      state_at(initial_state_view).each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
      scales.move(state);  // it may be far below the window
    }
    StoreBuffers<Element, OUT_BUFFERS> buffers{at.first + OUT_ROWS + part * OUT_BUFFERS * BOX, 1 + part};
    const Carrier carrier{at, part};
    const TensorMap& out = segment.carries ? carried_rows_map : out_map;
    int chunk = 0;
#pragma unroll 1
    for (; chunk < segment.chunks(); ++chunk) {
      if (carried.carries) {
        carrier.wait(EARLY, chunk);
        if (chunk >= carried.end) break;
      }
      carrier.compute(state, chunk, carried, scales, [&](const Columns& rows) {
        const int token = carried.to[1] + (carried.carries ? 0 : chunk * CHUNK), last = carried.to[2] + (carried.carries ? chunk : 0);
        store_values(rows, buffers, out, {column, carried.to[0], token, last});
      });
    }
    buffers.finish();
    const float back[2] = {scales.back(0), scales.back(1)};
    scales.multiply(state, back);
    if (segments > 1) {
      float* alone = segment_states + (segment.row * segments + segment.number) * STATE_NUMBERS;
      if (carried.carries) alone = carried_states + segment.joint(segments) * STATE_NUMBERS;
      keep_alone(state, alone, part);
      if (carried.carries && thread_x() == 2 * WARPGROUP) carried_chunks[segment.joint(segments)] = chunk;
    } else {
      state_at(final_state_view).each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i]; });
    }
  }
}

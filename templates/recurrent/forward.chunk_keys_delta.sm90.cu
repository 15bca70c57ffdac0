// recurrent, forward, with gates of keys and the delta rule, a chunk of 64 tokens at a time, on Hopper's wgmma: forward.chunk_keys.gpu.cu says
// what the launch `prepare` makes of a chunk. Then a block goes through one sequence and head for 128 columns of the state: a warp copies,
// warpgroups 1 and 2 keep 64 columns each in registers, as a matrix of values by keys. A chunk is copied in four parts, each of which makes
// room for the next chunk's as soon as it has been read. Where sequences and heads do not fill the device, sequences are cut into segments, and
// two launches after add what they make of the state before them.
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
constexpr int QUERY_PIECES = 1, ROW_PIECES = 3, PAIR_PIECES = 1, INVERSE_PARTS = 3;  // elements a number
constexpr int DECAY_ROW = KEYS + CHUNK;  // floats of a chunk: decays of keys, then betas
#include "recurrent/chunk_block.h"
#include "recurrent/chunk_sm90_key_delta_prepare.h"
#include "recurrent/chunk_sm90_products.h"
#include "recurrent/chunk_sm90_weighed.h"
constexpr int CARRIED_TURNS = 2;
#include "recurrent/chunk_sm90_carried.h"
#include "recurrent/chunk_sm90_joints.h"

// The parts: keys before they write (of 64 keys all pieces, then of the next), values and betas; the inverse's pieces; queries and the pairs'
// weights; keys that are written, likewise, and decays. Then rows of out, barriers, what is carried.
enum Part { EARLY, INVERSE, QUERIES, LATE, PART_COUNT };
constexpr uint32_t PIECES = ROW_PIECES * BOX, KEY_PIECES = BOXES * PIECES;
constexpr uint32_t VALUES = KEY_PIECES, INVERSE_AT = VALUES + 2 * BOX, QUERIES_AT = INVERSE_AT + INVERSE_PARTS * BOX, PAIRS = QUERIES_AT + BOXES * BOX;
constexpr uint32_t LATE_AT = PAIRS + BOX, OUT_ROWS = LATE_AT + KEY_PIECES, BETA_ROWS = OUT_ROWS + 2 * OUT_BUFFERS * BOX, DECAYS = BETA_ROWS + 4 * CHUNK;
constexpr uint32_t BARRIERS = DECAYS + 4 * KEYS;
constexpr uint32_t CARRIED = BARRIERS + 16 * PART_COUNT;
static_assert(1024 + CARRIED + sizeof(Carried) <= ${shared}, "the spec has another size");

struct Places {
  uint32_t first;
  uint32_t full(int part) const { return first + BARRIERS + 16 * part; }
  uint32_t empty(int part) const { return full(part) + 8; }
};

struct Copier {
  const Places at;
  const Segment& segment;
  Carried& carried;
  const int chunks_before, value_head;
  const TensorMap &early, &inverse, &queries, &weights, &late, &values;
  const float* decays;
  const int64_t heads;

  // Waits until a part's place is free; then its barrier expects so many bytes.
  uint32_t open(Part part, int chunk, uint32_t bytes) const {
    barrier_wait(at.empty(part), chunk % 2 ^ 1);
    barrier_arrive_expect(at.full(part), bytes);
    return at.full(part);
  }
  void copy_pieces(uint32_t to, const TensorMap& from, int number, uint32_t full) const {
#pragma unroll
    for (int box = 0; box < BOXES; ++box) load_tile(to + box * PIECES, from, full, {64 * box, 0, 0, segment.head, number});
  }
  void run() const {
#pragma unroll 1
    for (int chunk = 0; chunk < segment.chunks(); ++chunk) {
      const int number = chunks_before + chunk;
      const float* numbers = decays + (number * heads + segment.head) * DECAY_ROW;
      barrier_wait(at.empty(EARLY), chunk % 2 ^ 1);
      uint32_t full = at.full(EARLY);
      if (segment.carries && chunk >= 2 && !carried.any_left(chunk % 2)) {  // after the chunk before the one being computed
        carried.end = chunk;
        barrier_arrive(full);
        return;
      }
      barrier_arrive_expect(full, KEY_PIECES + (segment.carries ? 0 : 2 * BOX) + 4 * CHUNK);
      copy_pieces(at.first, early, number, full);
      if (!segment.carries) {
#pragma unroll
        for (int part = 0; part < 2; ++part)
          load_tile(at.first + VALUES + part * BOX, values, full,
                    {segment.slice * 128 + 64 * part, value_head, segment.first + chunk * CHUNK, segment.sequence});
      }
      load_bytes(at.first + BETA_ROWS, numbers + KEYS, 4 * CHUNK, full);
      full = open(QUERIES, chunk, BOXES * BOX + BOX);
#pragma unroll
      for (int box = 0; box < BOXES; ++box) load_tile(at.first + QUERIES_AT + box * BOX, queries, full, {64 * box, 0, segment.head, number});
      load_tile(at.first + PAIRS, weights, full, {0, 0, segment.head, number});
      full = open(INVERSE, chunk, INVERSE_PARTS * BOX);
      load_tile(at.first + INVERSE_AT, inverse, full, {0, 0, 0, segment.head, number});
      full = open(LATE, chunk, KEY_PIECES + 4 * KEYS);
      copy_pieces(at.first + LATE_AT, late, number, full);
      load_bytes(at.first + DECAYS, numbers, 4 * KEYS, full);
    }
  }
};

struct Carrier {
  const Places at;
  const char* memory;
  const int part;

  void wait(Part of, int chunk) const { barrier_wait_all(at.full(of), chunk % 2); }
  void release(Part of) const {
    sync_warp();
    if (lane() == 0) barrier_arrive(at.empty(of));
  }

  // The part's values by tokens, as a left factor.
  void load_values(uint32_t (&a)[4][4]) const {
    const int token = lane() % 8 + lane() / 16 * 8, pack = warp() % 4 * 2 + lane() / 8 % 2;
    const uint32_t from = at.first + VALUES + part * BOX + token * 128 + (pack ^ token % 8) * 16;
#pragma unroll
    for (int k = 0; k < 4; ++k) load_matrices_transposed(a[k], from + k * 2048);
  }

  // x = what the keys read of the state, of whose products with pieces those below the last digits are left out.
  static void read_early(Columns& x, const uint32_t (&seen)[SLICES][4], const uint32_t (&rest)[SLICES][4], uint32_t rows) {
    keep_in_place(x);
    wgmma_fence();
#pragma unroll
    for (int piece = ROW_PIECES - 1; piece >= 0; --piece)
#pragma unroll
      for (int of_state = piece + 1 < ROW_PIECES ? 1 : 0; of_state >= 0; --of_state)
#pragma unroll
        for (int k = 0; k < SLICES; ++k)
          wgmma<Element, CHUNK>(x, (of_state ? rest : seen)[k], moved(depth_major<128>(rows + piece * BOX), k / 4 * PIECES + k % 4 * 32),
                                !(piece == ROW_PIECES - 1 && k == 0));
    wgmma_commit();
  }

  // taken = (written + rest) rows, of 64 keys, likewise.
  static void take_in(Columns& taken, const uint32_t (&written)[4][4], const uint32_t (&rest)[4][4], uint32_t rows) {
    keep_in_place(taken);
    wgmma_fence();
#pragma unroll
    for (int piece = ROW_PIECES - 1; piece >= 0; --piece) {
      if (piece + 1 < ROW_PIECES) multiply_by_columns(taken, rest, rows + piece * BOX, true);
      multiply_by_columns(taken, written, rows + piece * BOX, piece + 1 < ROW_PIECES);
    }
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(taken);
  }

  // out, and the state after the chunk.
  void compute(Column& state, Columns& sums, int chunk, Carried& carried) const {
    uint32_t pieces[3][4][4];
    Columns x;
    {
      uint32_t seen[SLICES][4], seen_rest[SLICES][4];
      to_factor(seen, state);
      to_rounding(seen_rest, seen, state);
      wait(EARLY, chunk);
      read_early(x, seen, seen_rest, at.first);
      wgmma_wait<0>();
      keep_in_place(x);
      wait(QUERIES, chunk);
      keep_in_place(sums);
      wgmma_fence();
      multiply_by_rows(sums, seen, at.first + QUERIES_AT, false);
      wgmma_commit();
      load_values(pieces[0]);
      const float* betas = reinterpret_cast<const float*>(memory + BETA_ROWS);
#pragma unroll
      for (int j = 0; j < CHUNK / 8; ++j) {  // beta times what values differ by from what keys read
        const Pack<float, 2> beta = load_pack<2>(betas + 8 * j + lane() % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t pair = pieces[0][j / 2][j % 2 * 2 + i / 2];
          x[4 * j + i] = beta.at[i % 2] * ((i % 2 ? high_of(pair) : low_of(pair)) - x[4 * j + i]);
        }
      }
#pragma unroll
      for (int piece = 0; piece < 3; ++piece) {
        to_factor(pieces[piece], x);
        Columns taken;
        from_factor(taken, pieces[piece]);
#pragma unroll
        for (int i = 0; i < CHUNK / 2; ++i) x[i] -= taken[i];
      }
      wgmma_wait<0>();
      keep_in_place(sums);
    }
    release(EARLY);
    wait(INVERSE, chunk);
    keep_in_place(x);
    wgmma_fence();
#pragma unroll
    for (int of_inverse = INVERSE_PARTS - 1; of_inverse >= 0; --of_inverse)
#pragma unroll
      for (int piece = INVERSE_PARTS - 1 - of_inverse; piece >= 0; --piece)
        multiply_by_rows(x, pieces[piece], at.first + INVERSE_AT + of_inverse * BOX, of_inverse < INVERSE_PARTS - 1);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(x);
    release(INVERSE);
    to_factor(pieces[0], x);
    to_rounding(pieces[1], pieces[0], x);
    keep_in_place(sums);
    wgmma_fence();
    multiply_by_rows(sums, pieces[0], at.first + PAIRS, true);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(sums);
    release(QUERIES);
    wait(LATE, chunk);
    const float* decays = reinterpret_cast<const float*>(memory + DECAYS);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
      take_in(x, pieces[0], pieces[1], at.first + LATE_AT + box * PIECES);
      add_to_decayed(state, box, x, decays);
    }
    if (carried.carries) carried.note(chunk % 2, state);
    release(LATE);
  }
};

// Block number: as Segment has it.
KERNEL(3 * WARPGROUP, 1) recurrent(${parameters('recurrent')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  Carried& carried = *reinterpret_cast<Carried*>(memory + CARRIED);
  const Segment segment(heads, slices, segments, segment_tokens, (segments - 1) * heads * sequences, v_view.shape[1]);
  if (thread_x() == 0) {
    for (int part = 0; part < PART_COUNT; ++part) {
      barrier_init(at.full(part), 1);
      barrier_init(at.empty(part), 8);
    }
    carried.init();
    segment.put_place(carried);
    fence_barrier_init();
  }
  sync_block();
  let_next_launch_go();
  wait_for_previous_launch();
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<40>();
    const int before = segment.sequence * static_cast<int>((v_view.shape[1] + CHUNK - 1) / CHUNK) + segment.first / CHUNK;
    const int value_head = segment.head / static_cast<int>(heads / v_view.shape[2]);
    if (thread_x() == 0)
      Copier{at, segment, carried, before, value_head, keys_before_map, inverses_map, queries_before_map, weights_map, keys_after_map, v_map, decays, heads}
          .run();
  } else {
    take_registers<232>();
    const int part = group - 1, column = segment.slice * 128 + 64 * part;
    const auto state_at = [&](const View& view) { return StateMemory(view, segment.sequence, segment.head, column + 16 * (warp() % 4)); };
    Column state = {};
    if (segment.carries) {
      begin_carrying(state, part, static_cast<int>(final_state_view.shape[2]));
      clear_values(memory + VALUES + part * BOX, part);
    } else if (segment.first == 0 && is_given(initial_state_view)) {
      state_at(initial_state_view).each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
    }
    StoreBuffers<Element, OUT_BUFFERS> buffers{at.first + OUT_ROWS + part * OUT_BUFFERS * BOX, 1 + part};
    const Carrier carrier{at, memory, part};
    const TensorMap& out = segment.carries ? carried_rows_map : out_map;
    int chunk = 0;
#pragma unroll 1
    for (; chunk < segment.chunks(); ++chunk) {
      if (carried.carries) {
        carrier.wait(EARLY, chunk);
        if (chunk >= carried.end) break;
      }
      Columns sums;
      carrier.compute(state, sums, chunk, carried);
      const int token = carried.to[1] + (carried.carries ? 0 : chunk * CHUNK), last = carried.to[2] + (carried.carries ? chunk : 0);
      store_values(sums, buffers, out, {column, carried.to[0], token, last});
    }
    buffers.finish();
    if (segments > 1) {
      float* alone = segment_states + (segment.row * segments + segment.number) * STATE_NUMBERS;
      if (segment.carries) alone = carried_states + segment.joint(segments) * STATE_NUMBERS;
      keep_alone(state, alone, part);
      if (segment.carries && thread_x() == WARPGROUP) carried_chunks[segment.joint(segments)] = chunk;
    } else {
      state_at(final_state_view).each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i]; });
    }
  }
}

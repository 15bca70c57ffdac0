// recurrent, forward, with gates of keys and the delta rule, a chunk of 64 tokens at a time, on Hopper's wgmma: forward.chunk_keys.gpu.cu says
// what the launch `prepare` makes of a chunk. Then a block goes through one sequence and head for 128 columns of the state: a warp copies,
// warpgroups 1 and 2 keep 64 columns each in registers, as a matrix of values by keys. A chunk is copied in four parts, each of which makes
// room for the next chunk's as soon as it has been read.
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

// The parts: keys before they write (of 64 keys all pieces, then of the next), values and betas; the inverse's pieces; queries and the pairs'
// weights; keys that are written, likewise, and decays. Then rows of out, barriers.
enum Part { EARLY, INVERSE, QUERIES, LATE, PART_COUNT };
constexpr uint32_t PIECES = ROW_PIECES * BOX, KEY_PIECES = BOXES * PIECES;
constexpr uint32_t VALUES = KEY_PIECES, INVERSE_AT = VALUES + 2 * BOX, QUERIES_AT = INVERSE_AT + INVERSE_PARTS * BOX, PAIRS = QUERIES_AT + BOXES * BOX;
constexpr uint32_t LATE_AT = PAIRS + BOX, OUT_ROWS = LATE_AT + KEY_PIECES, BETA_ROWS = OUT_ROWS + 2 * OUT_BUFFERS * BOX, DECAYS = BETA_ROWS + 4 * CHUNK;
constexpr uint32_t BARRIERS = DECAYS + 4 * KEYS;
static_assert(1024 + BARRIERS + 16 * PART_COUNT <= ${shared}, "the spec has another size");

struct Places {
  uint32_t first;
  uint32_t full(int part) const { return first + BARRIERS + 16 * part; }
  uint32_t empty(int part) const { return full(part) + 8; }
};

struct Copier {
  const Places at;
  const Row row;
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
    for (int box = 0; box < BOXES; ++box) load_tile(to + box * PIECES, from, full, {64 * box, 0, 0, row.head, number});
  }
  void run() const {
#pragma unroll 1
    for (int chunk = 0; chunk < row.chunks(); ++chunk) {
      const int number = row.sequence * row.chunks() + chunk;
      const float* numbers = decays + (number * heads + row.head) * DECAY_ROW;
      uint32_t full = open(EARLY, chunk, KEY_PIECES + 2 * BOX + 4 * CHUNK);
      copy_pieces(at.first, early, number, full);
#pragma unroll
      for (int part = 0; part < 2; ++part)
        load_tile(at.first + VALUES + part * BOX, values, full, {row.column + 64 * part, row.value_head, chunk * CHUNK, row.sequence});
      load_bytes(at.first + BETA_ROWS, numbers + KEYS, 4 * CHUNK, full);
      full = open(QUERIES, chunk, BOXES * BOX + BOX);
#pragma unroll
      for (int box = 0; box < BOXES; ++box) load_tile(at.first + QUERIES_AT + box * BOX, queries, full, {64 * box, 0, row.head, number});
      load_tile(at.first + PAIRS, weights, full, {0, 0, row.head, number});
      full = open(INVERSE, chunk, INVERSE_PARTS * BOX);
      load_tile(at.first + INVERSE_AT, inverse, full, {0, 0, 0, row.head, number});
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
  void compute(Column& state, Columns& sums, int chunk) const {
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
    release(LATE);
  }
};

KERNEL(3 * WARPGROUP, 1) recurrent(${parameters('recurrent')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    for (int part = 0; part < PART_COUNT; ++part) {
      barrier_init(at.full(part), 1);
      barrier_init(at.empty(part), 8);
    }
    fence_barrier_init();
  }
  sync_block();
  const Row row(v_view, heads, slices);
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<40>();
    if (thread_x() == 0) Copier{at, row, keys_before_map, inverses_map, queries_before_map, weights_map, keys_after_map, v_map, decays, heads}.run();
  } else {
    take_registers<232>();
    const int part = group - 1, column = row.column + 64 * part;
    const auto state_at = [&](const View& view) { return StateMemory(view, row.sequence, row.head, column + 16 * (warp() % 4)); };
    Column state = {};
    if (is_given(initial_state_view)) state_at(initial_state_view).each([&](int n, int i, const float* from) { state[4 * n + i] = *from; });
    StoreBuffers<Element, OUT_BUFFERS> buffers{at.first + OUT_ROWS + part * OUT_BUFFERS * BOX, 1 + part};
    const Carrier carrier{at, dynamic_shared() + (at.first - shared_pointer(dynamic_shared())), part};
#pragma unroll 1
    for (int chunk = 0; chunk < row.chunks(); ++chunk) {
      Columns sums;
      carrier.compute(state, sums, chunk);
      store_values(sums, buffers, out_map, {column, row.head, chunk * CHUNK, row.sequence});
    }
    buffers.finish();
    state_at(final_state_view).each([&](int n, int i, const float* to) { *const_cast<float*>(to) = state[4 * n + i]; });
  }
}

// tgmm, forward, on Hopper: a tile of one group's matrix at a time, summed over the group's rows. Warpgroup 0 copies, warpgroups 1 and 2
// multiply 64 rows of out by 256 columns each, both factors as their rows lie. The blocks of a cluster lie one above the other: each copies a
// part of the right factor to all of them.
#include "device/gpu.h"
#include "device/sm90.h"
#include "tgmm/sm90_queue.h"
#include "device/sm90/sm90_store.h"
#include "tgmm/group_rows.h"

$require 4 % blocks == 0
using Element = ${ctype(E)};
using Out = ${ctype(O)};
constexpr int BLOCKS = ${blocks};      // of a cluster
constexpr int STAGES = ${stages};      // steps on their way
constexpr int TOGETHER = ${together};  // clusters' tiles one above the other that come one after another
constexpr bool DYNAMIC = ${dynamic};   // clusters take a tile when they are done with one, not in turn
constexpr bool TRANSPOSED = ${transposed}, BATCHED = ${batched};
constexpr bool SMALL_OUT = sizeof(Out) == 2;
constexpr int BLOCK_M = 128, BLOCK_N = ${block_n}, DEPTH = 64, BOXES = BLOCK_N / 64;
constexpr uint32_t BOX = DEPTH * 128, LEFT = 2 * BOX, STAGE = LEFT + BOXES * BOX;  // boxes have 64 rows of 64 elements

using Queue = WorkQueue<BLOCKS, DYNAMIC, 9>;  // read by the copying warp and the eight that multiply
$if O == 'f32'
using Small = ${ctype(E)};  // what goes through shared memory, if anything does
$else
using Small = ${ctype(O)};
$end
using Buffers = StoreBuffers<Small>;

struct Places {  // in shared memory
  uint32_t stages;
  uint32_t left(uint32_t stage, int box) const { return stages + stage * STAGE + box * BOX; }
  uint32_t right(uint32_t stage, int box) const { return left(stage, 2 + box); }
  uint32_t out(int part) const { return stages + STAGES * STAGE + part * 2 * STORED_BYTES; }
  uint32_t barriers() const { return stages + STAGES * STAGE + (SMALL_OUT ? 4 * STORED_BYTES : 0); }
  uint32_t full(uint32_t stage) const { return barriers() + 16 * stage; }
  uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
  Queue queue() const { return {barriers() + 16 * STAGES}; }
};

// The stage in turn, and how often all have been used.
struct Turn {
  uint32_t stage = 0, parity = 0;
  void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

struct Tile {
  int matrix, batch, group;  // of out
  int row, column;           // of the matrix, the cluster's first
  GroupRows rows;            // summed over
  int steps() const { return (rows.end - rows.begin + DEPTH - 1) / DEPTH; }
};

struct Problem {
  const int32_t* sizes;
  int rows, groups_a_batch, first_group, matrices, blocks_m, blocks_n;
  int tiles() const { return matrices * blocks_m * blocks_n; }

  // The tile of that number. All lanes of a warp call it.
  Tile tile(int number) const {
    const int a_matrix = blocks_m * blocks_n, matrix = number / a_matrix, within = number - matrix * a_matrix;
    const int first = within / (TOGETHER * blocks_n) * TOGETHER, across = blocks_m - first < TOGETHER ? blocks_m - first : TOGETHER;
    const int from_there = within - first * blocks_n, column = from_there / across;
    const int batch = BATCHED ? matrix / groups_a_batch : 0, group = BATCHED ? matrix % groups_a_batch : matrix;
    return {matrix, batch, group, (first + from_there - column * across) * BLOCK_M * BLOCKS, column * BLOCK_N,
            rows_of_group(sizes, first_group + matrix, rows)};
  }
};

template <class Load> static inline void copy_box(const Tile& tile, int column, int row, Load load) {
  if constexpr (BATCHED) {
    const int at[4] = {column, row, tile.group, tile.batch};
    load(at);
  } else {
    const int at[2] = {column, row};
    load(at);
  }
}

static inline void copy_tiles(const Places& at, const TensorMap& left, const TensorMap& right, const Problem& problem) {
  const int rank = BLOCKS > 1 ? cluster_rank() : 0;
  Turn turn;
  for (WorkReader work(at.queue()); work.number < problem.tiles(); work.next()) {
    const Tile tile = problem.tile(work.number);
    const int steps = tile.steps();
    if (lane() == 0) {
#pragma unroll 1
      for (int k = 0; k < steps; ++k, turn.next()) {
        const uint32_t full = at.full(turn.stage);
        const int row = tile.rows.begin + k * DEPTH;
        barrier_wait(at.empty(turn.stage), turn.parity ^ 1);
        barrier_arrive_expect(full, STAGE);
#pragma unroll
        for (int i = 0; i < BOXES / BLOCKS; ++i) {
          const int box = i * BLOCKS + rank;
          copy_box(tile, tile.column + box * 64, row, [&](const auto& from) {
            if constexpr (BLOCKS > 1)
              load_tile_multicast(at.right(turn.stage, box), right, full, from, (1 << BLOCKS) - 1);
            else
              load_tile(at.right(turn.stage, box), right, full, from);
          });
        }
#pragma unroll
        for (int box = 0; box < 2; ++box)
          copy_box(tile, tile.row + rank * BLOCK_M + box * 64, row, [&](const auto& from) { load_tile(at.left(turn.stage, box), left, full, from); });
      }
    }
    sync_warp();
  }
}

static inline void release(const Places& at, uint32_t stage) {
  const int thread = thread_x() % WARPGROUP;
  if (thread < BLOCKS) barrier_release<BLOCKS>(at.empty(stage), thread);
}

// Rows [first, end) of a step's boxes are another group's, which may hold anything: zeros instead. Both warpgroups call it.
static inline void clear_rows(const Places& at, uint32_t stage, int first, int end) {
  constexpr int CHUNKS = 8 * (2 + BOXES);  // of 16 bytes, a row of all boxes
#pragma unroll 1
  for (int i = thread_x() - WARPGROUP; i < (end - first) * CHUNKS; i += 2 * WARPGROUP) {
    const uint32_t to = at.left(stage, i % CHUNKS / 8) + (first + i / CHUNKS) * 128 + i % 8 * 16;
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" : : "r"(to), "r"(0) : "memory");
  }
  fence_async();
  sync_some(3, 2 * WARPGROUP);
}

using Sums = float[BLOCK_N / 2];

// d += so many slices of 16 rows of a step, or d = those. The compiler lets products overlap only where no branch lies between them.
template <int SLICES> static inline void multiply_step(const Places& at, int part, uint32_t stage, bool add, Sums& d) {
  const uint64_t a = row_major<128>(at.left(stage, part), DEPTH), b = row_major<128>(at.right(stage, 0), DEPTH);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < SLICES; ++i) wgmma<Element, BLOCK_N, true, true>(d, moved(a, i * 2048), moved(b, i * 2048), add || i > 0);
  wgmma_commit();
}

static inline void multiply(const Places& at, int part, const GroupRows& rows, Turn& turn, Sums& d) {
  const int count = rows.end - rows.begin, whole = count / DEPTH, left_over = count - whole * DEPTH;
  uint32_t last = 0;
  keep_in_place(d);
#pragma unroll 1
  for (int k = 0; k < whole; ++k, turn.next()) {
    barrier_wait(at.full(turn.stage), turn.parity);
    multiply_step<4>(at, part, turn.stage, k > 0, d);
    if (k > 0) {
      wgmma_wait<1>();
      release(at, last);
    }
    last = turn.stage;
  }
  wgmma_wait<0>();
  keep_in_place(d);
  if (whole > 0) release(at, last);
  if (left_over == 0) return;
  barrier_wait(at.full(turn.stage), turn.parity);
  if (left_over % 16 != 0) clear_rows(at, turn.stage, left_over, (left_over + 15) / 16 * 16);
  keep_in_place(d);
  switch ((left_over + 15) / 16) {
$for n in 1..5
    case ${n}: multiply_step<${n}>(at, part, turn.stage, whole > 0, d); break;
$end
  }
  wgmma_wait<0>();
  keep_in_place(d);
  release(at, turn.stage);
  turn.next();
}

struct Target {
  Out* out;
  int64_t batch, group, stride;  // strides
  int64_t rows, columns;         // of a matrix
};

// The warpgroup's 64 rows of a tile, from `row` on.
template <bool WHOLE_BOXES>
static inline void store(const Sums& d, const Target& target, const TensorMap& map, const Tile& tile, int row, Buffers& buffers) {
  if constexpr (WHOLE_BOXES) {
#pragma unroll
    for (int column = 0; column < BLOCK_N; column += 64) {
      buffers.open();
#pragma unroll
      for (int j = column / 8; j < column / 8 + 8; j += 2) {
        const uint32_t r[4] = {pack_pair<Small>(d[4 * j], d[4 * j + 1]), pack_pair<Small>(d[4 * j + 2], d[4 * j + 3]),
                               pack_pair<Small>(d[4 * j + 4], d[4 * j + 5]), pack_pair<Small>(d[4 * j + 6], d[4 * j + 7])};
        buffers.template put<false>(j % 8, r);
      }
      buffers.send(true, static_cast<Small*>(nullptr), 0, 0, 0, [&](uint32_t from) {
        if constexpr (BATCHED)
          store_tile(map, {tile.column + column, row, tile.group, tile.batch}, from);
        else
          store_tile(map, {tile.column + column, row, tile.matrix}, from);
      });
    }
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int own = row + warp() % 4 * 16 + 8 * h + lane() / 4;
      if (own >= target.rows) continue;
      const int64_t first = tile.column + lane() % 4 * 2;
      Out* to = target.out + tile.batch * target.batch + tile.group * target.group + own * target.stride + first;
#pragma unroll
      for (int j = 0; j < BLOCK_N / 8; ++j)
        if (first + 8 * j < target.columns) store_pack(to + 8 * j, Pack<Out, 2>{{d[4 * j + 2 * h], d[4 * j + 2 * h + 1]}});
    }
  }
}

static inline void make_tiles(const Places& at, int part, const Problem& problem, const Target& target, const TensorMap& map) {
  const int rank = BLOCKS > 1 ? cluster_rank() : 0;
  Turn turn;
  Buffers buffers{at.out(part), 1 + part};
  for (WorkReader work(at.queue()); work.number < problem.tiles(); work.next()) {
    const Tile tile = problem.tile(work.number);
    Sums d;
    if (tile.steps() == 0)
      for (int i = 0; i < BLOCK_N / 2; ++i) d[i] = 0;
    multiply(at, part, tile.rows, turn, d);
    store<SMALL_OUT>(d, target, map, tile, tile.row + rank * BLOCK_M + part * 64, buffers);
  }
  if (SMALL_OUT) buffers.finish();
}

KERNEL(384, 1) tgmm(${parameters('tgmm')}) {
  const Places at{(static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared())) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    prefetch_tensor_map(lhs_map);
    prefetch_tensor_map(dout_map);
    prefetch_tensor_map(out_map);
    for (uint32_t stage = 0; stage < STAGES; ++stage) {
      barrier_init(at.full(stage), 1);
      barrier_init(at.empty(stage), 2 * BLOCKS);
    }
    at.queue().init();
    fence_barrier_init();
  }
  if constexpr (BLOCKS > 1)
    sync_cluster();
  else
    sync_block();
  if constexpr (!DYNAMIC) wait_for_previous_launch();  // else only the queue waits: what else is read was there before its counter was zeroed
  const Problem problem{group_sizes, static_cast<int>(M), static_cast<int>(G), static_cast<int>(group_offset), static_cast<int>(matrices),
                        static_cast<int>(blocks_m), static_cast<int>(blocks_n)};
  if (warpgroup() == 0) {
    give_registers<88>();
    if (warp() == 0) copy_tiles(at, TRANSPOSED ? dout_map : lhs_map, TRANSPOSED ? lhs_map : dout_map, problem);
    if (DYNAMIC && thread_x() == WARP && (BLOCKS == 1 || cluster_rank() == 0)) at.queue().give_out(problem.tiles(), counter);
  } else {
    take_registers<208>();
    make_tiles(at, warpgroup() - 1, problem, Target{out, out_batch, out_group, out_stride, TRANSPOSED ? N : K, TRANSPOSED ? K : N}, out_map);
  }
  sync_warp();
  if constexpr (DYNAMIC) wait_for_previous_launch();
  if constexpr (BLOCKS > 1) sync_cluster();  // no block leaves while others still arrive at its barriers
}

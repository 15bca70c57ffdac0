// grouped_matmul, forward, on Hopper: out^T = rhs^T lhs^T, a tile at a time. Columns of out are the 64 rows of wgmma, rows of out its N, so
// that a tile is as high as its group needs, in steps of 16. Warpgroup 0 copies, warpgroups 1 and 2 multiply 64 columns each. The blocks of
// a cluster lie side by side: each copies a part of the rows to all of them. Blocks go on from tile to tile; they find their tiles from the
// group sizes themselves.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/grouped_walk.h"

$require rows % 32 == 0 and rows <= 256 and 2 % blocks == 0
using Element = ${ctype(E)};
using Out = ${ctype(O)};
constexpr int BLOCKS = ${blocks};      // of a cluster
constexpr int ROWS = ${rows};          // of a tile, at most
constexpr int STAGES = ${stages};      // tiles on their way
constexpr int TOGETHER = ${together};  // bands of a group whose tiles come one after another
constexpr bool TRANSPOSED = ${transposed};
constexpr bool BATCHED = ${batched};
constexpr bool ADDS = ${adds};  // to existing_out
constexpr bool STREAMS = ${streams};  // matrices that are read once do not stay in the L2 cache
constexpr int COLUMNS = 128, DEPTH = 64, STEP = 16, BOX_ROWS = 32, CHUNK = 64;
constexpr uint32_t RHS_BOX = 64 * DEPTH * 2, LHS_BOX = BOX_ROWS * DEPTH * 2, STAGE = 2 * RHS_BOX + ROWS * DEPTH * 2;
constexpr uint32_t CHUNK_BYTES = CHUNK * 64 * 2;  // of out in shared memory: 64 rows of 64 columns, two for each warpgroup that multiplies
constexpr bool SMALL_OUT = sizeof(Out) == 2;

struct Places {  // in shared memory
  uint32_t tiles;
  uint32_t rhs(uint32_t stage) const { return tiles + stage * STAGE; }  // two boxes of 64 columns
  uint32_t lhs(uint32_t stage) const { return rhs(stage) + 2 * RHS_BOX; }
  uint32_t out(int part, int buffer) const { return tiles + STAGES * STAGE + (2 * part + buffer) * CHUNK_BYTES; }
  uint32_t full(uint32_t stage) const { return tiles + STAGES * STAGE + (SMALL_OUT ? 4 * CHUNK_BYTES : 0) + 16 * stage; }
  uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
};

// The stage in turn, and how often all have been used.
struct Turn {
  uint32_t stage = 0, parity = 0;
  void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

struct Problem {
  int first_group, held, steps;  // the groups that rhs has, and products a tile takes, in steps of DEPTH
  int64_t columns;
  bool has(int group) const { return BATCHED || (group >= first_group && group < first_group + held); }
  int steps_of(const GroupTile& tile) const { return has(tile.group) ? steps : 0; }
};

using Walk = GroupWalk<ROWS, STEP, TOGETHER>;

static inline int boxes_of(const GroupTile& tile) { return (tile.end - tile.row + BOX_ROWS - 1) / BOX_ROWS; }

static inline void copy_tiles(const Places& at, const TensorMap& lhs, const TensorMap& rhs, Walk walk, const Problem& problem, int groups_a_batch) {
  const int rank = BLOCKS > 1 ? cluster_rank() : 0;
  Turn turn;
  GroupTile tile;
  for (int number = block_x() / BLOCKS; walk.find(number, tile); number += grid_x() / BLOCKS) {
    const int steps = problem.steps_of(tile), boxes = boxes_of(tile);
    if (lane() == 0) {
      const int column = (tile.column * BLOCKS + rank) * COLUMNS, matrix = tile.group - problem.first_group;
      const int batch = BATCHED ? tile.group / groups_a_batch : 0, group = tile.group - batch * groups_a_batch;
      const Keep keep_rhs = STREAMS && tile.bands == 1 ? Keep::shortly : Keep::normal;
#pragma unroll 1
      for (int k = 0; k < steps; ++k, turn.next()) {
        const uint32_t full = at.full(turn.stage);
        barrier_wait(at.empty(turn.stage), turn.parity ^ 1);
        barrier_arrive_expect(full, 2 * RHS_BOX + boxes * LHS_BOX);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const uint32_t to = at.rhs(turn.stage) + side * RHS_BOX;
          const int inner = TRANSPOSED ? k * DEPTH : column + side * 64, outer = TRANSPOSED ? column + side * 64 : k * DEPTH;
          if constexpr (BATCHED)
            load_tile(to, rhs, full, {inner, outer, group, batch}, keep_rhs);
          else
            load_tile(to, rhs, full, {inner, outer, matrix}, keep_rhs);
        }
#pragma unroll 1
        for (int box = rank; box < boxes; box += BLOCKS) {
          const uint32_t to = at.lhs(turn.stage) + box * LHS_BOX;
          const int row = tile.row + box * BOX_ROWS;
          if constexpr (BATCHED && BLOCKS > 1)
            load_tile_multicast(to, lhs, full, {k * DEPTH, row, group, batch}, (1 << BLOCKS) - 1);
          else if constexpr (BATCHED)
            load_tile(to, lhs, full, {k * DEPTH, row, group, batch});
          else if constexpr (BLOCKS > 1)
            load_tile_multicast(to, lhs, full, {k * DEPTH, row}, (1 << BLOCKS) - 1);
          else
            load_tile(to, lhs, full, {k * DEPTH, row});
        }
      }
    }
    sync_warp();
  }
}

static inline void release(const Places& at, uint32_t stage) {
  const int thread = thread_x() % WARPGROUP;
  if constexpr (BLOCKS > 1) {
    if (thread < BLOCKS) barrier_release_in_block(at.empty(stage), thread);
  } else {
    if (thread == 0) barrier_arrive(at.empty(stage));
  }
}

// d [64][N] = this warpgroup's columns times N rows.
template <int N> static inline void multiply(const Places& at, int part, int steps, Turn& turn, float (&d)[N / 2]) {
  uint32_t last = 0;
  keep_in_place(d);
#pragma unroll 1
  for (int k = 0; k < steps; ++k, turn.next()) {
    barrier_wait(at.full(turn.stage), turn.parity);
    wgmma_fence();
    const uint32_t from = at.rhs(turn.stage) + part * RHS_BOX;
    const uint64_t a = TRANSPOSED ? depth_major<128>(from) : row_major<128>(from, DEPTH), b = depth_major<128>(at.lhs(turn.stage));
#pragma unroll
    for (int i = 0; i < DEPTH / 16; ++i)
      wgmma<Element, N, !TRANSPOSED, false>(d, moved(a, i * (TRANSPOSED ? 32 : 2048)), moved(b, i * 32), k > 0 || i > 0);
    wgmma_commit();
    if (k > 0) {
      wgmma_wait<1>();
      release(at, last);
    }
    last = turn.stage;
  }
  wgmma_wait<0>();
  keep_in_place(d);
  if (steps > 0) release(at, last);
}

struct Target {  // what out and existing_out are to a thread that stores
  Out* out;
  const Out* existing;
  int64_t out_stride, existing_stride, columns;
  int64_t out_batch, out_group, existing_batch, existing_group;  // strides
};

// Calls visit(sum, element) for every element of d that is in the tile; `first`: the tile's first row at this warp's first column. Its
// addresses are made one after another: they do not fit in registers.
template <int N, class T, class Visit>
static inline void visit_elements(float (&d)[N / 2], T* first, int64_t stride, int64_t columns_left, int height, Visit visit) {
  T* pair = first + lane() % 4 * 2 * stride + lane() / 4;
  const bool left = lane() / 4 < columns_left, right = lane() / 4 + 8 < columns_left;
#pragma unroll
  for (int j = 0; j < N / 8; ++j, pair = const_cast<T*>(keep(pair + 8 * stride)))
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (8 * j + lane() % 4 * 2 + i >= height) continue;
      if (left) visit(d[4 * j + i], pair[i * stride]);
      if (right) visit(d[4 * j + 2 + i], pair[i * stride + 8]);
    }
}

// d to `out`, the tile's first row and this warpgroup's first column, 64 rows at a time through shared memory, each of them 128 bytes;
// whole ones by a tile copy. `count`: chunks so far, whose parity names the buffer.
template <int N, class StoreTile>
static inline void store_chunks(const Places& at, int part, const float (&d)[N / 2], Out* out, int64_t stride, int64_t columns, int height,
                                uint32_t& count, StoreTile store_whole) {
  const int thread = thread_x() % WARPGROUP, matrix = lane() / 8;
#pragma unroll
  for (int chunk = 0; chunk < (N + CHUNK - 1) / CHUNK; ++chunk, ++count) {
    const uint32_t buffer = at.out(part, count % 2);
    if (thread == 0) store_wait_read<1>();
    sync_some(1 + part, WARPGROUP);
#pragma unroll
    for (int j = chunk * 8; j < chunk * 8 + 8 && j < N / 8; j += 2) {
      const uint32_t r[4] = {pack_pair<Out>(d[4 * j], d[4 * j + 1]), pack_pair<Out>(d[4 * j + 2], d[4 * j + 3]),
                             pack_pair<Out>(d[4 * j + 4], d[4 * j + 5]), pack_pair<Out>(d[4 * j + 6], d[4 * j + 7])};
      const int row = 8 * (j % 8 + matrix / 2) + lane() % 8, side = warp() % 4 * 2 + matrix % 2;
      store_matrices_transposed(buffer + row * 128 + (side ^ row % 8) * 16, r);
    }
    const bool whole = N >= chunk * CHUNK + CHUNK && height >= chunk * CHUNK + CHUNK;
    if (whole) fence_async();
    sync_some(1 + part, WARPGROUP);
    if (whole) {
      if (thread == 0) store_whole(chunk * CHUNK, buffer);
    } else {
#pragma unroll 1
      for (int row = thread / 8; row < CHUNK && chunk * CHUNK + row < height; row += WARPGROUP / 8) {
        if (thread % 8 * 8 >= columns) break;
        const uint32_t from = buffer + row * 128 + (thread % 8 ^ row % 8) * 16;
        Pack<uint32_t, 4> x;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3]) : "r"(from) : "memory");
        store_pack(reinterpret_cast<uint32_t*>(out + (chunk * CHUNK + row) * stride + thread % 8 * 8), x);
      }
    }
    if (thread == 0) store_commit();
  }
}

template <int N>
static inline void make_tile(const Places& at, int part, const GroupTile& tile, const Problem& problem, const Target& target, int column,
                             int groups_a_batch, const TensorMap& out_map, Turn& turn, uint32_t& chunks) {
  const int steps = problem.steps_of(tile), height = tile.end - tile.row;
  float d[N / 2];
  if (steps == 0)
    for (int i = 0; i < N / 2; ++i) d[i] = 0;
  multiply<N>(at, part, steps, turn, d);
  const int batch = BATCHED ? tile.group / groups_a_batch : 0, group = tile.group - batch * groups_a_batch;
  const int64_t first = column + warp() % 4 * 16;
  if constexpr (ADDS) {
    const int64_t base = BATCHED ? batch * target.existing_batch + group * target.existing_group : 0;
    visit_elements<N>(d, target.existing + base + tile.row * target.existing_stride + first, target.existing_stride, target.columns - first,
                      height, [](float& sum, const Out& there) { sum += to_float(there); });
  }
  Out* const out = target.out + (BATCHED ? batch * target.out_batch + group * target.out_group : 0) + tile.row * target.out_stride;
  if constexpr (!SMALL_OUT) {
    visit_elements<N>(d, out + first, target.out_stride, target.columns - first, height, [](float sum, Out& to) { to = from_float<Out>(sum); });
  } else {
    store_chunks<N>(at, part, d, out + column, target.out_stride, target.columns - column, height, chunks, [&](int row, uint32_t from) {
      if constexpr (BATCHED)
        store_tile(out_map, {column, tile.row + row, group, batch}, from);
      else
        store_tile(out_map, {column, tile.row + row}, from);
    });
  }
}

// A stage for a warpgroup that has no columns.
static inline void skip(const Places& at, int steps, Turn& turn) {
#pragma unroll 1
  for (int k = 0; k < steps; ++k, turn.next()) {
    barrier_wait(at.full(turn.stage), turn.parity);
    release(at, turn.stage);
  }
}

static inline void make_tiles(const Places& at, int part, Walk walk, const Problem& problem, const Target& target, int groups_a_batch,
                              const TensorMap& out_map) {
  Turn turn;
  GroupTile tile;
  uint32_t chunks = 0;
  const int rank = BLOCKS > 1 ? cluster_rank() : 0;
  for (int number = block_x() / BLOCKS; walk.find(number, tile); number += grid_x() / BLOCKS) {
    const int column = (tile.column * BLOCKS + rank) * COLUMNS + part * 64;
    const int height = tile.end - tile.row;
    if (column >= target.columns) {
      skip(at, problem.steps_of(tile), turn);
      continue;
    }
    switch ((height + STEP - 1) / STEP) {
$for n in 1..(rows / 16 + 1)
    case ${n}: make_tile<${16 * n}>(at, part, tile, problem, target, column, groups_a_batch, out_map, turn, chunks); break;
$end
    }
  }
  if (SMALL_OUT && thread_x() % WARPGROUP == 0) store_wait<0>();
}

KERNEL(384, 1) grouped_matmul(${parameters('grouped_matmul')}) {
  const Places at{(static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared())) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    prefetch_tensor_map(lhs_map);
    prefetch_tensor_map(rhs_map);
    prefetch_tensor_map(out_map);
    for (uint32_t stage = 0; stage < STAGES; ++stage) {
      barrier_init(at.full(stage), 1);
      barrier_init(at.empty(stage), 2 * BLOCKS);
    }
    fence_barrier_init();
  }
  if constexpr (BLOCKS > 1)
    sync_cluster();
  else
    sync_block();
  const Problem problem{static_cast<int>(group_offset), static_cast<int>(held), static_cast<int>((K + DEPTH - 1) / DEPTH), N};
  const auto walk = [&] { return Walk(group_sizes, static_cast<int>(group_count), static_cast<int>(M), static_cast<int>(column_blocks)); };
  if (warpgroup() == 0) {
    give_registers<88>();
    if (warp() == 0) copy_tiles(at, lhs_map, rhs_map, walk(), problem, static_cast<int>(G));
  } else {
    take_registers<208>();
    make_tiles(at, warpgroup() - 1, walk(), problem,
               Target{out, existing_out, out_stride, existing_stride, N, out_batch, out_group, existing_batch, existing_group},
               static_cast<int>(G), out_map);
  }
  sync_warp();
  if constexpr (BLOCKS > 1) sync_cluster();  // no block leaves while others still arrive at its barriers
}

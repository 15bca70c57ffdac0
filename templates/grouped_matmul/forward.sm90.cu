// grouped_matmul, forward, on Hopper: out^T = rhs^T lhs^T, a tile at a time. Columns of out are the 64 rows of wgmma, rows of out its N, so
// that a tile is as high as its group needs, in steps of STEP. Warpgroup 0 copies, warpgroups 1 and 2 multiply 64 columns each. The blocks of
// a cluster lie side by side: each copies a part of the rows to all of them. Blocks go on from tile to tile; a warp of each cluster finds them
// from the group sizes.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "grouped_matmul/sm90_tile_queue.h"
#include "grouped_matmul/grouped_balance.h"

$require rows % box == 0 and rows % step == 0 and step % 16 == 0 and rows <= 256 and 2 % blocks == 0
using Element = ${ctype(E)};
using Out = ${ctype(O)};
constexpr int BLOCKS = ${blocks};      // of a cluster
constexpr int ROWS = ${rows};          // of a tile, at most
constexpr int LOWEST = ${lowest};      // tiles may be cut to so many rows, if they can be shared out more evenly so
constexpr int TOGETHER = ${together};  // bands of a group whose tiles come one after another
constexpr bool DYNAMIC = ${dynamic};   // clusters take a tile when they are done with one, not in turn
constexpr bool TRANSPOSED = ${transposed};
constexpr bool BATCHED = ${batched};
constexpr bool ADDS = ${adds};        // to existing_out
constexpr bool STREAMS = ${streams};  // matrices that are read once do not stay in the L2 cache
constexpr bool SMALL_OUT = sizeof(Out) == 2;
constexpr int COLUMNS = 128, DEPTH = 64;
constexpr int STEP = ${step};         // tiles are multiples of it high
constexpr int BOX_ROWS = ${box};     // rows that one copy of lhs brings
constexpr int COPIERS = ${copiers};  // warps that copy: one for both factors, or one for each
constexpr uint32_t UNIT = 32 * DEPTH * 2, RHS_BOX = 64 * DEPTH * 2, RHS_UNITS = 2 * RHS_BOX / UNIT;
constexpr uint32_t RING = ${ring};      // units of shared memory for steps on their way
constexpr uint32_t SLOTS = 8;           // most steps on their way
constexpr uint32_t STORES = ${stores};  // buffers of each warpgroup for what is on its way to out
constexpr int LONG = 48;                // steps of a product that are worth the time to put groups in order
constexpr int NEARLY = 8;               // steps of a tile that are still to be copied when the next tile is asked for
using Queue = TileQueue<BLOCKS, DYNAMIC, COPIERS + 8>;  // read by the warps that copy and those that multiply
using Buffers = StoreBuffers<Out, STORES>;

struct Places {  // in shared memory
  uint32_t ring;
  uint32_t out(int part) const { return ring + RING * UNIT + part * STORES * STORED_BYTES; }
  uint32_t barriers() const { return ring + RING * UNIT + (SMALL_OUT ? 2 * STORES * STORED_BYTES : 0); }
  uint32_t full(uint32_t slot) const { return barriers() + 16 * slot; }
  uint32_t empty(uint32_t slot) const { return full(slot) + 8; }
  Queue queue() const { return {barriers() + 16 * SLOTS}; }
};

// Steps lie in a ring, each in one piece: the part of rhs, then that of lhs.
struct Ring {
  uint32_t step = 0, at = 0;  // units
  uint32_t slot() const { return step % SLOTS; }
  uint32_t parity() const { return step / SLOTS % 2; }
  // The place of the next step; what was left over at the end of the ring before it.
  uint32_t take(uint32_t units, uint32_t& left_over) {
    const bool wraps = at + units > RING;
    left_over = wraps ? RING - at : 0;
    const uint32_t place = wraps ? 0 : at;
    at = place + units;
    ++step;
    return place * UNIT;
  }
};

// What the producer knows of steps that are not yet done with: each slot's units, a byte each.
struct Outstanding {
  uint32_t oldest = 0, free = RING;
  uint64_t units = 0;
  void wait_for(const Places& at, uint32_t step, uint32_t wanted) {
    while (free < wanted || step - oldest == SLOTS) {
      const uint32_t slot = oldest % SLOTS;
      barrier_wait(at.empty(slot), oldest / SLOTS % 2);
      free += static_cast<uint32_t>(units >> 8 * slot) & 255;
      ++oldest;
    }
    free -= wanted;
    units = (units & ~(uint64_t{255} << 8 * (step % SLOTS))) | uint64_t{wanted} << 8 * (step % SLOTS);
  }
};

struct Problem {
  int first_group, held, steps;  // the groups that rhs has, and products a tile takes, in steps of DEPTH
  int groups_a_batch;
  bool has(int group) const { return BATCHED || (group >= first_group && group < first_group + held); }
  int steps_of(const GroupTile& tile) const { return has(tile.group) ? steps : 0; }
  int batch_of(const GroupTile& tile) const { return BATCHED ? tile.group / groups_a_batch : 0; }
  int group_of(const GroupTile& tile) const { return BATCHED ? tile.group % groups_a_batch : tile.group; }
};

using Walk = GroupWalk<STEP, TOGETHER>;

static inline int boxes_of(const GroupTile& tile) { return (tile.end - tile.row + BOX_ROWS - 1) / BOX_ROWS; }
static inline uint32_t units_of(const GroupTile& tile) { return RHS_UNITS + boxes_of(tile) * (BOX_ROWS / 32); }

static inline void copy_rhs(const TensorMap& rhs, uint32_t to, uint32_t full, const Problem& problem, const GroupTile& tile, int rank, int k) {
  const int column = (tile.column * BLOCKS + rank) * COLUMNS, batch = problem.batch_of(tile), group = problem.group_of(tile);
  const Keep keep_rhs = STREAMS && tile.bands == 1 ? Keep::shortly : Keep::normal;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int inner = TRANSPOSED ? k : column + side * 64, outer = TRANSPOSED ? column + side * 64 : k;
    if constexpr (BATCHED)
      load_tile(to + side * RHS_BOX, rhs, full, {inner, outer, group, batch}, keep_rhs);
    else
      load_tile(to + side * RHS_BOX, rhs, full, {inner, outer, group - problem.first_group}, keep_rhs);
  }
}

// Every BLOCKS-th box, to all blocks of the cluster.
static inline void copy_lhs(const TensorMap& lhs, uint32_t to, uint32_t full, const Problem& problem, const GroupTile& tile, int rank, int k) {
  const int batch = problem.batch_of(tile), group = problem.group_of(tile);
#pragma unroll 1
  for (int box = rank; box < boxes_of(tile); box += BLOCKS) {
    const uint32_t box_to = to + box * (BOX_ROWS * DEPTH * 2);
    const int row = tile.row + box * BOX_ROWS;
    if constexpr (BATCHED && BLOCKS > 1)
      load_tile_multicast(box_to, lhs, full, {k, row, group, batch}, (1 << BLOCKS) - 1);
    else if constexpr (BATCHED)
      load_tile(box_to, lhs, full, {k, row, group, batch});
    else if constexpr (BLOCKS > 1)
      load_tile_multicast(box_to, lhs, full, {k, row}, (1 << BLOCKS) - 1);
    else
      load_tile(box_to, lhs, full, {k, row});
  }
}

template <bool COPIES_RHS, bool COPIES_LHS>
static inline void copy_tiles(const Places& at, const TensorMap& lhs, const TensorMap& rhs, const GroupTile& first, const Problem& problem) {
  const int rank = BLOCKS > 1 ? cluster_rank() : 0;
  Ring ring;
  Outstanding outstanding;
  for (TileReader work(at.queue(), first); work.more(); work.next()) {
    const GroupTile tile = work.tile;
    const int steps = problem.steps_of(tile);
    const uint32_t units = units_of(tile), bytes = ((COPIES_RHS ? RHS_UNITS : 0) + (COPIES_LHS ? units - RHS_UNITS : 0)) * UNIT;
    if (lane() == 0) {
      const bool asks = COPIES_RHS && rank == 0;
      if (asks && steps < NEARLY) at.queue().ask();
#pragma unroll 1
      for (int k = 0; k < steps; ++k) {
        if (asks && k + NEARLY == steps) at.queue().ask();
        const uint32_t full = at.full(ring.slot()), step = ring.step;
        uint32_t left_over;
        const uint32_t place = at.ring + ring.take(units, left_over);
        outstanding.wait_for(at, step, units + left_over);
        barrier_arrive_expect(full, bytes);
        if (COPIES_LHS) copy_lhs(lhs, place + 2 * RHS_BOX, full, problem, tile, rank, k * DEPTH);
        if (COPIES_RHS) copy_rhs(rhs, place, full, problem, tile, rank, k * DEPTH);
      }
    }
    sync_warp();
  }
}

static inline void release(const Places& at, uint32_t slot) {
  const int thread = thread_x() % WARPGROUP;
  if (thread < BLOCKS) barrier_release<BLOCKS>(at.empty(slot), thread);
}

// d [64][N] = this warpgroup's columns times N rows. While the last products run, it calls next().
template <int N, class Next>
static inline void multiply(const Places& at, int part, int steps, uint32_t units, Ring& ring, float (&d)[N / 2], Next next) {
  uint32_t last = 0;
  keep_in_place(d);
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
    const uint32_t slot = ring.slot();
    barrier_wait(at.full(slot), ring.parity());
    wgmma_fence();
    uint32_t left_over;
    const uint32_t from = at.ring + ring.take(units, left_over), columns = from + part * RHS_BOX;
    const uint64_t a = TRANSPOSED ? depth_major<128>(columns) : row_major<128>(columns, DEPTH), b = depth_major<128>(from + 2 * RHS_BOX);
#pragma unroll
    for (int i = 0; i < DEPTH / 16; ++i)
      wgmma<Element, N, !TRANSPOSED, false>(d, moved(a, i * (TRANSPOSED ? 32 : 2048)), moved(b, i * 32), k > 0 || i > 0);
    wgmma_commit();
    if (k > 0) {
      wgmma_wait<1>();
      release(at, last);
    }
    last = slot;
  }
  next();
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

template <int N, class Next>
static inline void make_tile(const Places& at, int part, const GroupTile& tile, const Problem& problem, const Target& target, int column,
                             const TensorMap& out_map, Ring& ring, Buffers& buffers, Next next) {
  const int steps = problem.steps_of(tile), height = tile.end - tile.row, batch = problem.batch_of(tile), group = problem.group_of(tile);
  float d[N / 2];
  if (steps == 0)
    for (int i = 0; i < N / 2; ++i) d[i] = 0;
  multiply<N>(at, part, steps, units_of(tile), ring, d, next);
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
#pragma unroll
    for (int row = 0; row < N; row += STORED_ROWS) {
      buffers.open();
#pragma unroll
      for (int j = row / 8; j < row / 8 + 8 && j < N / 8; j += 2) {
        const uint32_t r[4] = {pack_pair<Out>(d[4 * j], d[4 * j + 1]), pack_pair<Out>(d[4 * j + 2], d[4 * j + 3]),
                               pack_pair<Out>(d[4 * j + 4], d[4 * j + 5]), pack_pair<Out>(d[4 * j + 6], d[4 * j + 7])};
        buffers.template put<true>(j % 8, r);
      }
      const bool whole = N >= row + STORED_ROWS && height >= row + STORED_ROWS;
      buffers.send(whole, out + row * target.out_stride + column, target.out_stride, height - row, target.columns - column, [&](uint32_t from) {
        if constexpr (BATCHED)
          store_tile(out_map, {column, tile.row + row, group, batch}, from);
        else
          store_tile(out_map, {column, tile.row + row}, from);
      });
    }
  }
}

// Steps that a warpgroup without columns lets go by.
static inline void skip(const Places& at, int steps, uint32_t units, Ring& ring) {
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
    const uint32_t slot = ring.slot();
    barrier_wait(at.full(slot), ring.parity());
    uint32_t left_over;
    ring.take(units, left_over);
    release(at, slot);
  }
}

static inline void make_tiles(const Places& at, int part, const GroupTile& first, const Problem& problem, const Target& target,
                              const TensorMap& out_map) {
  const int rank = BLOCKS > 1 ? cluster_rank() : 0;
  Ring ring;
  Buffers buffers{at.out(part), 1 + part};
  TileReader work(at.queue(), first);
  const auto next = [&] { work.next(); };
  while (work.more()) {
    const GroupTile tile = work.tile;
    const int column = (tile.column * BLOCKS + rank) * COLUMNS + part * 64;
    if (column >= target.columns) {
      skip(at, problem.steps_of(tile), units_of(tile), ring);
      next();
      continue;
    }
    switch ((tile.end - tile.row + STEP - 1) / STEP) {
$for n in 1..(rows / step + 1)
    case ${n}: make_tile<${step * n}>(at, part, tile, problem, target, column, out_map, ring, buffers, next); break;
$end
    }
  }
  if (SMALL_OUT) buffers.finish();
}

static inline void init_barriers(const Places& at) {
  for (uint32_t slot = 0; slot < SLOTS; ++slot) {
    barrier_init(at.full(slot), COPIERS);
    barrier_init(at.empty(slot), 2 * BLOCKS);
  }
  at.queue().init();
  fence_barrier_init();
}

KERNEL(384, 1) grouped_matmul(${parameters('grouped_matmul')}) {
  const Places at{(static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared())) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    prefetch_tensor_map(lhs_map);
    prefetch_tensor_map(rhs_map);
    prefetch_tensor_map(out_map);
    init_barriers(at);
  }
  if constexpr (!DYNAMIC) wait_for_previous_launch();  // else only the queue waits: what else is read was there before its counter was zeroed
  const Problem problem{static_cast<int>(group_offset), static_cast<int>(held), static_cast<int>((K + DEPTH - 1) / DEPTH), static_cast<int>(G)};
  const int groups = static_cast<int>(group_count), rows = static_cast<int>(M), columns = static_cast<int>(column_blocks);
  const int most = LOWEST < ROWS ? balanced_rows<STEP, LOWEST, ROWS>(group_sizes, groups, rows, columns, grid_x() / BLOCKS) : ROWS;
  // Here, before warps part: its code is fetched once, while barriers are made.
  Walk walk(group_sizes, groups, rows, columns, most, problem.steps >= LONG);
  GroupTile first;
  if (!Walk(walk).find(Queue::first(), first)) first.bands = 0;
  if constexpr (BLOCKS > 1)
    sync_cluster();
  else
    sync_block();
  if (warpgroup() == 0) {
    give_registers<88>();
    if (warp() == 0) copy_tiles<true, COPIERS == 1>(at, lhs_map, rhs_map, first, problem);
    if (COPIERS > 1 && warp() == 2) copy_tiles<false, true>(at, lhs_map, rhs_map, first, problem);
    if (warp() == 1 && (BLOCKS == 1 || cluster_rank() == 0)) at.queue().give_out(walk, counter);
  } else {
    take_registers<208>();
    make_tiles(at, warpgroup() - 1, first, problem,
               Target{out, existing_out, out_stride, existing_stride, N, out_batch, out_group, existing_batch, existing_group}, out_map);
  }
  sync_warp();
  if constexpr (DYNAMIC) wait_for_previous_launch();
  if constexpr (BLOCKS > 1) sync_cluster();  // no block leaves while others still arrive at its barriers
}

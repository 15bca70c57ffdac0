// Hopper vocabulary of the attention kernels' gradients: dq from its sums by the launch that adds to them, while they are in L2. When all blocks
// of keys of a kv head have added, warps that have nothing else to do make dq of its rows: those beside the warp that copies, in 24 registers,
// and at the end all. Copies are bulk ones: with cp.async anywhere in a kernel each fence_async waits for shared memory (2% of all).
#pragma once
#include "flash_attention_bwd/sm90_attention_gradient.h"
#include "flash_attention_bwd/sm90_attention_weights.h"

// Until a counter of global memory has come so far, and what was done before it was counted up is seen. By one thread.
static inline void wait_for_count(const int32_t* counter, int32_t count) {
#pragma unroll 1
  for (;;) {
    int32_t seen;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    if (seen >= count) return;
    asm volatile("nanosleep.u32 100;" : : : "memory");
  }
}
static inline void count_up(int32_t* counter) { asm volatile("red.release.gpu.global.add.s32 [%0], 1;" : : "l"(counter) : "memory"); }
// Of an argument that has no more; read where it is used, and not kept in a register from before.
static inline uint32_t low_word(int64_t x) { return later(static_cast<uint32_t>(x)); }

// counters: how many units of rows are taken; then by kv head how often the BLOCKS of a cluster have added all of a block of keys. 0 at first.
// A warp loads BOXES boxes of features at a time.
template <class T, class Sums, int D, int BOXES = Sums::BOXES, int BLOCKS = 1> struct RowFinisher {
  static_assert(Sums::BOXES % BOXES == 0);
  static constexpr int CHUNK_ROWS = 8, PAIR = 2 * CHUNK_ROWS, PARTS = BOXES * 4;                        // a part has 16 features
  static constexpr int PAIRS = BOXES == 1 && Sums::CHUNKS % 4 == 0 ? 2 : 1, ROWS = PAIRS * PAIR;        // of a unit, which a warp takes
  static constexpr int LOADS = Sums::BOXES / BOXES;                                                     // of a unit
  static constexpr uint32_t BYTES = ROWS * BOXES * 64 * 4;                                              // of shared memory a warp
  static constexpr uint32_t PART_BYTES = WARP * 16, TILE = Sums::COUNT / Sums::FEATURES;
  const float* sums;
  int32_t *counters, *states;  // states: of TILE rows, every BLOCKS-th
  const int64_t &units, &units_a_head, &key_blocks;
  const ${by_blocks ? 'int64_t' : 'int'}& heads_a_kv_head;
  float factor;
  const View& dq_view;
$if by_blocks
  const int32_t* awaited;  // of TILE rows: minus how many turns are yet to be added
  const int64_t &heads_together, &heads_cleared;  // the latter: a multiple of the former, or all
$if packed
  const TileTokens* tile_tokens;  // by TILE rows of a head
$end

  // Until a unit's sums are whole. One thread. heads_asked: sums of heads before it are known to have been cleared; sums that no turn is added to are 0 then.
  void wait(uint32_t unit, uint32_t& heads_asked) const {
    const uint32_t head = unit / low_word(units_a_head) / low_word(heads_a_kv_head), heads = low_word(units) / low_word(units_a_head) / low_word(heads_a_kv_head);
    if (head >= heads_asked) {
      uint32_t at = head - head % low_word(heads_together);
      const uint32_t last = at + low_word(heads_together), end = last < heads ? last : heads;
#pragma unroll 1
      for (; at < end; ++at) wait_for_count(counters + 1 + at, static_cast<int32_t>(low_word(key_blocks)));
      heads_asked = end;
    }
    wait_for_count(awaited + unit * ROWS / TILE, 0);
  }
  // The taken-th unit: rows are whole in the order of rows, of all heads that the list goes through together.
  uint32_t unit_of(uint32_t taken) const {
    if (taken >= low_word(units)) return taken;
    const uint32_t heads = low_word(heads_together) * low_word(heads_a_kv_head), a_head = low_word(units_a_head), first = taken / (heads * a_head) * heads, left = taken - first * a_head;
    const uint32_t rest = low_word(units) / low_word(units_a_head) - first, here = rest < heads ? rest : heads, row = left / here;
    return (first + left - row * here) * low_word(units_a_head) + row;
  }
$else

  // One thread says so when a block of keys has added everything, and all that it knows of is done.
  void tell(int64_t numbered) const { count_up(counters + 1 + static_cast<uint32_t>(numbered) / low_word(key_blocks)); }
$end

  // A warp, until all units are taken. buffer, barrier: its own in shared memory; the barrier is of one arrival.
  void run(uint32_t buffer, uint32_t barrier) const {
    uint32_t next = lane() == 0 ? atomicAdd(counters, 1) : 0;
$if by_blocks
    uint32_t heads_asked = low_word(heads_cleared);
$end
#pragma unroll 1
    for (;; barrier ^= 1) {  // in its lowest bit the parity of what comes
      const uint32_t unit = ${by_blocks ? 'unit_of(shuffle(next, 0))' : 'shuffle(next, 0)'};
      if (unit >= low_word(units)) return;
      float zero = 0;
#pragma unroll 1
      for (int part = 0; part < LOADS; ++part) {
        if (lane() == 0) {
$if by_blocks
          if (part == 0) wait(unit, heads_asked);
$else
          if (part == 0)
            wait_for_count(counters + 1 + unit / low_word(units_a_head) / low_word(heads_a_kv_head), static_cast<int32_t>(low_word(key_blocks)) * BLOCKS);
$end
          fence_async_everywhere();
          load(unit, part * BOXES, later(buffer), later(barrier) / 8 * 8);
          if (part == 0) next = atomicAdd(counters, 1);
        }
        barrier_wait(later(barrier) / 8 * 8, barrier % 2);
#pragma unroll 1
        for (int pair = 0; pair < PAIRS; ++pair) make(unit, later(unit) / low_word(units_a_head), part * BOXES, pair, later(buffer), zero);
        if (part + 1 < LOADS) sync_warp(), barrier ^= 1;
      }
      const bool bad = any_in_warp(zero != 0);
      if (lane() == 0) atomicMax(states + later(unit) * ROWS / TILE * BLOCKS, bad ? ROWS_BROKEN : 1);
    }
  }
  void load(uint32_t unit, int first_box, uint32_t buffer, uint32_t barrier) const {
    constexpr uint32_t BOX = PAIRS * 8 * PART_BYTES;
    const uint32_t tile = unit * ROWS / TILE;
    const float* const from = sums + int64_t{tile} * Sums::COUNT + Sums::place(first_box, (unit * ROWS - tile * TILE) / CHUNK_ROWS, 0);
    barrier_arrive_expect(barrier, BYTES);
#pragma unroll
    for (int box = 0; box < BOXES; ++box) load_bytes(buffer + box * BOX, from + Sums::place(box, 0, 0), BOX, barrier);
  }
  // PAIR rows of a unit, BOXES boxes of them. zero: no more so if this lane meets what is not finite.
  void make(uint32_t unit, uint32_t head, int first_box, int pair, uint32_t buffer, float& zero) const {
    const Heads<T> dq(dq_view);
    const int row = static_cast<int>(unit - head * low_word(units_a_head)) * ROWS + pair * PAIR, feature = first_box * 64;
$if by_blocks and packed
    const TileTokens tokens = tile_tokens[row / TILE];
    if (row % TILE >= tokens.count) return;
    T* to = place(dq, head, tokens, row % TILE, feature);
$else
    if (row >= dq.tokens) return;
    T* to = place(dq, head, row, feature);
$end
    const bool inside = to != nullptr;
    uint32_t from = buffer + later(thread_x()) % WARP * 16 + pair * 8 * PART_BYTES;
#pragma unroll 1
    for (int part = 0; part < PARTS; ++part, to += 16, from += PART_BYTES) {
      if (BOXES > 1 && part == 4) from += (8 * PAIRS - 4) * PART_BYTES;
      uint32_t w[4];
#pragma unroll
      for (int chunk = 0; chunk < 2; ++chunk) {
        float x[4];
        load_four(x, from + chunk * 4 * PART_BYTES);
#pragma unroll
        for (int i = 0; i < 4; ++i) zero += x[i] * 0;
#pragma unroll
        for (int i = 0; i < 2; ++i) w[2 * chunk + i] = transpose_matrix(pack_pair<T>(x[2 * i] * factor, x[2 * i + 1] * factor));
      }
      transpose_in_four(w);
      if (inside && feature + part * 16 + lane() % 2 * 8 < D)
        store_pack(reinterpret_cast<uint32_t*>(to), Pack<uint32_t, 4>{{w[0], w[1], w[2], w[3]}});
    }
  }
$if by_blocks and packed
  // Where this lane stores, of rows from `row` of a tile on, from that feature on; null: nothing.
  T* place(const Heads<T>& dq, uint32_t head, const TileTokens& tokens, int row, int feature) const {
    const uint32_t thread = later(thread_x()) % WARP;
    const int mine = row + static_cast<int>(thread % 4 / 2 * CHUNK_ROWS + thread / 4);
    return mine < tokens.count ? dq.row(0, tokens.first + mine, head) + feature + thread % 2 * 8 : nullptr;
  }
$else
  // Where this lane stores, of rows from `row` of the head on, from that feature on; null: nothing.
  T* place(const Heads<T>& dq, uint32_t head, int row, int feature) const {
    const uint32_t batch = head / low_word(dq.heads), thread = later(thread_x()) % WARP;
    const int mine = row + static_cast<int>(thread % 4 / 2 * CHUNK_ROWS + thread / 4);
    return mine < dq.tokens ? dq.row(batch, mine, head - batch * low_word(dq.heads)) + feature + thread % 2 * 8 : nullptr;
  }
$end
  static void load_four(float (&x)[4], uint32_t from) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(from) : "memory");
  }
};

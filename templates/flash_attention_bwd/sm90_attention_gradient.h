// Hopper vocabulary of the attention kernels' gradients: what comes before and after blocks of keys: rows' log-sum-exps and deltas, and dq from
// the sums that the blocks have added to.
#pragma once
#include "flash_attention_bwd/attention_backward_plain.h"
#include "device/tile/later.h"
#include "flash_attention_bwd/sm90_attention_keys.h"
#include "device/tile/sums.h"

// Sums of dq of ROWS rows, transposed as warpgroups have them: boxes of 64 features, in them 8 queries at a time, in those 16 features a warp.
template <int ROWS, int D> struct QuerySums {
  static constexpr int BOXES = (D + 63) / 64, CHUNKS = ROWS / 8, FEATURES = 64 * BOXES, COUNT = ROWS * FEATURES;
  static int place(int box, int chunk, int warp_of_group) { return ((box * CHUNKS + chunk) * 4 + warp_of_group) * 128; }

  // A warpgroup's share: features of `box`, queries from the first_chunk-th 8 on. Chunks of it lie PITCH apart.
  static constexpr int PITCH = 4 * 128;
  template <int N> static void add(float* sums, int box, int first_chunk, const float (&dq)[N]) {
    float* const to = sums + place(box, first_chunk, static_cast<int>(later(warp())) % 4);
#pragma unroll
    for (int chunk = 0; chunk < N / 4; ++chunk) {
      const float four[4] = {dq[4 * chunk], dq[4 * chunk + 1], dq[4 * chunk + 2], dq[4 * chunk + 3]};
      add_to_sums(to + chunk * PITCH, four);
    }
  }
  // Of this lane's first four; made where it is used, and not kept in registers.
  static int own_place(int box, int first_chunk) {
    const int thread = static_cast<int>(later(thread_x()));
    return place(box, first_chunk, thread / WARP % 4) + thread % WARP * 4;
  }
  // The first share of all, set and not added; and this thread's shares before, added to dq.
  template <int N> static void start(float* sums, int box, int first_chunk, const float (&dq)[N]) {
    float* const to = sums + own_place(box, first_chunk);
#pragma unroll
    for (int chunk = 0; chunk < N / 4; ++chunk)
      asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
                   :
                   : "l"(to + chunk * PITCH), "f"(dq[4 * chunk]), "f"(dq[4 * chunk + 1]), "f"(dq[4 * chunk + 2]), "f"(dq[4 * chunk + 3])
                   : "memory");
  }
  template <int N> static void load_and_add(const float* sums, int box, int first_chunk, float (&dq)[N]) {
    const float* const from = sums + own_place(box, first_chunk);
#pragma unroll
    for (int first = 0; first < N / 4; first += 4) {
      float x[16];
#pragma unroll
      for (int i = 0; i < 4 && first + i < N / 4; ++i)
        asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x[4 * i]), "=f"(x[4 * i + 1]), "=f"(x[4 * i + 2]), "=f"(x[4 * i + 3])
                     : "l"(from + (first + i) * PITCH) : "memory");
#pragma unroll
      for (int i = 0; i < 16 && 4 * first + i < N; ++i) dq[4 * first + i] += x[i];
    }
  }
  // Which element of these rows is element i of what load_sums() gives a lane at a place.
  static int feature(int box, int i, int warp_of_group) { return box * 64 + warp_of_group * 16 + lane() / 4 + i / 2 * 8; }
  static int query(int chunk, int i) { return 8 * chunk + lane() % 4 * 2 + i % 2; }
};

// The grid's blocks, numbered: rows by heads by rows of the batch.
static inline int64_t block_number() { return (int64_t{block_z()} * grid_y() + block_y()) * grid_x() + block_x(); }

template <int THREADS> static inline void clear_counters(int32_t* counters, int64_t count, int64_t blocks) {
#pragma unroll 1
  for (int64_t i = block_number() * THREADS + thread_x(); i < count; i += blocks * THREADS) counters[i] = 0;
}

// work(i), by the whole block, of those i below count that are marked, every blocks-th of all. Each thread looks at one at a time.
template <int THREADS, class Marked, class Work>
static inline void for_each_marked(int64_t count, int64_t blocks, Marked marked, Work work) {
#pragma unroll 1
  for (int64_t first = block_number(); first < count; first += blocks * THREADS) {
    const int64_t mine = first + thread_x() * blocks;
    if (!any_in_block(mine < count && marked(mine))) continue;
#pragma unroll 1
    for (int64_t i = first; i < count && i < first + blocks * THREADS; i += blocks)
      if (marked(i)) work(i);
  }
}

// The state of rows whose dq is not finite. 0: not computed yet; values between are finite rows.
constexpr int32_t ROWS_BROKEN = 1 << 30;

// What a call's gradients are made of. ADJUSTED: it has a bias, a mask or segments. DROPPED: weights are dropped; then a row's weights are made as what they count
// if they are kept: its log-sum-exp is less by the logarithm of that factor, its delta by the factor.
template <class T, int D, int DV, int ROWS, bool PACKED, bool CAPPED, bool ADJUSTED = false, bool DROPPED = false> struct Gradients {
  ${by_blocks ? (packed ? 'MaskedSequences' : 'Sequences') : 'Sequences'} sequences;
  RowSpace space;
  float *row_lse, *row_delta, *dq_sums;
  using Sums = QuerySums<ROWS, D>;
  using Plain = PlainGradients<T, ADJUSTED, CAPPED, DROPPED, DROPPED>;

  // This block's ROWS rows (block_x, packed: of all sequences) of head block_y of row block_z of the batch. Returns whether there are any.
  bool find_rows(Sequence& sequence, int64_t& first) const {
    sequence = sequences[PACKED ? 0 : block_z()];
    int64_t item = block_x(), items;
    if (PACKED && !find_sequence(sequences, item, ROWS, 1, sequence, items)) return false;
    first = item * ROWS;
    return true;
  }

  // Of this block's rows: log-sum-exps, deltas, and (CLEARS) sums at 0. kept: of all weights, as dropout goes; 0: no row has any.
  template <int THREADS, bool CLEARS> void prepare(const View& out, const View& dout, const View& lse, float kept = 1) const {
    Sequence sequence;
    int64_t first;
    if (!find_rows(sequence, first)) return;
    const int64_t at = space.first(sequence, block_y()) + first;
    constexpr int LANES = DV <= 64 ? 8 : DV <= 128 ? 16 : 32, STEP = THREADS / LANES, AHEAD = 2;  // lanes a row; rows at a time; such loads in flight
    const Heads<const T> outs(out), douts(dout);
    const float* const logs = static_cast<const float*>(lse.data) + (lse.rank == 3 ? sequence.batch * lse.strides[0] : 0) +
                              block_y() * lse.strides[lse.rank - 2] + sequence.first_query;
    const int feature = thread_x() % LANES * 8;
    const float log_kept = DROPPED ? log_of(kept) * LOG2_E : 0;
#pragma unroll 1
    for (int base = thread_x() / LANES; base < ROWS; base += AHEAD * STEP) {
      Pack<T, 8> x[AHEAD], y[AHEAD];
      float log[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const int64_t row = first + base + i * STEP;
        const bool some = base + i * STEP < ROWS && row < sequence.seeing();
        log[i] = some ? logs[row] : -INFINITE;
        x[i] = y[i] = {};
        if (!some || feature >= DV) continue;
        x[i] = load_pack<8>(outs.row(sequence.batch, sequence.first_query + row, block_y()) + feature);
        y[i] = load_pack<8>(douts.row(sequence.batch, sequence.first_query + row, block_y()) + feature);
      }
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const bool weighs = log[i] != -INFINITE && (!DROPPED || kept > 0);
        float delta = 0;
#pragma unroll
        for (int j = 0; j < 8; ++j) delta += to_float(x[i].at[j]) == 0 ? 0 : to_float(x[i].at[j]) * to_float(y[i].at[j]);
#pragma unroll
        for (int mask = LANES / 2; mask > 0; mask /= 2) delta += shuffle_xor(delta, mask);
        if (base + i * STEP >= ROWS || feature != 0) continue;
$if takes_bias
        row_lse[at + base + i * STEP] = weighs ? usual_log(DROPPED ? log[i] * LOG2_E + log_kept : log[i] * LOG2_E) : INFINITE;
$else
        row_lse[at + base + i * STEP] = weighs ? DROPPED ? log[i] * LOG2_E + log_kept : log[i] * LOG2_E : INFINITE;
$end
        row_delta[at + base + i * STEP] = weighs ? DROPPED ? delta * kept : delta : 0;
      }
    }
#pragma unroll 1
    for (int i = thread_x() * 4; i < (CLEARS ? Sums::COUNT : 0); i += THREADS * 4) store_pack(dq_sums + at * Sums::FEATURES + i, Pack<float, 4>{});
  }

  // Shared memory that finish() and repair() need: rows of dq; which are bad; what warps compare others with.
  static constexpr int PITCH = D + 8, BAD_ROWS = ROWS * PITCH * 2, PLAIN = BAD_ROWS + ROWS * 4;
  static float* plain_memory() { return reinterpret_cast<float*>(dynamic_shared() + PLAIN) + warp() * 2 * (D + DV); }

  // dq of this block's rows from their sums. A value that is not finite, behind a weight of 0, has made sums NaN of rows that do not see it:
  // where keys are hidden, the definition decides then.
  template <int THREADS, class MakePlain> void finish(const Heads<T>& dq, float factor, bool hides, MakePlain make_plain) const {
    Sequence sequence;
    int64_t first;
    if (!find_rows(sequence, first)) return;
    T* const tile = reinterpret_cast<T*>(dynamic_shared());
    int* const bad_rows = reinterpret_cast<int*>(dynamic_shared() + BAD_ROWS);
    if (thread_x() < ROWS) bad_rows[thread_x()] = 0;
    sync_block();
    const bool some_bad = any_in_block(load_rows<THREADS>(tile, bad_rows, sequence, first, factor) && hides);
    constexpr int PACKS = D / 8;
#pragma unroll 1
    for (int i = thread_x(); i < ROWS * PACKS; i += THREADS) {
      const int row = i / PACKS, column = i % PACKS * 8;
      if (first + row < sequence.queries && !(some_bad && bad_rows[row]))
        store_pack(dq.row(sequence.batch, sequence.first_query + first + row, block_y()) + column, load_pack<8>(tile + row * PITCH + column));
    }
#pragma unroll 1
    for (int row = warp(); some_bad && row < ROWS && first + row < sequence.queries; row += THREADS / WARP)
      if (bad_rows[row]) make_plain(sequence).differentiate_query(static_cast<int>(first) + row, block_y(), dq);
  }

  // dq of rows not computed is 0; rows that are not finite are recomputed by the plain definition. Batched, or behind a mask of
  // blocks; of ROWS rows each, every blocks-th of all. states: every STATE_PITCH-th.
  template <int THREADS, int STATE_PITCH, class MakePlain> void mend(const Heads<T>& dq, const int32_t* states, int64_t blocks, MakePlain make_plain) const {
    const int64_t tiles_a_head = space.rows / ROWS;
    for_each_marked<THREADS>(
        tiles_a_head * space.heads${by_blocks ? (packed ? '' : ' * sequences.count') : ' * sequences.count'}, blocks,
        [&](int64_t tile) { return states[tile * STATE_PITCH] == 0 || states[tile * STATE_PITCH] >= ROWS_BROKEN; },
        [&](int64_t tile) {
$if by_blocks and packed
          const int64_t head = tile / tiles_a_head;
          int64_t first;
          const Sequence sequence = sequences.cut(sequence_of_rows<ROWS>(sequences, tile % tiles_a_head, first));
$else
          const int64_t numbered = tile / tiles_a_head, head = numbered % space.heads, first = tile % tiles_a_head * ROWS;
          const Sequence sequence = sequences[numbered / space.heads];
$end
#pragma unroll 1
          for (int row = warp(); row < ROWS && first + row < sequence.queries; row += THREADS / WARP) {
            T* const to = dq.row(sequence.batch, sequence.first_query + first + row, head);
            float zero = 0;
#pragma unroll 1
            for (int i = lane(); i < D; i += WARP)
              if (states[tile * STATE_PITCH] == 0)
                to[i] = from_float<T>(0);
              else
                zero += to_float(to[i]) * 0;
            if (any_in_warp(zero != 0)) make_plain(sequence).differentiate_query(static_cast<int>(first) + row, static_cast<int>(head), dq);
          }
        });
  }

  // Sums to elements; true if this thread has met one that is not finite.
  template <int THREADS> bool load_rows(T* tile, int* bad_rows, const Sequence& sequence, int64_t first, float factor) const {
    const float* const from = dq_sums + (space.first(sequence, block_y()) + first) * Sums::FEATURES;
    bool bad = false;
#pragma unroll 4
    for (int unit = warp() / 4; unit < Sums::BOXES * Sums::CHUNKS; unit += THREADS / WARPGROUP) {
      const int box = unit / Sums::CHUNKS, chunk = unit % Sums::CHUNKS, warp_of_group = warp() % 4;
      const Pack<float, 4> x = load_sums(from + Sums::place(box, chunk, warp_of_group));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = Sums::query(chunk, i), column = Sums::feature(box, i, warp_of_group);
        if (column < D) tile[row * PITCH + column] = from_float<T>(x.at[i] * factor);
        if (x.at[i] * 0 != 0) bad_rows[row] = 1, bad = true;
      }
    }
    return bad;
  }

  // Blocks of keys that are broken, every blocks-th of all: dk and dv by the definition.
  template <int THREADS, class Block, class MakePlain>
  void repair(const int32_t* broken, int64_t broken_blocks, int64_t key_blocks, int64_t blocks, const ${chunked ? 'ChunkVisibility' : 'Visibility'}& visibility, const Heads<T>& dk,
              const Heads<T>& dv, MakePlain make_plain) const {
    for_each_marked<THREADS>(broken_blocks, blocks, [&](int64_t i) { return broken[i] != 0; }, [&](int64_t i) {
      Block block;
      const int numbered = static_cast<int>(i / key_blocks), number = static_cast<int>(i % key_blocks);
      if (!block.find(sequences, visibility, space, static_cast<int>(dk.heads), numbered, number)) return;
#pragma unroll 1
      for (int key = warp(); key < Block::COUNT && key < block.keys; key += THREADS / WARP)
        make_plain(block.sequence).differentiate_key(block.first_key + key, block.kv_head, dk, dv);
    });
  }
};

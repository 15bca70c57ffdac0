// flash_attention, forward, on matrix instructions of a warp (mma.sync). A block takes BLOCK_M query rows of one kv head through all their
// keys, BLOCK_N at a time; each warp keeps M_TILES tiles of 16 rows, their scores and their output in registers.
//
// A row is one query token of one of the query heads that share the kv head: row = token * heads_a_kv_head + head, as on the CPU.
// K and V blocks are copied asynchronously, one block ahead, into two places each.
// The running softmax in units of log 2: weights are 2^(score - reference). A row's reference is the largest score of its first block, and
// follows later ones only where weights become LARGE: then the block is done again. So most blocks neither look for their largest score
// nor rescale the outputs; whatever the reference, the denominator takes care of it.
#include "device/gpu.h"
#include "device/attention.h"
#include "device/tile.h"
#include "device/attention_plain.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_n % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr int D16 = ${align(D, 16)}, DV16 = ${align(Dv, 16)};
constexpr bool ADJUSTED = ${adjusted};                  // any of bias, mask, segments, lengths may be given
constexpr bool CAPPED = ${capped}, DROPPED = ${dropped};  // soft cap; dropout
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int M_TILES = ${m_tiles};                     // tiles of 16 query rows a warp
constexpr int BLOCK_M = WARPS * M_TILES * 16;           // query rows a block
constexpr int BLOCK_N = ${block_n};                     // keys a step
constexpr int N_TILES = BLOCK_N / 8, V_TILES = DV16 / 8;
constexpr int SLICES = D16 / 16, KEPT = ${q_slices};     // slices of 16 features; of the queries, kept in registers
constexpr int STEPS = ${steps}, STAGES = 2 * STEPS;      // steps between two barriers; blocks of keys in shared memory
constexpr float LARGE = 4096;  // for a sum of weights; a weight of this size still is exact enough in every type

using QTile = Tile<Element, BLOCK_M, (D16 > DV16 ? D16 : DV16)>;
using KTile = Tile<Element, BLOCK_N, D16>;
using VTile = Tile<Element, BLOCK_N, DV16>;
using KReader = TileReader<Element, BLOCK_N, D16, THREADS, D>;
using VReader = TileReader<Element, BLOCK_N, DV16, THREADS, DV>;

// What a warp keeps: [tile][8 columns][fragment of C].
typedef float Scores[M_TILES][N_TILES][4];
typedef float Outputs[M_TILES][V_TILES][4];
typedef uint32_t Queries[M_TILES][KEPT > 0 ? KEPT : 1][4];  // operands A of the slices that are kept
// Of each row of this thread: rows 16 tile + lane / 4 and 8 below.
typedef float PerRow[M_TILES][2];

// Kept slices are spread evenly over all, so that reads of shared memory are.
static constexpr bool is_kept(int slice) { return slice * KEPT % SLICES < KEPT; }
static constexpr int kept_place(int slice) { return slice * KEPT / SLICES; }

static inline void clear(Scores& s) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
}

// Scores grow by the products of one slice of 16 features: `a` of the queries, `b` of the keys.
static inline void multiply_slice(Scores& s, const uint32_t (&a)[M_TILES][4], const uint32_t (&b)[N_TILES / 2][4]) {
#pragma unroll
  for (int n = 0; n < N_TILES; n += 2)
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      mma_16x8x16<Element>(s[m][n], a[m], b[n / 2][0], b[n / 2][1]);
      mma_16x8x16<Element>(s[m][n + 1], a[m], b[n / 2][2], b[n / 2][3]);
    }
}

// `beside(slice)` is called beside the products of each slice: work that matrix instructions hide.
template <class Beside>
static inline void multiply_keys(Scores& s, const Queries& queries, const QTile& q, const KTile& k, int warp_row, Beside beside) {
  uint32_t a[2][M_TILES][4], b[2][N_TILES / 2][4];  // of a slice, and of the next one
  const auto load = [&](int slice) {
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) k.load_b(b[slice % 2][n / 2], 8 * n, 16 * slice);
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int i = 0; is_kept(slice) && i < 4; ++i) a[slice % 2][m][i] = queries[m][kept_place(slice)][i];
      if (!is_kept(slice)) q.load_a(a[slice % 2][m], warp_row + 16 * m, 16 * slice);
    }
  };
  constexpr int AHEAD = D16 > 128 || DV16 > 128 ? 0 : 1;  // they leave no registers for the next slice
  clear(s);
  if (AHEAD) load(0);
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    if (slice + AHEAD < SLICES) load(slice + AHEAD);
    beside(slice);
    multiply_slice(s, a[slice % 2], b[slice % 2]);
  }
}

// The same once more, seldom: in little code.
static inline void multiply_keys_again(Scores& s, const QTile& q, const KTile& k, int warp_row) {
  clear(s);
#pragma unroll 1
  for (int d = 0; d < D16; d += 16) {
    uint32_t a[M_TILES][4], b[N_TILES / 2][4];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) q.load_a(a[m], warp_row + 16 * m, d);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) k.load_b(b[n / 2], 8 * n, d);
    multiply_slice(s, a, b);
  }
}

// Of a row, what its four lanes have.
static inline float largest_of_row(float x) {
  x = larger_of(x, shuffle_xor(x, 1));
  return larger_of(x, shuffle_xor(x, 2));
}

// The references of the rows whose `sum` is LARGE become the largest scores so far, and denominators and outputs relative to them; other
// rows must not change, or they would depend on keys that they do not see. `unit` takes scores to log 2.
static inline void follow(const Scores& s, Outputs& o, PerRow& reference, PerRow& denominator, const PerRow& sum, float unit) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = -INFINITE;
#pragma unroll
      for (int n = 0; n < N_TILES; ++n) largest = larger_of(largest, larger_of(s[m][n][2 * h], s[m][n][2 * h + 1]));
      largest = larger_of(reference[m][h], largest_of_row(largest) * unit);
      if (!(largest_of_row(sum[m][h]) > LARGE)) largest = reference[m][h];
      const float factor = exp2_of(reference[m][h] - largest);
      reference[m][h] = largest;
      denominator[m][h] *= factor;
#pragma unroll
      for (int f = 0; f < V_TILES; ++f) o[m][f][2 * h] *= factor, o[m][f][2 * h + 1] *= factor;
    }
}

// Scores become weights; `sum`: of this thread's columns. Returns whether some row's are too large for its reference.
static inline bool weigh(Scores& s, const PerRow& reference, PerRow& sum, float unit) {
  bool large = false;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[m][h] = 0;
#pragma unroll
      for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          s[m][n][i] = exp2_of(s[m][n][i] * unit - reference[m][h]);
          sum[m][h] += s[m][n][i];
        }
      large = large || sum[m][h] > LARGE;
    }
  return any_in_warp(large);
}

// Outputs grow by the weights of 16 keys times their values.
static inline void add_values(Outputs& o, const Scores& p, int n, const VTile& v) {
  uint32_t a[M_TILES][4];
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    a[m][0] = pack_pair<Element>(p[m][n][0], p[m][n][1]);
    a[m][1] = pack_pair<Element>(p[m][n][2], p[m][n][3]);
    a[m][2] = pack_pair<Element>(p[m][n + 1][0], p[m][n + 1][1]);
    a[m][3] = pack_pair<Element>(p[m][n + 1][2], p[m][n + 1][3]);
  }
#pragma unroll
  for (int f = 0; f < V_TILES; f += 2) {
    uint32_t b[4];
    v.load_b_transposed(b, 8 * n, 8 * f);
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      mma_16x8x16<Element>(o[m][f], a[m], b[0], b[1]);
      mma_16x8x16<Element>(o[m][f + 1], a[m], b[2], b[3]);
    }
  }
}

// Scores that leave a row's range of keys, or that a mask hides, become -inf; cap and bias are applied. `first`: the block's first key.
static inline void adjust(Scores& s, const ScoreRules& rules, const Rows& rows, const Sequence& sequence, int warp_row, int first) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = warp_row + 16 * m + 8 * h + lane() / 4;
      const RowRules row = rules_of<ADJUSTED>(rules, sequence, rows.range[at], rows.place(at));
#pragma unroll
      for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          s[m][n][2 * h + i] = score_of<ADJUSTED, CAPPED>(s[m][n][2 * h + i], rules, row, first + 8 * n + lane() % 4 * 2 + i);
    }
}

// Drops weights by SEMANTICS' rule: one Philox number serves a row's eight keys; each of the four lanes that hold them makes every fourth
// and hands the words about.
static inline void drop(Scores& p, const ScoreRules& rules, const Rows& rows, const Sequence& sequence, int warp_row, int first) {
  const int quarter = lane() % 4;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const RowPlace place = rows.place(warp_row + 16 * m + 8 * h + lane() / 4);
      const uint32_t row = static_cast<uint32_t>(sequence.index * rules.heads + place.head);
#pragma unroll
      for (int n = 0; n < N_TILES; n += 4) {
        uint32_t mine[4] = {static_cast<uint32_t>(first / 8 + n + quarter), static_cast<uint32_t>(place.token), row, 0};
        philox(mine, rules.seed);
#pragma unroll
        for (int other = 0; other < 4; ++other) {  // by exchange with lane quarter ^ other: my word for it against its word for me
          const int partner = quarter ^ other;
          const uint32_t give = partner == 0 ? mine[0] : partner == 1 ? mine[1] : partner == 2 ? mine[2] : mine[3];
          const uint32_t got = shuffle_xor(give, other);
#pragma unroll
          for (int tile = 0; tile < 4; ++tile)
            if (n + tile < N_TILES && tile == partner) {
              if (static_cast<float>(got & 0xffff) < rules.drop_threshold) p[m][n + tile][2 * h] = 0;
              if (static_cast<float>(got >> 16) < rules.drop_threshold) p[m][n + tile][2 * h + 1] = 0;
            }
        }
      }
    }
}

// The warp's rows, from Q's tile to `out`, 16 bytes a lane.
static inline void store_rows(const Element* tile, const Heads<Element>& out, const Rows& rows, const Sequence& sequence, int warp_row) {
  constexpr int LANES = DV / 8;  // that share a row
  if (WARP % LANES == 0 && rows.evenly()) {
    constexpr int STEP = WARP % LANES == 0 ? WARP / LANES : 1;
    const int row = warp_row + lane() / LANES, column = lane() % LANES * 8;
    const Element* from = tile + row * QTile::PITCH + column;
    Element* to = rows.row_of(out, sequence, 0) + row * out.token_stride + column;
    const int64_t stride = STEP * out.token_stride;
#pragma unroll
    for (int i = 0; i < M_TILES * 16; i += STEP, to += stride)
      if (row + i < rows.count) store_pack(to, load_pack<8>(from + i * QTile::PITCH));
    return;
  }
#pragma unroll 1
  for (int i = lane(); i < M_TILES * 16 * LANES; i += WARP) {
    const int row = warp_row + i / LANES, column = i % LANES * 8;
    if (row < rows.count) store_pack(rows.row_of(out, sequence, row) + column, load_pack<8>(tile + row * QTile::PITCH + column));
  }
}

static inline bool finite(const Outputs& o) {
  float zero = 0;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int f = 0; f < V_TILES; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) zero += o[m][f][i] * 0;
  return zero == 0;
}

// What the warp has summed, to out and lse; the output goes through the warp's own rows of Q's tile, so that stores are 16 bytes wide, and
// what lse is made of through their ranges, which nobody needs any more, so that each lane stores a row.
static inline void finish(Outputs& o, const PerRow& reference, const PerRow& denominator, Element* tile, const Heads<Element>& out,
                          const View& lse, const Rows& rows, const Sequence& sequence, int warp_row, float kept) {
  Softmax* const softmax = reinterpret_cast<Softmax*>(rows.range);
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = denominator[m][h];
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      const int row = warp_row + 16 * m + 8 * h + lane() / 4;
      const float factor = sum == 0 ? 0 : kept / sum;
#pragma unroll
      for (int f = 0; f < V_TILES; ++f) {
        const uint32_t pair = pack_pair<Element>(o[m][f][2 * h] * factor, o[m][f][2 * h + 1] * factor);
        *reinterpret_cast<uint32_t*>(tile + row * QTile::PITCH + 8 * f + lane() % 4 * 2) = pair;
      }
      if (lane() % 4 == 0) softmax[row] = {reference[m][h], sum};
    }
  sync_warp();
  store_rows(tile, out, rows, sequence, warp_row);
#pragma unroll 1
  for (int row = warp_row + lane(); is_given(lse) && row < warp_row + M_TILES * 16 && row < rows.count; row += WARP)
    store_lse(lse, sequence, rows.place(row), softmax[row].reference, softmax[row].sum);
}

// Which steps a warp can do without a look at single keys. The same for all its lanes, and the compiler is told.
struct Steps {
  int first, end;                  // of the block: all its warps copy and wait together
  int first_seen, end_seen;        // of the warp: some row sees some key of them
  int first_whole, whole;          // steps of which every row sees every key
  bool hides;                      // the block has keys that some of its rows do not see

  Steps(const Rows& rows, int warp_row, int64_t keys) {
    const RowRange some = rows.some_see(0, BLOCK_M), every = rows.all_see(0, BLOCK_M);
    const RowRange warp_some = rows.some_see(warp_row, M_TILES * 16), warp_every = rows.all_see(warp_row, M_TILES * 16);
    first = shuffle(some.first / BLOCK_N, 0);
    end = shuffle(some.first < some.end ? (some.end + BLOCK_N - 1) / BLOCK_N : first, 0);
    first_seen = shuffle(warp_some.first / BLOCK_N, 0);
    end_seen = shuffle((warp_some.end + BLOCK_N - 1) / BLOCK_N, 0);
    first_whole = shuffle((warp_every.first + BLOCK_N - 1) / BLOCK_N, 0);
    whole = shuffle(ADJUSTED || CAPPED ? 0 : warp_every.end / BLOCK_N, 0) - first_whole;
    if (whole < 0) whole = 0;
    hides = ADJUSTED || some.first < every.first || every.end < some.end || some.first % BLOCK_N != 0 || (some.end % BLOCK_N != 0 && some.end < keys);
  }
  bool is_whole(int step) const { return static_cast<unsigned>(step - first_whole) < static_cast<unsigned>(whole); }
  bool is_seen(int step) const { return step >= first_seen && step < end_seen; }
};

static inline void start_rows(Outputs& o, PerRow& reference, PerRow& denominator, const View& sinks, int64_t sinks_type, int64_t heads,
                              const Rows& rows, const Sequence& sequence, int warp_row) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
    for (int f = 0; f < V_TILES; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[m][f][i] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) reference[m][h] = LOWEST, denominator[m][h] = 0;
  }
  if (!is_given(sinks)) return;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      start_row(sinks, sinks_type, rows.place(warp_row + 16 * m + 8 * h + lane() / 4), heads, sequence, lane() % 4 == 0, reference[m][h],
                denominator[m][h]);
}

// Brings into the L2 cache the queries of the block that starts `ahead` blocks later, about when this one ends: blocks of one length start
// together, and would ask the memory for all their queries at once.
static inline void fetch_later_queries(const Heads<const Element>& q, int ahead, int64_t batches, int kv_heads, int heads_a_kv_head) {
  const int linear = block_x() + grid_x() * (block_y() + grid_y() * block_z()) + ahead, plane = linear / grid_x();
  const int numbered = plane / grid_y() * grid_x() + linear % grid_x(), batch = numbered / kv_heads;
  if (batch >= batches) return;
  const int first_row = (grid_y() - 1 - plane % grid_y()) * BLOCK_M, rows = static_cast<int>(q.tokens) * heads_a_kv_head;
  const Element* first = q.row(batch, 0, (numbered - batch * kv_heads) * heads_a_kv_head);
  constexpr int LINES = (D + 63) / 64;  // of 128 bytes, a row
#pragma unroll 1
  for (int i = thread_x(); i < BLOCK_M * LINES; i += THREADS) {
    const int row = first_row + i / LINES, token = heads_a_kv_head == 1 ? row : row / heads_a_kv_head;
    if (row < rows) fetch(first + token * q.token_stride + (row - token * heads_a_kv_head) * q.head_stride + i % LINES * 64);
  }
}

// Shared memory: Q, then the stages of K, then those of V, then each row's range of keys.
constexpr int KEYS = QTile::BYTES, VALUES = KEYS + STAGES * KTile::BYTES, RANGES = VALUES + STAGES * VTile::BYTES;

// Keys and values on their way to shared memory, STEPS steps ahead; past the last one only zeros are written.
struct Copies {
  SharedPointer memory;
  KReader keys;
  VReader values;

  KTile k_tile(int step) const { return {memory + KEYS + (step & (STAGES - 1)) * KTile::BYTES}; }
  VTile v_tile(int step) const { return {memory + VALUES + (step & (STAGES - 1)) * VTile::BYTES}; }

  void start(int first) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      keys.copy_async(k_tile(first + step));
      values.copy_async(v_tile(first + step));
    }
    copy_async_commit();
  }

  // In a few turns beside the slices of a step's first product.
  void go_on(int step, int slice) {
    constexpr int PARTS = KReader::PARTS + VReader::PARTS, TURNS = SLICES < 4 ? SLICES : SLICES > 8 ? 8 : 4;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      if (slice != turn * SLICES / TURNS) continue;
#pragma unroll
      for (int part = turn * PARTS / TURNS; part < (turn + 1) * PARTS / TURNS; ++part) {
        if (part < KReader::PARTS)
          keys.copy_part_async(k_tile(step + STEPS), part);
        else
          values.copy_part_async(v_tile(step + STEPS), part - KReader::PARTS);
      }
      if (turn == TURNS - 1) copy_async_commit();
    }
  }
};

// Block (x, y, z): the y-th BLOCK_M rows (packed: of all sequences) of the x-th kv head of group z, where the kv heads of all rows of the
// batch are numbered through. So the hardware starts the same rows of a group's heads together. With a causal mask later rows have more
// keys: a sequence's rows are taken from the end, and the last blocks to start are short.
KERNEL(THREADS, ${blocks}) attend(${parameters('attend')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  const int kv_heads = static_cast<int>(k.heads), heads_a_kv_head = static_cast<int>(q.heads) / kv_heads;
  const int numbered = block_z() * grid_x() + block_x(), batch = cum_seqlens_q ? 0 : numbered / kv_heads, kv_head = numbered - batch * kv_heads;
  if (kv_head >= kv_heads || batch >= sequence_count) return;  // the last group may be smaller
  Sequence sequence = sequences[batch];
  int64_t item = block_y(), items = grid_y();
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, heads_a_kv_head, sequence, items)) return;
  const int64_t first_row = (items - 1 - item) * BLOCK_M, left = sequence.queries * heads_a_kv_head - first_row;

  char* memory = dynamic_shared();
  const QTile q_tile{shared_pointer(memory)};
  const Rows rows{reinterpret_cast<RowRange*>(memory + RANGES), static_cast<int>(first_row),
                  static_cast<int>(left < BLOCK_M ? left : BLOCK_M), kv_head * heads_a_kv_head, heads_a_kv_head};
  rows.copy_queries<THREADS, D>(q_tile, q, sequence);
  if (KEPT > 0) copy_async_commit();
  rows.find_ranges<THREADS, BLOCK_M>(Visibility{causal, window_left, window_right}, sequence);
  const int warp_row = warp() * M_TILES * 16;
  const Steps steps(rows, warp_row, sequence.keys);

  const int64_t first_key = sequence.first_key + int64_t{steps.first} * BLOCK_N;
  const int keys_left = static_cast<int>(sequence.keys) - steps.first * BLOCK_N;
  Copies copies{shared_pointer(memory), {k.row(sequence.batch, first_key, kv_head), k.token_stride, keys_left},
                {v.row(sequence.batch, first_key, kv_head), v.token_stride, keys_left}};
  copies.start(steps.first);
  if (!cum_seqlens_q) fetch_later_queries(q, static_cast<int>(ahead), sequence_count, kv_heads, heads_a_kv_head);

  const float unit = ADJUSTED || CAPPED ? 1 : (softmax_scale > 0 ? softmax_scale : 1e-30f) * LOG2_E;
  Outputs o;
  PerRow reference, denominator;
  start_rows(o, reference, denominator, softmax_aux_view, sinks_type, q.heads, rows, sequence, warp_row);
  Queries queries;
  if (KEPT > 0) {
    copy_async_wait<1>();
    sync_block();
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice)
        if (is_kept(slice)) q_tile.load_a(queries[m][kept_place(slice)], warp_row + 16 * m, 16 * slice);
  }

  if (steps.first >= steps.end) {  // no step waits: the queries may still be on their way to where the outputs go, and warps that read ranges
    copy_async_wait<0>();
    sync_block();
  }
#pragma unroll 1
  for (int step = steps.first; step < steps.end; ++step) {
    if (STEPS == 1 || (step - steps.first) % STEPS == 0) {
      copy_async_wait<0>();
      sync_block();
    }
    const bool whole = steps.is_whole(step);
    if (!whole && !steps.is_seen(step)) {
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice) copies.go_on(step, slice);
      continue;
    }
    Scores s;
    PerRow sum;
    multiply_keys(s, queries, q_tile, copies.k_tile(step), warp_row, [&](int slice) { copies.go_on(step, slice); });
    bool follows = step == steps.first_seen;
#pragma unroll
    for (int m = 0; follows && m < M_TILES; ++m) sum[m][0] = sum[m][1] = INFINITE;  // all rows
    for (;;) {
      if (!whole) adjust(s, rules, rows, sequence, warp_row, step * BLOCK_N);
      if (follows) follow(s, o, reference, denominator, sum, unit);
      if (!weigh(s, reference, sum, unit) || follows) break;
      multiply_keys_again(s, q_tile, copies.k_tile(step), warp_row);
      follows = true;
    }
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) denominator[m][h] += sum[m][h];
    if (DROPPED) drop(s, rules, rows, sequence, warp_row, step * BLOCK_N);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) add_values(o, s, n, copies.v_tile(step));
  }
  // A value that is not finite, behind a weight of 0, has made the outputs of rows that do not see it NaN: then the definition decides.
  // It is given objects of its own: what it has references to would lie in memory, and be read from there by all blocks.
  if (steps.hides && any_in_block(!finite(o))) {
    copy_async_wait<0>();
    sync_block();
    const Rows same_rows = rows;
    const Sequence same_sequence = sequence;
    return attend_plainly<THREADS, ADJUSTED, CAPPED, DROPPED, 1, (DV + WARP - 1) / WARP>(
        Heads<const Element>(q_view), Heads<const Element>(k_view), Heads<const Element>(v_view), Heads<Element>(out_view),
        ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                   drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads},
        same_sequence, softmax_aux_view, sinks_type, lse_view, same_rows, kv_head, D, DV, reinterpret_cast<float*>(memory));
  }
  const float kept = drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : 0;
  finish(o, reference, denominator, reinterpret_cast<Element*>(memory), out, lse_view, rows, sequence, warp_row, kept);
}

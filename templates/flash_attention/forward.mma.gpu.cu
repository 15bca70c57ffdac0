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
constexpr bool ADJUSTED = ${adjusted};                  // any of bias, mask, segments may be given
constexpr bool CAPPED = ${capped}, DROPPED = ${dropped};  // soft cap; dropout
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int M_TILES = ${m_tiles};                     // tiles of 16 query rows a warp
constexpr int BLOCK_M = WARPS * M_TILES * 16;           // query rows a block
constexpr int BLOCK_N = ${block_n};                     // keys a step
constexpr int N_TILES = BLOCK_N / 8, V_TILES = DV16 / 8;
constexpr bool Q_IN_REGISTERS = ${q_in_registers};
constexpr int STEPS = ${steps}, STAGES = 2 * STEPS;      // steps between two barriers; blocks of keys in shared memory
constexpr float LARGE = 4096;  // for a sum of weights; a weight of this size still is exact enough in every type

using QTile = Tile<Element, BLOCK_M, (D16 > DV16 ? D16 : DV16)>;
using KTile = Tile<Element, BLOCK_N, D16>;
using VTile = Tile<Element, BLOCK_N, DV16>;

// What a warp keeps: [tile][8 columns][fragment of C].
typedef float Scores[M_TILES][N_TILES][4];
typedef float Outputs[M_TILES][V_TILES][4];
typedef uint32_t Queries[M_TILES][D16 / 16][4];  // operands A, if they are kept
// Of each row of this thread: rows 16 tile + lane / 4 and 8 below.
typedef float PerRow[M_TILES][2];

// `beside(step)` is called between the steps: work that matrix instructions hide.
template <class Beside>
static inline void multiply_keys(Scores& s, const Queries& queries, const QTile& q, const KTile& k, int warp_row, Beside beside) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
#pragma unroll
  for (int d = 0; d < D16; d += 16) {
    uint32_t a[M_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int i = 0; Q_IN_REGISTERS && i < 4; ++i) a[m][i] = queries[m][d / 16][i];
      if (!Q_IN_REGISTERS) q.load_a(a[m], warp_row + 16 * m, d);
    }
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) {
      uint32_t b[4];
      k.load_b(b, 8 * n, d);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        mma_16x8x16<Element>(s[m][n], a[m], b[0], b[1]);
        mma_16x8x16<Element>(s[m][n + 1], a[m], b[2], b[3]);
      }
    }
    beside(d / 16);
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

// The warp's rows, from Q's tile to where `row_of` says, 16 bytes a lane; UNROLL of them are in flight.
template <int UNROLL, class RowOf>
static inline void store_rows(const Element* tile, const Rows& rows, int warp_row, RowOf row_of) {
#pragma unroll UNROLL
  for (int i = lane(); i < M_TILES * 16 * (DV / 8); i += WARP) {
    const int row = warp_row + i / (DV / 8), column = i % (DV / 8) * 8;
    if (row < rows.count) store_pack(row_of(row) + column, load_pack<8>(tile + row * QTile::PITCH + column));
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

// What the warp has summed, to out and lse; the output goes through the warp's own rows of Q's tile, so that stores are 16 bytes wide.
static inline void finish(Outputs& o, const PerRow& reference, const PerRow& denominator, Element* tile, const Heads<Element>& out,
                          const View& lse, const Rows& rows, const Sequence& sequence, int warp_row, float kept) {
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
      if (lane() % 4 == 0 && row < rows.count) store_lse(lse, sequence, rows.place(row), reference[m][h], sum);
    }
  sync_warp();
  if (rows.evenly())
    store_rows<4>(tile, rows, warp_row, [&, first = rows.row_of(out, sequence, 0)](int row) { return first + row * out.token_stride; });
  else
    store_rows<1>(tile, rows, warp_row, [&](int row) { return rows.row_of(out, sequence, row); });
}

// Block (x, y, z): the y-th BLOCK_M rows (packed: of all sequences) of the x-th kv head of group z, where the kv heads of all rows of the
// batch are numbered through. So the hardware starts the same rows of a group's heads together. With a causal mask later rows have more
// keys: a sequence's rows are taken from the end, and the last blocks to start are short.
KERNEL(THREADS, ${blocks}) attend(${parameters('attend')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset};
  const int kv_heads = static_cast<int>(k.heads), heads_a_kv_head = static_cast<int>(q.heads) / kv_heads;
  const int numbered = block_z() * grid_x() + block_x(), batch = cum_seqlens_q ? 0 : numbered / kv_heads, kv_head = numbered - batch * kv_heads;
  if (kv_head >= kv_heads || batch >= sequence_count) return;  // the last group may be smaller
  Sequence sequence = sequences[batch];
  int64_t item = block_y(), items = grid_y();
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, heads_a_kv_head, sequence, items)) return;
  const int64_t first_row = (items - 1 - item) * BLOCK_M, left = sequence.queries * heads_a_kv_head - first_row;

  // Shared memory: Q, then the stages of K, then those of V, then each row's range of keys.
  char* memory = dynamic_shared();
  constexpr int KEYS = QTile::BYTES, VALUES = KEYS + STAGES * KTile::BYTES, RANGES = VALUES + STAGES * VTile::BYTES;
  const SharedPointer base = shared_pointer(memory);
  const QTile q_tile{base};
  const auto k_tile = [&](int block) { return KTile{base + KEYS + (block & (STAGES - 1)) * KTile::BYTES}; };
  const auto v_tile = [&](int block) { return VTile{base + VALUES + (block & (STAGES - 1)) * VTile::BYTES}; };
  const Rows rows{reinterpret_cast<RowRange*>(memory + RANGES), static_cast<int>(first_row),
            static_cast<int>(left < BLOCK_M ? left : BLOCK_M), kv_head * heads_a_kv_head, heads_a_kv_head};
  rows.copy_queries<THREADS, D>(q_tile, q, sequence);
  if (Q_IN_REGISTERS) copy_async_commit();
  rows.find_ranges<THREADS, BLOCK_M>(Visibility{causal, window_left, window_right}, sequence);
  const RowRange some = rows.some_see(0, BLOCK_M);
  const int warp_row = warp() * M_TILES * 16;
  const RowRange warp_some = rows.some_see(warp_row, M_TILES * 16), warp_every = rows.all_see(warp_row, M_TILES * 16);

  const int first_block = some.first / BLOCK_N, end_block = some.first < some.end ? (some.end + BLOCK_N - 1) / BLOCK_N : first_block;
  const int64_t first_key = sequence.first_key + int64_t{first_block} * BLOCK_N;
  const int keys_left = static_cast<int>(sequence.keys) - first_block * BLOCK_N;
  TileReader<Element, BLOCK_N, D16, THREADS, D> keys(k.row(sequence.batch, first_key, kv_head), k.token_stride, keys_left);
  TileReader<Element, BLOCK_N, DV16, THREADS, DV> values(v.row(sequence.batch, first_key, kv_head), v.token_stride, keys_left);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    keys.copy_async(k_tile(first_block + step));
    values.copy_async(v_tile(first_block + step));
  }
  copy_async_commit();

  const float unit = ADJUSTED || CAPPED ? 1 : (softmax_scale > 0 ? softmax_scale : 1e-30f) * LOG2_E;
  Queries queries;
  if (Q_IN_REGISTERS) {
    copy_async_wait<1>();
    sync_block();
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int d = 0; d < D16; d += 16) q_tile.load_a(queries[m][d / 16], warp_row + 16 * m, d);
  }
  Outputs o;
  PerRow reference, denominator;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
    for (int f = 0; f < V_TILES; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[m][f][i] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h)
      start_row(softmax_aux_view, sinks_type, rows.place(warp_row + 16 * m + 8 * h + lane() / 4), q.heads, sequence, lane() % 4 == 0,
                reference[m][h], denominator[m][h]);
  }

#pragma unroll 1
  for (int block = first_block; block < end_block; ++block) {
    const int first = block * BLOCK_N;
    if (STEPS == 1 || (block - first_block) % STEPS == 0) {
      copy_async_wait<0>();
      sync_block();
    }
    // Meanwhile a block STEPS ahead is copied; past the last one only zeros are written.
    const auto copy_next = [&](int step) {
      if (step == 0) keys.copy_async(k_tile(block + STEPS));
      if (step == (D16 > 16 ? 1 : 0)) {
        values.copy_async(v_tile(block + STEPS));
        copy_async_commit();
      }
    };
    if (first >= warp_some.end || first + BLOCK_N <= warp_some.first) {
      for (int step = 0; step < 2; ++step) copy_next(step);
      continue;
    }
    const bool adjusting = ADJUSTED || CAPPED || first < warp_every.first || first + BLOCK_N > warp_every.end;
    Scores s;
    PerRow sum;
    const auto refine = [&](bool exact) {
      if (adjusting) adjust(s, rules, rows, sequence, warp_row, first);
      if (exact) follow(s, o, reference, denominator, sum, unit);
    };
    multiply_keys(s, queries, q_tile, k_tile(block), warp_row, copy_next);
    const bool exact = first <= warp_some.first;  // the warp's first block
    if (exact) {
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) sum[m][0] = sum[m][1] = INFINITE;  // all rows follow
    }
    if (adjusting || exact) refine(exact);
    if (weigh(s, reference, sum, unit) && !exact) {
      multiply_keys(s, queries, q_tile, k_tile(block), warp_row, [](int) {});
      refine(true);
      weigh(s, reference, sum, unit);
    }
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) denominator[m][h] += sum[m][h];
    if (DROPPED) drop(s, rules, rows, sequence, warp_row, first);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) add_values(o, s, n, v_tile(block));
  }
  // A value that is not finite, behind a weight of 0, has made the outputs of rows that do not see it NaN: then the definition decides.
  const bool hidden = ADJUSTED || warp_some.first < warp_every.first || warp_every.end < warp_some.end || warp_some.first % BLOCK_N != 0 ||
                      (warp_some.end % BLOCK_N != 0 && warp_some.end < sequence.keys);  // were there values that some row does not see?
  if (any_in_block(hidden && !finite(o))) {
    copy_async_wait<0>();
    sync_block();
    return attend_plainly<THREADS, 1, (DV + WARP - 1) / WARP>(q, k, v, out, rules, sequence, softmax_aux_view, sinks_type, lse_view, rows,
                                                              kv_head, D, DV, reinterpret_cast<float*>(memory));
  }
  const float kept = drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : 0;
  finish(o, reference, denominator, reinterpret_cast<Element*>(memory), out, lse_view, rows, sequence, warp_row, kept);
}

// flash_attention, forward, on matrix instructions of a wave (MFMA, WMMA). A block takes BLOCK_M query rows of one kv head through all their
// keys, BLOCK_N at a time; a wave has M_TILES tiles of 16 rows.
//
// Both products are transposed: scores are [key][query] and outputs [feature][query], so that a lane's numbers all belong to one query row.
// Then references, denominators and masks are one a lane and tile, and weights are the next product's operand where they are.
// Values lie transposed in shared memory, [feature][key]. Keys and values go there through registers, between two barriers.
#include "device/gpu.h"
#include "device/matrix/wave_rows.h"
#include "device/attention/attention.h"
#include "device/tile/tile.h"
#include "device/attention/attention_plain.h"
$if by_blocks  // blocksparse_attention: rows of one block of queries, whose steps come from a list
#include "blocksparse_attention/block_steps.h"
$if packed
#include "blocksparse_attention/packed_blocks.h"
$end
$end

$require D % 8 == 0 and Dv % 8 == 0 and block_n % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                        // head dim of q and k; of v and out
constexpr int D16 = ${align(D, 16)}, DV16 = ${align(Dv, 16)};
constexpr bool ADJUSTED = ${adjusted};                     // any of bias, mask, segments, lengths may be given
constexpr bool CAPPED = ${capped}, DROPPED = ${dropped};   // soft cap; dropout
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
constexpr int M_TILES = ${m_tiles};                        // tiles of 16 query rows a wave
constexpr int BLOCK_M = WAVES * M_TILES * 16, BLOCK_N = ${block_n};  // query rows a block; keys a step
constexpr int N_TILES = BLOCK_N / 16, V_TILES = DV16 / 16, SLICES = D16 / 16;
constexpr int SHIFT = ${E == 'f16' ? 15 : 0};              // the largest weight is 2^SHIFT: gfx90a reads halves below 2^-14 as 0
constexpr bool KEEPS_QUERIES = ${keep_queries == 1};       // in registers; else they are read again each step

using KTile = Tile<Element, BLOCK_N, D16>;
using KReader = TileReader<Element, BLOCK_N, D16, THREADS, D>;
constexpr int K_PITCH = KTile::PITCH * 2, V_PITCH = TRANSPOSED_PITCH<BLOCK_N>;  // bytes
constexpr int VALUES = KTile::BYTES, RANGES = ${tiles};                         // shared memory: keys, values, each row's range of keys

typedef Sums Scores[M_TILES][N_TILES];
typedef Sums Outputs[M_TILES][V_TILES];
typedef float PerRow[M_TILES];  // of each row of this lane: row 16 tile + matrix_column()

using Query = OwnRow<Element, D, KEEPS_QUERIES>;

static inline void multiply_keys(Scores& s, const Query (&queries)[M_TILES], SharedPointer keys) {
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) s[m][n] = {};
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    Operand b[M_TILES];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) b[m] = queries[m].of(slice);
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) {
      const Operand a = load_operand(keys + 16 * n * K_PITCH + 32 * slice, K_PITCH);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) multiply<Element>(s[m][n], a, b[m]);
    }
  }
}

// Dot products of one row become scores in units of log 2, -inf where the row does not see the key. Returns the largest of the column.
static inline float score_row(Sums (&s)[N_TILES], const ScoreRules& rules, const RowRules& row, int first) {
  float largest = -INFINITE;
#pragma unroll
  for (int n = 0; n < N_TILES; ++n)
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      float& score = s[n].at[i];
      if (!ADJUSTED && !CAPPED) score *= rules.scale * LOG2_E;
      score = score_of<ADJUSTED, CAPPED>(score, rules, row, first + 16 * n + matrix_row(i));
      largest = larger_of(largest, score);
    }
  return largest_of_column(largest);
}

// Scores become weights relative to the row's reference, which follows `largest`; denominator and outputs become relative to it.
static inline void weigh(Sums (&s)[N_TILES], Sums (&o)[V_TILES], float largest, float& reference, float& denominator) {
  if (largest > reference) {
    const float factor = exp2_of(reference - largest);
    reference = largest;
    denominator *= factor;
#pragma unroll
    for (int f = 0; f < V_TILES; ++f)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) o[f].at[i] *= factor;
  }
#pragma unroll
  for (int n = 0; n < N_TILES; ++n)
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      s[n].at[i] = exp2_of(s[n].at[i] - reference);
      denominator += s[n].at[i];
    }
}

// Drops weights of one row by docs/semantics.md, "Dropout": one Philox number serves eight keys, of which a lane has RUN one after the other.
static inline void drop(Sums (&s)[N_TILES], const ScoreRules& rules, const RowPlace& place, const Sequence& sequence, int first) {
  constexpr int RUN = SUMS < 8 || K_LANE == 16 ? 4 : 8;
#pragma unroll
  for (int n = 0; n < N_TILES; ++n)
#pragma unroll
    for (int run = 0; run < SUMS; run += RUN) {
      uint32_t words[4] = {static_cast<uint32_t>(first + 16 * n + matrix_row(run)) >> 3, static_cast<uint32_t>(place.token),
                           static_cast<uint32_t>(sequence.index * rules.heads + place.head), 0};
      philox(words, rules.seed);
#pragma unroll
      for (int i = run; i < run + RUN; ++i)
        if (static_cast<float>(dropout_lane(words, matrix_row(i))) < rules.drop_threshold) s[n].at[i] = 0;
    }
}

// Outputs grow by the weights times their values.
static inline void add_values(Outputs& o, const Scores& p, SharedPointer values) {
#pragma unroll
  for (int n = 0; n < N_TILES; ++n) {
    Operand b[M_TILES];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) b[m] = operand_of<Element>(p[m][n]);
#pragma unroll
    for (int f = 0; f < V_TILES; ++f) {
      const Operand a = load_operand(values + 16 * f * V_PITCH + 32 * n, V_PITCH);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) multiply<Element>(o[m][f], a, b[m]);
    }
  }
}

// What a lane has summed of one row, to out and lse.
static inline void finish(const Sums (&o)[V_TILES], float reference, float denominator, const Heads<Element>& out, const View& lse,
                          const RowPlace& place, const Sequence& sequence, bool exists, float kept) {
  const float sum = sum_of_column(denominator), factor = sum == 0 ? 0 : kept / sum;
  if (!exists) return;
  store_row<DV>(out.row(sequence.batch, sequence.first_query + place.token, place.head), o, factor);
  if (wave_lane() < 16) store_lse(lse, sequence, place, reference, sum);
}

$if by_blocks
// Block (x, y, z): the x-th BLOCK_M rows, `parts` a block of queries, of row z of the batch (packed: of all sequences), the last rows first. A row is a query token of
// one of `together` heads that follow one another and share the mask: those of the y-th such group.
$else
// Block (x, y, z): BLOCK_M rows (packed: of all sequences; batched: of row z of the batch) of kv head y, the last rows first.
$end
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(out_view);
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
$if by_blocks
$if packed
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset};
  Sequence sequence;
  int64_t block = block_x() / parts, blocks_of_sequence;
  if (!find_sequence(sequences, block, block_q, 1, sequence, blocks_of_sequence)) return;
  sequence = within_mask(sequence, block_mask_view, block_q, block_k);
  const int64_t query_block = blocks_of_sequence - 1 - block, end_token = (query_block + 1) * block_q;
  const int64_t mask_row = row_of_mask(block_mask_view, query_block), first_row = query_block * block_q * together + block_x() % parts * BLOCK_M;
$else
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  const Sequence sequence = sequences[block_z()];
  const int64_t item = grid_x() - 1 - block_x(), query_block = item / parts, end_token = (query_block + 1) * block_q;
  const int64_t first_row = query_block * block_q * together + item % parts * BLOCK_M;
$end
  const int64_t left = (end_token < sequence.queries ? end_token : sequence.queries) * together - first_row;
  if (left <= 0) return;
  const int heads_a_kv_head = static_cast<int>(together), first_head = block_y() * heads_a_kv_head;
  const int kv_head = first_head / static_cast<int>(q.heads / k.heads);
$else
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  const int kv_head = block_y(), heads_a_kv_head = static_cast<int>(q.heads / k.heads);
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items = grid_x();
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, heads_a_kv_head, sequence, items)) return;
  const int64_t first_row = (items - 1 - item) * BLOCK_M, left = sequence.queries * heads_a_kv_head - first_row;
$end

  char* memory = dynamic_shared();
  const SharedPointer keys = shared_pointer(memory), values = keys + VALUES;
  const Rows rows{reinterpret_cast<RowRange*>(memory + RANGES), static_cast<int>(first_row),
                  static_cast<int>(left < BLOCK_M ? left : BLOCK_M), ${by_blocks ? 'first_head' : 'kv_head * heads_a_kv_head'}, heads_a_kv_head};
$if by_blocks
  find_ranges_in_chunks<THREADS, BLOCK_M>(rows, Visibility{causal, window_left, window_right}, sequence, chunk_size);
$else
  rows.find_ranges<THREADS, BLOCK_M>(Visibility{causal, window_left, window_right}, sequence);
$end

  const int wave_row = wave() * M_TILES * 16 + matrix_column();
  Query queries[M_TILES];
  RowRules row[M_TILES];
  Outputs o = {};
  PerRow reference, denominator;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    const int at = wave_row + 16 * m;
    row[m] = rules_of<ADJUSTED>(rules, sequence, rows.range[at], rows.place(at));
    queries[m] = Query(rows.row_of(q, sequence, at));
    start_row(softmax_aux_view, sinks_type, rows.place(at), q.heads, sequence, wave_lane() < 16, reference[m], denominator[m]);
  }

$if by_blocks
  const RunList list{runs, block_mask_view, query_blocks, runs_a_row};
  BlockSteps<BLOCK_N> steps(list.row(sequence.batch, first_head, ${packed ? 'mask_row' : 'query_block'}), rows.some_see(0, BLOCK_M));
#pragma unroll 1
  for (RowRange of = steps.next(); of.first < of.end; of = steps.next()) {
    const int64_t key = ${packed ? 'sequence.first_key + ' : ''}of.first;
    const int keys_left = of.end - of.first;
$else
  const RowRange some = rows.some_see(0, BLOCK_M), every = rows.all_see(0, BLOCK_M);
  // Whether there are keys that some of its rows do not see.
  const bool hides = ADJUSTED || some.first < every.first || every.end < some.end || some.first % BLOCK_N != 0 ||
                     (some.end % BLOCK_N != 0 && some.end < sequence.keys);
  const int first = some.first / BLOCK_N, end = some.first < some.end ? (some.end + BLOCK_N - 1) / BLOCK_N : first;
#pragma unroll 1
  for (int step = first; step < end; ++step) {
    const int64_t key = sequence.first_key + int64_t{step} * BLOCK_N;
    const int keys_left = static_cast<int>(sequence.keys) - step * BLOCK_N;
$end
    sync_block();  // all have read the step before
    KReader(k.row(sequence.batch, key, kv_head), k.token_stride, keys_left).copy_async(KTile{keys});
    copy_transposed<BLOCK_N, DV, THREADS>(values, v.row(sequence.batch, key, kv_head), v.token_stride, keys_left);
    copy_async_commit();
    copy_async_wait<0>();
    sync_block();
    Scores s;
    multiply_keys(s, queries, keys);
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
$if by_blocks
      RowRules here = row[m];
      here.range = both(here.range, of);
      const float largest = score_row(s[m], rules, here, of.first) - SHIFT;
$else
      const float largest = score_row(s[m], rules, row[m], step * BLOCK_N) - SHIFT;
$end
      weigh(s[m], o[m], largest, reference[m], denominator[m]);
      if (DROPPED) drop(s[m], rules, rows.place(wave_row + 16 * m), sequence, ${by_blocks ? 'of.first' : 'step * BLOCK_N'});
    }
    add_values(o, s, values);
  }
  // A value that is not finite, behind a weight of 0, has made the outputs of rows that do not see it NaN: then the definition decides.
  bool all_finite = true;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) all_finite = finite(o[m]) && all_finite;
  if (${by_blocks ? '' : 'hides && '}any_in_block(!all_finite))
    return ${by_blocks ? 'attend_blocks_plainly' : 'attend_plainly'}<THREADS, ADJUSTED, CAPPED, DROPPED, 1, (DV + WARP - 1) / WARP>(q, k, v, out, rules, sequence, softmax_aux_view,
                                                                                          sinks_type, lse_view, rows,${by_blocks ? ' KeyBlocks(block_mask_view, sequence.batch, first_head, ' : ''}${by_blocks ? (packed ? 'mask_row' : 'query_block') : ''}${by_blocks ? ', block_k),' : ''} kv_head, D, DV,
                                                                                          reinterpret_cast<float*>(memory));
  const float kept = drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : 0;
#pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    const int at = wave_row + 16 * m;
    finish(o[m], reference[m], denominator[m], out, lse_view, rows.place(at), sequence, at < rows.count, kept);
  }
}
$if by_blocks

#include "blocksparse_attention/list_blocks_entry.h"
$end

// flash_attention_bwd on matrix instructions of a wave (MFMA, WMMA). Each wave has 16 rows of its own: keys for dk and dv, or queries for
// dq. The waves of a block take them together through the rows that they are seen by, or see: BLOCK others a step.
//
// Tiles are [other][own], so that a lane's numbers all belong to one own row, and weights P, or dS = P (dP - delta), are the operand of the
// next product where they are: dv^T = dout^T P, dk^T = Q^T dS, dq^T = K^T dS. Weights are made anew for queries and for keys; nothing is
// added up in global memory, so that the bits are the same each time. P is kept as 2^SHIFT P, which halves hold well.
#include "device/gpu.h"
$if by_blocks  // blocksparse_attention_bwd: blocks are multiples of 16 by 16, as tiles are
$if packed
#include "blocksparse_attention/packed_blocks.h"
$else
#include "blocksparse_attention/batched.h"
$end
$end
#include "device/tile/later.h"
#include "device/matrix/wave_rows.h"
#include "flash_attention_bwd/attention_backward_plain.h"

$require D % 8 == 0 and Dv % 8 == 0 and 16 * waves % block == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // head dim of q and k; of v and out
constexpr int D16 = ${align(D, 16)}, DV16 = ${align(Dv, 16)};
constexpr bool ADJUSTED = ${adjusted};                    // any of bias, mask, segments may be given
constexpr bool CAPPED = ${capped}, DROPPED = ${dropped};  // soft cap; dropout
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE;
constexpr int OWN = 16 * WAVES, BLOCK = ${block};  // own rows of a block; others a step
constexpr bool KEEPS = ${keep == 1};               // own rows stay in registers
$if by_blocks
constexpr bool TOGETHER = ${as_one == 1};          // a block makes dk and dv; else two do
$else
constexpr bool TOGETHER = ${together == 1};        // a block makes dk and dv; else two do
$end
constexpr int SHIFT = ${E == 'f16' ? 15 : 0};
constexpr float SCALED = 1 << SHIFT;

// Shared memory: the step's queries (or keys), then its douts (or values), each as it is and transposed.
using XTile = Tile<Element, BLOCK, D16>;
using YTile = Tile<Element, BLOCK, DV16>;
constexpr int YS = XTile::BYTES, X_TRANSPOSED = YS + YTile::BYTES, Y_TRANSPOSED = X_TRANSPOSED + D16 * TRANSPOSED_PITCH<BLOCK>;

template <bool KEPT> using OwnX = OwnRow<Element, D, KEPT>;
template <bool KEPT> using OwnY = OwnRow<Element, DV, KEPT>;
enum class Of { queries, keys, bias };  // what a pass makes the gradients of; own rows are keys, or else queries

// What every pass reads.
struct Inputs {
  Heads<const Element> q, k, v, dout;
  ScoreRules rules;
  ${by_blocks ? 'BlockVisibility' : 'Visibility'} visibility;
  const float *row_lse, *row_delta;
  RowSpace space;

  Inputs(const View& q_view, const View& k_view, const View& v_view, const View& dout_view, const ScoreRules& score_rules,
         const ${by_blocks ? 'BlockVisibility' : 'Visibility'}& who_sees, const float* lse, const float* delta, int64_t space_rows, bool packed)
      : q(q_view),
        k(k_view),
        v(v_view),
        dout(dout_view),
        rules(score_rules),
        visibility(who_sees),
        row_lse(lse),
        row_delta(delta),
        space{q.heads, space_rows, OWN, packed} {}
  PlainGradients<Element, ADJUSTED, CAPPED, DROPPED> plain(const Sequence& sequence, char* memory) const {
    float* const mine = reinterpret_cast<float*>(memory) + warp() * 2 * (D + DV);
    return {q, k, v, dout, rules, visibility, sequence, row_lse, row_delta, space, D, DV, mine};
  }
};

$if by_blocks
// Whether the mask leaves a tile of 16 queries and 16 keys; or some tile of so many.
static inline bool has_tile(const Inputs& in, const Sequence& sequence, int head, int query, int key) {
  return query < ${packed ? 'sequence.seeing()' : 'sequence.queries'} && key < sequence.keys && in.visibility.has_block(sequence.${packed ? 'index' : 'batch'}, head, query, key);
}
static inline bool has_some(const Inputs& in, const Sequence& sequence, int head, int query, int queries, int key, int keys) {
  bool some = false;
#pragma unroll 1
  for (int i = 0; i < queries; i += 16)
#pragma unroll 1
    for (int j = 0; j < keys; j += 16) some = some || has_tile(in, sequence, head, query + i, key + j);
  return some;
}

$end
// A lane's own row of a sequence, and of the others those that see it, or that it sees, by causality, window and length.
struct Lane {
  int own;
  RowRange others;
  RowRules rules;  // own is a query: its own, log-sum-exp in units of log 2, and delta
  float log, delta;
};

// The others of a step, of one query head.
struct Step {
  int head, first;
  const float *logs, *deltas;  // of the head's queries
};

// Which weights of a tile are kept, a bit each.
template <Of OF>
static inline uint32_t kept_weights(const ScoreRules& rules, const Sequence& sequence, const Lane& lane, const Step& step, int first) {
  const uint32_t head = static_cast<uint32_t>(sequence.index * rules.heads + step.head);
  const auto is_kept = [&](const uint32_t(&words)[4], int key) {
    return static_cast<float>(dropout_lane(words, key)) >= rules.drop_threshold;
  };
  uint32_t kept = 0;
  if (OF == Of::keys) {
    // Eight lanes have eight keys of one Philox number: each draws for one of the queries.
    uint32_t words[4] = {static_cast<uint32_t>(lane.own) >> 3, static_cast<uint32_t>(first + matrix_row(matrix_column() % SUMS)), head, 0};
    philox(words, rules.seed);
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) bits |= static_cast<uint32_t>(is_kept(words, j)) << j;
#pragma unroll
    for (int i = 0; i < SUMS; ++i) kept |= (permute_wave(bits, wave_lane() / 8 * 8 + i) >> lane.own % 8 & 1) << i;
    return kept;
  }
  constexpr int RUN = SUMS < 8 || K_LANE == 16 ? 4 : 8;  // of a lane's keys that one Philox number serves
#pragma unroll
  for (int run = 0; run < SUMS; run += RUN) {
    uint32_t words[4] = {static_cast<uint32_t>(first + matrix_row(run)) >> 3, static_cast<uint32_t>(lane.own), head, 0};
    philox(words, rules.seed);
#pragma unroll
    for (int i = run; i < run + RUN; ++i) kept |= static_cast<uint32_t>(is_kept(words, first + matrix_row(i))) << i;
  }
  return kept;
}

// Of a tile of others from `first` on: dot products of queries and keys become weights, scaled by 2^SHIFT, without those that are dropped;
// those of douts and values the gradients of dot products; OF bias: of scores.
template <Of OF>
static inline void differentiate_tile(Sums& s, Sums& dp, const ScoreRules& rules, const Sequence& sequence, const Lane& lane,
                                      const Step& step, int first) {
  const RowRange all_keys{0, static_cast<int>(sequence.keys)};
  const float kept_factor = rules.drop_threshold < 65536 ? 65536 / (65536 - rules.drop_threshold) : 0;
  const uint32_t kept = DROPPED ? kept_weights<OF>(rules, sequence, lane, step, first) : ~0u;
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    const int other = first + matrix_row(i), queries = static_cast<int>(sequence.queries);
    if (ADJUSTED) part();
    RowRules row = lane.rules;
    if (OF == Of::keys) row = rules_of<ADJUSTED>(rules, sequence, all_keys, {other < queries ? other : queries - 1, step.head});
    const float log = OF == Of::keys ? step.logs[other] : lane.log, delta = OF == Of::keys ? step.deltas[other] : lane.delta;
    float slope = 1;
    if (CAPPED && OF != Of::bias) {
      const float tanh = far_tanh_of(s.at[i] * (rules.scale / rules.soft_cap));
      slope = 1 - tanh * tanh;
    }
    const float dot = s.at[i] * (ADJUSTED || CAPPED ? 1 : rules.scale * LOG2_E);
$if by_blocks and takes_bias
    const int key = OF == Of::keys ? lane.own : other;
    const float score = seen_score(score_of<ADJUSTED, CAPPED>(dot, rules, row, key), log, row, key);
$else
    const float score = score_of<ADJUSTED, CAPPED>(dot, rules, row, OF == Of::keys ? lane.own : other);
$end
    const bool sees = other >= lane.others.first && other < lane.others.end;
$if takes_bias
    const float weight = sees && score != -INFINITE ? exp2_of(weight_exponent(score, log) + SHIFT) : 0;
$else
    const float weight = sees ? exp2_of(score - (log - SHIFT)) : 0;
$end
    const bool keeps = kept >> i & 1;
    const float by_weight = !DROPPED ? dp.at[i] : keeps ? dp.at[i] * kept_factor : 0;
    s.at[i] = keeps ? weight : 0;
    dp.at[i] = weight == 0 ? 0 : weight * (1 / SCALED) * (by_weight - delta) * slope;
  }
}

// Rounds a query's dS to Elements, each with what was lost at the one before: dS of a row sum up to 0, and so do their errors, which keys
// that are alike would else bring to dq. Keys of weight 0 take no part.
static inline void round_in_turn(Sums& ds, float& lost) {
#pragma unroll
  for (int i = 0; i < SUMS; ++i) {
    if (ds.at[i] == 0) continue;
    const float exact = ds.at[i] + lost;
    ds.at[i] = to_float(from_float<Element>(exact));
    lost = exact - ds.at[i];
  }
}

// Block (x, y, z): OWN rows x (packed: of all sequences) of head y of row z of the batch.
KERNEL(THREADS, 1) prepare(${parameters('prepare')}) {
  const Heads<const Element> out(out_view), dout(dout_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, out.tokens, 0, true, 0};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (cum_seqlens_q && !find_sequence(sequences, item, OWN, 1, sequence, items)) return;
  const int64_t at = RowSpace{out.heads, space_rows, OWN, cum_seqlens_q != nullptr}.first(sequence, block_y()) + item * OWN;
  constexpr int LANES = DV <= 64 ? 8 : DV <= 128 ? 16 : 32;
  prepare_rows<THREADS, LANES, 8>(out, dout, lse_view, sequence, block_y(), item * OWN, OWN, DV, row_lse + at, row_delta + at);
}

// With a bias: faint rows, after the log-sum-exps. Block (x, y, z): OWN rows x of head y of row z of the batch.
KERNEL(THREADS, 1) mark_faint(${parameters('mark_faint')}) {
$if takes_bias
  const Heads<const Element> q(q_view), k(k_view);
  const Sequence sequence = Sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset, nullptr, nullptr}[block_z()];
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, 0, 0, 0, 0, q.heads};
  const int64_t first = block_x() * int64_t{OWN}, at = RowSpace{q.heads, space_rows, OWN, false}.first(sequence, block_y()) + first;
  mark_faint_rows<THREADS / WARP>(rules, {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}}, sequence, lse_view, block_y(), first, OWN, 0, row_lse + at);
$end
}

// Keys of a block: [first, first + OWN) of a sequence and kv head, of which `left` are there, past the last sequence's too.
struct KeyBlock {
  Sequence sequence;
  int kv_head, first, left;
};

// dv, dk or both of a block's keys, summed over the queries of all its query heads.
template <bool VALUES, bool KEYS>
static inline void differentiate_keys_of(const Inputs& in, const KeyBlock& block, Heads<Element> dk, Heads<Element> dv, bool hides) {
  if (!KEYS) dk.data = nullptr;
  if (!VALUES) dv.data = nullptr;
  const Sequence& sequence = block.sequence;
  char* const memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const int keys = static_cast<int>(sequence.keys), queries = static_cast<int>(sequence.queries);
  const int local = wave() * 16 + matrix_column(), there = local < block.left ? local : block.left - 1;
  const auto seen_by = [&](int key) { return seeing_queries(in.visibility, key, sequence.offset, queries); };
  const Lane lane{block.first + local, block.first + local < keys ? seen_by(block.first + local) : RowRange{0, 0}, {}, 0, 0};
  const OwnX<KEEPS> x(in.k.row(sequence.batch, sequence.first_key + block.first + there, block.kv_head));
  const OwnY<KEEPS && KEYS> y(in.v.row(sequence.batch, sequence.first_key + block.first + there, block.kv_head));

  const int last = (block.first + OWN < keys ? block.first + OWN : keys) - 1;
  const RowRange some{block.first < keys ? seen_by(block.first).first : 0, block.first < keys ? seen_by(last).end : 0};
  const int heads = static_cast<int>(in.q.heads / in.k.heads), first_head = block.kv_head * heads;
  Sums dv_sums[VALUES ? DV16 / 16 : 1] = {}, dk_sums[KEYS ? D16 / 16 : 1] = {};
#pragma unroll 1
  for (int head = first_head; head < first_head + heads; ++head) {
    const int64_t rows = in.space.first(sequence, head);
#pragma unroll 1
    for (int first = some.first / BLOCK * BLOCK; first < some.end; first += BLOCK) {
$if by_blocks
      if (!has_some(in, sequence, head, first, BLOCK, block.first, OWN)) continue;
$end
      const Step step{head, first, in.row_lse + rows, in.row_delta + rows};
      const Element* const q = in.q.row(sequence.batch, sequence.first_query + first, head);
      const Element* const dout = in.dout.row(sequence.batch, sequence.first_query + first, head);
      sync_block();  // all have read the step before
      TileReader<Element, BLOCK, D16, THREADS, D>(q, in.q.token_stride, queries - first).copy_async(XTile{shared});
      if (KEYS) {
        TileReader<Element, BLOCK, DV16, THREADS, DV>(dout, in.dout.token_stride, queries - first).copy_async(YTile{shared + YS});
        copy_transposed<BLOCK, D, THREADS>(shared + X_TRANSPOSED, q, in.q.token_stride, queries - first);
      }
      if (VALUES) copy_transposed<BLOCK, DV, THREADS>(shared + Y_TRANSPOSED, dout, in.dout.token_stride, queries - first);
      copy_async_commit();
      copy_async_wait<0>();
      sync_block();
#pragma unroll 1
      for (int n = 0; n < BLOCK; n += 16) {
$if by_blocks
        if (!has_tile(in, sequence, head, first + n, block.first + wave() * 16)) continue;
$end
        const SharedPointer tiles = later(shared);
        Sums s = multiply_rows<Element>(tiles + n * XTile::PITCH * 2, XTile::PITCH * 2, x), dp = {};
        part();
        if (KEYS) dp = multiply_rows<Element>(tiles + YS + n * YTile::PITCH * 2, YTile::PITCH * 2, y);
        part();
        differentiate_tile<Of::keys>(s, dp, in.rules, sequence, lane, step, first + n);
        part();
        if constexpr (VALUES) add_products<Element, BLOCK>(dv_sums, tiles + Y_TRANSPOSED + 2 * n, s);
        part();
        if constexpr (KEYS) add_products<Element, BLOCK>(dk_sums, tiles + X_TRANSPOSED + 2 * n, dp);
      }
    }
  }
  // What is not finite, behind a weight of 0, has made sums NaN of keys that are not seen by it: then the definition decides.
  if (hides && any_in_block(!finite(dv_sums) || !finite(dk_sums))) {
    const auto gradients = in.plain(sequence, memory);
#pragma unroll 1
    for (int key = warp(); key < OWN && key < block.left; key += THREADS / WARP)
      gradients.differentiate_key(block.first + key, block.kv_head, dk, dv);
    return;
  }
  if (local >= block.left) return;
  const float kept_factor = in.rules.drop_threshold < 65536 ? 65536 / (65536 - in.rules.drop_threshold) : 0;
  const int64_t key = sequence.first_key + block.first + local;
  if constexpr (VALUES) store_row<DV>(dv.row(sequence.batch, key, block.kv_head), dv_sums, kept_factor / SCALED);
  if constexpr (KEYS) store_row<D>(dk.row(sequence.batch, key, block.kv_head), dk_sums, in.rules.scale);
}

// Block (x, y, z): OWN keys x (packed: of all sequences) of kv head y of row z of the batch; not TOGETHER: half as many, dv's first.
KERNEL(THREADS, 1) differentiate_keys(${parameters('differentiate_keys')}) {
  const Inputs in(q_view, k_view, v_view, dout_view,
                  {bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                   drop_threshold, static_cast<uint64_t>(dropout_seed), q_view.shape[q_view.rank - 2]},
                  {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}}, row_lse, row_delta, space_rows, cum_seqlens_q != nullptr);
  const Heads<Element> dk(dk_view), dv(dv_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, in.q.tokens, in.k.tokens, offset_given, offset};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = TOGETHER ? block_x() : block_x() / 2, keys = sequence.keys;
  if (cum_seqlens_q && !find_keys(sequences, item, OWN, sequence, keys)) return;
$if by_blocks and packed
  sequence = cut_to_mask(sequence, block_mask_view, block_q, block_k);
$end
  const KeyBlock block = uniform(KeyBlock{sequence, block_y(), static_cast<int>(item * OWN), static_cast<int>(keys - item * OWN)});
  if (TOGETHER)
    differentiate_keys_of<true, true>(in, block, dk, dv, hides);
  else if (block_x() % 2 == 0)
    differentiate_keys_of<true, false>(in, block, dk, dv, hides);
  else
    differentiate_keys_of<false, true>(in, block, dk, dv, hides);
}

// Rows of queries: a lane's own one, `own` of a head.
static inline Lane lane_of_query(const Inputs& in, const Sequence& sequence, int head, int own) {
  const int queries = static_cast<int>(sequence.queries), there = own < queries ? own : queries - 1;
  const int64_t at = in.space.first(sequence, head) + own;
  const KeyRange keys = visible_keys(in.visibility, ${by_blocks ? 'sequence, own' : 'own, sequence.offset, sequence.keys'});
  return {own, own < queries ? RowRange{static_cast<int>(keys.first), static_cast<int>(keys.end)} : RowRange{0, 0},
          rules_of<ADJUSTED>(in.rules, sequence, {0, static_cast<int>(sequence.keys)}, {there, head}), in.row_lse[at], in.row_delta[at]};
}

// Block (x, y, z): OWN queries x (packed: of all sequences) of head y of row z of the batch.
KERNEL(THREADS, 1) differentiate_queries(${parameters('differentiate_queries')}) {
  const Inputs in(q_view, k_view, v_view, dout_view,
                  {bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                   drop_threshold, static_cast<uint64_t>(dropout_seed), q_view.shape[q_view.rank - 2]},
                  {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}}, row_lse, row_delta, space_rows, cum_seqlens_q != nullptr);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, in.q.tokens, in.k.tokens, offset_given, offset};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (cum_seqlens_q && !find_sequence(sequences, item, OWN, 1, sequence, items)) return;
$if by_blocks and packed
  sequence = cut_to_mask(sequence, block_mask_view, block_q, block_k);
$end
  sequence = uniform(sequence);
  const int queries = static_cast<int>(sequence.queries), keys = static_cast<int>(sequence.keys);
  const int first_own = uniform(static_cast<int>(item) * OWN);
  const int head = block_y(), kv_head = static_cast<int>(head / (in.q.heads / in.k.heads));
  const int own = first_own + wave() * 16 + matrix_column(), there = own < queries ? own : queries - 1;
  const Lane lane = lane_of_query(in, sequence, head, own);
  const OwnX<KEEPS> x(in.q.row(sequence.batch, sequence.first_query + there, head));
  const OwnY<KEEPS> y(in.dout.row(sequence.batch, sequence.first_query + there, head));

  char* const memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const auto seen_by = [&](int query) { return visible_keys(in.visibility, ${by_blocks ? 'sequence, query' : 'query, sequence.offset, sequence.keys'}); };
  const RowRange some{static_cast<int>(seen_by(first_own).first),
                      static_cast<int>(seen_by(first_own + OWN < queries ? first_own + OWN - 1 : queries - 1).end)};
  Sums sums[D16 / 16] = {};
  float lost = 0;
#pragma unroll 1
  for (int first = some.first / BLOCK * BLOCK; first < some.end; first += BLOCK) {
$if by_blocks
    if (!has_some(in, sequence, head, first_own, OWN, first, BLOCK)) continue;
$end
    const Element* const key_rows = in.k.row(sequence.batch, sequence.first_key + first, kv_head);
    const Element* const values = in.v.row(sequence.batch, sequence.first_key + first, kv_head);
    sync_block();  // all have read the step before
    TileReader<Element, BLOCK, D16, THREADS, D>(key_rows, in.k.token_stride, keys - first).copy_async(XTile{shared});
    TileReader<Element, BLOCK, DV16, THREADS, DV>(values, in.v.token_stride, keys - first).copy_async(YTile{shared + YS});
    copy_transposed<BLOCK, D, THREADS>(shared + X_TRANSPOSED, key_rows, in.k.token_stride, keys - first);
    copy_async_commit();
    copy_async_wait<0>();
    sync_block();
#pragma unroll 1
    for (int n = 0; n < BLOCK; n += 16) {
$if by_blocks
      if (!has_tile(in, sequence, head, first_own + wave() * 16, first + n)) continue;
$end
      const SharedPointer tiles = later(shared);
      Sums s = multiply_rows<Element>(tiles + n * XTile::PITCH * 2, XTile::PITCH * 2, x);
      part();
      Sums dp = multiply_rows<Element>(tiles + YS + n * YTile::PITCH * 2, YTile::PITCH * 2, y);
      part();
      differentiate_tile<Of::queries>(s, dp, in.rules, sequence, lane, {head, first, nullptr, nullptr}, first + n);
      round_in_turn(dp, lost);
      part();
      add_products<Element, BLOCK>(sums, tiles + X_TRANSPOSED + 2 * n, dp);
    }
  }
  const Heads<Element> dq(dq_view);
  if (hides && any_in_block(!finite(sums))) {
    const auto gradients = in.plain(sequence, memory);
#pragma unroll 1
    for (int row = first_own + warp(); row < first_own + OWN && row < queries; row += THREADS / WARP)
      gradients.differentiate_query(row, head, dq);
    return;
  }
  if (own < queries) store_row<D>(dq.row(sequence.batch, sequence.first_query + own, head), sums, softmax_scale);
}

// Block (x, y, z): OWN queries against BLOCK keys of head y of row z of dbias, summed over the heads and rows of the batch that share it.
KERNEL(THREADS, 1) differentiate_bias(${parameters('differentiate_bias')}) {
$if adjusted
  const Inputs in(q_view, k_view, v_view, dout_view,
                  {bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                   drop_threshold, static_cast<uint64_t>(dropout_seed), q_view.shape[q_view.rank - 2]},
                  {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}}, row_lse, row_delta, space_rows, false);
  const Sequences sequences{nullptr, nullptr, sequence_count, in.q.tokens, in.k.tokens, offset_given, offset};
  const int query_blocks = static_cast<int>((in.q.tokens + OWN - 1) / OWN), first = block_x() / query_blocks * BLOCK;
  const int own = block_x() % query_blocks * OWN + wave() * 16 + matrix_column();
  const int queries = static_cast<int>(in.q.tokens), keys = static_cast<int>(in.k.tokens), there = own < queries ? own : queries - 1;
  const int end_head = dbias_view.shape[1] == 1 ? static_cast<int>(in.q.heads) : block_y() + 1;
  const int64_t end_batch = dbias_view.shape[0] == 1 ? sequence_count : block_z() + 1;
  const SharedPointer shared = shared_pointer(dynamic_shared());
  Sums sums[BLOCK / 16] = {};
#pragma unroll 1
  for (int64_t batch = block_z(); batch < end_batch; ++batch)
#pragma unroll 1
    for (int head = block_y(); head < end_head; ++head) {
      const Sequence sequence = sequences[batch];
      const int64_t kv_head = head / (in.q.heads / in.k.heads);
      sync_block();  // all have read the head before
      TileReader<Element, BLOCK, D16, THREADS, D>(in.k.row(batch, first, kv_head), in.k.token_stride, keys - first)
          .copy_async(XTile{shared});
      TileReader<Element, BLOCK, DV16, THREADS, DV>(in.v.row(batch, first, kv_head), in.v.token_stride, keys - first)
          .copy_async(YTile{shared + YS});
      copy_async_commit();
      copy_async_wait<0>();
      sync_block();
      const Lane lane = lane_of_query(in, sequence, head, own);
      const OwnX<false> x(in.q.row(batch, there, head));
      const OwnY<false> y(in.dout.row(batch, there, head));
#pragma unroll
      for (int n = 0; n < BLOCK / 16; ++n) {
$if by_blocks
        if (!has_tile(in, sequence, head, own - matrix_column(), first + 16 * n)) continue;
$end
        Sums s = multiply_rows<Element>(shared + 16 * n * XTile::PITCH * 2, XTile::PITCH * 2, x);
        part();
        Sums dp = multiply_rows<Element>(shared + YS + 16 * n * YTile::PITCH * 2, YTile::PITCH * 2, y);
        part();
        differentiate_tile<Of::bias>(s, dp, in.rules, sequence, lane, {head, first, nullptr, nullptr}, first + 16 * n);
#pragma unroll
        for (int i = 0; i < SUMS; ++i) sums[n].at[i] += dp.at[i];
      }
    }
  if (own >= queries) return;
  const int64_t to = block_z() * dbias_view.strides[0] + block_y() * dbias_view.strides[1] + own * dbias_view.strides[2];
#pragma unroll
  for (int n = 0; n < BLOCK / 16; ++n)
#pragma unroll
    for (int i = 0; i < SUMS; ++i) {
      const int key = first + 16 * n + matrix_row(i);
      if (key < keys) store_element(dbias_view.data, bias_type, to + key, sums[n].at[i]);
    }
$end
}

KERNEL(256, 1) differentiate_sinks(${parameters('differentiate_sinks')}) {
  const Heads<const Element> q(q_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, 0, true, 0};
  differentiate_sink<256>(softmax_aux_view, dsoftmax_aux_view, sinks_type, block_x(), sequences,
                          {q.heads, space_rows, OWN, cum_seqlens_q != nullptr}, row_lse, row_delta);
}

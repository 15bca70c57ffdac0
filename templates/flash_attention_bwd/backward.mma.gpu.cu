// flash_attention_bwd on matrix instructions of a warp (mma.sync). A block takes BLOCK_N keys of one kv head through all queries that see
// them, BLOCK_M queries of one query head at a time.
//
// Two warps share 16 M_TILES keys. One makes their weights P (from K Q^T) and sums dv = P^T dout; the other makes dP (from V dout^T), then,
// with the first one's weights, dS = P (dP - delta), and sums dk = dS^T Q. So each has one product of keys by queries and one sum to keep
// in registers, operands from both are read once for 16 M_TILES keys, and what goes into the sums never leaves a lane. All warps together
// then add the last step's dS K to dq in global memory, with f32 additions of 16 bytes; `finish` makes dq of it.
//
// A step has one barrier of the block. After it, warps that make dS copy the next step, add to dq, make dP, and wait for their pair's weights;
// the others begin with the weights, do not wait, and add to dq at the end: so matrix products of one half overlap the arithmetic of the other.
//
// deterministic: a block takes every copies-th block of keys, and adds to a copy of dq of its own; `finish` adds the copies up in order.
#include "device/gpu.h"
$if by_blocks  // blocksparse_attention_bwd: turns come from a list; keys are of one block
$if packed
#include "blocksparse_attention/packed_blocks.h"
$else
#include "blocksparse_attention/batched.h"
$end
$end
$if latent  // mla_attention_bwd: of some heads, whose keys are made first
#include "mla_attention_bwd/turn_views.h"
$end
#include "flash_attention_bwd/attention_backward_plain.h"
#include "flash_attention_bwd/pair_products.h"
#include "flash_attention_bwd/pair_queries.h"
#include "flash_attention_bwd/pair_sync.h"
#include "flash_attention_bwd/pair_turns.h"
#include "flash_attention_bwd/pair_weights.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_m % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                       // head dim of q and k; of v and out
constexpr int D16 = ${align(D, 16)}, DV16 = ${align(Dv, 16)};
constexpr bool ADJUSTED = ${adjusted};                    // any of bias, mask, segments, lengths may be given
constexpr bool CAPPED = ${capped}, DROPPED = ${dropped};  // soft cap; dropout
constexpr bool BIAS_GRADIENT = ${bias_gradient};          // dbias is given
constexpr bool LATE = ${late} == 1;                       // warps that make weights add to dq at the end of a step
constexpr bool LOOKS = ADJUSTED || CAPPED;                // every step looks at single keys
constexpr int PREPARE_THREADS = 128, FINISH_THREADS = 128, OTHER_THREADS = 256;

using Shape = PairShape<Element, ${pairs}, ${m_tiles}, ${block_m}>;
constexpr int PAIRS = Shape::PAIRS, PAIR_KEYS = Shape::PAIR_KEYS, BLOCK_N = Shape::BLOCK_N, BLOCK_M = Shape::BLOCK_M;
constexpr int THREADS = Shape::THREADS, OWN_SLICES = ${own_slices};
using Products = PairProducts<Shape, (D16 > DV16 ? D16 : DV16), OWN_SLICES>;
using Weights = PairWeights<Shape, ADJUSTED, CAPPED, DROPPED, BIAS_GRADIENT>;
using Gradients = PlainGradients<Element, ADJUSTED, CAPPED, DROPPED>;
using DqSums = QuerySums<Shape, D16>;
using Scores = Shape::Scores;
using Operands = Shape::Operands;

using KTile = Tile<Element, BLOCK_N, D16>;
using VTile = Tile<Element, BLOCK_N, DV16>;
using QTile = Tile<Element, BLOCK_M, D16>;
using OTile = Tile<Element, BLOCK_M, DV16>;
using Plan = PairPlan<Element, PAIRS>;
using Turn = PairTurn<BLOCK_M>;

// Shared memory: K and V; two places each for Q and dout; the same for rows' log-sum-exps, then deltas; weights on their way from warp to
// warp; dS of two steps; which weights are kept, of two steps; the block's plan.
struct Memory {
  static constexpr int VALUES = KTile::BYTES, QUERIES = VALUES + VTile::BYTES, DOUTS = QUERIES + 2 * QTile::BYTES,
                       LOGS = DOUTS + 2 * OTile::BYTES, DELTAS = LOGS + 8 * BLOCK_M, WEIGHTS = DELTAS + 8 * BLOCK_M,
                       GRADIENTS = WEIGHTS + Weights::EXCHANGE_BYTES, KEPT = GRADIENTS + 2 * Shape::GradientTile::BYTES,
                       PLAN = KEPT + (DROPPED ? 2 * Weights::KEPT_BYTES : 0);
};
using Copy = TurnCopy<Shape, D, DV, D16, DV16, Memory>;

$if not latent
// Block (x, y, z): BLOCK_M rows x (packed: of all sequences) of head y of row z of the batch. Clears the sums of dq.
KERNEL(PREPARE_THREADS, 1) prepare(${parameters('prepare')}) {
  const Heads<const Element> out(out_view), dout(dout_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, out.tokens, 0, true, 0,
                            ADJUSTED ? query_seq_lengths : nullptr};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, 1, sequence, items)) return;
  const int64_t at = RowSpace{out.heads, space_rows, BLOCK_M, cum_seqlens_q != nullptr}.first(sequence, block_y()) + item * BLOCK_M;
  constexpr int LANES = DV <= 64 ? 8 : DV <= 128 ? 16 : 32;
  prepare_rows<PREPARE_THREADS, LANES, 8>(out, dout, lse_view, sequence, block_y(), item * BLOCK_M, BLOCK_M, DV, row_lse + at,
                                          row_delta + at);
#pragma unroll 1
  for (int64_t copy = 0; copy < copies; ++copy)
#pragma unroll 1
    for (int i = thread_x() * 4; i < BLOCK_M * D16; i += PREPARE_THREADS * 4)
      store_pack(dq_sums + (copy * total_rows + at) * D16 + i, Pack<float, 4>{});
}

// With a bias: faint rows, after the log-sum-exps. Block (x, y, z): BLOCK_M rows x of head y of row z of the batch.
KERNEL(PREPARE_THREADS, 1) mark_faint(${parameters('mark_faint')}) {
$if takes_bias
  const Heads<const Element> q(q_view), k(k_view);
  const Sequence sequence = Sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset, query_seq_lengths, key_value_seq_lengths}[block_z()];
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, 0, 0, 0, 0, q.heads};
  const int64_t first = block_x() * int64_t{BLOCK_M}, at = RowSpace{q.heads, space_rows, BLOCK_M, false}.first(sequence, block_y()) + first;
  mark_faint_rows<PREPARE_THREADS / WARP>(rules, {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}}, sequence, lse_view, block_y(), first, BLOCK_M, 0, row_lse + at);
$end
}

$end
// The block's dk and dv by the definition. Not inlined: it would take registers from the loop beside it.
static __attribute__((noinline)) void differentiate_plainly(const View& q, const View& k, const View& v, const View& dout,
                                                            const ScoreRules& rules, const ${by_blocks ? 'BlockVisibility' : 'Visibility'}& visibility, const Plan& plan,
                                                            const float* row_lse, const float* row_delta, const RowSpace& space,
                                                            const View& dk, const View& dv, float* memory) {
  const Sequence sequence = plan.sequence;
  const int first_key = plan.first_key, keys = plan.keys, kv_head = plan.kv_head;
  float* const mine = memory + warp() * 2 * (D + DV);
  const Gradients gradients{Heads<const Element>(q), Heads<const Element>(k), Heads<const Element>(v), Heads<const Element>(dout),
                            rules, visibility, sequence, row_lse, row_delta, space, D, DV, mine};
#pragma unroll 1
  for (int key = warp(); key < BLOCK_N && key < keys; key += Shape::WARPS)
    gradients.differentiate_key(first_key + key, kv_head, Heads<Element>(dk), Heads<Element>(dv));
}

// Block (x, y, z): the y-th BLOCK_N keys (packed: of all sequences) of the x-th kv head of group z, where the kv heads of all rows of the
// batch are numbered through; then every grid_y()-th ones.
KERNEL(THREADS, ${blocks}) differentiate(${parameters('differentiate')}) {
$if latent
  const TurnHeads turn_heads(step, head_slots, all_heads);
  const View q_view = slot_view(joined_q, sequence_count, query_tokens, turn_heads.count, head_slots, D), k_view = slot_view(made_k, sequence_count, key_tokens, turn_heads.count, head_slots, D),
             v_view = slot_view(made_v, sequence_count, key_tokens, turn_heads.count, head_slots, DV),
             dout_view = head_view(dout + turn_heads.first * dout_head, sequence_count, query_tokens, turn_heads.count, DV, dout_batch, dout_token, dout_head);
  const View dk_view = slot_view(dk, sequence_count, key_tokens, turn_heads.count, head_slots, D), dv_view = slot_view(dv, sequence_count, key_tokens, turn_heads.count, head_slots, DV);
  float* const dbias_sums = nullptr;
  const View bias_view = no_view(), attention_mask_view = no_view();
  const int32_t *const cum_seqlens_q = nullptr, *const cum_seqlens_k = nullptr, *const query_seq_lengths = nullptr, *const key_value_seq_lengths = nullptr;
  constexpr int64_t bias_type = 0, dropout_seed = 0;
  constexpr float drop_threshold = 0;
$end
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q_view.shape[q_view.rank - 3], k_view.shape[k_view.rank - 3],
                            offset_given,  offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  const ${by_blocks ? 'BlockVisibility' : 'Visibility'} visibility{causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}};
$if by_blocks
  const StepList<3> list{query_list, block_mask_view, static_cast<int>(list_words), static_cast<int>(block_k), static_cast<int>(steps_a_block)};
$end
  char* const memory = dynamic_shared();
  const SharedPointer all_shared = shared_pointer(memory);
  Plan& plan = *reinterpret_cast<Plan*>(memory + Memory::PLAN);
  const int this_warp = shuffle(warp(), 0);  // the same for all its lanes, and the compiler is told
  const bool sums_dv = this_warp >= PAIRS;
  const int pair = sums_dv ? this_warp - PAIRS : this_warp, pair_row = pair * PAIR_KEYS;
  char* const pair_weights = memory + Memory::WEIGHTS + pair * Weights::PAIR_BYTES;
  const float unit = LOOKS ? 1 : softmax_scale * LOG2_E;
  const float kept_factor = drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : 0;

#pragma unroll 1
  for (int block = block_y(); block < key_blocks; block += grid_y()) {
    {
      const Heads<const Element> q(q_view), k(k_view), v(v_view), dout(dout_view);
      const int kv_heads = static_cast<int>(k.heads), heads_a_kv_head = static_cast<int>(q.heads) / kv_heads;
      const int numbered = static_cast<int>(later(block_z() * grid_x() + block_x()));
      const int batch = cum_seqlens_q ? 0 : numbered / kv_heads, kv_head = numbered - batch * kv_heads;
      if (kv_head >= kv_heads || (!cum_seqlens_q && batch >= sequence_count)) return;  // the last group may be smaller
      Sequence sequence = sequences[batch];
      int64_t item = block, all_keys = ADJUSTED ? k.tokens : sequence.keys;
      if (cum_seqlens_q && !find_keys(sequences, item, BLOCK_N, sequence, all_keys)) return;
$if by_blocks and packed
      sequence = cut_to_mask(sequence, block_mask_view, block_q, block_k);
      sequence.queries = sequence.seeing(), sequence.padding = 0;
$end
      if (ADJUSTED) sequence.queries = sequence.seeing(), sequence.padding = 0;
      const int first_key = static_cast<int>(item) * BLOCK_N, first_head = kv_head * heads_a_kv_head;
      const int keys_left = static_cast<int>(all_keys) - first_key;
      const int keys_seen = ${by_blocks ? (packed ? 'true' : 'ADJUSTED') : 'ADJUSTED'} ? static_cast<int>(sequence.keys) - first_key : keys_left;
      TileReader<Element, BLOCK_N, D16, THREADS, D>(k.row(sequence.batch, sequence.first_key + first_key, kv_head), k.token_stride,
                                                    keys_seen)
          .copy_async(KTile{all_shared});
      TileReader<Element, BLOCK_N, DV16, THREADS, DV>(v.row(sequence.batch, sequence.first_key + first_key, kv_head), v.token_stride,
                                                      keys_seen)
          .copy_async(VTile{all_shared + Memory::VALUES});
      const RowSpace space{q.heads, space_rows, BLOCK_M, cum_seqlens_q != nullptr};
      const int64_t row = space.first(sequence, first_head);
      if (thread_x() < PAIRS) {
        const PairSteps<Shape> steps(visibility, sequence, first_key, first_key + thread_x() * PAIR_KEYS, LOOKS);
        plan.first_whole[thread_x()] = steps.first_whole, plan.end_whole[thread_x()] = steps.end_whole;
        if (thread_x() == 0) {
          plan.sequence = sequence;
          plan.q = HeadRows<const Element>(q, sequence, first_head), plan.dout = HeadRows<const Element>(dout, sequence, first_head);
          plan.row_lse = row_lse + row, plan.row_delta = row_delta + row;
          plan.dq_sums = dq_sums + ((copies > 1 ? block_y() * total_rows : 0) + row) * D16;
          plan.space_rows = space_rows;
          plan.kv_head = kv_head, plan.first_head = first_head, plan.first_key = first_key, plan.keys = keys_left;
          plan.first_step = steps.first, plan.steps = steps.count, plan.turns = ${by_blocks ? 'plan.start_list(list, heads_a_kv_head)' : 'steps.count * heads_a_kv_head'};
$if by_blocks
          plan.find_turn(list, 0), plan.find_turn(list, 1);
$end
        }
      }
    }
    sync_block();
    const int turns = shuffle(plan.turns, 0);
    if (turns > 0 && !sums_dv) Copy(plan, 0).start(all_shared);
    copy_async_commit();
    const auto rules = [&] {
      return ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                        drop_threshold, static_cast<uint64_t>(dropout_seed), q_view.shape[q_view.rank - 2]};
    };
    const auto draw_turn = [&](int turn) {
      const auto [of_head, first_query] = Turn(plan, turn);
      Weights::draw(reinterpret_cast<uint8_t*>(memory + Memory::KEPT + turn % 2 * Weights::KEPT_BYTES), rules(), plan.sequence,
                    plan.first_head + of_head, first_query, plan.first_key);
    };
    if (DROPPED && turns > 0) draw_turn(0);

    Products::Own own;
    if (OWN_SLICES > 0) {
      copy_async_wait<0>();
      sync_block();
      Products::load_own(own, all_shared + (sums_dv ? 0 : Memory::VALUES), pair_row);
    }
    Products::Sums sums;
    Products::clear(sums);
#pragma unroll 1
    for (int turn = 0;; ++turn) {
      copy_async_wait<0>();
      sync_block();
$if by_blocks
      if (thread_x() == 0) plan.find_turn(list, turn + 2);
$end
      const SharedPointer shared = later(all_shared), own_tile = shared + (sums_dv ? 0 : Memory::VALUES);
      if (turn + 1 < turns && !sums_dv)
        Copy(plan, turn + 1).start(shared);  // before the additions to dq, behind which they would wait
      if (DROPPED && turn + 1 < turns) draw_turn(turn + 1);
      copy_async_commit();
      const auto add_last_turn = [&] {
        if (turn == 0) return;
        const auto [of_head, first_query] = Turn(plan, turn - 1);
        DqSums::add(plan.dq_sums + (of_head * plan.space_rows + first_query) * D16,
                    Shape::GradientTile{shared + Memory::GRADIENTS + (turn - 1) % 2 * Shape::GradientTile::BYTES}, KTile{shared});
      };
      if (!LATE || !sums_dv || turn == turns) add_last_turn();
      if (turn == turns) break;

      const int place = turn % 2, row = static_cast<int>(later(pair)) * PAIR_KEYS;  // made here, so not kept
      const auto [of_head, first_query] = Turn(plan, turn);
      const bool whole = first_query / BLOCK_M >= plan.first_whole[pair] && first_query / BLOCK_M < plan.end_whole[pair];
      const PairStep step{reinterpret_cast<const float*>(memory + Memory::LOGS) + place * BLOCK_M,
                          reinterpret_cast<const float*>(memory + Memory::DELTAS) + place * BLOCK_M,
                          reinterpret_cast<const uint8_t*>(memory + Memory::KEPT) + place * Weights::KEPT_BYTES +
                              pair * 2 * Shape::M_TILES * BLOCK_M + lane() % 4 * 2,
                          plan.first_head + of_head, first_query};
      const SharedPointer queries = shared + Memory::QUERIES + place * QTile::BYTES, douts = shared + Memory::DOUTS + place * OTile::BYTES;
      Scores s;
      if (D16 == DV16 || sums_dv)
        Products::multiply<D16>(s, own, own_tile, sums_dv ? queries : douts, row);
      else
        Products::multiply<DV16>(s, own, own_tile, douts, row);
      Operands a;
      if (sums_dv) {
        if (LOOKS) {
          Scores slopes;
          const Sequence sequence = plan.sequence;
          Weights::adjust(s, slopes, rules(), sequence, step, Weights::Seeing(visibility, sequence, plan.first_key + row),
                          plan.first_key + row);
          if (CAPPED) Weights::give(pair_weights + Weights::WEIGHT_BYTES, slopes);
        }
        Weights::weigh(s, step, unit);
        if (!LOOKS && !whole) Weights::hide(s, step, Weights::Seeing(visibility, plan.sequence, plan.first_key + row));
        Weights::give(pair_weights, s);
        arrive_pair(pair);
        if (DROPPED) Weights::drop(s, step);
        Products::pack(a, s);
      } else {
        wait_pair(pair);
        BiasSums bias{};
        if (BIAS_GRADIENT) {
          const int key = plan.first_key + row + lane() / 4, query = first_query + lane() % 4 * 2;
          bias = BiasSums::at(dbias_sums, bias_view, plan.sequence, step.head, query, key);
        }
        if (!LOOKS && whole)
          Weights::template differentiate<true>(a, s, step, pair_weights, kept_factor, bias);
        else
          Weights::template differentiate<false>(a, s, step, pair_weights, kept_factor, bias);
        Weights::store(memory + Memory::GRADIENTS + place * Shape::GradientTile::BYTES, a, row);
      }
      if (D16 == DV16 || !sums_dv)
        Products::add_products<D16>(sums, a, sums_dv ? douts : queries);
      else
        Products::add_products<DV16>(sums, a, douts);
      if (LATE && sums_dv) add_last_turn();
    }

    // A value that is not finite, behind a weight of 0, has made sums NaN of keys that are not seen by it: then the definition decides.
    const bool hides = plan.first_step < plan.first_whole[pair] || plan.end_whole[pair] < plan.first_step + plan.steps;
    if (any_in_block(hides && !Products::finite(sums))) {
      const Plan same_plan = plan;
      sync_block();
      differentiate_plainly(q_view, k_view, v_view, dout_view, rules(), visibility, same_plan, row_lse, row_delta,
                            {q_view.shape[q_view.rank - 2], space_rows, BLOCK_M, cum_seqlens_q != nullptr}, dk_view, dv_view,
                            reinterpret_cast<float*>(memory));
    } else if (sums_dv) {
      Products::store<DV16, DV>(sums, kept_factor / Weights::SCALED, memory + Memory::VALUES, pair_row, Heads<Element>(dv_view), plan);
    } else {
      Products::store<D16, D>(sums, softmax_scale / Weights::DS_SCALED, memory, pair_row, Heads<Element>(dk_view), plan);
    }
    sync_block();
  }
}

// Block (x, y, z): BLOCK_M rows x (packed: of all sequences) of head y of row z of the batch: dq from the sums, which lie as DqSums says.
KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
$if latent
  const TurnHeads turn_heads(step, head_slots, all_heads);
  const View q_view = slot_view(joined_q, sequence_count, query_tokens, turn_heads.count, head_slots, D), k_view = slot_view(made_k, sequence_count, key_tokens, turn_heads.count, head_slots, D),
             v_view = slot_view(made_v, sequence_count, key_tokens, turn_heads.count, head_slots, DV),
             dout_view = head_view(dout + turn_heads.first * dout_head, sequence_count, query_tokens, turn_heads.count, DV, dout_batch, dout_token, dout_head);
  const View dq_view = slot_view(dq, sequence_count, query_tokens, turn_heads.count, head_slots, D);
  if (block_y() >= turn_heads.count) return;
  const View bias_view = no_view(), attention_mask_view = no_view();
  const int32_t *const cum_seqlens_q = nullptr, *const cum_seqlens_k = nullptr, *const query_seq_lengths = nullptr, *const key_value_seq_lengths = nullptr;
  constexpr int64_t bias_type = 0, dropout_seed = 0;
  constexpr float drop_threshold = 0;
$end
  const Heads<const Element> q(q_view), k(k_view);
  const Heads<Element> ${latent ? 'dq_rows' : 'dq'}(dq_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  Sequence sequence = sequences[cum_seqlens_q ? 0 : block_z()];
  int64_t item = block_x(), items;
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, 1, sequence, items)) return;
$if by_blocks and packed
  sequence = cut_to_mask(sequence, block_mask_view, block_q, block_k);
$end
  const RowSpace space{q.heads, space_rows, BLOCK_M, cum_seqlens_q != nullptr};
  const int64_t first = item * BLOCK_M;
  const float* const from = dq_sums + (space.first(sequence, block_y()) + first) * D16;
  char* const memory = dynamic_shared();
  Element* const tile = reinterpret_cast<Element*>(memory);
  int* const bad_rows = reinterpret_cast<int*>(memory + QTile::BYTES);
  if (thread_x() < BLOCK_M) bad_rows[thread_x()] = 0;
  sync_block();
  bool bad = false;
#pragma unroll 4
  for (int unit = warp(); unit < BLOCK_M / 16 * (D16 / 16) * 2; unit += FINISH_THREADS / WARP) {
    Pack<float, 4> x = load_sums(from + unit * 128);
#pragma unroll 1
    for (int64_t copy = 1; copy < copies; ++copy) {
      const Pack<float, 4> more = load_sums(from + copy * total_rows * D16 + unit * 128);
#pragma unroll
      for (int i = 0; i < 4; ++i) x.at[i] += more.at[i];
    }
    const int row = unit / 2 / (D16 / 16) * 16 + unit % 2 * 8 + lane() / 4, column = unit / 2 % (D16 / 16) * 16 + lane() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t two =
          pack_pair<Element>(x.at[2 * i] * (softmax_scale / Weights::DS_SCALED), x.at[2 * i + 1] * (softmax_scale / Weights::DS_SCALED));
      *reinterpret_cast<uint32_t*>(tile + row * QTile::PITCH + column + 8 * i) = two;
      if (x.at[2 * i] * 0 + x.at[2 * i + 1] * 0 != 0) bad_rows[row] = 1, bad = true;
    }
  }
  const bool some_bad = any_in_block(bad);
  constexpr int CHUNKS = D / 8;
#pragma unroll 1
  for (int i = thread_x(); i < BLOCK_M * CHUNKS; i += FINISH_THREADS) {
    const int row = i / CHUNKS, column = i % CHUNKS * 8;
    if (first + row < sequence.queries && !(hides && bad_rows[row]))
      store_pack(${latent ? 'dq_rows' : 'dq'}.row(sequence.batch, sequence.first_query + first + row, block_y()) + column,
                 load_pack<8>(tile + row * QTile::PITCH + column));
  }
  if (!some_bad || !hides) return;
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
  const Gradients gradients{q, k, Heads<const Element>(v_view), Heads<const Element>(dout_view), rules, {causal, window_left, window_right${by_blocks ? ', chunk_size, &block_mask_view, block_q, block_k' : ''}},
                            sequence, row_lse, row_delta, space, D, DV,
                            reinterpret_cast<float*>(memory + QTile::BYTES + BLOCK_M * 4) + warp() * 2 * (D + DV)};
#pragma unroll 1
  for (int row = warp(); row < BLOCK_M && first + row < sequence.queries; row += FINISH_THREADS / WARP)
    if (bad_rows[row]) gradients.differentiate_query(static_cast<int>(first) + row, block_y(), ${latent ? 'dq_rows' : 'dq'});
}

$if by_blocks
KERNEL(128, 1) list_queries(${parameters('list_queries')}) {
  StepList<3>{query_list, block_mask_view, static_cast<int>(list_words), static_cast<int>(block_k), static_cast<int>(steps_a_block)}.make<128>();
}

$end
$if latent
#include "mla_attention/expand_entries.h"
#include "mla_attention_bwd/prepare_entry.h"
#include "mla_attention_bwd/product_entries.h"
$else
// With dbias: its sums before, and after.
KERNEL(OTHER_THREADS, 1) clear_bias(${parameters('clear_bias')}) { clear_bias_sums<OTHER_THREADS>(dbias_sums, bias_elements); }
KERNEL(OTHER_THREADS, 1) finish_bias(${parameters('finish_bias')}) {
  store_bias<OTHER_THREADS>(dbias_view, bias_type, dbias_sums, bias_elements);
}

KERNEL(OTHER_THREADS, 1) differentiate_sinks(${parameters('differentiate_sinks')}) {
  const Heads<const Element> q(q_view);
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, 0, true, 0};
  differentiate_sink<OTHER_THREADS>(softmax_aux_view, dsoftmax_aux_view, sinks_type, block_x(), sequences,
                                  {q.heads, space_rows, BLOCK_M, cum_seqlens_q != nullptr}, row_lse, row_delta);
}
$end

// flash_attention_bwd on Hopper for wide heads, whose dk and dv do not fit beside each other. A block takes 64 keys of one kv head through all
// queries that see them, BLOCK_M queries of one query head (a turn) at a time: warpgroup 0 copies queries and output gradients, a turn ahead;
// warpgroup 1 makes weights, P^T = 2^(K Q^T - log-sum-exp), and sums dv += P^T dout; warpgroup 2 makes dP^T = V dout^T and, with the other's
// weights, dS^T = P^T (dP^T - delta), and sums dk += dS^T Q. Weights go from lane to lane through shared memory, so that warpgroup 1
// may be a turn ahead. Both then add their features of the last turn's dS K to f32 sums in global memory; warps with nothing else to do make dq
// of a kv head's sums when all of its blocks have added (not of packed sequences: `finish` does). Then the block takes the next keys of a list
// that `prepare` has made, whose values and first turn are copied while the last ones are stored.
//
// What limits it are those additions and the copies of queries. So two blocks may work together, as a cluster: each copies half of the queries'
// features for both, sends its dS to the other, and adds half of the features of dq for the keys of both; if those are three boxes of 64, one and
// half of the queries of the second.
//
// Registers are all taken, and ptxas then makes products wait for each other and says so only in its log (C7512): look there after a change.
#include "device/gpu.h"
$if latent  // mla_attention_bwd: of some heads, whose keys are made first
#include "mla_attention_bwd/sm90_arguments.h"
$end
#include "device/tile/launch_order.h"
#include "flash_attention_bwd/sm90_attention_bias_order.h"
#include "flash_attention_bwd/sm90_attention_dense.h"
#include "flash_attention_bwd/sm90_attention_finish.h"
#include "flash_attention_bwd/sm90_attention_gradient.h"
#include "flash_attention_bwd/sm90_attention_list.h"
#include "flash_attention_bwd/sm90_attention_order.h"
#include "flash_attention_bwd/sm90_attention_gradient_segments.h"
#include "flash_attention_bwd/sm90_attention_weights.h"
#include "flash_attention_bwd/sm90_block_copy.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_m % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr bool PACKED = ${packed}, CAPPED = ${capped};  // sequences end to end; soft cap
constexpr bool BOUNDED = ${bounded}, SEGMENTED = ${segmented};  // rows of the batch have their own lengths; tokens are of segments
constexpr bool DROPPED = ${dropped}, MASKED = ${masked};  // weights are dropped; some scores are hidden by a dense mask
$if biased == 'none'
using Bias = void;
$else
using Bias = ${ctype(biased)};
$end
constexpr bool BIAS_IN_TURN = ${bias_gradient == 'in_turn'};  // the bias's gradient is wanted, and summed over what shares it, in turn
constexpr bool SUMS_BIAS = BIAS_IN_TURN || ${bias_gradient == 'summed'};  // or as they come, or nothing shares it, but it is not cut as dS is
constexpr bool STORES_BIAS = ${bias_gradient == 'stored'};  // it is wanted, and is dS as it lies in shared memory
constexpr bool SLOPES_APART = CAPPED && SUMS_BIAS;      // the soft cap's slopes are not in the weights that go to the other warpgroup
constexpr bool ORDERED = ${ordered};                    // the same bits each time
constexpr bool NARROWS = false;                         // blocks take all turns, also those that a mask hides
constexpr bool OWNS_QUERIES = false, FINISHES = ${finishes};  // this launch makes dq of its sums, too
constexpr bool MENDS = FINISHES;                        // the one after it has only to mend it
constexpr int HELPERS = ${helpers};                              // warps beside the one that copies that do so, too
constexpr int GROUPS = 2;                               // warpgroups that multiply
constexpr int BLOCKS = ${blocks};                       // blocks of a cluster, 64 keys each
constexpr int BLOCK_N = 64 * BLOCKS;                    // their keys
constexpr int BLOCK_M = ${block_m};                     // queries of a turn
constexpr uint32_t STAGES = 2;                          // turns in shared memory
constexpr int COPYING_REGISTERS = BLOCKS == 2 || ORDERED || FINISHES || ${biased != 'none'} ? 40 : 24;
constexpr int MULTIPLYING_REGISTERS = (504 - COPYING_REGISTERS) / GROUPS;
constexpr int ALL_DONE = 2;                             // the barrier of warpgroups that multiply no more
constexpr int THREADS = (GROUPS + 1) * WARPGROUP, WARPS = THREADS / WARP, PREPARE_THREADS = 128, FINISH_THREADS = 256;
constexpr int SHIFT = 15;                               // weights are scaled by 2^SHIFT: halves have few digits below 2^-14
constexpr bool AS_HALVES = ${not exact};                // Element has few digits, and what else is made of dS: weights go as halves; else as floats
constexpr bool BROAD = AS_HALVES && !DROPPED && !SUMS_BIAS && !STORES_BIAS;  // Element has f32's range: dS stays scaled
constexpr float UNSCALED = 1.0f / (1 << SHIFT), DS_UNSCALED = BROAD ? UNSCALED : 1;

constexpr int BOXES = (D + 63) / 64, V_BOXES = (DV + 63) / 64;  // of 64 features
constexpr int FIRST_BOXES = BLOCKS == 2 ? 1 : (BOXES + 1) / 2;  // of them, those whose dq is warpgroup 1's; then those that are warpgroup 2's
constexpr int SECOND_BOXES = BLOCKS == 2 ? 1 : BOXES - FIRST_BOXES;
static_assert(SECOND_BOXES > 0);
static_assert(BLOCKS == 1 || BOXES == 3 || BOXES == 4);
constexpr bool HALVES_BOX = BLOCKS == 2 && BOXES == 3;  // of the second box each block adds half of the queries
constexpr int FIRST_SHARED_BOX = BOXES - 2;             // of the second block, of those whose dq it adds
constexpr uint32_t KEY_BOX = 64 * 128, QUERY_BOX = BLOCK_M * 128;
constexpr uint32_t K_BYTES = BOXES * KEY_BOX, V_BYTES = V_BOXES * KEY_BOX, Q_BYTES = BOXES * QUERY_BOX, DOUT_BYTES = V_BOXES * QUERY_BOX;
constexpr uint32_t OTHER_BYTES = (BLOCKS - 1) * 2 * KEY_BOX;    // the other block's keys, of the features whose dq is this one's
constexpr uint32_t P_BOXES = AS_HALVES ? 1 : 2, DS_BYTES = BLOCKS * QUERY_BOX, P_BYTES = (P_BOXES + SLOPES_APART) * QUERY_BOX;
constexpr uint32_t ROW_BYTES = BLOCK_M * 4, ID_BYTES = SEGMENTED ? ROW_BYTES : 0;

using Block = KeyBlock<BLOCK_M, BLOCK_N, BLOCKS, PACKED, BOUNDED, ORDERED>;
using CallBias = BiasTile<Bias, BLOCK_M, 64>;
using CallBiasSums = BiasTileSums<SUMS_BIAS, BLOCK_M>;
using CallWeights = Weights<BLOCK_M, CAPPED, SHIFT, DROPPED, Bias, false, SUMS_BIAS || STORES_BIAS, 64>;
using CallGradients = Gradients<Element, D, DV, BLOCK_M, PACKED, CAPPED, CallWeights::BIASED || SEGMENTED || MASKED, DROPPED>;
using Sums = CallGradients::Sums;
using Order = AddOrder<ORDERED, BLOCKS, 1>;
using List = BlockList<Block>;
using Queue = ListQueue<List::Entry, GROUPS * 4 + (ORDERED ? 2 : FINISHES) + (STORES_BIAS || BIAS_IN_TURN), BLOCKS>;
using Finisher = RowFinisher<Element, Sums, D, 1, BLOCKS>;
using CallBiasOrder = BiasOrder<BIAS_IN_TURN, 64, 4, BOUNDED, BLOCK_M / Finisher::ROWS, BLOCKS>;
using QueryTurn = QueryTurns<ORDERED, BIAS_IN_TURN ? 1 : 8>;  // 1: of heads that share a bias, so that the next block soon follows

#include "flash_attention_bwd/backward_wide_sm90_places.h"
#include "flash_attention_bwd/backward_wide_sm90_rules.h"
#include "flash_attention_bwd/backward_wide_sm90_producer.h"
#include "flash_attention_bwd/backward_wide_sm90_consumer.h"
#include "flash_attention_bwd/backward_sm90_dense.h"

// listed: listed_count blocks of keys, which clusters take by turns. added[0]: how often they have. broken: which blocks of keys, by kv head,
// are to be done again.
KERNEL(THREADS, 1) differentiate(${parameters('differentiate')}) {
$if latent
  TURN_ARGUMENTS
  const TensorMap &q_map = joined_q_map, &k_map = made_k_map, &v_map = made_v_map, &bias_map = dout_map, &dbias_map = dout_map;  // no bias, so no map of it is looked at
  const int64_t units = units_a_head * turn_heads.count * sequence_count;
  __shared__ View shared_dq_view;  // what each warp that makes dq looks at: in registers there is no room
  if (thread_x() == 0) shared_dq_view = dq_view;
$end
  __shared__ List::Entry entries[Queue::AHEAD];
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  const Queue queue{reinterpret_cast<const List::Entry*>(listed), listed_count, added, 1, entries, at.queue()};
  const int heads_a_kv_head = static_cast<int>(q_view.shape[q_view.rank - 2] / k_view.shape[k_view.rank - 2]), group = shuffle(warpgroup(), 0);
  const Visibility visibility{causal, window_left, window_right};
  const int rank = rank_in_cluster();
  const Order order{added, window_left, rank, at.order()};
  const CallBiasOrder bias_order{added, units, q_view, bias_view, mask_blocks, heads_a_kv_head, rank * 64, at.bias_order()};
  const Finisher finisher{dq_sums, finished, added + 1, units, units_a_head, key_blocks, heads_a_kv_head, softmax_scale * DS_UNSCALED, ${latent ? 'shared_dq_view' : 'dq_view'}};
  const DenseBias bias{bias_map, bias_view, dbias_sums, mask_blocks};
  let_next_launch_go();
  if (thread_x() == 0) {
    at.init_barriers();
    queue.init();
    order.init(GROUPS * 4);
    bias_order.init();
    fence_barrier_init();
  }
  if constexpr (BLOCKS == 2)
    sync_cluster();
  else
    sync_block();
  wait_for_previous_launch();
  int first = 0;      // turn of this block of keys, of all
  uint32_t keys = 0;  // parity of their barriers
  const auto end_of = [&](const Block& block) { return first + block.steps() * heads_a_kv_head; };
  const auto say_added = [&](const List::Entry& entry) {
    if (!FINISHES) return;
    sync_warp();
    if (lane() == 0) barrier_arrive(at.added(&entry != entries));
  };
  const auto check = [&](const List::Entry& entry, bool finite) {
    if (any_in_warp((MASKED || entry.block.hides(rank)) && !finite) && lane() == 0) broken[entry.numbered] = 1;
  };
  if (group == 0) {
    give_registers<COPYING_REGISTERS>();
    if (STORES_BIAS && warp() == 3) {
      queue.read([&](const List::Entry& entry) {
        const int end = end_of(entry.block);
        if (lane() == 0) store_bias_gradients(at, entry.block, dbias_map, first, end);
        first = end;
      });
      store_wait<0>();
    }
    if (BIAS_IN_TURN && warp() == 3)
      queue.read([&](const List::Entry& entry) {
        const int end = end_of(entry.block);
        bias_order.pass_turns<QueryTurn>(entry.block, first, end);
        first = end;
      });
    if ((ORDERED && warp() == 1) || ((ORDERED || FINISHES) && warp() == 2))
      order.follow<QueryTurn>(queue, heads_a_kv_head, bias_order, [&](const List::Entry& entry, int place, uint32_t parity) {
        if (FINISHES) barrier_wait(at.added(place), parity);
        if (FINISHES) finisher.tell(entry.numbered);
      });
    if (HELPERS > 0 && warp() != 0 && (HELPERS == 3 || warp() <= HELPERS)) finisher.run(at.sums(warp() - 1), at.sums_full(warp()));
    if (thread_x() == 0) {
      fence_async_everywhere();
      queue.give_out([&](const List::Entry& entry) {
        const int end = end_of(entry.block);
        if (first == end) return;
        Producer{at, entry.block, row_lse, row_delta, row_segments, bias${latent ? ', static_cast<int>(turn_heads.first)' : ''}}.copy(q_map, k_map, v_map, dout_map, first, end, keys);
        first = end, keys ^= 1;
      });
    }
    sync_warp();
  } else {
    take_registers<MULTIPLYING_REGISTERS>();
    const Places here{later(at.base)};  // what is made of it is not kept in registers for the other branch
    CallWeights rules(visibility, softmax_scale, logits_soft_cap);
    if (DROPPED) rules.drop(kept_part);
    if (group == 1) {
      const Kept kept{Dropout(drop_threshold, dropout_seed), static_cast<int>(q_view.shape[q_view.rank - 2])};
      const Mask mask{attention_mask_view, mask_bits, mask_blocks};
      queue.read([&](const List::Entry& entry) {
        const int end = end_of(entry.block);
        float dv[DV / 2] = {};
        if (first != end)
          Consumer{here, entry.block, dq_sums, order, rank, key_blocks, bias_order}.sum_values(dv, rules, kept, mask, key_segments, first, end, keys), keys ^= 1;
        first = end;
        say_added(entry);
        check(entry, store_sums(dv, rules.unscaled(), Heads<Element>(dv_view), entry.block, rank * 64));
      });
    } else {
      queue.read([&](const List::Entry& entry) {
        const int end = end_of(entry.block);
        float dk[D / 2] = {};
        if (first != end)
          Consumer{here, entry.block, dq_sums, order, rank, key_blocks, bias_order}.sum_keys(dk, rules.unscaled(), bias, first, end, keys), keys ^= 1;
        first = end;
        say_added(entry);
        check(entry, store_sums(dk, softmax_scale * DS_UNSCALED, Heads<Element>(dk_view), entry.block, rank * 64));
      });
    }
    if (FINISHES) sync_some(ALL_DONE, GROUPS * WARPGROUP);  // with keys and what else lies here, whose place is used now
    if (FINISHES) finisher.run(at.base + (warp() - WARPGROUP / WARP) * Finisher::BYTES, at.sums_full(warp()));
  }
  if constexpr (BLOCKS == 2) sync_cluster();  // the other block may still write here
}

#include "flash_attention_bwd/sm90_attention_gradient_entries.h"
$if latent

#include "mla_attention_bwd/sm90_entries.h"
$end

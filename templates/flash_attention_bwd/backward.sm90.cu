// flash_attention_bwd on Hopper. A block takes 128 keys of one kv head through all queries that see them, BLOCK_M queries of one query head
// (a turn) at a time: warpgroup 0 copies queries and output gradients, a turn ahead; the two others have 64 keys each. Then it takes the
// next keys of a list that `prepare` has made, whose first turn is copied while the last ones are stored.
//
// They make scores transposed, S^T = K Q^T and dP^T = V dout^T, so that the weights P^T and dS^T = P^T (dP^T - delta) are operands, from
// registers, of the sums dv += P^T dout and dk += dS^T Q. dS goes through shared memory too, where both warpgroups take it for dq: each has
// 64 features of dS K, or half of its rows, and adds them to f32 sums in global memory, of which dq is made. With DEFERRED a
// warpgroup does the last turn's share of dq, so that it does not wait for the other one's dS. With OWNS_QUERIES a block takes all keys of a
// kv head: each thread then starts its sums, adds to them and makes dq of them itself, in the same order each time. Otherwise warps with
// nothing else to do make dq of a kv head's sums when all of its blocks have added (not of packed sequences: `finish` does).
$if by_blocks
// Of a mask by blocks of 64 keys the two warpgroups are teams, each with a block of keys, its queries, and turns of its own: no turn has keys that are off.
// A warpgroup's share of dq is then all features of its keys, 64 at a time.
// A warp beside the one that copies has the next block's keys come to L2, and tells those who make dq which rows are whole, of packed sequences, too.
$if ordered
// In turn (sm90_turn_ranks.h) the thread that copies also waits for the blocks before, and that warp, one a team, tells the next ones.
$end
$end
//
// Registers are all taken, and ptxas then makes products wait for each other and says so only in its log (C7512): look there after a change.
#include "device/gpu.h"
$if by_blocks  // blocksparse_attention_bwd: turns come from a list; keys are of one block
$if packed
#include "blocksparse_attention/sm90_packed_rows.h"
$else
#include "blocksparse_attention/batched.h"
$end
#include "blocksparse_attention/sm90_listed_turns.h"
#include "blocksparse_attention/sm90_prepare_rows.h"
#include "blocksparse_attention/sm90_row_counts.h"
#include "blocksparse_attention/sm90_store_keys.h"
#include "blocksparse_attention/sm90_sums_ahead.h"
$if ordered
#include "blocksparse_attention/sm90_turn_ranks.h"
$end
$end
#include "device/tile/launch_order.h"
#include "flash_attention_bwd/sm90_attention_bias_order.h"
#include "flash_attention_bwd/sm90_attention_finish.h"
#include "flash_attention_bwd/sm90_attention_gradient.h"
#include "flash_attention_bwd/sm90_attention_list.h"
#include "flash_attention_bwd/sm90_attention_order.h"
$if slides
#include "flash_attention_bwd/sm90_attention_slide.h"
$end
#include "flash_attention_bwd/sm90_attention_gradient_segments.h"
#include "flash_attention_bwd/sm90_attention_weights.h"

$require D % 8 == 0 and Dv % 8 == 0 and block_m % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr bool PACKED = ${packed}, CAPPED = ${capped};  // sequences end to end; soft cap
constexpr bool BOUNDED = ${bounded}, SEGMENTED = ${segmented};  // rows of the batch have their own lengths; tokens are of segments
constexpr bool DROPPED = ${dropped};                    // weights are dropped
$if biased == 'none'
using Bias = void;
$else
using Bias = ${ctype(biased)};
$end
constexpr bool MASKED = ${masked};                      // some scores are hidden by a dense mask
constexpr bool BIAS_IN_TURN = ${bias_gradient == 'in_turn'};  // the bias's gradient is wanted, and summed over what shares it, in turn
constexpr bool SUMS_BIAS = BIAS_IN_TURN || ${bias_gradient == 'summed'};  // or as they come
constexpr bool STORES_BIAS = ${bias_gradient == 'stored'};  // it is wanted, and is dS as it lies in shared memory
constexpr bool OWNS_QUERIES = ${whole};                 // no other block adds to the sums of a block's queries
constexpr bool ORDERED = ${ordered} && !OWNS_QUERIES;   // the same bits each time
static_assert(ORDERED || !BIAS_IN_TURN);
constexpr bool FINISHES = ${by_blocks ? (packed ? '' : '!PACKED && ') : '!PACKED && '}!OWNS_QUERIES;     // this launch makes dq of its sums, too
constexpr bool MENDS = FINISHES || OWNS_QUERIES;        // the one after it has only to mend it
constexpr bool NARROWS = MASKED && !ORDERED && !OWNS_QUERIES;  // blocks skip first and last turns that a mask hides
$if by_blocks
template <int N> struct Team { static constexpr int VALUE = N; };
constexpr int TEAMS = ${keys == 64 ? 2 : 1};                         // blocks of keys at a time: of two, a warpgroup has one, and turns of its own
constexpr int GROUPS = 2 / TEAMS, BLOCK_N = GROUPS * 64;
$else
constexpr int GROUPS = 2, BLOCK_N = GROUPS * 64;        // warpgroups that multiply; keys of a block
$end
constexpr int BLOCK_M = ${block_m};                     // queries of a turn
constexpr bool DEFERRED = ${deferred};                  // dq's share of a turn is added in the next one
constexpr bool ROOM = (D + DV) / 2 + BLOCK_M * 3 / 2 <= 208;  // registers for operands of dv's products beside what follows their start
constexpr uint32_t STAGES = ${by_blocks ? 'TURN_STAGES' : '2'};                                // turns in shared memory
constexpr int APART = 3, MANY_TURNS = 16;               // the barrier by which the second warpgroup starts half a turn later; and when
constexpr int TURNS_APART = 4;                          // ORDERED: and how soon again, for those that wait for the block before fall into step
constexpr int COPYING_REGISTERS = SEGMENTED && ${by_blocks ? 'true' : 'MASKED'} ? 40 : 24, MULTIPLYING_REGISTERS = (504 - COPYING_REGISTERS) / ${by_blocks ? '2' : 'GROUPS'};
constexpr int ALL_DONE = 4;                             // the barrier of warpgroups that multiply no more
constexpr int THREADS = (${by_blocks ? '2' : 'GROUPS'} + 1) * WARPGROUP, WARPS = THREADS / WARP, PREPARE_THREADS = ${by_blocks ? '512, LIST_THREADS = 128' : '128'}, FINISH_THREADS = 256;
constexpr int SHIFT = ${E == 'f16' ? 15 : 0};           // weights are scaled by 2^SHIFT: halves have few digits below 2^-14
constexpr float DS_UNSCALED = 1;

constexpr int BOXES = (D + 63) / 64, V_BOXES = (DV + 63) / 64;  // of 64 features
constexpr uint32_t KEY_BOX = BLOCK_N * 128, QUERY_BOX = BLOCK_M * 128;
constexpr uint32_t K_BYTES = BOXES * KEY_BOX, V_BYTES = V_BOXES * KEY_BOX, Q_BYTES = BOXES * QUERY_BOX, DOUT_BYTES = V_BOXES * QUERY_BOX;
constexpr uint32_t DS_BYTES = GROUPS * QUERY_BOX, ROW_BYTES = BLOCK_M * 4;
constexpr uint32_t ID_BYTES = SEGMENTED ? ROW_BYTES : 0, KEY_ID_BYTES = SEGMENTED ? BLOCK_N * 4 : 0;
// Plain calls of heads of 64 have room for the next block's keys and values, too: at a block's end no warpgroup waits for the other, nor for a copy.
$if by_blocks
constexpr uint32_t KEY_STAGES = ${D <= 64 and Dv <= 64 and not (capped or bounded or segmented or dropped)} ? 2 : 1, DS_STAGES = TEAMS == 1 ? 2 : 1;
$else
constexpr uint32_t KEY_STAGES = ${D <= 64 and Dv <= 64 and biased == 'none' and not (packed or capped or ordered or bounded or segmented or dropped or masked)} ? 2 : 1;
$end

using Block = KeyBlock<BLOCK_M, BLOCK_N, GROUPS, PACKED, BOUNDED, ORDERED>;
using CallBias = BiasTile<Bias, BLOCK_M>;
using CallBiasSums = BiasTileSums<SUMS_BIAS, BLOCK_M>;
using CallMask = MaskTile<MASKED, BLOCK_M>;
using CallWeights = Weights<BLOCK_M, CAPPED, SHIFT, DROPPED, Bias, MASKED, SUMS_BIAS || STORES_BIAS>;
using CallGradients = Gradients<Element, D, DV, BLOCK_M, PACKED, CAPPED, CallWeights::BIASED || MASKED || SEGMENTED, DROPPED>;
using Sums = CallGradients::Sums;
using Order = AddOrder<ORDERED, 1, GROUPS>;
using List = BlockList<Block>;
using Queue = ListQueue<List::Entry, GROUPS * 4 + (ORDERED ? ${by_blocks and ordered ? '1' : '2'} : FINISHES) + (STORES_BIAS || BIAS_IN_TURN)>;
using Finisher = RowFinisher<Element, Sums, D>;
$if by_blocks
using Ahead = SumsAhead<Finisher::ROWS * Sums::FEATURES * 4>;
$end
using CallBiasOrder = BiasOrder<BIAS_IN_TURN, BLOCK_N, GROUPS * 4, BOUNDED, BLOCK_M / Finisher::ROWS, 1>;
using QueryTurn = ${by_blocks ? 'ToldTurn' : by_steps ? 'StepTurns' : 'QueryTurns<ORDERED, BIAS_IN_TURN ? 1 : 8>'};  // 1: of heads that share a bias, so that the next block soon follows

// A warpgroup's share of a turn's dq, transposed: 64 of the features of all queries, or all features of half of the queries.
constexpr bool BY_FEATURES = BOXES == GROUPS;
constexpr int DQ_QUERIES = BY_FEATURES ? BLOCK_M : BLOCK_M / GROUPS;
static_assert(BOXES <= ${by_blocks ? '2' : 'GROUPS'});
$if by_blocks
constexpr bool ONE_BOX = BOXES == 1 || GROUPS == 2;     // a warpgroup's share has 64 features; two products make more
static_assert(ONE_BOX || !DEFERRED);
$end

#include "flash_attention_bwd/backward_sm90_places.h"
#include "flash_attention_bwd/backward_sm90_producer.h"
#include "flash_attention_bwd/backward_sm90_consumer.h"
#include "flash_attention_bwd/backward_sm90_dense.h"

// listed: listed_count blocks of keys, which blocks of the grid take `run` at a time: those of one kv head, or one. added[0]: how often they
// have. broken: which blocks of keys, by kv head, are to be done again.
KERNEL(THREADS, 1) differentiate(${parameters('differentiate')}) {
$if by_blocks
  __shared__ List::Entry entries[TEAMS * Queue::AHEAD];
  const uint32_t base = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024;
  const int team = TEAMS == 1 ? 0 : shuffle(warp() < WARPGROUP / WARP ? warp() % 2 : warpgroup() - 1, 0), helpers = TEAMS == 1 ? 1 : 3;  // the first warp that helps
  const Places at{base + team * Places::TEAM_BYTES}, last{base + (TEAMS - 1) * Places::TEAM_BYTES};
  const Queue queue{reinterpret_cast<const List::Entry*>(listed), listed_count, added, static_cast<int>(run), entries + team * Queue::AHEAD, at.queue()};
$else
  __shared__ List::Entry entries[Queue::AHEAD];
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  const Queue queue{reinterpret_cast<const List::Entry*>(listed), listed_count, added, static_cast<int>(run), entries, at.queue()};
$end
$if by_blocks
  const int group = shuffle(warpgroup(), 0);
$else
  const int heads_a_kv_head = static_cast<int>(q_view.shape[q_view.rank - 2] / k_view.shape[k_view.rank - 2]), group = shuffle(warpgroup(), 0);
$end
  const ${chunked ? 'ChunkVisibility' : 'Visibility'} visibility{causal, window_left, window_right${chunked ? ', chunk_of(chunk_size)' : ''}};
  const Order order{added, window_left, 0, at.order()};
  const CallBiasOrder bias_order{added, units, q_view, bias_view, key_blocks, ${by_blocks ? '1' : 'heads_a_kv_head'}, 0, at.bias_order()};
  const Finisher finisher{dq_sums, finished, added + 1, units, units_a_head, key_blocks, heads_a_kv_head, softmax_scale * DS_UNSCALED, dq_view${by_blocks ? (packed ? ', awaited, heads_together, heads_cleared, reinterpret_cast<const TileTokens*>(tile_tokens)' : ', awaited, heads_together, heads_cleared') : ''}};
  const Dense dense{bias_map, bias_view, attention_mask_view, mask_bits, dbias_sums, key_blocks};
$if by_blocks
  const RowCounts<BLOCK_M> row_counts{awaited};
  const Ahead ahead{dq_sums, finished + 1, heads_cleared, kv_heads, units_a_head, key_blocks, heads_a_kv_head};
$end
  let_next_launch_go();
  if (thread_x() == 0) {
$if by_blocks
    last.init_sums_barriers();
    for (int i = 0; i < TEAMS; ++i) {
      const Places of{base + i * Places::TEAM_BYTES};
      of.init_barriers();
      Queue{nullptr, 0, nullptr, 1, nullptr, of.queue()}.init();
$if ordered
      Order{nullptr, 0, 0, of.order()}.init(4);
$end
    }
$else
    at.init_barriers();
    queue.init();
$end
$if not (by_blocks and ordered)
    order.init(4);
$end
    bias_order.init();
    fence_barrier_init();
  }
  sync_block();
  wait_for_previous_launch();
  int first = 0;      // turn of this block of keys, of all
  uint32_t keys = 0;  // their number
  const auto end_of = [&](const Block& block) { return first + ${by_blocks ? 'block.lists.turns' : 'block.steps() * heads_a_kv_head'}; };
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
$if not (by_blocks and ordered)  // the thread that copies opens turns
    if (BIAS_IN_TURN && warp() == 1)  // a loop of its own: in one with warp 2 registers are too few
      queue.read([&](const List::Entry& entry) {
        const int end = end_of(entry.block);
        if (lane() == 0) bias_order.open_turns<QueryTurn>(order, entry.block, first, end);
        first = end;
      });
$end
    if (BIAS_IN_TURN && warp() == 3)
      queue.read([&](const List::Entry& entry) {
        const int end = end_of(entry.block);
        bias_order.pass_turns<QueryTurn>(entry.block, first, end);
        first = end;
      });
$if by_blocks
    if (TEAMS == 1 && warp() == 2) {
      Ahead::make_zeros(last.sums(1));
      Companion<WARP${ordered ? ', 0' : ''}>{at, entries, row_counts, k_map, v_map, heads_a_kv_head${ordered ? ', order' : ''}}.run([&](const List::Entry& entry) {
        ahead.clear(entry.numbered, last.sums(1));
        ahead.wait(entry.numbered);
      });
    }
$if ordered
    if (TEAMS == 2 && warp() >= 2) {  // a warp a team: lanes of one warp would wait for each other
      const auto accompany = [&](auto number) {
        constexpr int TEAM = number.VALUE;
        const Places of{base + TEAM * Places::TEAM_BYTES};
        Companion<WARP, TEAM>{of, entries + TEAM * Queue::AHEAD, row_counts, k_map, v_map, heads_a_kv_head, Order{added, window_left, 0, of.order()}}.run([](const List::Entry&) {});
      };
      if (warp() == 2) return accompany(Team<0>{});
      accompany(Team<TEAMS - 1>{});
    }
$else
    if (TEAMS == 2 && warp() == 2) {  // a lane a team
      if (lane() < TEAMS) Companion<1>{Places{base + lane() * Places::TEAM_BYTES}, entries + lane() * Queue::AHEAD, row_counts, k_map, v_map, heads_a_kv_head}.run([](const List::Entry&) {});
      return;
    }
$end
$else
    if ((ORDERED && !BIAS_IN_TURN && warp() == 1) || ((ORDERED || FINISHES) && warp() == 2)) {
      uint32_t parities = 0;  // of the barriers that say that a block of keys has added everything
      queue.read([&](const List::Entry& entry) {
        const int end = end_of(entry.block), place = &entry != entries;
        if (lane() == 0 && warp() == 1) order.open_turns<QueryTurn>(entry.block, first, end);
        if (lane() == 0 && warp() == 2) {
          order.pass_turns<QueryTurn>(entry.block, first, end);
          if (FINISHES) barrier_wait(at.added(place), parities >> place & 1);
          if (FINISHES) finisher.tell(entry.numbered);
        }
        first = end, parities ^= 1 << place;
      });
    }
$end
$if by_blocks
    if (warp() >= helpers) return finisher.run(last.sums(TEAMS == 1 ? warp() - 1 : 0), last.sums_full(TEAMS == 1 ? warp() : 3));
    if (lane() != 0) return;
    fence_async_everywhere();
    const auto give_out = [&](auto number) {  // a team's places are known then, and in no registers
      constexpr int TEAM = number.VALUE;
      const Places of{base + TEAM * Places::TEAM_BYTES};
      list_places[TEAM].stop = list_places[TEAM].keys = 0;
      Queue{reinterpret_cast<const List::Entry*>(listed), listed_count, added, static_cast<int>(run), entries + TEAM * Queue::AHEAD, of.queue()}.give_out([&](const List::Entry& entry) {
        if (entry.block.lists.turns == 0) return;
        if (TEAMS == 1) ahead.wait(entry.numbered);
        Producer<TEAM>{of, entry.block, row_lse, row_delta, row_segments, key_segments, dense${ordered ? ', Order{added, window_left, 0, of.order()}' : ''}}.copy(q_map, k_map, v_map, dout_map, list_places[TEAM].stop);
        list_places[TEAM].keys = next_keys(list_places[TEAM].keys);
      });
    };
    if (warp() == 0)
      give_out(Team<0>{});
    else if (TEAMS == 2)
      give_out(Team<TEAMS - 1>{});
$else
    if (FINISHES && warp() != 0) return finisher.run(at.sums(warp() - 1), at.sums_full(warp()));
    if (thread_x() != 0) return;
    fence_async_everywhere();
    queue.give_out([&](const List::Entry& entry) {
      const int end = end_of(entry.block);
      if (first == end) return;
      Producer{at, entry.block, row_lse, row_delta, row_segments, key_segments, dense}.copy(q_map, k_map, v_map, dout_map, first, end, keys);
      first = end, keys = next_keys(keys);
    });
$end
  } else {
    take_registers<MULTIPLYING_REGISTERS>();
    CallWeights rules(visibility, softmax_scale, logits_soft_cap);
    if (DROPPED) rules.drop(kept_part);
    const Dropout dropout(drop_threshold, dropout_seed);
    const Heads<Element> dq_rows(dq_view);
    queue.read([&](const List::Entry& entry) {
      const Block& block = entry.block;
      const int end = end_of(block);
      float dk[D / 2] = {}, dv[DV / 2] = {};
      if (first != end) {
        const int heads = static_cast<int>(q_view.shape[q_view.rank - 2]);
        const Consumer consumer{at, entry, block, rules, dropout, heads, dq_sums, order, dq_rows, softmax_scale * DS_UNSCALED, ${by_blocks ? 'TEAMS == 2 ? 0 : ' : ''}group - 1, keys, dense, bias_order};
        consumer.run(dk, dv, first, end);
        first = end, keys = next_keys(keys);
      }
      if (FINISHES) sync_warp();
      if (FINISHES && lane() == 0) barrier_arrive(at.added(&entry != ${by_blocks ? 'queue.' : ''}entries));
      const bool finite_dk = ${by_blocks and keys == 128 ? 'store_keys' : 'store_sums'}(dk, softmax_scale * DS_UNSCALED, Heads<Element>(dk_view), block, ${by_blocks ? 'TEAMS == 2 ? 0 : ' : ''}(group - 1) * 64);
      const bool finite_dv = ${by_blocks and keys == 128 ? 'store_keys' : 'store_sums'}(dv, rules.unscaled(), Heads<Element>(dv_view), block, ${by_blocks ? 'TEAMS == 2 ? 0 : ' : ''}(group - 1) * 64);
      if (any_in_warp((MASKED || block.hides(${by_blocks ? 'TEAMS == 2 ? 0 : ' : ''}group - 1)) && !(finite_dk && finite_dv)) && lane() == 0) broken[entry.numbered] = 1;
    });
    if (FINISHES) sync_some(ALL_DONE, ${by_blocks ? '2' : 'GROUPS'} * WARPGROUP);  // with keys and values, whose place is used now
    if (FINISHES) finisher.run(${by_blocks ? '' : 'at.'}base + (warp() - WARPGROUP / WARP) * Finisher::BYTES, ${by_blocks ? 'last' : 'at'}.sums_full(warp()));
  }
}

$if by_blocks
KERNEL(128, 1) list_queries(${parameters('list_queries')}) {
  let_next_launch_go();
  StepList<3>{query_list, block_mask_view, static_cast<int>(list_words), static_cast<int>(block_k), static_cast<int>(steps_a_block)}.make<128>();
$if ordered
  TurnRanks{turn_ranks, block_mask_view, static_cast<int>(list_words), static_cast<int>(steps_a_block), static_cast<int>(block_k / BLOCK_N)}.make<128>(list_grid);
$end
  clear_counters<128>(awaited, awaited_count, grid_x());
}

$end
#include "flash_attention_bwd/sm90_attention_gradient_entries.h"

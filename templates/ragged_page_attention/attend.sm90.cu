// ragged_page_attention on Hopper (wgmma, tile copies, barriers of transactions). A first launch makes a list of items of work (sm90_plan.h); blocks of the second
// take one after the other: of warpgroup 0, one warp finds items, one copies queries, one keys and one values, by pages; the other warpgroups have 64 rows
// each, scores and outputs in registers, and go from step to step as flash_attention's do (flash_attention/forward_sm90_consumer.h).
//
// 8-bit keys and values are widened in shared memory, exactly, by one more warpgroup: keys to the queries' type, values to halves, as their weights are then.
//
// Rows of a warpgroup are new tokens times the query heads of one kv head. Parts of a stream that is cut wait in memory, laid out as registers are; who comes last adds
// them up in the end, in their order.
#include "device/gpu.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"
#include "device/attention/row_end.h"
#include "device/number/float8.h"

$require D % 64 == 0 and block_n % 16 == 0 and block_n % box == 0 and page % box == 0
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
constexpr int D = ${D};
constexpr int PAGE = ${page};                         // slots of a page
constexpr int BOX = ${box};                           // keys of a copy: they lie in one page
constexpr int GROUPS = ${groups};                     // warpgroups that multiply
constexpr int BLOCK_N = ${block_n};                   // keys of a step
constexpr uint32_t STAGES = ${stages};                // steps of keys, and of values, in shared memory
constexpr uint32_t Q_STAGES = ${q_stages};            // items' queries in shared memory
constexpr bool CAPPED = ${capped};                    // soft cap
constexpr bool BYTES = ${C != E};                     // 8-bit keys and values, which one more warpgroup widens; values to halves
constexpr bool WRITES = ${v3};                        // the launch before this one writes new keys and values
constexpr uint32_t RAW_STAGES = ${raw_stages};        // steps of them, before that, in shared memory
constexpr int THREADS = (GROUPS + 1 + BYTES) * WARPGROUP;
constexpr int PRODUCER_REGISTERS = GROUPS == 3 || BYTES ? 32 : 40, WIDENER_REGISTERS = 48, CONSUMER_REGISTERS = GROUPS == 3 ? 160 : BYTES ? 216 : 232;

constexpr int HALVES = D / 64;  // boxes of 64 features
constexpr uint32_t Q_BOX = 64 * 128, KEY_BOX = BLOCK_N * 128;
constexpr uint32_t Q_BYTES = HALVES * Q_BOX, K_BYTES = HALVES * KEY_BOX, RAW_BYTES = BLOCK_N * D;
$if C == E
using Weight = Element;
$else
using Weight = half;
$end

#include "ragged_page_attention/sm90_plan.h"
#include "ragged_page_attention/attend_sm90_first.h"
#include "ragged_page_attention/attend_sm90_places.h"
#include "ragged_page_attention/attend_sm90_rows.h"
#include "ragged_page_attention/attend_sm90_producer.h"
#include "ragged_page_attention/attend_sm90_queries.h"
#include "ragged_page_attention/attend_sm90_steps.h"
#include "ragged_page_attention/attend_sm90_consumer.h"
$if C != E
#include "ragged_page_attention/attend_sm90_widener.h"
$end

$if v3
#include "ragged_page_attention/write_sm90.h"

$end
// The first block makes the list; v3's others write new keys and values, a warp a token.
KERNEL(PLAN_THREADS, 1) plan(${parameters('plan')}) {
  wait_for_previous_launch();
  let_next_launch_go();
$if v3
  if (block_x() > 0) {
    const NewTokens fresh{{keys, values, key_token, key_head, value_token, value_head, k_scale, v_scale, k_scale_stride, v_scale_stride},
                          kv_pages, page_stride, slot_stride, head_stride, block_tables, table_row, PAGE, D, kv_heads};
    const RaggedBatch batch{query_start_loc, context_lens, distribution[2], tokens};
    const int64_t first = int64_t{warp()} * (grid_x() - 1) + block_x() - 1, step = int64_t{grid_x() - 1} * PLAN_WARPS;  // few tokens are on all processors
    if (TokenWriter::may(fresh)) {
      TokenWriter{fresh, batch, static_cast<int>(sequences), TokenWriter::places()}.run(first, step);
    } else {
#pragma unroll 1
      for (int64_t token = first; token < tokens; token += step) fresh.write(batch, token);
    }
    return;
  }
$end
  const RaggedPlan plan{query_start_loc, context_lens, ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, static_cast<int>(kv_heads), static_cast<int>(group_tokens),
                        static_cast<int>(heads_a_kv_head), window_of(window_left), nullptr};
  make_plan(plan, reinterpret_cast<int*>(dynamic_shared()), static_cast<int>(blocks), static_cast<int>(slots), static_cast<int>(room), words, items);
}

constexpr int FINDER = 1;  // the warp that finds items

KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    prefetch_tensor_map(queries_map);
    prefetch_tensor_map(kv_pages_map);
    for (uint32_t i = 0; i < Places::BARRIERS; ++i) {
      const bool is_raw = i >= Places::RAW, is_query = i < Places::QUERIES;
      barrier_init(at.barrier(i), BYTES && !is_raw && !is_query ? 4 : 1);
      barrier_init(empty(at.barrier(i)), is_query ? 1 : is_raw ? 4 : GROUPS);
    }
    barrier_init(at.found(), 1);
    barrier_init(at.wanted(), BYTES ? 7 : 3);
    for (int part = 0; part < GROUPS; ++part) last_whole[part] = last_added[part] = -1, added_count[part] = broken_rows[part] = 0;
    fence_barrier_init();
  }
  const Units units{window_of(window_left), softmax_scale, CAPPED ? logits_soft_cap : 0, {k_scale, k_scale_stride}, {v_scale, v_scale_stride}};
  const int group_size = static_cast<int>(heads_a_kv_head), tokens_a_group = static_cast<int>(group_tokens);
  if (uniform(thread_x() / WARP) == FINDER) {
    const RaggedPlan plan{query_start_loc, context_lens, ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, static_cast<int>(kv_heads), tokens_a_group, group_size, units.window, nullptr};
    const FirstItem first{plan, static_cast<int>(blocks), static_cast<int>(slots), static_cast<int>(room), static_cast<int>(sequences), block_tables, table_stride};
    Finder{at, units}.note_first(first.find());
  }
  sync_block();
  let_next_launch_go();
  const RowEnd ends{softmax_aux_view, sinks_type, static_cast<int>(heads), {out, out_token, out_head}, {${v3 ? 'nullptr, 0, 0' : 'lse, lse_token, lse_head'}}};
  const RaggedQueue queue{words, items, static_cast<int>(room)};
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<PRODUCER_REGISTERS>();
    Producer producer{at, queries_map, kv_pages_map, block_tables, table_stride, group_size, tokens_a_group};
    const int role = uniform(warp());
    if (role == 0) producer.run_keys();
    if (role == FINDER) Finder{at, units}.run(queue, [&](const RaggedItem& item) { producer.ask_for(item, units.window); });
    if (role == 2) producer.run_values();
    if (role == 3) {
      producer.run_queries();
      wait_for_previous_launch();
      const Unseen unseen{query_start_loc, context_lens, ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, static_cast<int>(tokens)};
      unseen.finish(ends);
    }
$if C != E
  } else if (group == GROUPS + 1) {
    give_registers<WIDENER_REGISTERS>();
    Widener{at}.run();
$end
  } else {
    take_registers<CONSUMER_REGISTERS>();
    const Parts parts{partial, partial_softmax, words + ARRIVED};
    const PlainRows plain{queries, query_token, query_head, kv_pages, page_stride, slot_stride, head_stride, block_tables, table_stride, ends, group_size, units.window};
    Consumer{at, queue, parts, ends, plain, units, links, group_size, tokens_a_group, group - 1}.run();
  }
}

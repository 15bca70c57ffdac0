// mla_decode on Hopper with a cache of bytes, which stay bytes in shared memory: features become halves, exactly, in registers, where wgmma takes them as operand A, once as
// keys, once as values. So they need no place of their own, nor a warp that puts them there.
//
// Tiles are transposed: scores are S^T = K Q^T, with keys as rows, and outputs O^T += V^T W^T, with features as rows; heads are columns. A warpgroup copies tiles of 64 keys,
// one makes scores and weights W, two add values, half of the features each. A warp of those that copy splits scales, where one is enough for copies.
//
// Queries are halves, too, times a power of two, so that no digit is lost; rope features stay bfloat16. Keys' scales, one for 128 features, multiply the sums of products of these.
// Of values, a key's scales are 2^e times halves, which multiply its features; 2^e multiplies its weights. Weights are 2^(score + e - reference): a head's reference goes from tile
// to tile, and follows only when weights would pass MOST. Two parts of a query token's keys are put together by a cluster, where all heads are a block's; else a second launch does it.
#include "device/gpu.h"
#include "device/number/bytes_to_halves.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"
#include "mla_decode/finish_parts.h"
#include "mla_decode/shared_words.h"

$require R == 512 and Dr == 64 and C == 'u8' and E == 'bf16' and (columns == 16 or columns == 32 or columns == 64)
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
#include "mla_decode/latent_keys.h"
constexpr int R = ${R}, ROPE = ${Dr};
constexpr int HEADS = ${columns};         // of a block; those past the last one are never stored
constexpr bool CAPPED = ${capped};        // a soft cap
constexpr bool GATHERED = ${gathered};    // keys are listed, or of pages of which tiles have no whole number, or do not lie one after the other
constexpr int KEYS = 64, BLOCKS = R / 128;  // of a tile; of features that share a scale
constexpr uint32_t STAGES = ${stages};    // tiles in shared memory
constexpr int ADDERS = 2 * WARPGROUP, CONSUMERS = WARPGROUP + ADDERS, THREADS = 4 * WARPGROUP;
constexpr int COPYING_REGISTERS = !GATHERED ? 24 : HEADS == 64 ? 24 : 40, ADDING_REGISTERS = HEADS == 64 ? 176 : 160, SCORING_REGISTERS = 512 - COPYING_REGISTERS - 2 * ADDING_REGISTERS;
#include "mla_decode/raw_bytes_places.h"
$if gathered
#include "mla_decode/raw_bytes_gatherer.h"
$else
#include "mla_decode/raw_bytes_producer.h"
#include "mla_decode/raw_bytes_scales.h"
$end
#include "mla_decode/raw_bytes_queries.h"
#include "mla_decode/raw_bytes_scores.h"
#include "mla_decode/raw_bytes_values.h"

// Block x: heads x % row_blocks * HEADS ... of part x / row_blocks % parts of the keys of query token x / row_blocks / parts (of all sequences).
// decode_paired: all heads of part x % 2 of query token x / 2; a cluster has both parts.
$for paired in 0..2
$if paired == 1
KERNEL(THREADS, 1) decode_paired(${parameters('decode_paired')}) {
$else
KERNEL(THREADS, 1) decode(${parameters('decode')}) {
$end
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  const int part_count = static_cast<int>(parts), blocks = static_cast<int>(row_blocks);
  const int first_head = block_x() % blocks * HEADS, unit = block_x() / blocks, token = unit / part_count, part = unit % part_count;
  const int queries = static_cast<int>(q_latent_view.shape[1]), heads = static_cast<int>(q_latent_view.shape[2]), sequence = token / queries, i = token % queries;
  const int group = uniform(warpgroup());
  // What a block waits for at its start is asked for before all else.
$if gathered
  const bool listed = is_given(indices_view);
  const int context = listed ? 0 : context_lens[sequence];
$else
  const int context = context_lens[sequence];
  if (group == 0)
    for (int64_t page = thread_x() * 32; page < table_row; page += WARPGROUP * 32) fetch(block_tables + sequence * table_row + page);
$end
  if (group > 1) {
    const auto query = [&](const View& q) { return static_cast<const Element*>(q.data) + sequence * q.strides[0] + i * q.strides[1] + first_head * q.strides[2]; };
    Queries{at}.start(query(q_latent_view), q_latent_view.strides[2], query(q_rope_view), q_rope_view.strides[2], heads - first_head);
  }
  if (thread_x() == 0) {
    for (uint32_t stage = 0; stage < STAGES; ++stage) barrier_init(at.full(stage), GATHERED ? WARPGROUP + 4 : 1), barrier_init(at.empty(stage), CONSUMERS / WARP + !GATHERED);
    for (uint32_t turn = 0; turn < 2; ++turn) barrier_init(at.weighed(turn), 4), barrier_init(at.added(turn), 8), barrier_init(at.split(turn), 1);
    fence_barrier_init();
  }
  let_next_launch_go();
  sync_block();
$if gathered
  const int count = uniform(static_cast<int>(listed ? indices_view.shape[2] : visible_tokens(context, queries, i)));
$else
  const int count = uniform(static_cast<int>(visible_tokens(context, queries, i)));
$end
  const int all_tiles = (count + KEYS - 1) / KEYS, first_tile = static_cast<int>(int64_t{all_tiles} * part / part_count);
  const int tiles = uniform(static_cast<int>(int64_t{all_tiles} * (part + 1) / part_count) - first_tile);
  if (group == 0) {
    give_registers<COPYING_REGISTERS>();
    const int first = first_tile * KEYS, end = first + tiles * KEYS < count ? first + tiles * KEYS : count;
$if gathered
    const int32_t* const list = listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + i * indices_view.strides[1] : nullptr;
    Gatherer{at, cache, static_cast<uint32_t>(latent_outer / 16), static_cast<uint32_t>(latent_inner / 16), listed ? list : block_tables + sequence * table_row, listed, static_cast<int>(page_size)}
        .run(first, end);
$else
    if (warp() == 0) Copier{at, cache, static_cast<uint32_t>(latent_outer / 16), block_tables + sequence * table_row, static_cast<int>(page_size), static_cast<int>(box_rows), end - first}.run(first);
    if (warp() == 1) Splitter{at}.run(tiles, count - first_tile * KEYS);
$end
    return;
  }
  // Worked out when it is needed: registers are few before.
  const auto results = [&] {
    const int at_end = static_cast<int>(keep_here(block_x())) / blocks, of_token = at_end / part_count;
    return Results{out_view, lse_view, partial, reinterpret_cast<Softmax*>(partial_softmax), of_token / queries, of_token % queries, of_token,
                   static_cast<int>(keep_here(block_x())) % blocks * HEADS, heads, ${paired == 1 ? '0, 1' : 'at_end % part_count, part_count'}};
  };
  if (group == 1) {
    take_registers<SCORING_REGISTERS>();
    sync_some(CONSUMING, CONSUMERS);
    const float inverse = QueryUnit(at).inverse;
    Scorer scorer{{at, (CAPPED ? logits_soft_cap : softmax_scale * inverse) * LOG2_E, CAPPED ? softmax_scale / logits_soft_cap * inverse : 0}};
    Scorer::OwnSums sums;
    scorer.run(tiles, count - first_tile * KEYS, sums);
    scorer.finish<${paired == 1}>(sums, results());
  } else {
    take_registers<ADDING_REGISTERS>();
    Queries{at}.finish();
    if (group == 2)
      Adder<0>{at}.run<${paired == 1}>(tiles, results);
    else
      Adder<1>{at}.run<${paired == 1}>(tiles, results);
  }
}
$end

// Block x: head x % heads of query token x / heads.
KERNEL(FINISH_THREADS * MOST_GROUPS, 1) finish(${parameters('finish')}) {
  wait_for_previous_launch();
  finish_row<Element, R, true>(out_view, lse_view, partial, reinterpret_cast<const Softmax*>(partial_softmax), static_cast<int>(stored_parts), static_cast<int>(finish_groups));
}

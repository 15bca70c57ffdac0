// mla_decode on Hopper, 64 heads a block, which has all features of each key in shared memory. Two warpgroups take turns with tiles of 64 keys: each
// makes the scores and weights of every second tile, and holds half of the outputs' features, so that weights go to the other one through shared
// memory. While one weighs, the products of the other run (the schedule that FlashMLA published as "seesaw").
//
// Weights are 2^(score - reference): a row's reference goes from tile to tile, and follows its largest score only when that is 2^HEADROOM times ahead.
// Two parts of a query token's keys are put together by a cluster, where all heads are a block's; else a second launch does it.
#include "device/gpu.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"
#include "mla_decode/finish_parts.h"
#include "mla_decode/shared_words.h"

$require R == 512 and Dr == 64 and C == E
using Element = ${ctype(E)};
using Cached = Element;
#include "mla_decode/latent_keys.h"
$if latent  // mla_attention
#include "mla_attention/head_views.h"
#include "mla_attention/latent_call.h"
$end
constexpr int R = ${R}, ROPE = ${Dr};
constexpr int HALF = R / 2;
constexpr bool CAPPED = ${capped};     // a soft cap
constexpr bool GATHERED = ${gathered};  // keys are listed, or pages are of no size that a tensor map copies tiles of
constexpr bool EAGER = ${eager};       // memory is what is waited for, not products
constexpr int KEYS = 64, ROWS = 64;    // of a tile; heads of a block
constexpr int GROUPS = 2, COPIERS = WARPGROUP, THREADS = COPIERS + GROUPS * WARPGROUP;
constexpr int PRODUCER_REGISTERS = GATHERED ? 40 : 24, CONSUMER_REGISTERS = GATHERED ? 232 : 240;

// What a block works on.
struct Work {
  int begin, count;  // the first key of the part; how many the query token sees in all
  int tiles;         // of the part
  int left(int tile) const { return count - begin - tile * KEYS; }  // keys from that tile on
};
#include "mla_decode/pair_places.h"
$if gathered
#include "mla_decode/pair_gatherer.h"
$else
#include "mla_decode/pair_producer.h"
$end
#include "mla_decode/pair_consumer.h"

// Block x: heads x % row_blocks * ROWS ... of part x / row_blocks % parts of the keys of query token x / row_blocks / parts (of all sequences).
// decode_paired: of part x % parts of unit x / parts; a cluster has both parts.
$for paired in 0..2
$if paired == 0 or not latent
$if paired == 1
KERNEL(THREADS, 1) decode_paired(${parameters('decode_paired')}) {
$else
KERNEL(THREADS, 1) decode(${parameters('decode')}) {
$end
$if latent
#include "mla_attention/absorbed_arguments.h"
#include "mla_attention/absorbed_results.h"
$end
  const Places at;
  const int part_count = static_cast<int>(parts), blocks = static_cast<int>(row_blocks);
$if paired == 1
  const int part = block_x() % part_count, unit = block_x() / part_count, row_block = unit % blocks, token = unit / blocks;
$else
  const int row_block = block_x() % blocks, unit = block_x() / blocks, token = unit / part_count, part = unit % part_count;
$end
  const int first_head = row_block * ROWS;
  const int queries = static_cast<int>(q_latent_view.shape[1]), heads = static_cast<int>(q_latent_view.shape[2]);
  const int sequence = token / queries, i = token % queries;
  // What the first copies wait for, one after the other, is fetched together.
$if not gathered
  if (thread_x() == WARP) prefetch_tensor_map(cache_map);
  if (thread_x() == 2 * WARP) prefetch_tensor_map(k_rope_map);
$end
  if (block_tables && warp() == 3 && lane() * 32 < table_row) fetch(block_tables + sequence * table_row + lane() * 32);
  if (context_lens && thread_x() == 0) fetch(context_lens + sequence);
  if (thread_x() == 0) {
    for (uint32_t stage = 0; stage < STAGES; ++stage) {
      for (int box = 0; box < BOXES; ++box) barrier_init(at.full(stage, box), !GATHERED ? 1 : box == ROPE_BOX ? WARPGROUP + 4 : WARPGROUP);
      for (int piece = 0; piece < PIECES; ++piece) barrier_init(at.empty(stage, piece), 4);
    }
    barrier_init(at.q_full(), 1);
    fence_barrier_init();
    barrier_arrive_expect(at.q_full(), LATENT_BOXES * BOX);
    for (int box = 0; box < LATENT_BOXES; ++box)
      load_tile(at.q() + box * BOX, q_latent_map, at.q_full(), {box * 64, first_head, ${latent ? 'token' : 'i, sequence'}});
  }
  let_next_launch_go();
  sync_block();
$if gathered
  const bool listed = is_given(indices_view);
  const int32_t* const entries = listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + i * indices_view.strides[1]
                                        : block_tables + sequence * table_row;
$end
$if latent
  const View no_segments = no_view();
  const int count = uniform(static_cast<int>(
      LatentCall{no_segments, no_segments, context_lens, queries, tokens, offset_given, offset, Visibility{causal, -1, window_right}}.keys(sequence, i).end));
$elif gathered
  const int count = uniform(static_cast<int>(listed ? indices_view.shape[2] : visible_tokens(context_lens[sequence], queries, i)));
$else
  const int count = uniform(static_cast<int>(visible_tokens(context_lens ? context_lens[sequence] : tokens, queries, i)));
$end
  const int all_tiles = (count + KEYS - 1) / KEYS, first_tile = static_cast<int>(int64_t{all_tiles} * part / part_count);
  const Work work{first_tile * KEYS, count, static_cast<int>(int64_t{all_tiles} * (part + 1) / part_count) - first_tile};

  if (uniform(warpgroup()) == 0) {
    give_registers<PRODUCER_REGISTERS>();
    const int ours = uniform(work.left(0) < work.tiles * KEYS ? work.left(0) : work.tiles * KEYS);  // keys of the part
$if gathered
    Gatherer{static_cast<const Element*>(cache), latent_outer, latent_inner, listed ? entries + work.begin : entries, listed, static_cast<int>(page_size), work.begin, ours}.run();
$else
    if (warp() == 0)
      Copier{cache_map, k_rope_map, block_tables ? block_tables + sequence * table_row : nullptr, sequence, static_cast<int>(page_size),
             static_cast<int>(box_rows), cache ? R : 0, ours, EAGER ? 2 : row_block % 2}.run(work.begin);
$end
  } else {
    take_registers<CONSUMER_REGISTERS>();
    const QueryRows q{static_cast<const Element*>(${latent ? 'rope_rows' : 'q_rope_view'}.data) + sequence * ${latent ? 'rope_rows' : 'q_rope_view'}.strides[0] + i * ${latent ? 'rope_rows' : 'q_rope_view'}.strides[1],
                      ${latent ? 'rope_rows' : 'q_rope_view'}.strides[2], first_head, heads};
    // Worked out when it is needed: registers are few before.
    const auto results = [&] {
$if paired == 1
      const int at_end = keep_here(block_x()) / part_count, of_token = at_end / blocks;
      return Results{out_view, lse_view, partial, reinterpret_cast<Softmax*>(partial_softmax), of_token / queries, of_token % queries, of_token,
                     at_end % blocks * ROWS, heads, static_cast<int>(keep_here(block_x())) % part_count / 2, part_count / 2};
$else
      const int at_end = keep_here(block_x()) / blocks, of_token = at_end / part_count;
      return Results{out_view, lse_view, partial, reinterpret_cast<Softmax*>(partial_softmax), of_token / queries, of_token % queries, of_token,
                     static_cast<int>(keep_here(block_x())) % blocks * ROWS, heads, at_end % part_count, part_count};
$end
    };
    const float to_log = CAPPED ? logits_soft_cap * LOG2_E : larger_of(softmax_scale * LOG2_E, 1e-30f), to_tanh = CAPPED ? softmax_scale / logits_soft_cap : 0;
    if (uniform(warpgroup()) == 1)
      Consumer<0, ${paired == 1}>{{}, uniform(work.tiles), uniform(work.left(0)), to_log, to_tanh}.run(q, results);
    else
      Consumer<1, ${paired == 1}>{{}, uniform(work.tiles), uniform(work.left(0)), to_log, to_tanh}.run(q, results);
  }
}
$end
$end

// Block x: head x % heads of query token x / heads.
KERNEL(FINISH_THREADS * MOST_GROUPS, 1) finish(${parameters('finish')}) {
$if latent
  const View out_view = slot_view(latent_out, sequence_count, query_tokens, all_heads, all_heads, R);
  const View lse_view = lse_view_of(lse, sequence_count, all_heads, query_tokens, lse_batch, lse_head);
$end
  wait_for_previous_launch();
  finish_row<Element, R, true>(out_view, lse_view, partial, reinterpret_cast<const Softmax*>(partial_softmax), static_cast<int>(${latent ? 'parts' : 'stored_parts'}), static_cast<int>(finish_groups));
}
$if latent

#include "mla_attention/absorbed_entries.h"
$end

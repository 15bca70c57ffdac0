// mla_decode on Hopper, of keys on lists, or in pages that no tensor map copies tiles of. The two blocks of a cluster halve the features: each has half of every key's, so that a key comes from memory once for up to 128
// heads, and half of the outputs', which are all that fit its registers.
//
// A warpgroup multiplies 64 rows of queries by a tile of keys, over its block's features. Lanes of the two blocks that hold parts of the same scores send
// each other one of their two rows: block b adds up and weighs rows 8 b to 8 b + 7 of each 16, and sends the weights back, with what the outputs of these
// rows are multiplied by from now on. The next tile's scores are under way meanwhile. Up to 64 heads the block's two warpgroups take turns with the tiles.
//
// Weights are 2^(score - reference): a row's reference follows its largest score only when that is 2^HEADROOM times ahead. Where more than one warpgroup
// has keys of a query token, a second launch puts their outputs together.
#include "device/gpu.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"
#include "mla_decode/finish_parts.h"
#include "mla_decode/sm90_exchange.h"

$require R == 512 and Dr == 64 and C == E and held >= 2 and held % 2 == 0
using Element = ${ctype(E)};
using Cached = Element;
#include "mla_decode/latent_keys.h"
$if latent  // mla_attention
#include "mla_attention/head_views.h"
#include "mla_attention/latent_call.h"
$end
constexpr int R = ${R}, ROPE = ${Dr};
constexpr int HALF = R / 2, HALF_ROPE = ROPE / 2;  // a block's features
constexpr bool BY_KEYS = ${by_keys};                // the warpgroups of a block have the same rows, and tiles in turn; else each has rows of its own
constexpr bool CAPPED = ${capped};                  // a soft cap
constexpr int KEYS = 64;                            // of a tile
constexpr uint32_t STAGES = ${stages};              // tiles in shared memory
constexpr int HELD = ${held};                       // slices of 16 features of queries that stay in registers: rope ones, then the first latent ones
constexpr int GROUPS = 2, THREADS = (GROUPS + 1) * WARPGROUP;
constexpr int BLOCK_ROWS = BY_KEYS ? 64 : 128;      // heads
constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;

// What a block works on, and keeps in shared memory.
struct Work {
  int begin, count;  // the first key of the part; how many the query token sees in all
  int tiles;         // of the part
  int left(int tile) const { return count - begin - tile * KEYS; }  // keys from that tile on
};
#include "mla_decode/decode_sm90_places.h"
#include "mla_decode/decode_sm90_producer.h"
#include "mla_decode/decode_sm90_consumer.h"

// Cluster (x, y): part x % parts of the keys of query token x / parts (of all sequences); heads y * BLOCK_ROWS ...
KERNEL(THREADS, 1) decode(${parameters('decode')}) {
$if latent
#include "mla_attention/absorbed_arguments.h"
#include "mla_attention/absorbed_results.h"
$end
  const Places at;
  if (thread_x() == 0) {
    for (uint32_t i = 0; i < STAGES; ++i) {
      barrier_init(at.full(i), WARPGROUP + 4);
      barrier_init(at.empty(i), BY_KEYS ? 4 : 4 * GROUPS);
    }
    for (int w = 0; w < 4 * GROUPS; ++w) barrier_init(at.scores_here(w), 1), barrier_init(at.weights_here(w), 1);
    fence_barrier_init();
  }
  let_next_launch_go();
  sync_cluster();
  const int part_count = static_cast<int>(parts), unit = block_x() / 2, token = unit / part_count, part = unit % part_count;
  const int queries = static_cast<int>(q_latent_view.shape[1]), heads = static_cast<int>(q_latent_view.shape[2]);
  const int sequence = token / queries, i = token % queries, rank = uniform(cluster_rank());

  const bool listed = is_given(indices_view);
  const int32_t* const entries = listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + i * indices_view.strides[1]
                                        : block_tables + sequence * table_row;
$if latent
  const View no_segments = no_view();
  const int count = uniform(static_cast<int>(
      LatentCall{no_segments, no_segments, context_lens, queries, tokens, offset_given, offset, Visibility{causal, -1, window_right}}.keys(sequence, i).end));
$else
  const int count = uniform(static_cast<int>(
      listed ? indices_view.shape[2] : visible_tokens(context_lens[sequence], queries, i)));
$end
  const int all_tiles = (count + KEYS - 1) / KEYS, first_tile = static_cast<int>(int64_t{all_tiles} * part / part_count);
  const Work work{first_tile * KEYS, count, static_cast<int>(int64_t{all_tiles} * (part + 1) / part_count) - first_tile};

  if (uniform(warpgroup()) == 0) {
    give_registers<PRODUCER_REGISTERS>();
    const int ours = uniform(work.left(0) < work.tiles * KEYS ? work.left(0) : work.tiles * KEYS);  // keys of the part
    Gatherer{static_cast<const Element*>(cache), latent_outer, latent_inner, listed ? entries + work.begin : entries, listed, static_cast<int>(page_size), work.begin, ours}.run();
  } else {
    take_registers<CONSUMER_REGISTERS>();
    const QueryRows q{static_cast<const Element*>(q_latent_view.data) + sequence * q_latent_view.strides[0] + i * q_latent_view.strides[1],
                      static_cast<const Element*>(${latent ? 'rope_rows' : 'q_rope_view'}.data) + sequence * ${latent ? 'rope_rows' : 'q_rope_view'}.strides[0] + i * ${latent ? 'rope_rows' : 'q_rope_view'}.strides[1],
                      q_latent_view.strides[2], ${latent ? 'rope_rows' : 'q_rope_view'}.strides[2], block_y() * BLOCK_ROWS, heads};
    // Worked out when it is needed: registers are few before.
    const auto results = [&] {
      const int at_end = keep_here(block_x()) / 2, of_token = at_end / part_count;
      return Results{out_view, lse_view, partial, reinterpret_cast<Softmax*>(partial_softmax), of_token / queries, of_token % queries, of_token,
                     block_y() * BLOCK_ROWS, heads, at_end % part_count, part_count};
    };
    const float to_log = CAPPED ? logits_soft_cap * LOG2_E : softmax_scale * LOG2_E, to_tanh = CAPPED ? softmax_scale / logits_soft_cap : 0;
    if (rank == 0)
      Consumer<0>{uniform(work.tiles), static_cast<uint32_t>(parts >> 32), to_log, to_tanh}.run(q, results);
    else
      Consumer<1>{uniform(work.tiles), static_cast<uint32_t>(parts >> 32), to_log, to_tanh}.run(q, results);
  }
  sync_warp();
  sync_cluster();  // the other block may still send to here
}

// Block x: head x % heads of query token x / heads.
KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
$if latent
  const View out_view = slot_view(latent_out, sequence_count, query_tokens, all_heads, all_heads, R);
  const View lse_view = lse_view_of(lse, sequence_count, all_heads, query_tokens, lse_batch, lse_head);
$end
  wait_for_previous_launch();
  finish_row<Element, R>(out_view, lse_view, partial, reinterpret_cast<const Softmax*>(partial_softmax), static_cast<int>(pieces));
}
$if latent

#include "mla_attention/absorbed_entries.h"
$end

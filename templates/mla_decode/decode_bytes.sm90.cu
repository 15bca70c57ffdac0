// mla_decode on Hopper with a cache of bytes. Features in e4m3 are exact in 16 bits: two warpgroups bring them, and widen them on their way to tiles in shared memory.
// Their scales, one for 128 features of a key, multiply the sums of products of these, and weights before they meet values, so that scores have f32's digits.
//
// Tiles are transposed: keys are rows of wgmma, heads its columns, so that a scale belongs to a lane's row, and no row is made for nobody where heads are few. Two
// more warpgroups take turns with tiles of 64 keys: each makes the scores of every second one, S^T = K Q^T, and half of the features of the outputs, O^T += V^T P^T,
// of all; weights go from warp to warp through shared memory. So one tile is widened while the other is at work.
//
// Weights are 2^(score - reference): a head's reference follows its largest score only when that is 2^HEADROOM times ahead. Where the keys of a query token are
// shared out to several blocks, a second launch puts their outputs together.
#include "device/gpu.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"
#include "mla_decode/finish_parts.h"
#include "mla_decode/shared_words.h"

$require R == 512 and Dr == 64 and C == 'u8' and columns % 16 == 0
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
#include "mla_decode/latent_keys.h"
constexpr int R = ${R}, ROPE = ${Dr};
constexpr int HEADS = ${columns};        // columns of a tile; those past the last head are never stored
constexpr bool CAPPED = ${capped};       // a soft cap
constexpr int GROUPS = 2, KEYS = 64;     // warpgroups, and keys of each in a tile
constexpr int SCALES = R / 128;  // of a key of bytes
constexpr int CONSUMERS = GROUPS * WARPGROUP, THREADS = CONSUMERS + GROUPS * WARPGROUP, CONSUMER_WARPS = CONSUMERS / WARP;
constexpr int COPYING_REGISTERS = 88, MULTIPLYING_REGISTERS = 256 - COPYING_REGISTERS;
constexpr uint32_t BOX = KEYS * 128, BOXES = (R + ROPE) / 64, KEY_BYTES = BOXES * BOX;  // of 64 features
constexpr uint32_t HEAD_BOX = HEADS * 128;
constexpr int FEATURE_TILES = R / 64 / GROUPS;  // of a warpgroup's outputs
#include "mla_decode/decode_bytes_places.h"
#include "mla_decode/decode_bytes_producer.h"
#include "mla_decode/decode_bytes_consumer.h"

// Block (x, y): part x % parts of the keys of query token x / parts (of all sequences); heads y * HEADS ...
KERNEL(THREADS, 1) decode(${parameters('decode')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    for (int group = 0; group < GROUPS; ++group) barrier_init(at.full(group), 4 + WARPGROUP), barrier_init(at.empty(group), CONSUMER_WARPS);
    fence_barrier_init();
  }
  let_next_launch_go();
  sync_block();
  const int part_count = static_cast<int>(parts), token = block_x() / part_count, part = block_x() % part_count;
  const int queries = static_cast<int>(q_latent_view.shape[1]), heads = static_cast<int>(q_latent_view.shape[2]), sequence = token / queries, i = token % queries,
            first_head = block_y() * HEADS;
  const bool listed = is_given(indices_view);
  const int count = static_cast<int>(listed ? indices_view.shape[2] : visible_tokens(context_lens[sequence], queries, i));
  const int all_tiles = (count + KEYS - 1) / KEYS, first_tile = static_cast<int>(int64_t{all_tiles} * part / part_count),
            tiles = uniform(static_cast<int>(int64_t{all_tiles} * (part + 1) / part_count) - first_tile), first = first_tile * KEYS,
            end = first + tiles * KEYS < count ? first + tiles * KEYS : count;
  if (uniform(warpgroup()) >= GROUPS) {
    give_registers<COPYING_REGISTERS>();
    const int32_t* const list = listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + i * indices_view.strides[1] : nullptr;
    Widener{at, cache, static_cast<uint32_t>(latent_outer / 16), static_cast<uint32_t>(latent_inner / 16), listed ? list : block_tables + sequence * table_row, listed, static_cast<int>(page_size)}
        .run(uniform(warpgroup()) - GROUPS, first, end);
    return;
  }
  take_registers<MULTIPLYING_REGISTERS>();
  load_heads(at, static_cast<const Element*>(q_latent_view.data) + sequence * q_latent_view.strides[0] + i * q_latent_view.strides[1] + first_head * q_latent_view.strides[2],
             q_latent_view.strides[2], static_cast<const Element*>(q_rope_view.data) + sequence * q_rope_view.strides[0] + i * q_rope_view.strides[1] + first_head * q_rope_view.strides[2],
             q_rope_view.strides[2], heads - first_head);
  const float to_log = CAPPED ? logits_soft_cap * LOG2_E : softmax_scale * LOG2_E, to_tanh = CAPPED ? softmax_scale / logits_soft_cap : 0;
  const Results results{out_view, lse_view, partial, reinterpret_cast<Softmax*>(partial_softmax), sequence, i, token, first_head, heads, part, part_count};
  const auto run = [&](auto consumer) {
    consumer.run(tiles);
    consumer.finish(results);
  };
  if (uniform(warpgroup()) == 0)
    run(Consumer<0>{at, to_log, to_tanh});
  else
    run(Consumer<1>{at, to_log, to_tanh});
}

// Block x: head x % heads of query token x / heads.
KERNEL(FINISH_THREADS * MOST_GROUPS, 1) finish(${parameters('finish')}) {
  wait_for_previous_launch();
  finish_row<Element, R, true>(out_view, lse_view, partial, reinterpret_cast<const Softmax*>(partial_softmax), static_cast<int>(parts), static_cast<int>(finish_groups));
}

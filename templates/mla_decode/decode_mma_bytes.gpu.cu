// mla_decode with a cache of bytes, on matrix instructions of a warp (mma.sync). Rows come to shared memory as they are, and features become halves, exactly, in
// registers, where they are multiplied: once as keys, once as values. Bytes are what is waited for.
//
// Queries are halves, too, times powers of two, so that no digit is lost; rope features stay bfloat16. Scales, one for 128 features of a key, multiply the sums of products of
// these in scores, and the weights that meet their values. Weights are halves: each block of features has its own, times a power of two, its unit, that keeps them in range.
//
// In a step warps share the scores of a tile of keys by blocks of features and by keys, then the softmax by heads, while the outputs of the tile before are made, by features.
// A head's reference and units follow only when weights would pass MOST. A second launch puts together the parts of a query token's keys.
#include "device/gpu.h"
#include "device/number/bytes_to_halves.h"
#include "mla_decode/finish_parts.h"

$require R == 512 and Dr == 64 and C == 'u8' and E == 'bf16' and (row_tiles == 1 or row_tiles == 2 or row_tiles == 4)
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
#include "mla_decode/latent_keys.h"
constexpr int R = ${R}, ROPE = ${Dr};
constexpr bool CAPPED = ${capped};                         // a soft cap
constexpr int WARPS = 8, THREADS = WARPS * WARP;
constexpr int ROW_TILES = ${row_tiles}, HEADS = 16 * ROW_TILES;
constexpr int KEYS = 32, STAGES = ${stages};               // of a tile; tiles in shared memory
constexpr int BLOCKS = R / 128, FEATURES = R / WARPS;      // that share a scale; of a warp's outputs
constexpr float MOST = 1 << 8;                             // that a weight may be
#include "mla_decode/mma_bytes_places.h"
#include "mla_decode/mma_bytes_rows.h"
#include "mla_decode/mma_bytes_scores.h"
#include "mla_decode/mma_bytes_weights.h"
#include "mla_decode/mma_bytes_values.h"

// x, but what is made of it is made here: it would else stay in registers, which are few.
static inline int made_here(int x) {
  return static_cast<int>(reinterpret_cast<int64_t>(keep(reinterpret_cast<const char*>(static_cast<int64_t>(x)))));
}

// What a block works on: part x % parts of the keys of query token x / parts (of all sequences), heads y * HEADS ...
struct Work {
  int token, part, sequence, i, first_head, heads;  // heads: of the block

  Work(int x, int y, int parts, int queries, int all_heads)
      : token(x / parts), part(x - token * parts), sequence(token / queries), i(token - sequence * queries), first_head(y * HEADS),
        heads(all_heads - first_head < HEADS ? all_heads - first_head : HEADS) {}
};

KERNEL(THREADS, ROW_TILES == 1 && STAGES == 4 ? 2 : 1) decode(${parameters('decode')}) {
  let_next_launch_go();
  const int part_count = static_cast<int>(parts), queries = static_cast<int>(q_latent_view.shape[1]), all_heads = static_cast<int>(q_latent_view.shape[2]);
  const Work work(block_x(), block_y(), part_count, queries, all_heads);
  const bool listed = is_given(indices_view);
  const int count = static_cast<int>(listed ? indices_view.shape[2] : visible_tokens(context_lens[work.sequence], queries, work.i));
  const int all_tiles = (count + KEYS - 1) / KEYS, first_tile = static_cast<int>(int64_t{all_tiles} * work.part / part_count);
  const int tiles = static_cast<int>(int64_t{all_tiles} * (work.part + 1) / part_count) - first_tile;
  const Places at{dynamic_shared()};
  const int32_t* const entries = listed ? static_cast<const int32_t*>(indices_view.data) + work.sequence * indices_view.strides[0] + work.i * indices_view.strides[1]
                                        : block_tables + work.sequence * table_row;
  const Rows rows{at, {cache, latent_outer, latent_inner, entries, static_cast<int>(page_size), listed}, first_tile * KEYS, count, tiles};
  rows.look_ahead(0);
  sync_block();
  for (int n = 0; n < STAGES - 2; ++n) rows.start(n);

  const auto query = [&](const View& q) { return static_cast<const Element*>(q.data) + work.sequence * q.strides[0] + work.i * q.strides[1] + work.first_head * q.strides[2]; };
  const Scores scores(at, query(q_latent_view), q_latent_view.strides[2], query(q_rope_view), q_rope_view.strides[2], work.heads);
  Weights weights{at, CAPPED ? logits_soft_cap * LOG2_E : softmax_scale * LOG2_E, CAPPED ? softmax_scale / logits_soft_cap : 0};
  Values values{at};
#pragma unroll 1
  for (int tile = -1; tile < tiles; ++tile) {
    copy_async_wait<STAGES - 3>();
    sync_block();  // the next tile is there, and the weights of this one
    rows.start(tile + STAGES - 1);
    if (tile + 1 < tiles) scores.make(tile + 1);
    sync_block();  // all scores are there
    rows.started(tile + STAGES - 1);
    if (tile >= 0) values.add(tile);
    if (tile + 1 < tiles) weights.make(tile + 1);
  }
  copy_async_wait<0>();
  weights.finish(part_count == 1);
  sync_block();  // what outputs are multiplied by is there

  const Work done(made_here(block_x()), block_y(), part_count, queries, all_heads);
  const int head = weights.head();
  const bool tells = weights.first_lane() && head < done.heads;
  if (part_count == 1) {
    values.store(done.heads, [&](int row, int feature, const float (&x)[4]) {
      Element* const to = static_cast<Element*>(out_view.data) + done.sequence * out_view.strides[0] + done.i * out_view.strides[1] + (done.first_head + row) * out_view.strides[2] + feature;
      store_pack(reinterpret_cast<uint32_t*>(to), Pack<uint32_t, 2>{{pack_pair<Element>(x[0], x[1]), pack_pair<Element>(x[2], x[3])}});
    });
    if (tells && is_given(lse_view))
      static_cast<float*>(lse_view.data)[done.sequence * lse_view.strides[0] + (done.first_head + head) * lse_view.strides[1] + done.i * lse_view.strides[2]] = weights.lse();
  } else {
    const int64_t first_row = int64_t{done.token} * all_heads + done.first_head;
    values.store(done.heads, [&](int row, int feature, const float (&x)[4]) {
      store_pack(partial + ((first_row + row) * parts + done.part) * R + feature, Pack<float, 4>{{x[0], x[1], x[2], x[3]}});
    });
    if (tells) reinterpret_cast<Softmax*>(partial_softmax)[(first_row + head) * parts + done.part] = weights.softmax();
  }
}

// Block x: head x % heads of query token x / heads.
KERNEL(FINISH_THREADS * MOST_GROUPS, 1) finish(${parameters('finish')}) {
  wait_for_previous_launch();
  finish_row<Element, R, true>(out_view, lse_view, partial, reinterpret_cast<const Softmax*>(partial_softmax), static_cast<int>(parts), static_cast<int>(finish_groups));
}

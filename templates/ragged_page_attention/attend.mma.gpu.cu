// ragged_page_attention on matrix instructions of a warp (mma.sync). Blocks share all tiles of keys of all streams evenly
// (ragged_shares.h), by lengths that they read themselves; a second launch adds up the parts of streams that they cut.
//
// A row is one new token of one of the query heads that share the kv head: row = token of the chunk * heads + head. Keys are the rows of the products,
// query rows their columns (device/attention/page_tile.h). A block brings tiles of TILE keys to shared memory for all its warps. How many rows a stream has decides what
// warps do: with many each takes ROWS of them through all keys; with few, as in decoding, warps share the keys of a tile, and their parts
// are added up when the stream ends. A stream that one block has whole goes to `out`; parts of it go to `partial`.
#include "device/matrix/fragment.h"
#include "device/number/quantise.h"
#include "device/tile/launch_order.h"
#include "device/tile/transpose.h"
#include "ragged_page_attention/ragged_copies.h"
#include "device/attention/decode_parts.h"
#include "device/attention/row_end.h"

$require D % 8 == 0 and rows % 8 == 0 and step % 16 == 0 and tile % step == 0
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
constexpr int D = ${D}, D16 = ${align(D, 16)}, SLICES = D16 / 16;
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int TILE = ${tile}, SUB = ${step}, TILES = SUB / 16;  // keys of a stage; keys a warp takes at a time, and products of 16
constexpr int SUBS = TILE / SUB;
constexpr int STAGES = ${stages};
constexpr int ROWS = ${rows}, ROW_TILES = ROWS / 8;                 // query rows a warp; products of 8
constexpr int BLOCK_ROWS = WARPS * ROWS;                        // query rows of a stream
constexpr bool CAPPED = ${capped};                              // a soft cap
constexpr int COLUMNS = ${columns};                             // features that warps add up at a time
constexpr float STALE = 8;  // references follow the largest score only where it is larger by this: weights up to 2^8 are as exact

constexpr int STAGE_BYTES = 2 * PageTile<Cached, TILE, D16>::BYTES;
constexpr int SETUP = 96 * 1024 / ${blocks} / STAGE_BYTES + 1;  // what a stream costs beside its tiles, in tiles: about 3 us of reading
using Shares = RaggedShares<TILE, SETUP>;
using Copies = RaggedCopies<Cached, Shares, TILE, D16, D, THREADS, ${page}>;
using CachedTile = Copies::Tile;

#include "device/attention/product_type.h"
#include "device/attention/query_types.h"
#include "device/attention/element_pairs.h"
#include "device/attention/narrow_queries.h"
#include "device/attention/weigh_rows.h"
#include "ragged_page_attention/guarded_values.h"
#include "ragged_page_attention/stream_rows.h"
#include "ragged_page_attention/merge_rows.h"
$if v3
#include "device/tile/grid_barrier.h"
#include "ragged_page_attention/write.gpu.h"
$end

KERNEL(THREADS, ${blocks}) attend(${parameters('attend')}) {
  wait_for_previous_launch();
  let_next_launch_go();
$if v3
  const NewTokens fresh{{keys, values, key_token, key_head, value_token, value_head, k_scale, v_scale, k_scale_stride, v_scale_stride},
                        kv_pages, page_stride, slot_stride, head_stride, block_tables, table_row, page_size, features, kv_heads};
#pragma unroll 1
  for (int64_t token = int64_t{block_x()} * WARPS + warp(); token < tokens; token += int64_t{grid_x()} * WARPS)
    fresh.write({query_start_loc, context_lens, distribution[2], tokens}, token);
  grid_barrier();  // what is read below is written by then, by whichever block
$end
  char* memory = dynamic_shared();
  const int count = ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, group_count = static_cast<int>(groups);
  const Shares shares(query_start_loc, context_lens, count, static_cast<int>(passes), static_cast<int>(chunk_log), window_left, is_given(tree_mask_view), grid_x());
  RaggedPlace first, last;
  shares.find(block_x(), first, last);
  RaggedWalk<Shares> walk(shares, first, last);
  const RaggedCache cache{reinterpret_cast<const char*>(kv_pages), page_bytes, slot_bytes, row_bytes, block_tables, table_stride, static_cast<int>(page_size)};
  Copies copies{cache, group_count, shared_pointer(memory), walk, nullptr, {}, {}};
  copies.enter_stream();
  copies.look_up();

  const RowEnd row_end{softmax_aux_view, sinks_type, static_cast<int>(heads), {out, out_token, out_head}, {${v3 ? 'nullptr, 0, 0' : 'lse, lse_token, lse_head'}}};
  zero_rest<THREADS>(row_end, query_start_loc[count], static_cast<int>(tokens));
  const Parts parts{partial, reinterpret_cast<Softmax*>(partial_softmax)};
  const Merge merge{memory, row_end, parts};
  const TileBytes bytes{memory, shared_pointer(memory)};
  Queries q;
  Outputs o;
  PerRow reference, sum, unit;
  StreamRows rows;
  const auto place_of = [&](const RaggedWalk<Shares>& at) {
    return StreamPlace(shares[at.sequence], at.pass, at.chunk, group_count, static_cast<int>(heads_a_kv_head), static_cast<int>(chunk_log));
  };
  bool enters = true, begins = false;  // the walk enters a stream; the share has its beginning
  int stage = STAGES - 1;              // to be filled next; before that STAGES - 1 are filled ahead of the walk
#pragma unroll 1
  for (int ahead = STAGES - 1; ahead > 0 || !walk.over;) {
    if (ahead == 0) {
      if (enters) {
        enters = false, begins = walk.tile == 0;
        const StreamPlace place = place_of(walk);
        rows.enter(walk, place);
        rows.load_queries(q, place, queries, query_token, query_head);
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            reference[r][i] = LOWEST, sum[r][i] = 0;
            unit[r][i] = softmax_scale * Factors{k_scale, k_scale_stride}[place.kv_head] * (CAPPED ? 1 / logits_soft_cap : LOG2_E);
          }
$if v3
        if (q_scale) round_queries(q, unit, Factors{q_scale, q_scale_stride}[place.kv_head]);
$end
        if (!CachedTile::WIDE) narrow_queries(q, unit);
#pragma unroll
        for (int f = 0; f < SLICES; ++f)
#pragma unroll
          for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
            for (int i = 0; i < 4; ++i) o[f][r][i] = 0;
      }
      if (walk.tile >= walk.end) {
        const int slot = begins && walk.ends ? -1 : Parts::slot(block_x(), begins);
        const StreamPlace place = place_of(walk);
        merge.run(o, reference, sum, place, rows.key_warps, slot, Factors{v_scale, v_scale_stride}[place.kv_head]);
        walk.next_stream();
        enters = true;
        continue;
      }
      copy_async_wait<STAGES - 2>();
      sync_block();
    }
    copies.start(stage == STAGES - 1 ? STAGES - 1 - ahead : stage);
    if (ahead > 0) {
      --ahead;
      continue;
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
    const int tile_key = (walk.first_tile + walk.tile) * TILE;
#pragma unroll 1
    for (int sub = rows.key_warp; sub < SUBS; sub += rows.key_warps) {
      if (tile_key + sub * SUB >= rows.end_key || tile_key + (sub + 1) * SUB <= rows.first_key) continue;  // no row of the warp sees one of them
      attend_keys(q, copies.k_tile(stage), copies.v_tile(stage), bytes, o, reference, sum, unit, logits_soft_cap, rows, walk, tree_mask_view, sub * TILES, tile_key + sub * SUB,
                  merge.sums(warp()));
    }
    ++walk.tile;
  }
  copy_async_wait<0>();
}

constexpr int COMBINE_WARPS = 8;

// Block (x, y): rows x, x + grid_x, ... of the stream that block y of `attend` began and did not finish. Which that is it finds out while `attend` still
// runs. Of a stream of few parts a warp adds up a row, and the block's rows are COMBINE_WARPS times as many.
KERNEL(COMBINE_WARPS * WARP, 2) combine(${parameters('combine')}) {
  const int count = ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, group_count = static_cast<int>(groups);
  const Shares shares(query_start_loc, context_lens, count, static_cast<int>(passes), static_cast<int>(chunk_log), window_left, is_given(tree_mask_view), static_cast<int>(grid));
  const RaggedCut cut = shares.begun_by(block_y());
  wait_for_previous_launch();  // also where there is nothing to do: this launch must not end before that one
  let_next_launch_go();        // not earlier: CTAs that start while those of `attend` run find free slots on few SMs only
  if (cut.first_block == cut.last_block) return;
  const RowEnd row_end{softmax_aux_view, sinks_type, static_cast<int>(heads), {out, out_token, out_head}, {${v3 ? 'nullptr, 0, 0' : 'lse, lse_token, lse_head'}}};
  const Parts parts{partial, reinterpret_cast<Softmax*>(partial_softmax)};
  const StreamPlace place(shares[cut.sequence], cut.pass, cut.chunk, group_count, static_cast<int>(heads_a_kv_head), static_cast<int>(chunk_log));
  const float v_factor = Factors{v_scale, v_scale_stride}[place.kv_head];
  if (cut.last_block - cut.first_block < 8) {
#pragma unroll 1
    for (int row = block_x() * COMBINE_WARPS + warp(); row < place.count; row += COMBINE_WARPS * grid_x())
      finish_row(parts.sum(row, 0, 1, cut.first_block, cut.last_block), place, row, row_end, v_factor);
    return;
  }
  __shared__ Softmax softmaxes[COMBINE_WARPS];
  __shared__ float sums[COMBINE_WARPS][Parts::PACKS * WARP * 4];
#pragma unroll 1
  for (int row = block_x(); row < place.count; row += grid_x()) {
    const Parts::Sum mine = parts.sum(row, warp(), COMBINE_WARPS, cut.first_block, cut.last_block);
    if (lane() == 0) softmaxes[warp()] = mine.softmax;
#pragma unroll
    for (int i = 0; i < Parts::PACKS; ++i)
      store_pack(&sums[warp()][(lane() + WARP * i) * 4], Pack<float, 4>{{mine.x[i][0], mine.x[i][1], mine.x[i][2], mine.x[i][3]}});
    sync_block();
    if (warp() == 0) finish_row(sum_of_warps(softmaxes, sums), place, row, row_end, v_factor);
    sync_block();
  }
}

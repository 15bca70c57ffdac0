// Decoding on matrix instructions of a warp (mma.sync): the products, the softmax and the entries of page_attention and of kernels like it.
// Part of a template, which has defined before: Element, Cached, D, D16, SLICES, WARPS, THREADS, TEAM_WARPS, TEAMS, TILE, TILES, STAGES, ONE_GROUP,
// ROWS, ROW_TILES, CAPPED, COLUMNS, STALE; and Copies, which brings tiles of keys and values to shared memory. The value
// `paged` says whose launch arguments there are: page_attention's, or ragged_decode_attention's.
//
// Blocks share all tiles of keys of all sequences and kv heads evenly (device/attention/decode_shares.h), by lengths that they read themselves.
// In a block teams of TEAM_WARPS warps take every TEAMS-th tile of a stream, each with copies, softmax and outputs of its own, and without
// waiting for the others; at the end of a stream their parts are added up. The query heads of a kv head are the rows of the products,
// padded to 16 a warp. A stream that one block has whole goes to `out`; parts of it go to `partial`, and `combine` adds them up.
#pragma once

#include "device/attention/product_type.h"

// What a stream costs beside its tiles, in tiles: about 3 us, in which a block reads 96 KB if it has an SM to itself.
constexpr int SETUP = 96 * 1024 / ${blocks} / Copies::STAGE_BYTES + 1;

#include "device/attention/query_types.h"

// Shared memory: the teams' stages, sums of outputs, softmaxes.
constexpr int PITCH = COLUMNS + 4;
constexpr int SUMS = TEAMS * STAGES * Copies::STAGE_BYTES, SOFTMAXES = SUMS + WARPS * ROWS * PITCH * 4;
static_assert(SOFTMAXES + WARPS * ROWS * 8 == ${shared}, "the spec has another size");

#include "device/attention/element_pairs.h"

// The warp's rows of a stream, `count` of them.
static inline void load_queries(Queries& q, const Element* rows, int64_t stride, int count) {
  const Element* at = rows + lane() / 4 * stride;
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int feature = slice * 16 + CachedTile::query_feature(i);
        q[slice][r][i] = 0;
        if (lane() / 4 + 8 * r < count && (D % 16 == 0 || feature < D))
          q[slice][r][i] = *reinterpret_cast<const uint32_t*>(at + 8 * r * stride + feature);
      }
}

#include "device/attention/narrow_queries.h"

// Dot products to scores in units of log 2; keys that are not visible to -inf. `first`: the tile's first key.
static inline void adjust(Scores& s, const PerRow& unit, float soft_cap, const VisibleKeys<TILE>& keys, int first) {
  const bool whole = keys.has_all(first);
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool visible = whole || keys.has(first + 16 * m + lane() / 4 + i / 2 * 8);
#pragma unroll
      for (int r = 0; r < ROW_TILES; ++r) {
        float x = s[m][r][i] * unit[r][i % 2];
        if (CAPPED) x = soft_cap * LOG2_E * tanh_of(x);
        s[m][r][i] = visible ? x : -INFINITE;
      }
    }
}

#include "device/attention/weigh_rows.h"

static inline void attend(const Queries& q, const Copies& copies, int stage, Outputs& o, PerRow& reference, PerRow& sum, const PerRow& unit,
                          float soft_cap, const VisibleKeys<TILE>& keys, int first) {
  Scores s;
  copies.k_tile(stage).multiply<Product>(s, q);
  adjust(s, unit, soft_cap, keys, first);
  weigh(s, o, reference, sum);
  uint32_t p[TILES][ROW_TILES][2];
#pragma unroll
  for (int m = 0; m < TILES; ++m)
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) p[m][r][i] = transpose_matrix(pack_pair<Product>(s[m][r][2 * i], s[m][r][2 * i + 1]));
  copies.v_tile(stage).add_values<Product>(o, p);
}

using Parts = PageParts<D, TEAM_WARPS * ROWS>;

// The block's sums of a stream.
struct Merge {
  char* memory;
  const RowEnd& rows;
  const Parts& parts;

  Softmax* softmax(int w) const { return reinterpret_cast<Softmax*>(memory + SOFTMAXES) + w * ROWS; }
  float* sums(int w) const { return reinterpret_cast<float*>(memory + SUMS) + w * ROWS * PITCH; }

  void put_softmax(const PerRow& reference, const PerRow& sum) const {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float all = sum_of_fragment_column(sum[r][i]);
        const int row = r * 8 + lane() % 4 * 2 + i;
        if (lane() < 4 && row < ROWS) softmax(warp())[row] = {reference[r][i], all};
      }
  }
  void put_outputs(const Outputs& o, int first) const {
#pragma unroll
    for (int f = 0; f < SLICES; ++f)
#pragma unroll
      for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = r * 8 + lane() % 4 * 2 + i % 2;
          if (f * 16 >= first && f * 16 < first + COLUMNS && row < ROWS)
            sums(warp())[row * PITCH + f * 16 - first + CachedTile::output_feature(i / 2)] = o[f][r][i];
        }
  }
  // Of the teams' softmaxes of a row.
  Softmax merged(int row) const {
    Softmax all{LOWEST, 0};
#pragma unroll
    for (int t = 0; t < TEAMS; ++t) all.reference = larger_of(all.reference, softmax(t * TEAM_WARPS + row / ROWS)[row % ROWS].reference);
#pragma unroll
    for (int t = 0; t < TEAMS; ++t) {
      const Softmax& one = softmax(t * TEAM_WARPS + row / ROWS)[row % ROWS];
      all.sum += one.sum * factor_of(one, all.reference);
    }
    return all;
  }

  // Rows [0, count) of the stream, features [first, first + COLUMNS); to `slot`, or if that is negative to out, from query head `head` on.
  void store(int first, int count, int sequence, int head, int slot, float v_scale) const {
    constexpr int PACKS = COLUMNS / 4;
#pragma unroll 1
    for (int i = thread_x(); i < count * PACKS; i += THREADS) {
      const int row = i / PACKS, column = i % PACKS * 4;
      if (first + column >= D) continue;
      const Softmax all = merged(row);
      float x[4] = {};
#pragma unroll
      for (int t = 0; t < TEAMS; ++t) {
        const int w = t * TEAM_WARPS + row / ROWS;
        const float factor = factor_of(softmax(w)[row % ROWS], all.reference);
        const Pack<float, 4> part = load_pack<4>(sums(w) + row % ROWS * PITCH + column);
#pragma unroll
        for (int k = 0; k < 4; ++k) x[k] += part.at[k] * factor;
      }
      if (slot >= 0) {
        store_pack(parts.row(slot, row) + first + column, Pack<float, 4>{{x[0], x[1], x[2], x[3]}});
        if (first + column == 0) parts.softmax(slot, row) = all;
        continue;
      }
      const Softmax end = rows.with_sinks(all, head + row);
      rows.store<Element>(sequence, head + row, first + column, x, scale_of(all, end) * v_scale);
      if (first + column == 0) rows.store_lse(sequence, head + row, end);
    }
  }

  // Every thread must call it.
  void run(const Outputs& o, const PerRow& reference, const PerRow& sum, int count, int sequence, int head, int slot, float v_scale) const {
    put_softmax(reference, sum);
#pragma unroll
    for (int first = 0; first < D16; first += COLUMNS) {
      put_outputs(o, first);
      sync_block();
      store(first, count, sequence, head, slot, v_scale);
      sync_block();
    }
  }
};

KERNEL(THREADS, ${blocks}) decode(${parameters('decode')}) {
  wait_for_previous_launch();
  let_next_launch_go();
  char* memory = dynamic_shared();
  const Lengths<TILE> lengths{${paged ? 'context_lens' : 'sequence_start, sequence_end'}, static_cast<int>(sequences), window_left};
  const int streams = static_cast<int>(streams_a_sequence), groups = ONE_GROUP ? 1 : static_cast<int>(streams_a_kv_head);
  const int heads_a_kv_head = static_cast<int>(rows_a_kv_head);
  const Shares<TILE, SETUP> shares(lengths, streams, grid_x(), blocks_inverse);
  Place first, last;
  shares.find(block_x(), first, last);
  Walk<TILE> walk(lengths, streams, first, last);
$if paged
  const KeyCache keys{reinterpret_cast<const char*>(key_cache), key_page, key_head, key_slot};
  const KeyCache values{reinterpret_cast<const char*>(value_cache), value_page, value_head, value_slot};
$else
  const KeyCache keys{reinterpret_cast<const char*>(key), key_sequence, key_head, key_token};
  const KeyCache values{reinterpret_cast<const char*>(value), value_sequence, value_head, value_token};
$end
  const int team = warp() / TEAM_WARPS, row_warp = warp() % TEAM_WARPS;
  Copies copies{keys, values, ${paged ? 'block_tables, table_stride, static_cast<int>(page_size), ' : ''}groups,
                shared_pointer(memory) + team * STAGES * Copies::STAGE_BYTES, team, thread_x() % (TEAM_WARPS * WARP), walk, nullptr, nullptr${paged ? ', {}, {}' : ''}};
  copies.enter_stream();
  copies.look_up();

  const RowEnd row_end{softmax_aux_view, sinks_type, heads_a_kv_head * (streams / groups), {out, out_sequence, out_head},
                       {lse, lse_sequence, lse_head}};
  const Parts parts{partial, reinterpret_cast<Softmax*>(partial_softmax)};
  const Merge merge{memory, row_end, parts};
  Queries q;
  Outputs o;
  PerRow reference, sum, unit;
  bool enters = true, begins = false, ends = false;  // the walk enters a stream; the share has its beginning, its end
  int stage = STAGES - 1, head = 0, left = 0;        // stage: to be filled next; before that STAGES - 1 are filled ahead of the walk
#pragma unroll 1
  for (int ahead = STAGES - 1; ahead > 0 || !walk.is_over();) {
    if (ahead == 0) {
      const int kv_head = walk.stream / groups;
      if (enters) {
        enters = false, begins = walk.tile == 0, ends = walk.end == walk.keys.tiles();
        const int first_row = (walk.stream - kv_head * groups) * TEAM_WARPS * ROWS;
        head = kv_head * heads_a_kv_head + first_row, left = heads_a_kv_head - first_row;
        load_queries(q, query + walk.sequence * query_sequence + (head + row_warp * ROWS) * query_head, query_head, left - row_warp * ROWS);
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            reference[r][i] = LOWEST, sum[r][i] = 0;
            unit[r][i] = softmax_scale * ${paged ? 'Factors{k_scale, k_scale_stride}[kv_head]' : '1'} * (CAPPED ? 1 / logits_soft_cap : LOG2_E);
          }
        if (!CachedTile::WIDE) narrow_queries(q, unit);
        clear(o);
      }
      if (walk.tile >= walk.end) {
        const int slot = begins && ends ? -1 : Parts::slot(block_x(), begins);
        merge.run(o, reference, sum, smaller_of(left, TEAM_WARPS * ROWS), walk.sequence, head, slot,
                  ${paged ? 'Factors{v_scale, v_scale_stride}[kv_head]' : '1'});
        walk.next_stream();
        enters = true;
        continue;
      }
      copy_async_wait<STAGES - 2>();
      if (TEAM_WARPS == 1) sync_warp();
      else sync_block();
    }
    copies.start(stage == STAGES - 1 ? STAGES - 1 - ahead : stage);
    if (ahead > 0) {
      --ahead;
      continue;
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
    if (walk.tile + team < walk.end)
      attend(q, copies, stage, o, reference, sum, unit, logits_soft_cap, walk.keys, (walk.keys.first_tile() + walk.tile + team) * TILE);
    walk.tile += TEAMS;
  }
  copy_async_wait<0>();
}

constexpr int COMBINE_WARPS = 8;

// Block (x, y) adds up rows of a stream that blocks share: where there are no more streams than blocks of `decode`, of stream y; else of the
// one that block y of `decode` began and did not finish. Which that is it finds out while `decode` still runs.
KERNEL(COMBINE_WARPS * WARP, 3) combine(${parameters('combine')}) {
  const Lengths<TILE> lengths{${paged ? 'context_lens' : 'sequence_start, sequence_end'}, static_cast<int>(sequences), window_left};
  const int streams = static_cast<int>(streams_a_sequence), groups = ONE_GROUP ? 1 : static_cast<int>(streams_a_kv_head);
  const int heads_a_kv_head = static_cast<int>(rows_a_kv_head);
  const Shares<TILE, SETUP> shares(lengths, streams, static_cast<int>(grid), blocks_inverse);
  const Cut cut = static_cast<int>(sequences) * streams <= grid ? shares.stream(block_y()) : shares.begun_by(block_y());
  wait_for_previous_launch();  // also where there is nothing to do: this launch must not end before that one
  let_next_launch_go();        // not earlier: CTAs that start while those of `decode` run find free slots on few SMs only
  if (cut.first_block == cut.last_block) return;
  const int kv_head = cut.stream / groups, in_kv_head = (cut.stream - kv_head * groups) * TEAM_WARPS * ROWS;
  const Parts parts{partial, reinterpret_cast<Softmax*>(partial_softmax)};
  const RowEnd row_end{softmax_aux_view, sinks_type, heads_a_kv_head * (streams / groups), {out, out_sequence, out_head},
                       {lse, lse_sequence, lse_head}};
  const int rows = smaller_of(heads_a_kv_head - in_kv_head, TEAM_WARPS * ROWS), head = kv_head * heads_a_kv_head + in_kv_head;
  parts.add_up<Element, COMBINE_WARPS>(row_end, block_x(), static_cast<int>(row_warps_log), rows, cut, head,
                                       ${paged ? 'Factors{v_scale, v_scale_stride}[kv_head]' : '1'});
}

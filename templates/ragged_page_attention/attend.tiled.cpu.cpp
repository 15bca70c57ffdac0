// ragged_page_attention, tiled: a work item takes a chunk of query rows of one kv head, or a part of their keys.
//
// A row is one new token of one of the query heads that share the kv head: row = token * heads + head. A sequence of one new token goes
// through page_attention's rows, straight from its pages, kv heads in turn; others through flash_attention's tiles, in registers or on AMX, for which
// blocks of keys and values are copied (and widened) into the worker's scratch once a work item, and serve all its row tiles. Parts are put together by a
// second launch.
#include "device/cpu.h"
#include "device/number/widen_bytes.h"
#include "device/attention/attention_chunk.h"
#include "device/attention/decode_rows.h"
#include "device/matrix/panel.h"
#include "device/number/quantise.h"
#include "ragged_page_attention/ragged_batch.h"

using Element = ${ctype(E)};
using Cached = ${ctype(C)};
constexpr int64_t D = ${D};              // features of a head
constexpr int64_t BLOCK_N = ${block_n};  // keys a block
$if amx
$require E == 'bf16' and D % 8 == 0 and block_n % 32 == 0
constexpr int VECTORS = 2;                           // vectors of query rows of a tile
constexpr int64_t BLOCK_M = 32;                      // query rows a tile: two AMX tiles
constexpr int64_t OUTPUT_ROWS = (D + 31) / 32 * 32;  // features of a tile's outputs
static_assert(LANES == 16, "AMX machines have 512-bit vectors");
$else
$require D % 8 == 0 and block_n % 16 == 0
$require 8 % panel == 0
constexpr int PANEL = ${panel};                                   // keys, or output features, of a register tile
constexpr int VECTORS = ${vectors};                               // vectors of query rows of a register tile
constexpr int64_t BLOCK_M = VECTORS * LANES;                      // query rows a tile
constexpr int64_t OUTPUT_ROWS = (D + LANES - 1) / LANES * LANES;  // features of a tile's outputs
constexpr int64_t VALUE_PANEL = BLOCK_N * PANEL + 16;             // floats of a panel of values: a power of two would put all in one cache set
$end
constexpr int ROWS = ${rows};                  // query heads that meet a key at once, of a sequence of one new token
constexpr int FEW_KEYS = 32 / sizeof(Cached);  // keys a block of such a sequence: at least a vector of scores
constexpr int BLOCK = FEW_KEYS > LANES / ROWS ? FEW_KEYS : LANES / ROWS;
using Rows = DecodeRows<Cached, D, D, ROWS, BLOCK>;
using Places = Rows::Places;

#include "device/attention/decode_keys.h"
#include "device/attention/page_places.h"
#include "ragged_page_attention/pages_cpu.h"
#include "ragged_page_attention/results_cpu.h"
#include "ragged_page_attention/tiles_cpu.h"
#include "ragged_page_attention/token_cpu.h"
$if v3
#include "ragged_page_attention/write.cpu.h"
$end

// Item number `item` of those that are up to `item_rows` rows of one sequence each: its sequence, and the first of its rows. False: there are fewer.
// The chunks of a sequence are taken from the last to the first: the longest go first.
static bool find_item(const RaggedBatch& batch, int64_t item, int64_t item_rows, int64_t token_rows, RaggedSequence& sequence, int64_t& first_row) {
  for (int64_t n = 0; n <= batch.count; ++n) {
    sequence = batch[n];
    const int64_t items = (sequence.queries * token_rows + item_rows - 1) / item_rows;
    first_row = (items - 1 - item) * item_rows;
    if (item < items) return true;
    item -= items;
  }
  return false;
}

// Item (x, y, z): part z of the keys of the x-th chunk of `tiles` row tiles, kv head y; of a sequence of one new token, kv heads y ...
// y + heads_together - 1 take turns with blocks of keys, if y is a multiple of that.
static void attend(${parameters('attend')}, const Group& group) {
  const int64_t kv_head = group.y, heads = queries_view.shape[1], item_rows = tiles * BLOCK_M;
  const RaggedBatch batch{query_start_loc, context_lens, ${v3 ? 'distribution[2]' : 'num_seqs[0]'}, queries_view.shape[0]};
  RaggedSequence sequence{};
  int64_t first_row = 0;
  if (!find_item(batch, group.x, item_rows, rows_a_head, sequence, first_row)) return;
  const auto call_of = [&](int64_t h) {
    return HeadCall{{queries_view, ${v3 ? 'q_scale ? q_scale + h * q_scales : nullptr' : 'nullptr'}, softmax_aux_view, sinks_type,
                     group.z == 0 && sequence.number < batch.count},
                    {out_view, ${v3 ? 'View{nullptr, -1, {}, {}}' : 'lse_view'}, partial, parts, group.z, heads, Scales{v_scale, v_scales}[h]},
                    softmax_scale * Scales{k_scale, k_scales}[h]};
  };
  const int32_t* table = block_tables + sequence.number * table_row;
  const Cached* keys = kv_pages + 2 * kv_head * head_stride;
  if (sequence.queries == 1 && !is_given(tree_mask_view)) {
    if (kv_head % heads_together != 0) return;
    const TokenHeads some{kv_head * rows_a_head + first_row, smaller(heads_together, group.grid_y - kv_head), rows_a_head,
                          smaller(item_rows, rows_a_head - first_row)};
    const KeyRange all = visible_keys({true, window_left, -1}, 0, sequence.old_keys(), sequence.keys);
    const PageStrides strides{page_stride, slot_stride, 2 * head_stride};
    return attend_token(group, sequence.first, some, {keys, keys + head_stride, table, strides, strides, ps},
                        part_of(all.first, all.end, group.z, parts), logits_soft_cap, [&](int64_t h) { return call_of(kv_head + h); });
  }
  const RaggedPages pages{keys, keys + head_stride, table, page_stride, slot_stride, ps};
  const HeadCall call = call_of(kv_head);
  attend_tiles(group, sequence, pages, call.results, call.source, tree_mask_view, kv_head, first_row, tiles, rows_a_head, window_left, call.scale,
               logits_soft_cap);
}

// Item (x, y): the parts of query head x of token y, put together.
static void combine(${parameters('combine')}, const Group& group) {
  const int64_t head = group.x, token = group.y;
  const Rows::Whole whole(partial + (token * group.grid_x + head) * parts * Rows::PART, parts);
  const Results results{out_view, ${v3 ? 'View{nullptr, -1, {}, {}}' : 'lse_view'}, nullptr, 1, 0, group.grid_x, Scales{v_scale, v_scales}[head / rows_a_head]};
  results.store(token, head, whole.values, whole.maximum, whole.sum);
}

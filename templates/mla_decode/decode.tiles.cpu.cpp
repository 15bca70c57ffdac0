// mla_decode, tiles: a work item takes a part of a sequence's keys for up to 128 of its query rows (query tokens times heads; of a list of slots, heads),
// a tile of keys at a time, which is read from memory once for all of them; parts are put together by a second launch. Products are made in registers, or
// on AMX.
#include "device/cpu.h"

using Cached = ${ctype(C)};
constexpr int64_t R = ${R}, ROPE = ${Dr};  // features of a key that are its value, and others
constexpr int VECTORS = ${vectors};        // of query rows that meet a key at once
constexpr int BLOCK = ${block_n};          // keys a tile
#include "mla_decode/latent_keys.h"
#include "mla_decode/key_places.h"
#include "mla_decode/group_softmax.h"
$if amx
$require R % 32 == 0 and (C == 'bf16' or R % 128 == 0)
#include "mla_decode/amx_key_tile.h"
#include "mla_decode/amx_row_group.h"
$else
constexpr int AT_ONCE = ${at_once};  // keys, or features of values, that query rows meet at once
$require R % 16 == 0
$require block_n % at_once == 0
#include "mla_decode/key_tile.h"
#include "mla_decode/row_group.h"
$end
#include "mla_decode/group_rows.h"

// A worker's; as many groups as its rows need.
struct Scratch {
  KeyTile tile;
  alignas(64) Scores scores;
  RowGroup groups[1];
};

// Item (x, y, z): part x of the keys of sequence z (of a list, of query z % queries of a sequence) for rows y * item_rows ...
static void decode(${parameters('decode')}, const Group& group) {
  const RowsOfCall call{q_latent_view, q_rope_view, out_view, lse_view, is_given(indices_view), query_type};
  const int64_t part = group.x, first_row = group.y * item_rows, sequence = call.sequence(group.z), query = call.query(group.z);
  const int64_t count = call.rows() - first_row < item_rows ? call.rows() - first_row : item_rows, own_groups = (count + GROUP - 1) / GROUP;
  Scratch& scratch = *static_cast<Scratch*>(group.shared);
  RowGroup* all = scratch.groups;

  const LatentCache rows{cache ? cache : kv_latent, cache ? cache + rope_at : k_rope, latent_outer, latent_inner, rope_outer, rope_inner, page_size};
  const LatentKeys keys{rows, block_tables ? block_tables + sequence * table_row : nullptr,
                        call.listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + query * indices_view.strides[1]
                                    : nullptr,
                        sequence};
  const int64_t length = call.listed ? indices_view.shape[2] : context_lens ? context_lens[sequence] : tokens;
  for (int64_t g = 0; g < own_groups; ++g) call.load(all[g], group.z, first_row + g * GROUP, length);

  const Range range = part_of(0, all[own_groups - 1].softmax.last_limit(), part, parts);
  const Scoring scoring(softmax_scale, logits_soft_cap);
  KeyPlaces places[2];
  int now = 0;
  places[now].find(keys, range.begin, range.end);
  start_products();
  for (; places[now].count > 0; now = 1 - now) {
    KeyPlaces& next = places[1 - now];
    next.find(keys, places[now].end, range.end);
    scratch.tile.load(places[now], next);
    for (int64_t g = 0; g < own_groups; ++g) {
      if (g == 0)
        all[g].score<true>(scratch.tile, scratch.scores, places[now], next);
      else
        all[g].score<false>(scratch.tile, scratch.scores, places[now], next);
      all[g].attend(scratch.tile, scratch.scores, places[now], scoring);
    }
  }
  end_products();

  for (int64_t g = 0; g < own_groups; ++g) {
    const int64_t number = group.y * (item_rows / GROUP) + g;
    if (parts > 1)
      all[g].store_part(partial + ((group.z * groups + number) * parts + part) * GroupSoftmax::PART);
    else
      call.store(all[g].values(scratch.tile), all[g].softmax.maximum, all[g].softmax.sum, group.z, number * GROUP, 0, R);
  }
}

// Item (x, y, z): 64 features of group y of the rows of sequence z, from x * 64 on: their parts put together.
static void combine(${parameters('combine')}, const Group& group) {
  const RowsOfCall call{q_latent_view, q_latent_view, out_view, lse_view, is_given(indices_view), query_type};
  const int64_t first = group.x * WholeGroup::FEATURES, count = R - first < WholeGroup::FEATURES ? R - first : WholeGroup::FEATURES;
  const WholeGroup whole(partial + (group.z * group.grid_y + group.y) * parts * GroupSoftmax::PART, parts, first, count);
  call.store(whole.output[0], whole.maximum, whole.sum, group.z, group.y * GROUP, first, count);
}

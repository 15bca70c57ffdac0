// native_sparse_attention, forward, on Hopper: a block of threads has a token of a kv head a warp. One more warp copies every tile of 64 keys that any of
// them sees into a ring; a warp passes over tiles that its token does not see, and nothing else holds it up.
#include "device/gpu.h"
#include "device/attention/attention.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
constexpr int GROUPS = 3, TOKENS = 4 * GROUPS;  // warpgroups of a token a warp
constexpr uint32_t STAGES = ${stages};
constexpr int THREADS = (GROUPS + 1) * WARPGROUP, COPY_REGISTERS = 32, CONSUMER_REGISTERS = 160;
// More registers than the block begins with never come, and the warpgroup that waits for them hangs.
static_assert(GROUPS * CONSUMER_REGISTERS + COPY_REGISTERS <= (GROUPS + 1) * (65536 / THREADS / 8 * 8), "fewer registers or warpgroups");
$require D % 64 == 0 and Dv % 64 == 0
#include "native_sparse_attention/sm90_token_items.h"
#include "native_sparse_attention/sm90_warp_token.h"
constexpr uint32_t BITS_AT = STAGES * STAGE_BYTES;
$if gated
constexpr int SELECTORS = ${selectors}, SELECT_BLOCKS = ${select_blocks}, MEANS_THREADS = 128, KEYS = KEYS_A_TILE;
constexpr uint32_t SELECT_STAGES = ${select_stages};
#include "native_sparse_attention/sm90_select_entry.h"

#include "native_sparse_attention/sm90_mean_entry.h"
$end

// The items of a block of threads, one after the other, whose tiles come through one ring.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  __shared__ TileRing ring;
  const int words = static_cast<int>(block_words), size = static_cast<int>(block_size);
  const TokenItems items{static_cast<int>(q_view.shape[0]), static_cast<int>(q_view.shape[1]), static_cast<int>(q_view.shape[2] / heads_a_kv_head), static_cast<int>(heads_a_kv_head)${packed ? ', cum_seqlens, sequences' : ''}};
  const uint32_t base = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024;
  if (thread_x() == 0) ring.start();
  sync_block();
  if (uniform(warpgroup()) == GROUPS) {
    give_registers<COPY_REGISTERS>();
    Producer producer{base, ring, nullptr, words, size, 0, items.tokens, 0, 0, {}${packed ? ', 0' : ''}};
$if packed
    const auto load_bits = [&](uint32_t* own, const TokenItem& item, int number) {
      const bool exists = number < item.length, there = exists && !item.of_none;
      const int token = item.start + number;
$else
    const auto load_bits = [&](uint32_t* own, const TokenItem& item, int token) {
      const bool there = token < items.tokens;
$end
$if gated
      if (is_given(g_slc_view) && is_given(block_indices_view)) {
        load_named_bits(own, words, block_indices_view, block_counts_view, item.batch, there ? token : 0, item.kv_head, named_blocks, block_size, there${packed ? ', item.start' : ''});
      } else {
$if lists
        const int64_t row = (static_cast<int64_t>(item.batch) * items.kv_heads + item.kv_head) * items.tokens + token;
        load_listed_bits(own, words, block_lists + row * listed_blocks, is_given(g_slc_view) && there ? static_cast<int>(listed_blocks) : 0);
$else
        const int32_t* const from = block_bits + ((static_cast<int64_t>(item.batch) * items.kv_heads + item.kv_head) * items.tokens + token) * words;
#pragma unroll 1
        for (int word = lane(); word < words; word += WARP) own[word] = is_given(g_slc_view) && there ? static_cast<uint32_t>(from[word]) : 0;
        sync_warp();
$end
      }
$if packed
      if (exists && item.part == 0 && (item.of_none || !is_given(g_slc_view) || is_given(block_indices_view)))
        store_selected(selected_view, is_given(g_slc_view) && there ? own : nullptr, item.batch, token, item.kv_head, number / size);
$else
      if (there && item.part == 0 && (!is_given(g_slc_view) || is_given(block_indices_view)))
        store_selected(selected_view, is_given(g_slc_view) ? own : nullptr, item.batch, token, item.kv_head, token / size);
$end
$else
      load_named_bits(own, words, block_indices_view, block_counts_view, item.batch, there ? token : 0, item.kv_head, named_blocks, block_size, there${packed ? ', item.start' : ''});
$end
    };
    serve_items(items, reinterpret_cast<uint32_t*>(dynamic_shared() + (base - shared_pointer(dynamic_shared())) + BITS_AT), words, load_bits, [&](const TokenItem& item, const uint32_t* bits) {
      producer.bits = bits, producer.first_token = item.first_token, producer.kv_head = item.kv_head, producer.batch = item.batch;
$if packed
      producer.start = item.start, producer.tokens = item.of_none ? 0 : item.length;
$end
      producer.copy_blocks(k_map, v_map);
$if gated
      if (is_given(g_cmp_view))
        producer.copy_means(reinterpret_cast<const char*>(mean_tiles) +
$if packed
                            (item.kv_head * tiles_of_means + first_tile_of_means(item.sequence, item.start, block_size)) * STAGE_BYTES,
$else
                            (static_cast<int64_t>(item.batch) * items.kv_heads + item.kv_head) * ((means + KEYS_A_TILE - 1) / KEYS_A_TILE) * STAGE_BYTES,
$end
                            STAGE_BYTES);
$end
      producer.finish();
    });
    return;
  }
  take_registers<CONSUMER_REGISTERS>();
  const Heads<const Element> q(q_view);
  Turn<STAGES> turn;
#pragma unroll 1
  for (int i = 0; i < items.own_count(); ++i) {
$if packed
    const TokenItem item = items.own(i);
    if (!item.is_there()) continue;
    const int of = uniform(warp()), number = item.first_token + of, token = item.start + number;
    const int end = item.of_none ? 0 : number + 1;  // of the keys that the token may see
    const auto heads = [&] { return static_cast<int>(keep_here(number)) < item.length ? item.heads : 0; };  // that are there
$else
    const TokenItem item = items.own(i);
    const int of = uniform(warp()), token = item.first_token + of;
    const auto heads = [&] { return static_cast<int>(keep_here(token)) < items.tokens ? item.heads : 0; };  // that are there
$end
    WarpToken own{base, softmax_scale * LOG2_E, {}, {}, {}, {}, 0, 0};
    own.start(q.row(item.batch, token < items.tokens ? token : 0, item.first_head), q.head_stride, heads());
    float gate[2] = {1, 1}, lse[2];
    own.meet_tiles<TILE_OF_BLOCKS>(ring, turn, 1u << of, ${packed ? 'end' : 'token + 1'}, gate);
$if gated
#pragma unroll
    for (int r = 0; r < 2; ++r) gate[r] = own.head_of(r) < heads() && is_given(g_slc_view) ? gate_of(g_slc_view, item.batch, token, item.first_head + own.head_of(r)) : 0;
$end
    own.end_blocks(gate, lse);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int head = item.first_head + own.head_of(r);
      if (own.head_of(r) >= heads() || lane() % 4 != 0) continue;
$if gated
      store_branch_lse(branch_lse_view, item.batch, token, head, BLOCKS, lse[r] * LN_2);
      store_branch_lse(branch_lse_view, item.batch, token, head, WINDOW, -INFINITE);
      if (!is_given(g_cmp_view)${packed ? ' || end == 0' : ''}) store_branch_lse(branch_lse_view, item.batch, token, head, MEANS, -INFINITE);
$else
      if (is_given(lse_view))
        static_cast<float*>(lse_view.data)[item.batch * lse_view.strides[0] + head * lse_view.strides[1] + token * lse_view.strides[2]] = lse[r] * LN_2;
$end
    }
$if gated
    if (is_given(g_cmp_view)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int head = item.first_head + own.head_of(r);
        const bool known = own.head_of(r) < heads()${packed ? ' && end > 0' : ''};
        gate[r] = known ? gate_of(g_cmp_view, item.batch, token, head) : 0;
        const float all = known ? mean_lse[(item.batch * q_view.shape[2] + head) * items.tokens + token] : 0;
        own.reference[r] = all > -INFINITE ? all : 0;
      }
      own.meet_tiles<TILE_OF_MEANS>(ring, turn, 1u << of, ${packed ? 'end' : '(token + 1)'} / size, gate);
    }
$end
    own.pass(ring, turn);  // the end of the item's tiles
    if (heads() > 0)
      own.store(static_cast<Element*>(out_view.data) + item.batch * out_view.strides[0] + token * out_view.strides[1] + item.first_head * out_view.strides[2], out_view.strides[2],
                heads());
  }
}

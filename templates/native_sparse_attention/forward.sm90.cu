// native_sparse_attention, forward, on Hopper: a block of threads has a token of a kv head a warp. One more warp copies every tile of 64 keys that any of
// them sees into a ring; a warp passes over tiles that its token does not see, and nothing else holds it up.
#include "device/gpu.h"
#include "device/attention/attention.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
constexpr int GROUPS = ${groups}, TOKENS = 4 * GROUPS;
constexpr uint32_t STAGES = ${stages};
constexpr int THREADS = (GROUPS + 1) * WARPGROUP, COPY_REGISTERS = 24, CONSUMER_REGISTERS = GROUPS == 3 ? 160 : 240;
// More registers than the block begins with never come, and the warpgroup that waits for them hangs.
static_assert(GROUPS * CONSUMER_REGISTERS + COPY_REGISTERS <= (GROUPS + 1) * (65536 / THREADS / 8 * 8), "fewer registers or warpgroups");
$require D % 64 == 0 and Dv % 64 == 0
#include "native_sparse_attention/sm90_warp_token.h"
// In shared memory: read again where it is needed, for registers are few.
struct Notes {
  TileRing ring;
  int first_token, first_head, heads, batch;
};
constexpr uint32_t BITS_AT = STAGES * STAGE_BYTES;
$if gated
constexpr int SELECTORS = ${selectors}, SELECT_BLOCKS = ${select_blocks}, MEANS_THREADS = 128, KEYS = KEYS_A_TILE;
constexpr uint32_t SELECT_STAGES = ${select_stages};
#include "native_sparse_attention/sm90_select_entry.h"

#include "native_sparse_attention/sm90_mean_entry.h"
$end

// Block (x, y, z): TOKENS tokens of row z of the batch, the last first, and ROW_HEADS query heads of a kv head.
KERNEL(THREADS, 1) attend(${parameters('attend')}) {
  __shared__ Notes notes;
  const int heads = static_cast<int>(heads_a_kv_head), words = static_cast<int>(block_words), size = static_cast<int>(block_size);
  const int tokens = static_cast<int>(q_view.shape[1]), batch = block_z(), parts = (heads + ROW_HEADS - 1) / ROW_HEADS, kv_head = block_y() / parts;
  const int first_token = (grid_x() - 1 - block_x()) * TOKENS, first_head = kv_head * heads + block_y() % parts * ROW_HEADS;
  const int count = heads - block_y() % parts * ROW_HEADS < ROW_HEADS ? heads - block_y() % parts * ROW_HEADS : ROW_HEADS;
  const uint32_t base = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024;
  uint32_t* const bits = reinterpret_cast<uint32_t*>(dynamic_shared() + (base - shared_pointer(dynamic_shared())) + BITS_AT);
  if (thread_x() == 0) {
    notes.ring.start();
    notes.first_token = first_token, notes.first_head = first_head, notes.heads = count, notes.batch = batch;
  }
#pragma unroll 1
  for (int i = warp(); i < TOKENS; i += THREADS / WARP) {
    const int token = first_token + i;
    const bool there = token < tokens;
$if gated
    if (is_given(g_slc_view) && is_given(block_indices_view)) {
      load_named_bits(bits + i * words, words, block_indices_view, block_counts_view, batch, there ? token : 0, kv_head, named_blocks, block_size, there);
    } else {
#pragma unroll 1
      for (int word = lane(); word < words; word += WARP)
        bits[i * words + word] = is_given(g_slc_view) && there
                                     ? static_cast<uint32_t>(block_bits[((static_cast<int64_t>(batch) * k_view.shape[2] + kv_head) * tokens + token) * words + word])
                                     : 0;
      sync_warp();
    }
    if (there && block_y() % parts == 0 && (!is_given(g_slc_view) || is_given(block_indices_view)))
      store_selected(selected_view, is_given(g_slc_view) ? bits + i * words : nullptr, batch, token, kv_head, token / size);
$else
    load_named_bits(bits + i * words, words, block_indices_view, block_counts_view, batch, there ? token : 0, kv_head, named_blocks, block_size, there);
$end
  }
  sync_block();
  if (uniform(warpgroup()) == GROUPS) {
    give_registers<COPY_REGISTERS>();
    if (uniform(warp()) != 4 * GROUPS) return;
    Producer producer{base, notes.ring, bits, words, size, first_token, tokens, kv_head, batch, {}};
    producer.copy_blocks(k_map, v_map);
$if gated
    if (is_given(g_cmp_view))
      producer.copy_means(reinterpret_cast<const char*>(mean_tiles) +
                          (static_cast<int64_t>(batch) * k_view.shape[2] + kv_head) * ((means + KEYS_A_TILE - 1) / KEYS_A_TILE) * STAGE_BYTES,
                          STAGE_BYTES);
$end
    producer.finish();
    return;
  }
  take_registers<CONSUMER_REGISTERS>();
  const Heads<const Element> q(q_view);
  WarpToken own{base, softmax_scale * LOG2_E, {}, {}, {}, {}};
  own.start(q.row(batch, first_token + warp() < tokens ? first_token + warp() : 0, first_head), q.head_stride, first_token + warp() < tokens ? count : 0);
  Turn<STAGES> turn;
  float gate[2] = {1, 1}, lse[2];
  const uint32_t bit = 1u << uniform(warp());
  own.meet_tiles<TILE_OF_BLOCKS>(notes.ring, turn, bit, uniform(first_token + warp()) + 1, gate);
  {
    const int64_t token = notes.first_token + warp(), batch = notes.batch, first_head = notes.first_head;
    const int count = token < q_view.shape[1] ? notes.heads : 0;
$if gated
#pragma unroll
  for (int r = 0; r < 2; ++r) gate[r] = own.head_of(r) < count && is_given(g_slc_view) ? gate_of(g_slc_view, batch, token, first_head + own.head_of(r)) : 0;
$end
  own.end_blocks(gate, lse);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t head = first_head + own.head_of(r);
    if (own.head_of(r) >= count || lane() % 4 != 0) continue;
$if gated
    store_branch_lse(branch_lse_view, batch, token, head, BLOCKS, lse[r] * LN_2);
    store_branch_lse(branch_lse_view, batch, token, head, WINDOW, -INFINITE);
    if (!is_given(g_cmp_view)) store_branch_lse(branch_lse_view, batch, token, head, MEANS, -INFINITE);
$else
    if (is_given(lse_view)) static_cast<float*>(lse_view.data)[batch * lse_view.strides[0] + head * lse_view.strides[1] + token * lse_view.strides[2]] = lse[r] * LN_2;
$end
  }
$if gated
  if (is_given(g_cmp_view)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t head = first_head + own.head_of(r);
      const bool known = own.head_of(r) < count;
      gate[r] = known ? gate_of(g_cmp_view, batch, token, head) : 0;
      const float all = known ? mean_lse[(batch * q_view.shape[2] + head) * q_view.shape[1] + token] : 0;
      own.reference[r] = all > -INFINITE ? all : 0;
    }
    own.meet_tiles<TILE_OF_MEANS>(notes.ring, turn, bit, uniform(static_cast<int>((token + 1) / block_size)), gate);
  }
$end
  }
  const int64_t token = notes.first_token + warp();
  if (token < q_view.shape[1])
    own.store(static_cast<Element*>(out_view.data) + notes.batch * out_view.strides[0] + token * out_view.strides[1] + notes.first_head * out_view.strides[2],
              out_view.strides[2], notes.heads);
}

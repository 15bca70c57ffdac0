// native_sparse_attention, forward, on Hopper: a block of threads has tokens of a kv head, shared out among warpgroups. One warp copies every tile of 64
// keys that any of them sees into a ring; a warpgroup passes over tiles that none of its tokens sees, and nothing else holds it up.
#include "device/gpu.h"
#include "device/attention/attention.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
constexpr int GROUPS = ${groups}, TOKENS = ${tokens}, GROUP_TOKENS = TOKENS / GROUPS;
constexpr uint32_t STAGES = ${stages};
constexpr int CHAINS = ${chains};
constexpr int THREADS = (GROUPS + 1) * WARPGROUP, COPY_REGISTERS = 24, CONSUMER_REGISTERS = GROUPS == 3 ? 160 : 112;
// More registers than the block begins with never come, and the warpgroup that waits for them hangs.
static_assert(GROUPS * CONSUMER_REGISTERS + COPY_REGISTERS <= (GROUPS + 1) * (65536 / THREADS / 8 * 8), "fewer registers or warpgroups");
$require D % 64 == 0 and Dv % 64 == 0 and tokens % groups == 0
constexpr uint32_t WEIGHT_BYTES = 16 * 128;
#include "native_sparse_attention/forward_sm90_consumer.h"
constexpr uint32_t QUERIES_AT = STAGES * STAGE_BYTES;
constexpr uint32_t WEIGHTS_AT = QUERIES_AT + QUERY_PANEL * (D > DV ? D : DV) / 64;  // outputs take the queries' place
constexpr uint32_t BITS_AT = WEIGHTS_AT + 2 * GROUPS * WEIGHT_BYTES;
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
    notes.past = (first_token + 1) / size, notes.next_past = (notes.past + 1) * size - 1;
  }
  Producer producer{base, notes.ring, bits, words, size, first_token, tokens, kv_head, batch, {}};
  if (uniform(warp()) == 0) {  // whose first lane has made the barriers
    producer.expect_queries(QUERY_PANEL * D / 64);
    producer.copy_queries<D>(base + QUERIES_AT, q_map, first_head);
  }
$if gated
#pragma unroll 1
  for (int i = THREADS - 1 - thread_x(); i < TOKENS * ROW_HEADS; i += THREADS) {  // by warps that have no bits to load
    const int of = i / ROW_HEADS, head = i % ROW_HEADS, token = first_token + of;
    const auto known_gate = [&](const View& gate) { return token < tokens && head < count && is_given(gate) ? gate_of(gate, batch, token, first_head + head) : 0; };
    const float sum = token < tokens && head < count && is_given(g_cmp_view)
                          ? mean_lse[(static_cast<int64_t>(batch) * q_view.shape[2] + first_head + head) * tokens + token]
                          : 0;
    notes.block_gate[of][head] = known_gate(g_slc_view), notes.mean_gate[of][head] = known_gate(g_cmp_view);
    notes.mean_sum[of][head] = sum > -INFINITE ? sum : 0;
  }
$end
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
  const int group = uniform(warpgroup());
  Consumer consumer{notes, {group, notes.exchange}, base, base + QUERIES_AT, base + WEIGHTS_AT + group * 2 * WEIGHT_BYTES, softmax_scale * LOG2_E};
  consumer.start();
  barrier_wait_all(shared_pointer(&notes.ring.queries), 0);
  Turn<STAGES> turn;
  const int own_first = uniform(notes.first_token);
  consumer.meet_tiles<TILE_OF_BLOCKS>(turn, [&](int i) { return own_first + i + 1; });
  consumer.end_blocks([&](int of, int head) { return ${gated ? 'notes.block_gate[of][head]' : '1.0f'}; });
  consumer.give_sums([&](int of, int head, float lse) {
    const int64_t token = notes.first_token + of;
    if (token >= q_view.shape[1] || head >= notes.heads) return;
$if gated
    store_branch_lse(branch_lse_view, notes.batch, token, notes.first_head + head, BLOCKS, lse);
    store_branch_lse(branch_lse_view, notes.batch, token, notes.first_head + head, WINDOW, -INFINITE);
    if (!is_given(g_cmp_view)) store_branch_lse(branch_lse_view, notes.batch, token, notes.first_head + head, MEANS, -INFINITE);
$else
    if (is_given(lse_view))
      static_cast<float*>(lse_view.data)[notes.batch * lse_view.strides[0] + (notes.first_head + head) * lse_view.strides[1] + token * lse_view.strides[2]] = lse;
$end
  });
$if gated
  consumer.meet_tiles<TILE_OF_MEANS>(turn, [&](int i) { return notes.past + (notes.first_token + i >= notes.next_past ? 1 : 0); });
$end
  consumer.own.store<DV>(
      base + QUERIES_AT, [&](int i, int h) -> const Scores& { return consumer.output[i][h]; },
      [&](int i) {
        const int64_t token = notes.first_token + i;
        return token < q_view.shape[1] ? static_cast<Element*>(out_view.data) + notes.batch * out_view.strides[0] + token * out_view.strides[1] + notes.first_head * out_view.strides[2] : nullptr;
      },
      out_view.strides[2], notes.heads);
}

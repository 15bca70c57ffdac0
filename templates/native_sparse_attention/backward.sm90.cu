// Gradients of native_sparse_attention, or of its branch of blocks alone, on Hopper: of queries as forward.sm90.cu, through a ring of tiles of keys; of keys
// through lists of the tokens that select a block, whose long ones go in parts, which `finish` adds up in order.
#include "device/gpu.h"
#include "device/attention/attention.h"
#include "device/sm90.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
constexpr int GROUPS = ${groups}, TOKENS = ${queries}, GROUP_TOKENS = TOKENS / GROUPS;
constexpr uint32_t STAGES = ${stages};
constexpr int CHAINS = ${chains};
constexpr int THREADS = (GROUPS + 1) * WARPGROUP, COPY_REGISTERS = 24, CONSUMER_REGISTERS = GROUPS == 3 ? 160 : 112;
constexpr int SMALL = 128;  // threads of the small launches
constexpr uint32_t WEIGHT_BYTES = 32 * 128;
$require D % 64 == 0 and Dv % 64 == 0 and queries % groups == 0
#include "native_sparse_attention/backward_sm90_consumer.h"
#include "native_sparse_attention/gates.h"
$if packed
#include "native_sparse_attention/sm90_packed_means.h"
$end
#include "native_sparse_attention/sm90_key_entries.h"
#include "native_sparse_attention/token_row.h"
constexpr int KEYS = KEYS_A_TILE;
#include "native_sparse_attention/gradient_entries.h"
constexpr uint32_t QUERIES_AT = STAGES * STAGE_BYTES, DOUTS_AT = QUERIES_AT + QUERY_PANEL * D / 64;
constexpr uint32_t WEIGHTS_AT = DOUTS_AT + QUERY_PANEL * DV / 64, BITS_AT = WEIGHTS_AT + 2 * GROUPS * WEIGHT_BYTES;

$if gated
// Block (x, y, z): the means of block x of kv head y of row z of the batch, row by row and as they lie in shared memory.
KERNEL(SMALL, 1) find_means(${parameters('find_means')}) {
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, block_x(), block_size, false, k_view.shape[1]);
  if (!block.is_whole(block_size)) return;
  const int64_t at = static_cast<int64_t>(block_y()) * grid_x() + block_x(), first = block.of.first + block.number * block_size;
$else
  const int64_t row = static_cast<int64_t>(block_z()) * k_view.shape[2] + block_y(), at = row * grid_x() + block_x(), first = block_x() * block_size;
$end
  const auto mean = [&](const View& view) {
    const Element* from = token_row<const Element>(view, block_z(), first, block_y()) + thread_x();
    float sum = 0;
#pragma unroll 4
    for (int64_t t = 0; t < block_size; ++t) sum += to_float(from[t * view.strides[1]]);
    return from_float<Element>(sum / static_cast<float>(block_size));
  };
$if packed
  const int64_t number = block_y() * mean_tiles + first_tile_of_means(block.sequence, block.of.first, block_size) + block.number / KEYS_A_TILE;
  const int d = thread_x(), key = static_cast<int>(block.number % KEYS_A_TILE);
  Element* const tile = reinterpret_cast<Element*>(means_in_tiles) + number * (STAGE_BYTES / 2) +
$else
  const int d = thread_x(), key = block_x() % KEYS_A_TILE;
  Element* const tile = reinterpret_cast<Element*>(means_in_tiles) + (row * ((grid_x() + KEYS_A_TILE - 1) / KEYS_A_TILE) + block_x() / KEYS_A_TILE) * (STAGE_BYTES / 2) +
$end
                        d / 64 * (KEYS_A_TILE * 64) + key * 64 + (d % 64 / 8 ^ key % 8) * 8 + d % 8;
  if (d < D) *tile = reinterpret_cast<Element*>(mean_keys)[at * D + d] = mean(k_view);
  if (d < DV) tile[KEYS_A_TILE * D] = reinterpret_cast<Element*>(mean_values)[at * DV + d] = mean(v_view);
}
$end

// Block (x, y, z): TOKENS tokens of row z of the batch, the last first, and ROW_HEADS query heads of a kv head: dq, the gradients of gates, and delta.
KERNEL(THREADS, 1) differentiate_queries(${parameters('differentiate_queries')}) {
  __shared__ Notes notes;
  const int heads = static_cast<int>(heads_a_kv_head), words = static_cast<int>(block_words), size = static_cast<int>(block_size);
$if packed
  const SequencePart part = part_of_sequence(cum_seqlens, sequences, grid_x() - 1 - block_x(), TOKENS, true, q_view.shape[1]);
  if (!part.is_there(TOKENS)) return;
  const int start = static_cast<int>(part.of.first), tokens = start + static_cast<int>(part.of.length);  // the sequence's first row, and the one behind its last
  const int batch = 0, split = (heads + ROW_HEADS - 1) / ROW_HEADS, kv_head = block_y() / split;
  const int first_token = start + static_cast<int>(part.number) * TOKENS, first_head = kv_head * heads + block_y() % split * ROW_HEADS;
$else
  const int tokens = static_cast<int>(q_view.shape[1]), batch = block_z(), split = (heads + ROW_HEADS - 1) / ROW_HEADS, kv_head = block_y() / split;
  const int first_token = (grid_x() - 1 - block_x()) * TOKENS, first_head = kv_head * heads + block_y() % split * ROW_HEADS;
$end
  const int count = heads - block_y() % split * ROW_HEADS < ROW_HEADS ? heads - block_y() % split * ROW_HEADS : ROW_HEADS;
  const uint32_t base = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024;
  uint32_t* const bits = reinterpret_cast<uint32_t*>(dynamic_shared() + (base - shared_pointer(dynamic_shared())) + BITS_AT);
  if (thread_x() == 0) notes.ring.start();
$if packed
  Producer producer{base, notes.ring, bits, words, size, first_token - start, part.of_none ? 0 : tokens - start, kv_head, batch, {}, start};
$else
  Producer producer{base, notes.ring, bits, words, size, first_token, tokens, kv_head, batch, {}};
$end
  if (uniform(warp()) == 0) {  // whose first lane has made the barriers
    producer.expect_queries(QUERY_PANEL * (D + DV) / 64);
    producer.copy_queries<D>(base + QUERIES_AT, q_map, first_head);
    producer.copy_queries<DV>(base + DOUTS_AT, dout_map, first_head);
  }
#pragma unroll 1
  for (int i = warp(); i < TOKENS; i += THREADS / WARP) {
    const int token = first_token + i;
    const bool there = token < tokens${packed ? ' && !part.of_none' : ''};
$if gated
    load_named_bits(bits + i * words, words, selected_view, no_view(), batch, there ? token : 0, kv_head, named_blocks, block_size, there && is_given(g_slc_view)${packed ? ', start' : ''});
$else
    load_named_bits(bits + i * words, words, block_indices_view, block_counts_view, batch, there ? token : 0, kv_head, named_blocks, block_size, there${packed ? ', start' : ''});
$end
  }
  sync_block();
  if (uniform(warpgroup()) == GROUPS) {
    give_registers<COPY_REGISTERS>();
    if (uniform(warp()) != 4 * GROUPS) return;
    producer.copy_blocks(k_map, v_map);
$if gated
    if (is_given(g_cmp_view))
      producer.copy_means(reinterpret_cast<const char*>(means_in_tiles) +
$if packed
                              (kv_head * mean_tiles + first_tile_of_means(part.sequence, start, block_size)) * STAGE_BYTES,
$else
                              (static_cast<int64_t>(batch) * k_view.shape[2] + kv_head) * ((means + KEYS_A_TILE - 1) / KEYS_A_TILE) * STAGE_BYTES,
$end
                          STAGE_BYTES);
$end
    producer.finish();
    return;
  }
  take_registers<CONSUMER_REGISTERS>();
  const int group = uniform(warpgroup());
  GradientConsumer consumer{notes, {group, notes.exchange}, base, base + QUERIES_AT, base + DOUTS_AT, base + WEIGHTS_AT + group * 2 * WEIGHT_BYTES, softmax_scale * LOG2_E};
  consumer.start();
  barrier_wait_all(shared_pointer(&notes.ring.queries), 0);
  Turn<STAGES> turn;
#pragma unroll
  for (int branch = BLOCKS; branch >= ${gated ? 'MEANS' : 'BLOCKS'}; --branch) {
$if gated
    const View& gates = branch == MEANS ? g_cmp_view : g_slc_view;
    const View& gradients = branch == MEANS ? dg_cmp_view : dg_slc_view;
    const View& lse_view = branch_lse_view;
    if (!is_given(gates)) continue;
$end
    const auto there = [&](int i, int head) { return first_token + i < tokens && head < count; };
    consumer.start_branch(
        [&](int i, int head) {
          return there(i, head) ? static_cast<const float*>(lse_view.data)[batch * lse_view.strides[0] + (first_head + head) * lse_view.strides[1] +
                                                                           (first_token + i) * lse_view.strides[${gated ? '3' : '2'}]${gated ? ' + branch * lse_view.strides[2]' : ''}] * LOG2_E
                                : 0;
        },
        [&](int i, int head) { return there(i, head) ? ${gated ? 'gate_of(gates, batch, first_token + i, first_head + head)' : '1.0f'} : 0.0f; });
    if (branch == BLOCKS)
      consumer.meet_tiles(TILE_OF_BLOCKS, turn, [&](int i) { return first_token + i + 1${packed ? ' - start' : ''}; });
    else
      consumer.meet_tiles(TILE_OF_MEANS, turn, [&](int i) { return (first_token + i + 1${packed ? ' - start' : ''}) / size; });
    consumer.finish_branch([&](int i, int head, float of_gate) {
      if (!there(i, head)) return;
      delta[((static_cast<int64_t>(batch) * q_view.shape[2] + first_head + head) * 3 + branch) * ${packed ? 'q_view.shape[1]' : 'tokens'} + first_token + i] = of_gate;
$if gated
      if (is_given(gradients))
        static_cast<Element*>(gradients.data)[batch * gradients.strides[0] + (first_token + i) * gradients.strides[1] + (first_head + head) * gradients.strides[2]] =
            from_float<Element>(of_gate);
$end
    });
  }
  Scores dq[GROUP_TOKENS][D / 64];
#pragma unroll
  for (int i = 0; i < GROUP_TOKENS; ++i)
#pragma unroll
    for (int h = 0; h < D / 64; ++h)
#pragma unroll
      for (int e = 0; e < ROW_HEADS / 2; ++e) dq[i][h][e] = consumer.sums[i][h][e] * softmax_scale;
  consumer.own.store<D>(
      base + QUERIES_AT, [&](int i, int h) -> const Scores& { return dq[i][h]; },
      [&](int i) { return first_token + i < tokens ? token_row<Element>(dq_view, batch, first_token + i, first_head) : nullptr; }, dq_view.strides[2], count);
}

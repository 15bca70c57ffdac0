// Gradients of native_sparse_attention, or of its branch of blocks alone, on mma.sync. Queries: a token a warp, as forward. Keys: 64 at a time,
// through the tokens that select their block, of which lists are made before; a long list goes in parts, whose sums `finish` adds up in order.
#include "device/gpu.h"
#include "device/attention/attention.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP, STAGES = ${stages}, PIECES = ${keys} / 16;
constexpr int SMALL = 128;           // threads of the small launches
$require D % 16 == 0 and Dv % 16 == 0
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/gradient_tile.h"
#include "native_sparse_attention/key_sums.h"
#include "native_sparse_attention/token_lists.h"

static inline View no_view() { return {nullptr, -1, {}, {}}; }

$if gated
// Block (x, y, z): the means of block x of kv head y of row z of the batch.
KERNEL(SMALL, 1) find_means(${parameters('find_means')}) {
  const int64_t at = (static_cast<int64_t>(block_z()) * k_view.shape[2] + block_y()) * grid_x() + block_x(), first = block_x() * block_size;
  const auto mean = [&](const View& view) {
    const Element* from = token_row<const Element>(view, block_z(), first, block_y()) + thread_x();
    float sum = 0;
#pragma unroll 4
    for (int64_t t = 0; t < block_size; ++t) sum += to_float(from[t * view.strides[1]]);
    return from_float<Element>(sum / static_cast<float>(block_size));
  };
  if (thread_x() < D) reinterpret_cast<Element*>(mean_keys)[at * D + thread_x()] = mean(k_view);
  if (thread_x() < DV) reinterpret_cast<Element*>(mean_values)[at * DV + thread_x()] = mean(v_view);
}
$end

// Block (x, y, z): WARPS tokens of row z of the batch, the last first, and all query heads of kv head y: dq, the gradients of gates, and delta.
KERNEL(THREADS, 1) differentiate_queries(${parameters('differentiate_queries')}) {
  const int heads = static_cast<int>(heads_a_kv_head), words = static_cast<int>(block_words), tokens = static_cast<int>(q_view.shape[1]);
  // Row 0: of all tokens of the block; then a row each warp.
  const auto bits_of = [&](int row) {
    char* const behind = dynamic_shared() + STAGES * Stage::BYTES + WARPS * (QueryTile::BYTES + DoutTile::BYTES);
    return reinterpret_cast<uint32_t*>(behind) + static_cast<int>(later(row)) * words;
  };
  __shared__ ChunkRing ring;
  {
    const TokenPlace at(tokens);
$if gated
    load_named_bits(bits_of(1 + warp()), words, selected_view, no_view(), at.batch, at.token, at.kv_head, named_blocks, block_size,
                    at.there);
$else
    load_named_bits(bits_of(1 + warp()), words, block_indices_view, block_counts_view, at.batch, at.token, at.kv_head, named_blocks,
                    block_size, at.there);
$end
  }
  join_bits(bits_of(0), bits_of(1), words);
#pragma unroll 1
  for (int first = 0; first < heads; first += HEADS) {
    const auto head_of = [&](const TokenPlace& at) { return at.kv_head * heads + first; };
    const auto count_of = [&](const TokenPlace& at) { return !at.there ? 0 : heads - first < HEADS ? heads - first : HEADS; };
    GradientTile tile;
    {
      const TokenPlace at(tokens);
      tile.start(token_row<const Element>(q_view, at.batch, at.token, head_of(at)), q_view.strides[2],
                 token_row<const Element>(dout_view, at.batch, at.token, head_of(at)), dout_view.strides[2], count_of(at));
    }
#pragma unroll 1
    for (int branch = ${gated ? '0' : '1'}; branch < ${gated ? '3' : '2'}; ++branch) {
      const TokenPlace at(tokens);
      KeyRows<Element> rows{token_row<const Element>(k_view, at.batch, 0, at.kv_head),
                            token_row<const Element>(v_view, at.batch, 0, at.kv_head), k_view.strides[1], v_view.strides[1]};
      PieceWalk walk(bits_of(0), static_cast<int>(block_size), 0, at.last + 1);
      TokenView view{bits_of(1 + warp()), 0, at.there ? at.token + 1 : 0};
$if gated
      const View& gates = branch == MEANS ? g_cmp_view : branch == BLOCKS ? g_slc_view : g_swa_view;
      const View& gradients = branch == MEANS ? dg_cmp_view : branch == BLOCKS ? dg_slc_view : dg_swa_view;
      const View& lse_view = branch_lse_view;
      if (!is_given(gates)) continue;
      if (branch == MEANS) {
        const int64_t row = (at.batch * k_view.shape[2] + at.kv_head) * means;
        rows = {reinterpret_cast<const Element*>(mean_keys) + row * D, reinterpret_cast<const Element*>(mean_values) + row * DV, D, DV};
        walk = PieceWalk(nullptr, 1, 0, (at.last + 1) / static_cast<int>(block_size));
        view = {nullptr, 0, view.end / static_cast<int>(block_size)};
      }
      if (branch == WINDOW) {
        const auto first_seen = [&](int token) {
          return static_cast<int>(visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1).first);
        };
        walk = PieceWalk(nullptr, 1, first_seen(at.first_token), at.last + 1);
        view = {nullptr, first_seen(at.token), view.end};
      }
$end
      tile.start_branch();
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int head = lane() / 4 + 8 * r;
        const bool there = head < count_of(at);
        const float* const lse = static_cast<const float*>(lse_view.data) + at.batch * lse_view.strides[0] +
                                 (head_of(at) + head) * lse_view.strides[1] + at.token * lse_view.strides[${gated ? '3' : '2'}]${gated ? ' + branch * lse_view.strides[2]' : ''};
        const float log = there ? *lse : 0;
        tile.log_sum[r] = log > -INFINITE ? log * LOG2_E : 0;
        tile.gate[r] = ${gated ? 'there ? gate_of(gates, at.batch, at.token, head_of(at) + head) : 0' : 'there ? 1 : 0'};
      }
      tile.differentiate(rows, walk, view, ring, softmax_scale * LOG2_E);
      const TokenPlace now(tokens);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float of_gate = tile.finish_branch(r);
        const int head = head_of(now) + lane() / 4 + 8 * r;
        if (lane() / 4 + 8 * r >= count_of(now) || lane() % 4 != 0) continue;
        delta[((now.batch * q_view.shape[2] + head) * 3 + branch) * tokens + now.token] = of_gate;
$if gated
        if (is_given(gradients))
          static_cast<Element*>(gradients.data)[now.batch * gradients.strides[0] + now.token * gradients.strides[1] +
                                                head * gradients.strides[2]] = from_float<Element>(of_gate);
$end
      }
    }
    const TokenPlace at(tokens);
    tile.store(token_row<Element>(dq_view, at.batch, at.token, head_of(at)), dq_view.strides[2], count_of(at), softmax_scale);
  }
}

// The lists of row z of the batch and kv head y.
#define TOKEN_LISTS \
  const TokenLists lists{block_bits, list_counts, list_tokens, reinterpret_cast<ListPart*>(list_parts), \
                         reinterpret_cast<BlockParts*>(block_parts), static_cast<int>(tokens), static_cast<int>(blocks), \
                         static_cast<int>(block_words), static_cast<int>(listed), static_cast<int>(parts), static_cast<int>(part_tokens), \
                         static_cast<int>(block_size)}; \
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y()
KERNEL(SMALL, 1) mark_blocks(${parameters('mark_blocks')}) {
  TOKEN_LISTS;
  const View none = no_view();
$if gated
  lists.mark({selected_view, none}, kv_row, block_z(), block_y(), block_x() * SMALL + thread_x());
$else
  (void)none;
  lists.mark({block_indices_view, block_counts_view}, kv_row, block_z(), block_y(), block_x() * SMALL + thread_x());
$end
}
KERNEL(SMALL, 1) count_tokens(${parameters('count_tokens')}) {
  TOKEN_LISTS;
  const int block = static_cast<int>(block_x()) * (SMALL / WARP) + warp();
  if (block < lists.blocks) lists.count_tokens(kv_row, block);
}
KERNEL(SMALL, 1) list_tokens_of(${parameters('list_tokens_of')}) {
  TOKEN_LISTS;
  const int block = static_cast<int>(block_x()) * (SMALL / WARP) + warp();
  if (block < lists.blocks) lists.list_block(kv_row, block);
}

static inline BranchInputs inputs_of(const View& q, const View& dout, const View& lse, const View& gates, const float* delta, int branch,
                                     int heads, float unit) {
  return {q, dout, lse, gates, delta, ${gated ? 'branch * lse.strides[2]' : '0'}, branch, static_cast<int>(q.shape[2]), heads,
          static_cast<int>(block_z()), static_cast<int>(block_y()), static_cast<int>(q.shape[1]), unit};
}

// Block (x, y, z): a part of a list of kv head y of row z of the batch, and 64 keys of its block.
KERNEL(KEY_THREADS, 2) differentiate_blocks(${parameters('differentiate_blocks')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tile = static_cast<int>(block_x() % tiles_a_block), number = static_cast<int>(block_x() / tiles_a_block);
  const int tokens = static_cast<int>(q_view.shape[1]);
  const ListPart part = reinterpret_cast<const ListPart*>(list_parts)[kv_row * parts + number];
  if (part.block < 0) return;
  const int first = part.block * static_cast<int>(block_size) + tile * KEYS, left = static_cast<int>(block_size) - tile * KEYS;
  int keys = tokens - first < left ? tokens - first : left;
  if (keys > KEYS) keys = KEYS;
  if (keys <= 0) return;
  const View none = no_view();
  KeySums sums;
  sums.sum({list_tokens + kv_row * listed + part.first, 0, part.count, first, keys, -1, 0},
           inputs_of(q_view, dout_view, ${gated ? 'branch_lse_view, g_slc_view' : 'lse_view, none'}, delta, BLOCKS, static_cast<int>(heads_a_kv_head),
                     softmax_scale * LOG2_E),
           token_row<const Element>(k_view, block_z(), first, block_y()), k_view.strides[1],
           token_row<const Element>(v_view, block_z(), first, block_y()), v_view.strides[1]);
  sums.store(block_sums + (kv_row * grid_x() + block_x()) * (KEYS * (D + DV)), keys);
}

$if gated
// Block (x, y, z): 64 keys of kv head y of row z of the batch, through the tokens in whose window they are.
KERNEL(KEY_THREADS, 2) differentiate_window(${parameters('differentiate_window')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tokens = static_cast<int>(q_view.shape[1]), first = static_cast<int>(block_x()) * KEYS, keys = tokens - first < KEYS ? tokens - first : KEYS;
  const int64_t last = window_left < 0 || window_left > tokens ? tokens : first + keys + window_left;
  const int window = window_left < 0 || window_left > tokens ? -1 : static_cast<int>(window_left);
  KeySums sums;
  sums.sum({nullptr, first, static_cast<int>(last < tokens ? last : tokens) - first, first, keys, window, 0},
           inputs_of(q_view, dout_view, branch_lse_view, g_swa_view, delta, WINDOW, static_cast<int>(heads_a_kv_head), softmax_scale * LOG2_E),
           token_row<const Element>(k_view, block_z(), first, block_y()), k_view.strides[1],
           token_row<const Element>(v_view, block_z(), first, block_y()), v_view.strides[1]);
  sums.store(window_sums + (kv_row * grid_x() + block_x()) * (KEYS * (D + DV)), keys);
}

// Block (x, y, z): 64 means of kv head y of row z of the batch, through mean_tokens tokens.
KERNEL(KEY_THREADS, 2) differentiate_means(${parameters('differentiate_means')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tile = static_cast<int>(block_x() % mean_tiles), part = static_cast<int>(block_x() / mean_tiles);
  const int tokens = static_cast<int>(q_view.shape[1]), size = static_cast<int>(block_size);
  const int first = tile * KEYS, keys = static_cast<int>(means) - first < KEYS ? static_cast<int>(means) - first : KEYS;
  const int64_t end = (part + 1) * mean_tokens < tokens ? (part + 1) * mean_tokens : tokens, seen = (first + int64_t{1}) * size - 1;
  const int64_t begin = part * mean_tokens > seen ? part * mean_tokens : seen;
  const int64_t row = kv_row * means + first;
  KeySums sums;
  sums.sum({nullptr, static_cast<int>(begin), static_cast<int>(end > begin ? end - begin : 0), first, keys, -1, size},
           inputs_of(q_view, dout_view, branch_lse_view, g_cmp_view, delta, MEANS, static_cast<int>(heads_a_kv_head), softmax_scale * LOG2_E),
           reinterpret_cast<const Element*>(mean_keys) + row * D, D, reinterpret_cast<const Element*>(mean_values) + row * DV, DV);
  sums.store(mean_sums + ((part * q_view.shape[0] * grid_y() + kv_row) * means + first) * (D + DV), keys);
}
$end

// Block (x, y, z): block x of kv head y of row z of the batch: dk and dv of the sums.
KERNEL(SMALL, 1) finish(${parameters('finish')}) {
  const int64_t kv_row = static_cast<int64_t>(block_z()) * grid_y() + block_y();
  const int tokens = static_cast<int>(dk_view.shape[1]), size = static_cast<int>(block_size), first = static_cast<int>(block_x()) * size;
  const int count = tokens - first < size ? tokens - first : size;
  constexpr int ROW = D + DV;
  BlockParts own{0, 0};
  if (has_blocks) own = reinterpret_cast<const BlockParts*>(block_parts)[kv_row * grid_x() + block_x()];
$if gated
  __shared__ float of_mean[ROW];  // what each key takes of the gradient of its mean
#pragma unroll 1
  for (int d = thread_x(); d < ROW; d += SMALL) {
    float sum = 0;
    if (block_x() < means) {
#pragma unroll 4
      for (int64_t part = 0; part < mean_parts; ++part) sum += mean_sums[((part * dk_view.shape[0] * grid_y() + kv_row) * means + block_x()) * ROW + d];
    }
    of_mean[d] = sum / static_cast<float>(block_size);
  }
  sync_block();
$end
#pragma unroll 1
  for (int i = thread_x(); i < count * (ROW / 2); i += SMALL) {
    const int key = i / (ROW / 2), d = i % (ROW / 2) * 2;
    float x[2] = {0, 0};
    const auto add = [&](const float* from) { x[0] += from[0], x[1] += from[1]; };
#pragma unroll 4
    for (int part = own.first; part < own.first + own.count; ++part)
      add(block_sums + ((kv_row * parts + part) * tiles_a_block + key / KEYS) * (KEYS * ROW) + key % KEYS * ROW + d);
$if gated
    if (has_window) add(window_sums + (kv_row * window_tiles * KEYS + first + key) * ROW + d);
    add(of_mean + d);
$end
    const bool of_key = d < D;
    Element* const to = of_key ? token_row<Element>(dk_view, block_z(), first + key, block_y()) + d
                               : token_row<Element>(dv_view, block_z(), first + key, block_y()) + d - D;
    const float factor = of_key ? softmax_scale : 1;
    to[0] = from_float<Element>(x[0] * factor), to[1] = from_float<Element>(x[1] * factor);
  }
}

// Gradients of native_sparse_attention, or of its branch of blocks alone, on GPUs with matrix instructions, of warps (mma.sync) or, with `by_waves`, of
// waves (MFMA, WMMA). Queries: a token a warp or wave, as forward. Keys: 64 at a time, through the tokens that select their block, of which lists are
// made before; a long list goes in parts, whose sums `finish` adds up in order. `rows_a_lane` and the names beside it are as in forward.matrix.gpu.cu.
#include "device/gpu.h"
#include "device/attention/attention.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
$if by_waves
constexpr int WARPS = ${waves}, THREADS = WARPS * WAVE, STAGES = ${stages}, PIECES = ${keys} / 16;  // WARPS: of a token each, waves
$else
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP, STAGES = ${stages}, PIECES = ${keys} / 16;
$end
constexpr int SMALL = 128;           // threads of the small launches
$require D % 16 == 0 and Dv % 16 == 0
$if by_waves
#include "native_sparse_attention/wave_gradient_tile.h"
$else
#include "native_sparse_attention/gradient_tile.h"
$end
#include "native_sparse_attention/key_entries.h"
#include "native_sparse_attention/gradient_entries.h"

$if gated
// Block (x, y, z): the means of block x of kv head y of row z of the batch.
KERNEL(SMALL, 1) find_means(${parameters('find_means')}) {
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, block_x(), block_size, false, k_view.shape[1]);
  if (!block.is_whole(block_size)) return;
$end
  const int64_t at = (static_cast<int64_t>(block_z()) * k_view.shape[2] + block_y()) * grid_x() + block_x(), first = ${packed ? 'block.of.first + block.number * block_size' : 'block_x() * block_size'};
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

$if packed
// Rows of a gradient of queries, or of gates, at tokens [first, end) become 0, by all warps.
static inline void clear_rows(const View& to, int first, int end, int head, int heads) {
  const int64_t features = to.rank > 3 ? to.shape[3] : 1;
#pragma unroll 1
  for (int i = warp(); is_given(to) && i < (end - first) * heads; i += ${by_waves ? 'THREADS / WARP' : 'WARPS'})
#pragma unroll 1
    for (int64_t d = lane(); d < features; d += WARP)
      static_cast<Element*>(to.data)[(first + i / heads) * to.strides[1] + (head + i % heads) * to.strides[2] + d] = from_float<Element>(0);
}

$end
// Block (x, y, z): WARPS tokens of row z of the batch, the last first, and all query heads of kv head y: dq, the gradients of gates, and delta.
KERNEL(THREADS, 1) differentiate_queries(${parameters('differentiate_queries')}) {
  const int heads = static_cast<int>(heads_a_kv_head), words = static_cast<int>(block_words), tokens = static_cast<int>(q_view.shape[1]);
  // Row 0: of all tokens of the block; then a row each warp.
  const auto bits_of = [&](int row) {
    char* const behind = dynamic_shared() + STAGES * Stage::BYTES${by_waves ? '' : ' + WARPS * (QueryTile::BYTES + DoutTile::BYTES)'};
    return reinterpret_cast<uint32_t*>(behind) + static_cast<int>(later(row)) * words;
  };
  __shared__ ChunkRing ring;
$if packed
  __shared__ PackedTile packed_tile;
  if (thread_x() == 0)
    packed_tile = PackedTile(part_of_sequence(cum_seqlens, sequences, grid_x() - 1 - block_x(), WARPS, true, tokens));
  sync_block();
  if (!packed_tile.is_there) return;
  if (packed_tile.of_none) {
    const int from = packed_tile.start + packed_tile.first_token, to = packed_tile.start + packed_tile.end(), head = block_y() * heads;
    clear_rows(dq_view, from, to, head, heads);
$if gated
    clear_rows(dg_cmp_view, from, to, head, heads);
    clear_rows(dg_slc_view, from, to, head, heads);
    clear_rows(dg_swa_view, from, to, head, heads);
$end
    return;
  }
$end
  {
    const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
$if gated
    ${by_waves ? 'if (wave_lane() < WARP) ' : ''}load_named_bits(bits_of(1 + ${team}()), words, selected_view, no_view(), at.batch, at.token, at.kv_head, named_blocks, block_size,
                    at.there${packed ? ', at.start' : ''});
$else
    ${by_waves ? 'if (wave_lane() < WARP) ' : ''}load_named_bits(bits_of(1 + ${team}()), words, block_indices_view, block_counts_view, at.batch, at.token, at.kv_head, named_blocks,
                    block_size, at.there${packed ? ', at.start' : ''});
$end
  }
  join_bits(bits_of(0), bits_of(1), words);
#pragma unroll 1
  for (int first = 0; first < heads; first += HEADS) {
    const auto head_of = [&](const TokenPlace& at) { return at.kv_head * heads + first; };
    const auto count_of = [&](const TokenPlace& at) { return !at.there ? 0 : heads - first < HEADS ? heads - first : HEADS; };
    GradientTile tile;
    {
      const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
      tile.start(token_row<const Element>(q_view, at.batch, at.token, head_of(at)), q_view.strides[2],
                 token_row<const Element>(dout_view, at.batch, at.token, head_of(at)), dout_view.strides[2], count_of(at));
    }
#pragma unroll 1
    for (int branch = ${gated ? '0' : '1'}; branch < ${gated ? '3' : '2'}; ++branch) {
      const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
      KeyRows<Element> rows{token_row<const Element>(k_view, at.batch, ${packed ? 'at.start' : '0'}, at.kv_head),
                            token_row<const Element>(v_view, at.batch, ${packed ? 'at.start' : '0'}, at.kv_head), k_view.strides[1], v_view.strides[1]};
      PieceWalk walk(bits_of(0), static_cast<int>(block_size), 0, at.last + 1);
      TokenView view{bits_of(1 + ${team}()), 0, at.there ? at.token${packed ? ' - at.start' : ''} + 1 : 0};
$if gated
      const View& gates = branch == MEANS ? g_cmp_view : branch == BLOCKS ? g_slc_view : g_swa_view;
      const View& gradients = branch == MEANS ? dg_cmp_view : branch == BLOCKS ? dg_slc_view : dg_swa_view;
      const View& lse_view = branch_lse_view;
      if (!is_given(gates)) continue;
      if (branch == MEANS) {
        const int64_t row = (at.batch * k_view.shape[2] + at.kv_head) * means${packed ? ' + at.start / static_cast<int>(block_size)' : ''};
        rows = {reinterpret_cast<const Element*>(mean_keys) + row * D, reinterpret_cast<const Element*>(mean_values) + row * DV, D, DV};
        walk = PieceWalk(nullptr, 1, 0, (at.last + 1) / static_cast<int>(block_size));
        view = {nullptr, 0, view.end / static_cast<int>(block_size)};
      }
      if (branch == WINDOW) {
        const auto first_seen = [&](int token) {
          return static_cast<int>(visible_keys(Visibility{true, window_left, 0}, token, 0, token + 1).first);
        };
        walk = PieceWalk(nullptr, 1, first_seen(at.first_token), at.last + 1);
        view = {nullptr, first_seen(at.token${packed ? ' - at.start' : ''}), view.end};
      }
$end
      tile.start_branch();
#pragma unroll
      for (int r = 0; r < ${rows_a_lane}; ++r) {
        const int head = ${head_of_row};
        const bool there = head < count_of(at);
        const float* const lse = static_cast<const float*>(lse_view.data) + at.batch * lse_view.strides[0] +
                                 (head_of(at) + head) * lse_view.strides[1] + at.token * lse_view.strides[${gated ? '3' : '2'}]${gated ? ' + branch * lse_view.strides[2]' : ''};
        const float log = there ? *lse : 0;
        tile.log_sum[r] = log > -INFINITE ? log * LOG2_E : 0;
        tile.gate[r] = ${gated ? 'there ? gate_of(gates, at.batch, at.token, head_of(at) + head) : 0' : 'there ? 1 : 0'};
      }
      tile.differentiate(rows, walk, view, ring, softmax_scale * LOG2_E);
      const TokenPlace now(${packed ? 'packed_tile' : 'tokens'});
#pragma unroll
      for (int r = 0; r < ${rows_a_lane}; ++r) {
        const float of_gate = tile.finish_branch(r);
        const int head = head_of(now) + ${head_of_row};
        if (${head_of_row} >= count_of(now) || ${lane_of_row} != 0) continue;
        delta[((now.batch * q_view.shape[2] + head) * 3 + branch) * tokens + now.token] = of_gate;
$if gated
        if (is_given(gradients))
          static_cast<Element*>(gradients.data)[now.batch * gradients.strides[0] + now.token * gradients.strides[1] +
                                                head * gradients.strides[2]] = from_float<Element>(of_gate);
$end
      }
    }
    const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
    tile.store(token_row<Element>(dq_view, at.batch, at.token, head_of(at)), dq_view.strides[2], count_of(at), softmax_scale);
  }
}

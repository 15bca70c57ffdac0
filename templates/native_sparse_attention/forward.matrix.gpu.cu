// native_sparse_attention, forward, on GPUs with matrix instructions, of warps (mma.sync) or, with `by_waves`, of waves (MFMA, WMMA): a token of a
// kv head a warp or wave, 16 of its query heads as the rows of a tile; the warps of a block share keys and values. Blocks are selected before, by
// scores of means that are as exact as f32.
// The spec's names say how a lane finds its place in a tile: it has parts of `rows_a_lane` rows, row r is query head `head_of_row`, and of the lanes that
// share a row the first one's `lane_of_row` is 0.
#include "device/gpu.h"
#include "device/attention/attention.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
$if by_waves
constexpr int WARPS = ${waves}, THREADS = WARPS * WAVE, STAGES = ${stages};  // WARPS: of a token each, waves
constexpr int PIECES = ${keys} / 16;  // pieces of 16 keys a chunk
$else
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP, STAGES = ${stages};
constexpr int PIECES = ${keys} / 16, AT_ONCE = ${pieces};  // pieces of 16 keys: a chunk's; those whose scores a warp has at once
$end
constexpr int SELECT_WARPS = 4, MEANS_THREADS = 128;
$require (by_waves ? D % 16 == 0 : D % 32 == 0) and Dv % 16 == 0
$if by_waves
#include "native_sparse_attention/wave_token_tile.h"
$else
#include "native_sparse_attention/token_tile.h"
$end
#include "native_sparse_attention/select_entry.h"
$if packed
#include "native_sparse_attention/empty_tokens_gpu.h"
$end

// Block (x, y, z): the means of block x of kv head y of row z of the batch.
KERNEL(MEANS_THREADS, 1) find_means(${parameters('find_means')}) {
  const Heads<const Element> k(k_view), v(v_view);
$if packed
  const SequencePart block = part_of_sequence(cum_seqlens, sequences, block_x(), block_size, false, k.tokens);
  if (!block.is_whole(block_size)) return;
$end
  const int64_t at = (static_cast<int64_t>(block_z()) * k.heads + block_y()) * grid_x() + block_x(), first = ${packed ? 'block.of.first + block.number * block_size' : 'block_x() * block_size'};
  const auto mean = [&](const Element* from, int64_t stride) {
    float sum = 0;
#pragma unroll 4
    for (int64_t t = 0; t < block_size; ++t) sum += to_float(from[t * stride]);
    return sum / static_cast<float>(block_size);
  };
  if (thread_x() < D)
    store_terms(reinterpret_cast<Element*>(mean_keys) + at * D + thread_x(), k_view.shape[0] * k.heads * grid_x() * D,
                mean(k.row(block_z(), first, block_y()) + thread_x(), k.token_stride));
  if (is_given(g_cmp_view) && thread_x() < DV)
    reinterpret_cast<Element*>(mean_values)[at * DV + thread_x()] = from_float<Element>(mean(v.row(block_z(), first, block_y()) + thread_x(), v.token_stride));
}

// Block (x, y, z): WARPS tokens of row z of the batch, the last first, and all query heads of kv head y.
KERNEL(THREADS, ${blocks_a_processor}) attend(${parameters('attend')}) {
  const int heads = static_cast<int>(heads_a_kv_head), words = static_cast<int>(block_words), tokens = static_cast<int>(q_view.shape[1]);
  // Row 0: of all tokens of the block; then a row each warp.
  const auto bits_of = [&](int row) {
    return reinterpret_cast<uint32_t*>(dynamic_shared() + STAGES * Stage::BYTES${by_waves ? '' : ' + WARPS * QueryTile::BYTES'}) + static_cast<int>(later(row)) * words;
  };
  __shared__ ChunkRing ring;
$if packed
  __shared__ PackedTile packed_tile;
  if (thread_x() == 0)
    packed_tile = PackedTile(part_of_sequence(cum_seqlens, sequences, grid_x() - 1 - block_x(), WARPS, true, q_view.shape[1]));
  sync_block();
  if (!packed_tile.is_there) return;
  if (packed_tile.of_none) {
    clear_tokens<${by_waves ? 'THREADS / WARP' : 'WARPS'}>(out_view, branch_lse_view, selected_view, packed_tile.start + packed_tile.first_token, packed_tile.start + packed_tile.end(), block_y(), heads);
    return;
  }
$end
  const bool has_means = is_given(g_cmp_view), has_blocks = is_given(g_slc_view), has_window = is_given(g_swa_view);
  const TokenPlace own(${packed ? 'packed_tile' : 'tokens'});
$if by_waves
  if (wave_lane() >= WARP) {  // a warp of the wave does it
  } else if (has_blocks && is_given(block_indices_view)) {
$else
  if (has_blocks && is_given(block_indices_view)) {
$end
    load_named_bits(bits_of(1 + ${team}()), words, block_indices_view, block_counts_view, own.batch, own.token, own.kv_head, named_blocks,
                    block_size, own.there${packed ? ', own.start' : ''});
  } else {
$if lists
    const int64_t row = (own.batch * k_view.shape[2] + own.kv_head) * tokens + own.token;
    load_listed_bits(bits_of(1 + ${team}()), words, block_lists + row * listed_blocks, has_blocks && own.there ? static_cast<int>(listed_blocks) : 0);
$else
#pragma unroll 1
    for (int word = lane(); word < words; word += WARP) {
      const int64_t row = (own.batch * k_view.shape[2] + own.kv_head) * tokens + own.token;
      bits_of(1 + ${team}())[word] = has_blocks && own.there ? static_cast<uint32_t>(block_bits[row * words + word]) : 0;
    }
    sync_warp();
$end
  }
  if (${by_waves ? 'wave_lane() < WARP && ' : ''}own.there && (!has_blocks || is_given(block_indices_view)))
    store_selected(selected_view, has_blocks ? bits_of(1 + ${team}()) : nullptr, own.batch, own.token, own.kv_head,
                   ${packed ? '(own.token - own.start)' : 'own.token'} / static_cast<int>(block_size));
  join_bits(bits_of(0), bits_of(1), words);
  const auto first_seen = [&](int at) { return static_cast<int>(visible_keys(Visibility{true, window_left, 0}, at, 0, at + 1).first); };
#pragma unroll 1
  for (int first = 0; first < heads; first += HEADS) {
    const auto head_of = [&](const TokenPlace& at) { return at.kv_head * heads + first; };
    const auto count_of = [&](const TokenPlace& at) { return !at.there ? 0 : heads - first < HEADS ? heads - first : HEADS; };
    TokenTile tile;
    {
      const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
      tile.start(token_row<const Element>(q_view, at.batch, at.token, head_of(at)), q_view.strides[2], count_of(at));
    }
    // Blocks first, or the window where there are none. Then the window, first its sum alone, since there is one place for outputs; and means, whose sum
    // is known.
#pragma unroll 1
    for (int turn = has_blocks || has_window ? 0 : 3; turn < (has_means ? 4 : has_blocks && has_window ? 3 : 1); ++turn) {
      if ((turn == 1 || turn == 2) && !(has_blocks && has_window)) continue;
      const Branch branch = turn == 3 ? MEANS : turn == 0 && has_blocks ? BLOCKS : WINDOW;
      const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
      const WalkMode mode = turn == 0 ? WEIGH : turn == 1 ? FIND_SUM : ADD_KNOWN;
      const View& gates = branch == MEANS ? g_cmp_view : branch == BLOCKS ? g_slc_view : g_swa_view;
      KeyRows<Element> rows{token_row<const Element>(k_view, at.batch, ${packed ? 'at.start' : '0'}, at.kv_head),
                            token_row<const Element>(v_view, at.batch, ${packed ? 'at.start' : '0'}, at.kv_head), k_view.strides[1], v_view.strides[1]};
      const int size = branch == BLOCKS ? static_cast<int>(block_size) : 1;
      PieceWalk walk(branch == BLOCKS ? bits_of(0) : nullptr, size, branch == WINDOW ? first_seen(at.first_token) : 0, at.last + 1);
      TokenView view{branch == BLOCKS ? bits_of(1 + ${team}()) : nullptr, branch == WINDOW ? first_seen(at.token${packed ? ' - at.start' : ''}) : 0,
                     at.there ? at.token${packed ? ' - at.start' : ''} + 1 : 0};
      if (branch == MEANS) {
        const int64_t row = (at.batch * k_view.shape[2] + at.kv_head) * means${packed ? ' + at.start / static_cast<int>(block_size)' : ''};
        rows = {reinterpret_cast<const Element*>(mean_keys) + row * D, reinterpret_cast<const Element*>(mean_values) + row * DV, D, DV};
        walk = PieceWalk(nullptr, 1, 0, (at.last + 1) / static_cast<int>(block_size));
        view.end = view.end / static_cast<int>(block_size);
#pragma unroll
        for (int r = 0; r < ${rows_a_lane}; ++r) {
          const int head = ${head_of_row};
          tile.know(r, head < count_of(at) ? mean_lse[(at.batch * q_view.shape[2] + head_of(at) + head) * tokens + at.token] : 0,
                    head < count_of(at) ? gate_of(gates, at.batch, at.token, head_of(at) + head) : 0);
        }
      }
      if (mode == FIND_SUM) tile.clear();
      tile.attend(mode, rows, walk, view, ring, softmax_scale * LOG2_E);
      if (mode == ADD_KNOWN) continue;
      const TokenPlace now(${packed ? 'packed_tile' : 'tokens'});
#pragma unroll
      for (int r = 0; r < ${rows_a_lane}; ++r) {
        const int head = ${head_of_row};
        const float lse = tile.lse(r), gate = head < count_of(now) ? gate_of(gates, now.batch, now.token, head_of(now) + head) : 0;
        if (head < count_of(now) && ${lane_of_row} == 0)
          store_branch_lse(branch_lse_view, now.batch, now.token, head_of(now) + head, branch, lse);
        if (mode == WEIGH)
          tile.finish(r, gate);
        else
          tile.know(r, lse * LOG2_E, gate);
      }
    }
    const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
#pragma unroll
    for (int r = 0; r < ${rows_a_lane}; ++r) {
      const int head = ${head_of_row};
      if (head >= count_of(at) || ${lane_of_row} != 0) continue;
      if (!has_means) store_branch_lse(branch_lse_view, at.batch, at.token, head_of(at) + head, MEANS, -INFINITE);
      if (!has_blocks) store_branch_lse(branch_lse_view, at.batch, at.token, head_of(at) + head, BLOCKS, -INFINITE);
      if (!has_window) store_branch_lse(branch_lse_view, at.batch, at.token, head_of(at) + head, WINDOW, -INFINITE);
    }
    tile.store(token_row<Element>(out_view, at.batch, at.token, head_of(at)), out_view.strides[2], count_of(at));
  }
}

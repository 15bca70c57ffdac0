// apply_native_sparse_attention, forward, on GPUs with matrix instructions, of warps (mma.sync) or, with `by_waves`, of waves (MFMA, WMMA): a token
// of a kv head a warp or wave, 16 of its query heads as the rows of a tile; the warps of a block share keys and values.
// The spec's names say how a lane finds its place in a tile: it has parts of `rows_a_lane` rows, row r is query head `head_of_row`, and of the lanes that
// share a row the first one's `lane_of_row` is 0.
#include "device/gpu.h"
#include "device/attention/attention.h"
#include "native_sparse_attention/select_blocks_gpu.h"

using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};  // features of a key, of a value
$if by_waves
constexpr int WARPS = ${waves}, THREADS = WARPS * WAVE, STAGES = ${stages};  // WARPS: of a token each, waves
constexpr int PIECES = ${keys} / 16;  // pieces of 16 keys a chunk
$else
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP, STAGES = ${stages};
constexpr int PIECES = ${keys} / 16, AT_ONCE = ${pieces};  // pieces of 16 keys: a chunk's; those whose scores a warp has at once
$end
$require D % 16 == 0 and Dv % 16 == 0
$if by_waves
#include "native_sparse_attention/wave_token_tile.h"
$else
#include "native_sparse_attention/token_tile.h"
$end
$if packed
#include "native_sparse_attention/empty_tokens_gpu.h"
$end

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
    clear_tokens<${by_waves ? 'THREADS / WARP' : 'WARPS'}>(out_view, lse_view, packed_tile.start + packed_tile.first_token, packed_tile.start + packed_tile.end(), block_y(), heads);
    return;
  }
$end
  const TokenPlace own(${packed ? 'packed_tile' : 'tokens'});
  ${by_waves ? 'if (wave_lane() < WARP) ' : ''}load_named_bits(bits_of(1 + ${team}()), words, block_indices_view, block_counts_view, own.batch, own.token, own.kv_head, named_blocks, block_size, own.there${packed ? ', own.start' : ''});
  join_bits(bits_of(0), bits_of(1), words);
#pragma unroll 1
  for (int first = 0; first < heads; first += HEADS) {
    const auto head_of = [&](const TokenPlace& at) { return at.kv_head * heads + first; };
    const auto count_of = [&](const TokenPlace& at) { return !at.there ? 0 : heads - first < HEADS ? heads - first : HEADS; };
    TokenTile tile;
    {
      const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
      tile.start(token_row<const Element>(q_view, at.batch, at.token, head_of(at)), q_view.strides[2], count_of(at));
      const KeyRows<Element> rows{token_row<const Element>(k_view, at.batch, ${packed ? 'at.start' : '0'}, at.kv_head),
                                  token_row<const Element>(v_view, at.batch, ${packed ? 'at.start' : '0'}, at.kv_head), k_view.strides[1], v_view.strides[1]};
      const TokenView view{bits_of(1 + ${team}()), 0, at.there ? at.token${packed ? ' - at.start' : ''} + 1 : 0};
      tile.attend(WEIGH, rows, PieceWalk(bits_of(0), static_cast<int>(block_size), 0, at.last + 1), view, ring, softmax_scale * LOG2_E);
    }
    const TokenPlace at(${packed ? 'packed_tile' : 'tokens'});
#pragma unroll
    for (int r = 0; r < ${rows_a_lane}; ++r) {
      const int head = ${head_of_row};
      if (is_given(lse_view) && head < count_of(at) && ${lane_of_row} == 0)
        static_cast<float*>(lse_view.data)[at.batch * lse_view.strides[0] + (head_of(at) + head) * lse_view.strides[1] + at.token * lse_view.strides[2]] = tile.lse(r);
      tile.finish(r, 1);
    }
    tile.store(token_row<Element>(out_view, at.batch, at.token, head_of(at)), out_view.strides[2], count_of(at));
  }
}

// recurrent_bwd with the delta rule, a chunk of 64 tokens at a time, on Hopper's wgmma: backward.chunk.gpu.cu has the formulas. The launch
// `prepare` inverts chunks' matrices, `states` walks through sequences both ways and keeps each second state, what tokens write and their
// gradients; `gradients` then has all chunks at once, two of them between states that are kept.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int KEYS = 128, SLICES = KEYS / 16, BOXES = KEYS / 64;  // of keys and of values; up to 56 more than there are: zeros
constexpr int WARPS = 4, THREADS = WARPS * WARP;  // of a block that prepares
// l2_norm; gradients of log gates or of beta are asked for.
constexpr bool NORMED = ${normed}, GATED = ${gated}, NARROW = false;
using Piece = half;  // of the inverse and of what it multiplies
// Elements a number: of states and gradients; of what tokens write, and of the inverse.
constexpr int PARTS = ${precise} ? 2 : 1, WRITTEN_PARTS = PARTS, INVERSE_PARTS = PARTS;
constexpr int WAYS = 2, STATE_THREADS = 128, STATE_COLUMNS = 64;
#include "recurrent/chunk_gates.h"
#include "recurrent/gradient_rows.h"

using KeyTile = Tile<Element, CHUNK, KEYS>;
using Square = Tile<Element, CHUNK, CHUNK>;
#include "recurrent/chunk_block.h"
#include "recurrent/chunk_place.h"
#include "recurrent/chunk_sm90_products.h"
$if packed
#include "recurrent/chunk_sm90_packed.h"
enum EndOf { Q_END, K_END, DQ_END, DK_END, V_END = 0, DOUT_END, DV_END };  // tensors of keys' features, and of values', of which ends are kept
$end
#include "recurrent/chunk_sm90_value_scales.h"
#include "recurrent/chunk_sm90_delta_prepare.h"
#include "recurrent/chunk_sm90_delta_states.h"
#include "recurrent/chunk_sm90_delta_gradients.h"
#include "recurrent/chunk_gamma_sum.h"
$if packed

// Block number: as EndRow has it.
KERNEL(128, 1) take_ends(${parameters('take_ends')}) {
  const EndRow end(cum_seqlens);
  const auto take = [&](const View& view, void* ends, EndOf tensor) { take_end(end, view, static_cast<Element*>(ends), tensor, sequences, heads); };
  take(q_view, row_ends, Q_END), take(k_view, row_ends, K_END);
  take(v_view, value_ends, V_END), take(dout_view, value_ends, DOUT_END);
}
// Block number: likewise; then AFTER_BLOCKS.
KERNEL(128, 1) put_ends(${parameters('put_ends')}) {
  const int after = static_cast<int>(block_x() - sequences * CHUNK);
  if (after < 0) {
    const EndRow end(cum_seqlens);
    const auto put = [&](const View& view, void* ends, EndOf tensor) { put_end(end, view, static_cast<Element*>(ends), tensor, sequences, heads); };
    put(dq_view, row_ends, DQ_END), put(dk_view, row_ends, DK_END), put(dv_view, value_ends, DV_END);
    return;
  }
  const auto clear = [&](const View& view, int64_t type) { clear_after(view, type, cum_seqlens[sequences], dq_view.shape[1], heads, after); };
  clear(dq_view, ELEMENT_TYPE), clear(dk_view, ELEMENT_TYPE), clear(dv_view, ELEMENT_TYPE);
  clear(dbeta_view, beta_type), clear(dg_view, g_type);
}
$end

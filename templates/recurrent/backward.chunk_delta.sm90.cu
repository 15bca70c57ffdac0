// recurrent_bwd with the delta rule, a chunk of 64 tokens at a time, on Hopper's wgmma: backward.chunk.gpu.cu has the formulas. The launch
// `prepare` inverts chunks' matrices, `states` walks through sequences both ways and keeps each second state, what tokens write and their
// gradients; `gradients` then has all chunks at once, two of them between states that are kept. Packed sequences, and calls from the
// last token on: chunk_sm90_packed.h.
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
constexpr int TOGETHER = 2;  // chunks
#include "recurrent/chunk_sm90_packed.h"
enum CopyOf { Q_ROWS, K_ROWS, DQ_ROWS, DK_ROWS, V_ROWS = 0, DOUT_ROWS, DV_ROWS };  // tensors of keys' features, and of values', whose rows are copied
$end
#include "recurrent/chunk_sm90_value_scales.h"
#include "recurrent/chunk_sm90_delta_triangles.h"
#include "recurrent/chunk_sm90_delta_prepare.h"
#include "recurrent/chunk_sm90_delta_states.h"
#include "recurrent/chunk_sm90_delta_gradients.h"
#include "recurrent/chunk_gamma_sum.h"
$if packed

// Block number: as CopiedRow has it.
KERNEL(128, 1) take_rows(${parameters('take_rows')}) {
  const CopiedRow row(cum_seqlens, sequences, q_view.shape[1]);
  take_row(row, q_view, row_copies, Q_ROWS, copied_boxes, heads), take_row(row, k_view, row_copies, K_ROWS, copied_boxes, heads);
  take_row(row, v_view, value_copies, V_ROWS, copied_boxes, heads), take_row(row, dout_view, value_copies, DOUT_ROWS, copied_boxes, heads);
}
// Block number: likewise; then AFTER_BLOCKS.
KERNEL(128, 1) put_rows(${parameters('put_rows')}) {
  const int64_t length = dq_view.shape[1];
  const int after = static_cast<int>(block_x() - copied_boxes * CHUNK);
  if (after < 0) {
    const CopiedRow row(cum_seqlens, sequences, length);
    put_row(row, dq_view, row_copies, DQ_ROWS, copied_boxes, heads), put_row(row, dk_view, row_copies, DK_ROWS, copied_boxes, heads);
    put_row(row, dv_view, value_copies, DV_ROWS, copied_boxes, heads);
    return;
  }
  const auto clear = [&](const View& view, int64_t type) { clear_after(view, type, REVERSED && !cum_seqlens ? length : cum_seqlens[sequences], length, heads, after); };
  clear(dq_view, ELEMENT_TYPE), clear(dk_view, ELEMENT_TYPE), clear(dv_view, ELEMENT_TYPE);
  clear(dbeta_view, beta_type), clear(dg_view, g_type);
}
$end

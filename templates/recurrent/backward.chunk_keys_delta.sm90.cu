// recurrent_bwd with gates of keys and the delta rule, a chunk of 64 tokens at a time: backward.chunk_keys.gpu.cu, whose products with states are on
// Hopper's wgmma here. Packed sequences, and calls from the last token on: chunk_sm90_packed.h.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"
#include "recurrent/chunk_gates.h"

using Element = ${ctype(E)};
constexpr int KEYS = 128, SLICES = KEYS / 16, BOXES = KEYS / 64;  // of keys and of values; up to 56 more than there are: zeros
constexpr bool DELTA = true, NORMED = ${normed}, GATED = ${gated}, SHARED_HEADS = false;  // l2_norm; gradients of gates are asked for
using Piece = half;  // of weighed keys, of the inverse and of what these two multiply
// Elements a number: of states and gradients; of weighed queries, weighed keys, weights of pairs; of what tokens write, and the inverse.
constexpr int PIECES = ${precise} ? 2 : 1;
constexpr int QUERY_PIECES = 2, ROW_PIECES = 2, PAIR_PIECES = PIECES;
constexpr int WRITTEN_PIECES = PIECES > 1 ? 3 : 1, INVERSE_PARTS = 2;
// Floats of a chunk: decays of keys; of tokens betas, and factors of what their weighed keys give; the inverse's; norms of queries, of keys.
constexpr int ROW_FACTORS = KEYS + CHUNK, INVERSE_POWER = ROW_FACTORS + CHUNK, DECAYS_AND_BETAS = INVERSE_POWER + 4, DECAY_ROW = DECAYS_AND_BETAS + 2 * CHUNK;
constexpr int CARRIERS = ${carriers};  // warpgroups of a block that walks through states, which carry 64 values each
constexpr int WAYS = 2, KEPT_PARTS = PIECES, STATE_THREADS = 128, STATE_COLUMNS = 64;
constexpr bool NARROW = false, F32_GATES = ${f32_gates};  // gates of keys are f32
#include "recurrent/gradient_rows.h"

using KeyTile = Tile<Element, CHUNK, KEYS>;
using Square = Tile<Element, CHUNK, CHUNK>;
#include "recurrent/chunk_block.h"
#include "recurrent/chunk_place.h"
#include "recurrent/chunk_sm90_products.h"
$if packed
constexpr int TOGETHER = 1;  // chunk
#include "recurrent/chunk_sm90_packed.h"
enum CopyOf { V_ROWS, DOUT_ROWS };  // tensors whose rows are copied
$end
#include "recurrent/chunk_sm90_value_scales.h"
#include "recurrent/chunk_sm90_key_delta_prepare_rows.h"
#include "recurrent/chunk_sm90_weighed.h"
#include "recurrent/chunk_sm90_key_delta_states.h"
#include "recurrent/chunk_gradient_rows.h"
#include "recurrent/chunk_sm90_key_delta_gradients.h"
#include "recurrent/chunk_gamma_sum.h"
$if packed

// Block number: as CopiedRow has it.
KERNEL(128, 1) take_rows(${parameters('take_rows')}) {
  const CopiedRow row(cum_seqlens, sequences, v_view.shape[1]);
  take_row(row, v_view, value_copies, V_ROWS, copied_boxes, heads), take_row(row, dout_view, value_copies, DOUT_ROWS, copied_boxes, heads);
}
// Blocks: AFTER_BLOCKS.
KERNEL(128, 1) clear_rest(${parameters('clear_rest')}) {
  const auto clear = [&](const View& view, int64_t type) { clear_after(view, type, cum_seqlens[sequences], dq_view.shape[1], heads, static_cast<int>(block_x())); };
  clear(dq_view, ELEMENT_TYPE), clear(dk_view, ELEMENT_TYPE), clear(dv_view, ELEMENT_TYPE);
  clear(dg_view, g_type), clear(dgk_view, gk_type);
  clear(dbeta_view, beta_type);
}
$end

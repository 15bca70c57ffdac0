// recurrent_bwd, a chunk of 64 tokens at a time, on matrix instructions of a warp (mma.sync).
//
// With S the state before a chunk, D the gradient of the state after it, c_t the sum of the log gates up to token t (forward.chunk.gpu.cu
// has the chunk itself):
//   dq_t = scale (e^c_t S dout_t + sum over s <= t of e^(c_t - c_s) (dout_t . v_s) k_s)
//   dk_s = e^(c_last - c_s) D v_s + scale sum over t >= s of e^(c_t - c_s) (dout_t . v_s) q_t
//   dv_s = e^(c_last - c_s) D^T k_s + scale sum over t >= s of e^(c_t - c_s) (q_t . k_s) dout_t
//   D before the chunk = e^c_last D + scale sum over t of e^c_t q_t dout_t^T
// With the delta rule u_t = beta_t (v_t - e^c_t S^T k_t - sum over s < t of e^(c_t - c_s) (k_t . k_s) u_s) takes the place of v_t: U = T X,
// where X = beta (V - e^c K S) and T is the inverse of a triangular matrix, 1 + A. With x_t the gradient of row t of X,
//   x    = T^T (what dv is without the delta rule)
//   dv_t = beta_t x_t,   dbeta_t = x_t . u_t / beta_t
//   A_ts has the gradient -x_t . u_s: so dk_t and dk_s have a share of it, and dk_t another, -beta_t e^c_t S x_t
//   D before the chunk is less by sum over t of e^c_t beta_t k_t x_t^T
// The launch `states` walks through each sequence, forward for S and backward for D, and keeps them; `gradients` then has all chunks at
// once. Nothing of it depends on which block comes first, and every sum has one order.
//
// A log gate's gradient is the sum of all that flows past it, from a token before it, or the state before the chunk, to a token from it on,
// or the state after the chunk. Neighbours differ by what begins or ends there. It is computed from sums in f32; PRECISE: states are two
// elements a number, the second what rounding took from the first; SUMMED: three, so that they have all digits of f32.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16;  // up to 8 more than there are: zeros
constexpr int STATE_WARPS = ${state_warps}, STATE_THREADS = STATE_WARPS * WARP, STATE_COLUMNS = 16 * STATE_WARPS;
constexpr int HALVES = ${warps} / 4, WARPS = 4 * HALVES, THREADS = WARPS * WARP, COLUMNS = ${columns};
constexpr int STAGES = ${stages}, STATE_STAGES = ${state_stages};
// The delta rule; l2_norm; gradients of log gates or of beta are asked for.
constexpr bool DELTA = ${delta}, NORMED = ${normed}, GATED = ${gated};
constexpr bool SHARED_HEADS = ${shared_heads};        // tensors have fewer heads than there are
$if dual  // the rounding of a state adds up over all tokens that read it, and A's gradient is a sum over them
constexpr int PARTS = ${precise} ? 3 : 2;
$else
$if summed  // a gradient of g_gamma in f32 is a sum over all tokens, in which terms of both signs cancel
constexpr int PARTS = 3;
$else
constexpr int PARTS = ${precise} ? 2 : 1;
$end
$end
// What tokens write with the delta rule, and the inverse: three parts, or two halves, as their errors grow in what they are used for.
$if narrow and delta  // so much that one is too few for gradients as good as f16
constexpr int WRITTEN_PARTS = 2, INVERSE_PARTS = 2, PAIR_PARTS = 2, ROWS_KEPT = 2 * WRITTEN_PARTS;
$else
constexpr int WRITTEN_PARTS = DELTA && PARTS > 1 ? ${narrow ? 2 : 3} : 1, INVERSE_PARTS = PARTS > 1 ? ${narrow ? 2 : 3} : 1, ROWS_KEPT = WRITTEN_PARTS + PARTS;
$end
constexpr int WAYS = 2, KEPT_PARTS = PARTS;  // states are made forward, and their gradients backward
constexpr bool NARROW = false;  // chunk_units.h has what halves need
#include "recurrent/chunk_gates.h"
#include "recurrent/gradient_rows.h"

using KeyTile = Tile<Element, CHUNK, KEYS>;
using ValueTile = Tile<Element, CHUNK, COLUMNS>;
using StateTile = Tile<Element, COLUMNS, KEYS>;
using Square = Tile<Element, CHUNK, CHUNK>;
#include "recurrent/chunk_keep.h"
#include "recurrent/chunk_pairs.h"
#include "recurrent/chunk_place.h"
$if narrow
#include "recurrent/chunk_units.h"
$end
$if delta
#include "recurrent/chunk_delta.h"
$else
$if dual  // ssd
#include "ssd/dual_chunk.h"
$end
#include "recurrent/chunk_numbers.h"
#include "recurrent/chunk_states.h"
$end
#include "recurrent/chunk_gradients.h"
$if dual
#include "ssd/finish_chunks.h"
$else
#include "recurrent/chunk_finish.h"
$end

// recurrent_bwd with gates of values, a chunk of 64 tokens at a time, on matrix instructions of a warp (mma.sync): as gates of keys of an
// exchanged problem. A state S whose columns have gates is transposed one whose rows have, into which tokens write their keys by their values:
//
//   S_t^T = diag(e^gv_t) S_{t-1}^T + v_t k_t^T    queries' gradients  dq_t = scale S_t dout_t
//
// So that problem has gradients of out in place of queries, values in place of keys, keys in place of values and queries in place of
// gradients of out. What its queries read are the gradients of queries, its gradients of keys those of values, its gradients of values
// those of keys, and its gates' gradients are the gates'. Its queries' gradients are what is known as out; they are needed for gates alone.
#include "device/gpu.h"
#include "recurrent/chunk_gates.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16;  // of the exchanged problem: values; up to 8 more than there are: zeros
constexpr int STATE_WARPS = ${state_warps}, STATE_THREADS = STATE_WARPS * WARP, STATE_COLUMNS = 16 * STATE_WARPS;
constexpr int HALVES = ${warps} / 4, WARPS = 4 * HALVES, THREADS = WARPS * WARP, COLUMNS = ${columns};
constexpr int STAGES = ${stages}, STATE_STAGES = ${state_stages};
constexpr bool DELTA = false, NORMED = false, GATED = ${gated};  // gradients of gates are asked for
constexpr bool SHARED_HEADS = ${shared_heads};                   // tensors have fewer heads than there are
// Elements a number, as in backward.chunk_keys.gpu.cu.
constexpr int PIECES = ${precise} ? 2 : 1, QUERY_PIECES = 2, ROW_PIECES = 2, PAIR_PIECES = 1, WRITTEN_PIECES = 1;
constexpr int DECAY_ROW = KEYS, WAYS = 2, KEPT_PARTS = PIECES;
constexpr bool NARROW = false, F32_GATES = false;
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
#include "recurrent/chunk_key_units.h"
$end
constexpr int PREPARE_GROUPS = 1;
#include "recurrent/chunk_prepare.h"
#include "recurrent/chunk_weighed.h"
#include "recurrent/chunk_key_states.h"
#include "recurrent/chunk_gradient_rows.h"
#include "recurrent/chunk_key_gradients.h"
#include "recurrent/chunk_finish.h"

KERNEL(PREPARE_THREADS, 3) prepare(${parameters('prepare')}) {
  weigh_chunk(dout_view, v_view, g_view, g_gamma_view, gv_view, cum_seqlens, queries_before, keys_after, weights, decays, sequences, heads, g_type, gamma_type, gv_type,
              softmax_scale, layer_idx, num_layers, reverse${narrow ? ', row_units' : ''});
}

KERNEL(STATE_THREADS, ${state_blocks}) states(${parameters('states')}) {
  carry_states(k_view, q_view, initial_state_view, dfinal_state_view, cum_seqlens, dinitial_state_view, queries_before, keys_after, decays, kept_states, sequences, heads,
               state_slices, padded_values, reverse${narrow ? ', state_units, row_units' : ''});
}

KERNEL(THREADS, ${blocks}) gradients(${parameters('gradients')}) {
  add_gradients(dout_view, v_view, k_view, q_view, g_view, g_gamma_view, gv_view, cum_seqlens, dq_view, dv_view, dk_view, dg_view, dgv_view, queries_before, keys_after, weights,
                kept_states, gate_sums, query_sums, value_sums, key_sums, sequences, heads, padded_values, g_type, gamma_type, gv_type, softmax_scale, layer_idx, num_layers,
                reverse${narrow ? ', state_units, row_units' : ''});
}

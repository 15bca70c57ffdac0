// recurrent_bwd with gates of keys, a chunk of 64 tokens at a time, on matrix instructions of a warp (mma.sync): backward.chunk.gpu.cu has
// the formulas, where e^c is now a factor of each key.
//
// The launch `prepare` (chunk_prepare.h) weighs queries and keys with what the gates leave of them, and pairs of tokens; `states` walks
// through each sequence, forward for states and backward for their gradients, and keeps them; `gradients` then has all chunks at once.
#include "device/gpu.h"
#include "recurrent/chunk_gates.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16;  // up to 8 more than there are: zeros
constexpr int STATE_WARPS = ${state_warps}, STATE_THREADS = STATE_WARPS * WARP, STATE_COLUMNS = 16 * STATE_WARPS;
constexpr int HALVES = ${warps} / 4, WARPS = 4 * HALVES, THREADS = WARPS * WARP, COLUMNS = ${columns};
constexpr int STAGES = ${stages}, STATE_STAGES = ${state_stages};
constexpr bool DELTA = ${delta}, NORMED = ${normed}, GATED = ${gated};  // the delta rule; l2_norm; gradients of gates are asked for
constexpr bool SHARED_HEADS = ${shared_heads};                          // tensors have fewer heads than there are
// Gradients of gates need digits of f32: numbers that matrix instructions take are two elements then, the second what rounding took from
// the first.
constexpr int PIECES = ${precise} ? 2 : 1;
// Weighed queries, weighed keys, weights of pairs; (delta) what tokens write, and the inverse: three, or two halves, as their errors grow in what they are
// used for.
constexpr int QUERY_PIECES = 2, ROW_PIECES = DELTA && PIECES > 1 ? ${narrow ? 2 : 3} : 2, PAIR_PIECES = DELTA ? PIECES : 1;
constexpr int WRITTEN_PIECES = DELTA && PIECES > 1 ? ${narrow ? 2 : 3} : 1, INVERSE_PARTS = PIECES > 1 ? ${narrow ? 2 : 3} : 1;
constexpr int DECAY_ROW = KEYS + (DELTA ? CHUNK : 0);  // floats of a chunk: decays of keys, (delta) betas
constexpr int WAYS = 2, KEPT_PARTS = PIECES;  // states are made forward, and their gradients backward
constexpr bool NARROW = false, F32_GATES = false;  // chunk_key_units.h has what halves need; gates of keys are f32
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
constexpr int PREPARE_GROUPS = DELTA ? 2 : 1;
#include "recurrent/chunk_prepare.h"
#include "recurrent/chunk_weighed.h"
$if delta
#include "recurrent/chunk_key_delta_states.h"
$else
#include "recurrent/chunk_key_states.h"
$end
#include "recurrent/chunk_gradient_rows.h"
#include "recurrent/chunk_key_gradients.h"
#include "recurrent/chunk_finish.h"

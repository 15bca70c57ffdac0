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
#include "recurrent/chunk_sm90_value_scales.h"
#include "recurrent/chunk_sm90_delta_prepare.h"
#include "recurrent/chunk_sm90_delta_states.h"
#include "recurrent/chunk_sm90_delta_gradients.h"
#include "recurrent/chunk_gamma_sum.h"

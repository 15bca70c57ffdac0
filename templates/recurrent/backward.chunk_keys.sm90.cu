// recurrent_bwd with gates of keys, a chunk of 64 tokens at a time: backward.chunk_keys.gpu.cu, whose states, and products with them, are on Hopper's
// wgmma here.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"
#include "recurrent/chunk_gates.h"

using Element = ${ctype(E)};
constexpr int KEYS = 128, SLICES = KEYS / 16, BOXES = KEYS / 64;  // of keys and of values; up to 56 more than there are: zeros
constexpr bool DELTA = false, NORMED = ${normed}, GATED = ${gated}, SHARED_HEADS = false;  // l2_norm; gradients of gates are asked for
constexpr int PIECES = ${precise} ? 2 : 1;  // elements a number: of states and gradients; of weighed queries, weighed keys, weights of pairs
constexpr int QUERY_PIECES = 2, ROW_PIECES = 2, PAIR_PIECES = 1;
constexpr int DECAY_ROW = KEYS;  // floats of a chunk: decays of keys
constexpr int WAYS = 2, STATE_THREADS = 128, STATE_COLUMNS = 64;
constexpr bool NARROW = false, F32_GATES = ${f32_gates};  // gates of keys are f32
#include "recurrent/gradient_rows.h"

using KeyTile = Tile<Element, CHUNK, KEYS>;
using Square = Tile<Element, CHUNK, CHUNK>;
#include "recurrent/chunk_block.h"
#include "recurrent/chunk_place.h"
constexpr int PREPARE_GROUPS = 1;
#include "recurrent/chunk_prepare.h"
#include "recurrent/chunk_sm90_products.h"
#include "recurrent/chunk_sm90_weighed.h"
#include "recurrent/chunk_sm90_key_states.h"
#include "recurrent/chunk_gradient_rows.h"
#include "recurrent/chunk_sm90_key_gradients.h"
#include "recurrent/chunk_gamma_sum.h"

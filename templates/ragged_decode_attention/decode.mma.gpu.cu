// ragged_decode_attention on matrix instructions of a warp (mma.sync): one query token a sequence, keys and values in one piece. How:
// device/attention/decode_mma.h.
#include "device/matrix/fragment.h"
#include "device/tile/launch_order.h"
#include "ragged_decode_attention/ranges.h"
#include "device/attention/decode_copies.h"
#include "device/attention/decode_parts.h"
#include "device/attention/row_end.h"
#include "device/tile/transpose.h"

$require D % 8 == 0 and tile % 16 == 0 and warps % team_warps == 0
using Element = ${ctype(E)};
using Cached = Element;
constexpr int D = ${D}, D16 = ${align(D, 16)}, SLICES = D16 / 16;
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int TEAM_WARPS = ${team_warps}, TEAMS = WARPS / TEAM_WARPS;  // warps that share tiles of keys, each with rows of its own
constexpr int TILE = ${tile}, TILES = TILE / 16;                       // keys; products of 16
constexpr int STAGES = ${stages};                                      // tiles of a team in shared memory
constexpr bool ONE_GROUP = TEAM_WARPS == 1;                            // a warp has all query rows of a kv head
constexpr int ROWS = ${rows}, ROW_TILES = (ROWS + 7) / 8;              // query rows a warp; products of 8
constexpr bool CAPPED = ${capped};                                     // a soft cap
constexpr int COLUMNS = ${columns};                                    // features that warps add up at a time
constexpr float STALE = 8;  // references follow the largest score only where it is larger by this: weights up to 2^8 are as exact

using Copies = StreamCopies<Element, TILE, D16, D, TEAMS, TEAM_WARPS, 1>;
using CachedTile = Copies::Tile;
#include "device/attention/decode_mma.h"

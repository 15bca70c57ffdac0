// GPU vocabulary: a token each warp, and the way of a block of threads through the keys that any of its tokens sees, in shared memory. Part
// of a template, which has defined before: Element, WARPS, THREADS, STAGES, PIECES, D and DV (multiples of 16). With `by_waves` a token has a wave,
// of which there are WARPS, and values lie transposed, or, with `turns_keys`, keys.
#pragma once
#include "device/tile/later.h"
$if packed
#include "native_sparse_attention/packed_tokens.h"
$end
#include "native_sparse_attention/piece_walk.h"
#include "native_sparse_attention/token_row.h"
$if by_waves and turns_keys
#include "native_sparse_attention/wave_gradient_stage.h"
$end

constexpr int HEADS = 16;  // rows of a tile: query heads of a token
$if by_waves and turns_keys
using Stage = GradientStage<Element, D, DV, THREADS>;
$else
using Stage = ChunkStage<Element, D, DV, THREADS>;
$end
using QueryTile = Tile<Element, HEADS, D>;

$if packed
// The tokens of a block of threads: those from number `first_token` of a sequence on. In shared memory.
struct PackedTile {
  int start, length, first_token;  // start: the row of the sequence's first token
  bool of_none, is_there;

  PackedTile() = default;
  explicit PackedTile(const SequencePart& part)
      : start(static_cast<int>(part.of.first)),
        length(static_cast<int>(part.of.length)),
        first_token(static_cast<int>(part.number) * WARPS),
        of_none(part.of_none),
        is_there(part.number * WARPS < part.of.length) {}
  int end() const { return first_token + WARPS < length ? first_token + WARPS : length; }
};

$end
// The tokens of a block of threads, and this warp's; made where it is used, and not kept.
struct TokenPlace {
  int batch, kv_head, first_token, last, token;  // last: token of the block
  bool there;                                    // of this warp
$if packed
  int start;  // the row of the sequence's first token: `token` is a row, the others are numbers in the sequence

  explicit TokenPlace(const PackedTile& tile) {
    batch = 0, kv_head = static_cast<int>(later(block_y())), start = tile.start;
    first_token = tile.first_token, last = tile.end() - 1, there = first_token + ${team}() <= last;
    token = start + (there ? first_token + ${team}() : last);
  }
$else

  explicit TokenPlace(int tokens) {
    batch = static_cast<int>(later(block_z())), kv_head = static_cast<int>(later(block_y()));
    first_token = static_cast<int>(later(grid_x() - 1 - block_x())) * WARPS;
    last = first_token + WARPS < tokens ? first_token + WARPS - 1 : tokens - 1, token = first_token + ${team}(), there = token < tokens;
    if (!there) token = last;
  }
$end
};

// What a token sees of the keys of a branch.
struct TokenView {
  const uint32_t* bits;  // null: all blocks
  int first, end;

  bool sees(const Piece& piece) const {
    return piece.count > 0 && piece.first < end && piece.first + piece.count > first && (!bits || has_block(bits, piece.block));
  }
  // Of the piece's keys those that it sees, from 0 on.
  KeyRange part(const Piece& piece) const {
    return {first > piece.first ? first - piece.first : 0, end - piece.first < piece.count ? end - piece.first : piece.count};
  }
  // Every key of so many pieces, of which it sees some in those that are `seen`.
  template <int N>
  bool sees_all(const Piece* pieces, uint32_t seen) const {
    bool all = seen == (1u << N) - 1;
#pragma unroll
    for (int p = 0; p < N; ++p) all = all && pieces[p].count == PIECE && pieces[p].first >= first && pieces[p].first + PIECE <= end;
    return all;
  }
};

enum WalkMode {
  WEIGH,      // softmax as the keys come, relative to the largest so far
  FIND_SUM,   // the softmax alone, without values
  ADD_KNOWN,  // weights by a log-sum-exp that is known, times a factor, to what is there
};

struct WalkRule {
  WalkMode mode;
  float unit;  // of scores
};

// The pieces of chunks that are being read, copied, or will be next; where those after them are; whose rows they are. In shared memory.
constexpr int RING = STAGES + 1;
struct ChunkRing {
  Piece pieces[RING][PIECES];
  PieceWalk walk;
  KeyRows<Element> rows;  // here, since threads lack registers
  TokenView views[WARPS];
  WalkRule rule;
  bool begun[WARPS];  // a warp has met keys
};

// Through the keys of `walk`, which all threads of the block go through together; body(stage, pieces, view, seen) of a chunk of which this
// warp's token sees some pieces. Begins and ends with barriers.
template <class Body>
static inline void walk_chunks(ChunkRing& ring, const KeyRows<Element>& rows, const PieceWalk& walk, const TokenView& view,
                               const WalkRule& rule, const Body& body) {
  const SharedPointer stages = shared_pointer(dynamic_shared());
  sync_block();
  if (${by_waves ? 'wave_lane()' : 'lane()'} == 0) ring.views[${team}()] = view, ring.begun[${team}()] = false;
  if (thread_x() == THREADS - 1) {  // of the warp that copies least
    ring.walk = walk, ring.rows = rows, ring.rule = rule;
#pragma unroll 1
    for (int i = 0; i < STAGES; ++i) ring.walk.next_chunk(ring.pieces[i]);
  }
  sync_block();
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; ++i) {
    Stage{stages + i * Stage::BYTES}.copy(ring.rule.mode != FIND_SUM, ring.rows, ring.pieces[i]);
    copy_async_commit();
  }
#pragma unroll 1
  for (int i = 0;; ++i) {
    copy_async_wait<STAGES - 2>();
    sync_block();
    const Piece* const pieces = ring.pieces[i % RING];
    if (pieces[0].count == 0) break;
    if (thread_x() == THREADS - 1) ring.walk.next_chunk(ring.pieces[(i + STAGES) % RING]);
    Stage{stages + (i + STAGES - 1) % STAGES * Stage::BYTES}.copy(ring.rule.mode != FIND_SUM, ring.rows,
                                                                  ring.pieces[(i + STAGES - 1) % RING]);
    copy_async_commit();
    const TokenView& mine = ring.views[${team}()];
    uint32_t seen = 0;
#pragma unroll
    for (int p = 0; p < PIECES; ++p) seen |= mine.sees(pieces[p]) ? 1u << p : 0;
    if (any_in_${team}(seen != 0)) body(Stage{stages + i % STAGES * Stage::BYTES}, pieces, mine, seen);
  }
  copy_async_wait<0>();
}

// The blocks that any of the block's tokens sees; `rows` [WARPS][words]. Begins and ends with barriers.
static inline void join_bits(uint32_t* all, const uint32_t* rows, int words) {
  sync_block();
#pragma unroll 1
  for (int word = thread_x(); word < words; word += THREADS) {
    uint32_t any = 0;
#pragma unroll 1
    for (int w = 0; w < WARPS; ++w) any |= rows[w * words + word];
    all[word] = any;
  }
  sync_block();
}

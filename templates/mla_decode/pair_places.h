// Where Hopper's mla_decode of whole features keeps things in shared memory. A part of decode_pair.sm90.cu, whose constants it uses.
#pragma once

// Keys: boxes [KEYS][64 features], the last one of rope, 16-byte chunk c of row r at c ^ (r % 8). Queries alike, without rope, which stays in registers; and
// weights [ROWS][KEYS] of each warpgroup's tile.
constexpr uint32_t STAGES = 2, BOX = KEYS * 128;
constexpr int LATENT_BOXES = R / 64, HALF_BOXES = LATENT_BOXES / 2, ROPE_BOX = LATENT_BOXES, BOXES = LATENT_BOXES + 1;
static_assert(ROPE == 64, "rope features are a box");

// Tile t is weighed by warpgroup t % 2, and lies in stage t % 2. Its pieces are released one by one: rope; the half of the latent features whose outputs that
// warpgroup has; the other half.
enum Piece { ROPE_PIECE, OWN_PIECE, OTHER_PIECE, PIECES };

struct Places {
  static constexpr uint32_t KEY_BYTES = BOXES * BOX, Q_AT = STAGES * KEY_BYTES, WEIGHTS_AT = Q_AT + LATENT_BOXES * BOX, WEIGHT_BYTES = ROWS * KEYS * 2;
  static constexpr uint32_t ROWS_AT = WEIGHTS_AT + 2 * WEIGHT_BYTES, BARRIERS_AT = ROWS_AT + 2 * ROWS * 4, SEEN_AT = BARRIERS_AT + STAGES * (BOXES + PIECES) * 8 + 8,
                            BYTES = SEEN_AT + (GATHERED ? STAGES * KEYS / 8 : 0);
  static uint32_t base() { return keep_here(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024; }
  uint32_t keys(uint32_t stage) const { return base() + stage * KEY_BYTES; }
  uint32_t q() const { return base() + Q_AT; }
  uint32_t weights(uint32_t group) const { return base() + WEIGHTS_AT + group * WEIGHT_BYTES; }
  uint32_t row(uint32_t group, int row) const { return base() + ROWS_AT + (group * ROWS + row) * 4; }  // of a row: its reference, at the end its sum
  uint32_t full(uint32_t stage, int box) const { return base() + BARRIERS_AT + (stage * BOXES + box) * 8; }
  uint32_t empty(uint32_t stage, int piece) const { return base() + BARRIERS_AT + (STAGES * BOXES + stage * PIECES + piece) * 8; }
  uint32_t q_full() const { return base() + SEEN_AT - 8; }
  uint32_t seen(uint32_t stage) const { return base() + SEEN_AT + stage * KEYS / 8; }  // which keys are there, a bit each
};
static_assert(Places::BYTES + 1024 == ${shared}, "the spec has another size");

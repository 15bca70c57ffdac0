// Where Hopper's mla_decode of bytes and 64 heads a block keeps things in shared memory. A part of decode_pair_bytes.sm90.cu, whose constants it uses.
#pragma once

// Keys: boxes [KEYS][64 features], the last one of rope, 16-byte chunk c of row r at c ^ (r % 8). Queries alike. Weights [ROWS][KEYS], times the scales of two blocks of
// features: one lies where the tile's rope features were, the other where those of the tile before were, which this warpgroup has added.
constexpr uint32_t STAGES = 2, BOX = KEYS * 128;
constexpr int LATENT_BOXES = R / 64, HALF_BOXES = LATENT_BOXES / 2, ROPE_BOX = LATENT_BOXES, BOXES = LATENT_BOXES + 1;
static_assert(ROPE == 64 && ROWS * KEYS * 2 == BOX, "rope features are a box, and weights");

// Tile t is weighed by warpgroup t % 2, and lies in stage t % 2. Its pieces come and are released one by one: the half of the latent features whose outputs that
// warpgroup has; the other half, and rope.
enum Piece { OWN_PIECE, OTHER_PIECE, PIECES };

struct Places {
  static constexpr uint32_t KEY_BYTES = BOXES * BOX, Q_AT = STAGES * KEY_BYTES, WEIGHTS_AT = Q_AT + BOXES * BOX, SCALES_AT = WEIGHTS_AT + BOX;
  static constexpr uint32_t ROWS_AT = SCALES_AT + STAGES * SCALES * KEYS * 4, SEEN_AT = ROWS_AT + STAGES * ROWS * 4, ENTRIES_AT = SEEN_AT + STAGES * KEYS / 8, BARRIERS_AT = ENTRIES_AT + 16,
                            BYTES = BARRIERS_AT + STAGES * PIECES * 16;
  // The start of all shared memory, of which nothing else is used.
  static uint32_t base() {
    extern __shared__ __align__(1024) char aligned_shared_bytes[];
    return keep_here(shared_pointer(aligned_shared_bytes));
  }
  uint32_t keys(uint32_t stage) const { return base() + stage * KEY_BYTES; }
  uint32_t q() const { return base() + Q_AT; }
  uint32_t weights(uint32_t group, int block) const { return block == 0 ? keys(group) + ROPE_BOX * BOX : base() + WEIGHTS_AT; }
  uint32_t scales(uint32_t stage, int block, int key) const { return base() + SCALES_AT + ((stage * SCALES + block) * KEYS + key) * 4; }
  uint32_t row(uint32_t group, int row) const { return base() + ROWS_AT + (group * ROWS + row) * 4; }  // of a row: its reference, at the end its sum
  uint32_t seen(uint32_t stage) const { return base() + SEEN_AT + stage * KEYS / 8; }                   // which keys are there, a bit each
  uint32_t entries() const { return base() + ENTRIES_AT; }                                             // where those of pages or slots are
  uint32_t full(uint32_t stage, int piece) const { return base() + BARRIERS_AT + (stage * PIECES + piece) * 16; }
  uint32_t empty(uint32_t stage, int piece) const { return full(stage, piece) + 8; }
};
static_assert(Places::BYTES == ${shared}, "the spec has another size");

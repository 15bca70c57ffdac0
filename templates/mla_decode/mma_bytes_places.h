// Where mla_decode on bytes in registers keeps things in shared memory. A part of decode_mma_bytes.gpu.cu, whose constants it uses.
#pragma once

// Tiles of keys, rows as they lie in the cache: R bytes, their scales, ROPE bfloat16. Their number of 16-byte chunks is odd, so that eight rows at one chunk lie in different
// banks; so are those of rows of weights. Scores: a sum for each block of features. Weights of a block of features, and what its outputs are multiplied by first, of two tiles.
struct Places {
  static constexpr int ROW = R + 4 * BLOCKS + 2 * ROPE, TILE = KEYS * ROW, SCORE_PITCH = KEYS + 8, WEIGHT_ROW = 2 * KEYS + 16, WEIGHTS = HEADS * WEIGHT_ROW;
  static constexpr int SCORES_AT = STAGES * TILE, WEIGHTS_AT = SCORES_AT + BLOCKS * HEADS * SCORE_PITCH * 4, FACTORS_AT = WEIGHTS_AT + 2 * BLOCKS * WEIGHTS,
                       UNITS_AT = FACTORS_AT + 2 * HEADS * BLOCKS * 4, KNOWN_AT = UNITS_AT + HEADS * BLOCKS * 4, AHEAD = 8,
                       SEEN_AT = KNOWN_AT + AHEAD * KEYS * 8,
                       QUERIES_AT = SEEN_AT + STAGES * KEYS, SLICES = (R + ROPE) / 16 / BLOCKS, BYTES = QUERIES_AT + (ROW_TILES <= 2 ? 0 : HEADS * (R + ROPE) * 2);
  static_assert(ROW / 16 % 2 == 1 && WEIGHT_ROW / 16 % 2 == 1);
  char* memory;

  static int stage(int tile) { return static_cast<int>(static_cast<unsigned>(tile) % STAGES); }
  SharedPointer row(int tile, int key) const { return shared_pointer(memory) + (stage(tile) * TILE + key * ROW); }
  const float* scales(int tile, int key) const { return reinterpret_cast<const float*>(memory + stage(tile) * TILE + key * ROW + R); }
  float* scores(int block, int head) const { return reinterpret_cast<float*>(memory + SCORES_AT) + (block * HEADS + head) * SCORE_PITCH; }
  char* weights(int tile, int block) const { return memory + WEIGHTS_AT + ((tile & 1) * BLOCKS + block) * WEIGHTS; }
  float* factors(int tile, int head) const { return reinterpret_cast<float*>(memory + FACTORS_AT) + ((tile & 1) * HEADS + head) * BLOCKS; }
  float* units(int head) const { return reinterpret_cast<float*>(memory + UNITS_AT) + head * BLOCKS; }
  // Operands A of a warp, lanes' words beside each other: of its n-th row tile.
  char* queries(int n, int slice) const { return memory + QUERIES_AT + ((warp() * (ROW_TILES / 2) + n) * SLICES + slice) * (WARP * 16) + lane() * 16; }
  const uint8_t** known(int tile, int key) const { return reinterpret_cast<const uint8_t**>(memory + KNOWN_AT) + static_cast<unsigned>(tile) % AHEAD * KEYS + key; }
  uint8_t* seen(int tile) const { return reinterpret_cast<uint8_t*>(memory + SEEN_AT) + stage(tile) * KEYS; }  // whether the key is there
};
static_assert(Places::BYTES == ${shared}, "the spec has another size");

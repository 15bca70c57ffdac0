// What Hopper's native sparse attention keeps in shared memory. A part of forward.sm90.cu, whose constants it uses.
#pragma once

constexpr uint32_t PANEL = KEYS * 128;                  // 64 features of a tile's keys or values
constexpr uint32_t QUERY_PANEL = TOKENS * HEADS * 128;  // 64 features of all queries
constexpr uint32_t QUERY_BYTES = QUERY_PANEL * (D > DV ? D : DV) / 64;  // outputs take their place
constexpr uint32_t STAGE_BYTES = PANEL * (D + DV) / 64;
constexpr uint32_t WEIGHT_BYTES = HEADS * 128;
$if gated
// Of 64 means: the terms of keys, the first last, then values; each as it lies in shared memory.
constexpr uint32_t TERMS_BYTES = TERMS * KEYS * D * 2, TILE_BYTES = TERMS_BYTES + KEYS * DV * 2, SEEN_AT = TILE_BYTES - STAGE_BYTES;
$end

enum TileKind { TILE_OF_BLOCKS, TILE_OF_MEANS, NO_TILE };

// What is small.
struct Notes {
  float reference[TOKENS][HEADS];  // of weights, to the base 2
  float factor[TOKENS][HEADS];     // of weights
  float exchange[GROUPS][4][HEADS];  // what the warps of a warpgroup tell each other
  uint32_t wanted[STAGES];         // the tokens that see keys of the tile, a bit each, and its kind from bit 16 on
  int first[STAGES];               // its first key
  uint64_t full[STAGES], empty[STAGES], queries;  // barriers
};

// Addresses in shared memory, `base` aligned to 1024 bytes.
struct Places {
  uint32_t base;
  uint32_t keys(uint32_t stage) const { return base + stage * STAGE_BYTES; }
  uint32_t values(uint32_t stage) const { return keys(stage) + PANEL * D / 64; }
  uint32_t queries(int token) const { return base + STAGES * STAGE_BYTES + token * (HEADS * 128); }
  uint32_t weights(int group, uint32_t turn) const { return base + STAGES * STAGE_BYTES + QUERY_BYTES + (2 * group + turn) * WEIGHT_BYTES; }
};
constexpr uint32_t BITS_AT = STAGES * STAGE_BYTES + QUERY_BYTES + 2 * GROUPS * WEIGHT_BYTES;

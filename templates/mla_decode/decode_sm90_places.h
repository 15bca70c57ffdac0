// Where Hopper's mla_decode keeps things in shared memory. A part of decode.sm90.cu, whose constants it uses.
#pragma once

// Keys: boxes [KEYS][64 features], 16-byte chunk c of row r at c ^ (r % 8); then the rope ones, [KEYS][32], at c ^ (r / 2 % 4). Queries alike, without
// the slices in registers; an odd pair of slices lies as the rope features do.
constexpr uint32_t BOX = KEYS * 128, ROPE_AT = HALF / 64 * BOX, KEY_BYTES = ROPE_AT + KEYS * HALF_ROPE * 2;
constexpr int Q_SLICES = (HALF + HALF_ROPE) / 16 - HELD, Q_BOXES = Q_SLICES / 4;  // in shared memory: of latent features
constexpr uint32_t Q_BYTES = Q_SLICES * 64 * 32;

// This block's, or the other's.
template <class Base> struct PlacesFrom {
  Base base;
  static constexpr uint32_t Q_AT = STAGES * KEY_BYTES, SCORES_AT = Q_AT + (BY_KEYS ? 1 : GROUPS) * Q_BYTES;
  static constexpr uint32_t SCORE_BYTES = WARP * 64, WEIGHT_BYTES = WARP * 36;  // of a warp, from the other block
  static constexpr uint32_t WEIGHTS_AT = SCORES_AT + 4 * GROUPS * SCORE_BYTES, BARRIERS_AT = WEIGHTS_AT + 4 * GROUPS * WEIGHT_BYTES;
  static constexpr uint32_t EXCHANGES_AT = BARRIERS_AT + 16 * STAGES, SEEN_AT = EXCHANGES_AT + 16 * 4 * GROUPS, BYTES = SEEN_AT + 8 * STAGES;
  uint32_t keys(uint32_t i) const { return base() + i * KEY_BYTES; }
  uint32_t q(int group) const { return base() + Q_AT + (BY_KEYS ? 0 : group) * Q_BYTES; }
  uint32_t scores(int w) const { return base() + SCORES_AT + w * SCORE_BYTES; }     // [4][WARP] of 16 bytes
  uint32_t weights(int w) const { return base() + WEIGHTS_AT + w * WEIGHT_BYTES; }  // [2][WARP] of 16 bytes, then [WARP] of 4
  uint32_t full(uint32_t i) const { return base() + BARRIERS_AT + 16 * i; }
  uint32_t empty(uint32_t i) const { return full(i) + 8; }
  uint32_t scores_here(int w) const { return base() + EXCHANGES_AT + 16 * w; }
  uint32_t weights_here(int w) const { return scores_here(w) + 8; }
  uint32_t seen(uint32_t i) const { return base() + SEEN_AT + 8 * i; }  // of a tile's keys, a bit each
};

// Made where it is used: it would take a register.
struct OwnBase {
  uint32_t operator()() const { return keep_here(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024; }
};
template <int RANK> struct OtherBase {  // of block RANK, in the cluster's shared memory
  uint32_t operator()() const { return address_in_block(OwnBase()(), RANK); }
};
using Places = PlacesFrom<OwnBase>;
static_assert(Places::BYTES + 1024 == ${shared}, "the spec has another size");

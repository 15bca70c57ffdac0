// Where Hopper's mla_decode of bytes keeps things in shared memory. A part of decode_bytes.sm90.cu, whose constants it uses.
#pragma once

// Boxes of 64 features, or keys, a row: 16-byte chunk c of row r at c ^ (r % 8). Keys of the two warpgroups; queries; weights of a warpgroup's keys, a head a
// row, times each scale; of each warp the largest scores, then sums; scales; which keys are there; references; barriers.
struct Places {
  uint32_t base;
  static constexpr uint32_t WEIGHTS_BYTES = GROUPS * SCALES * HEAD_BOX, SCALES_BYTES = GROUPS * KEYS * 16, SEEN_BYTES = GROUPS * 8;
  static constexpr uint32_t Q_AT = GROUPS * KEY_BYTES, P_AT = Q_AT + BOXES * HEAD_BOX, LARGEST_AT = P_AT + WEIGHTS_BYTES, SCALES_AT = LARGEST_AT + CONSUMER_WARPS * HEADS * 4,
                            SEEN_AT = SCALES_AT + SCALES_BYTES, REFERENCES_AT = SEEN_AT + SEEN_BYTES, BARRIERS_AT = REFERENCES_AT + GROUPS * HEADS * 4, BYTES = BARRIERS_AT + 16 * GROUPS;
  uint32_t keys(int group) const { return base + group * KEY_BYTES; }
  uint32_t q() const { return base + Q_AT; }
  uint32_t p(int group, int scale) const { return base + P_AT + (group * SCALES + scale) * HEAD_BOX; }
  uint32_t scales(int group) const { return base + SCALES_AT + group * KEYS * 16; }  // of each key, of 128 features each
  uint32_t seen(int group) const { return base + SEEN_AT + group * 8; }             // which keys are there, a bit each
  uint32_t largest(int warp) const { return base + LARGEST_AT + warp * HEADS * 4; }
  uint32_t reference(int group) const { return base + REFERENCES_AT + group * HEADS * 4; }  // of heads, as of the warpgroup's last tile
  uint32_t full(int group) const { return base + BARRIERS_AT + 16 * group; }
  uint32_t empty(int group) const { return full(group) + 8; }
};
static_assert(Places::BYTES + 1024 == ${shared}, "the spec has another size");

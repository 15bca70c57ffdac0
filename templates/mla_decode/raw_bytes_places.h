// Where Hopper's mla_decode of bytes in registers keeps things in shared memory. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once

$if gathered
// Keys in boxes of 128 features in e4m3, the last one of 64 rope features, and scales apart: copies of 16 bytes take longer to rows that begin anywhere. A box has rows of 128 bytes,
// of which 16-byte chunk c of row r lies at c ^ (r % 8).
constexpr uint32_t BOX = KEYS * 128, ROPE_BOX = BLOCKS, BOXES = BLOCKS + 1;
$else
// Keys as in the cache, one after the other: features in e4m3, scales, rope features. So many bytes apart, 16 bytes of each of 8 keys lie in different banks.
$end
// All else in such rows of 128 bytes. Queries, a head a row: boxes of 64 features. Weights of a tile, a head a row, twice: one is made while the other is used; so are what goes
// with them, halves of values' scales and factors of outputs.
constexpr uint32_t KEY_ROW = R + BLOCKS * 4 + ROPE * 2, HEAD_BOX = HEADS * 128, QUERY_BOXES = (R + ROPE) / 64;
static_assert(KEY_ROW % 128 == 16 && ROPE == 64);
static_assert(KEYS * KEY_ROW % 1024 == 0, "queries begin at a multiple of 1024");

struct Places {
  uint32_t base;
  static constexpr uint32_t KEY_BYTES = KEYS * KEY_ROW, RATIOS_BYTES = KEYS * BLOCKS * 2;
  static constexpr uint32_t Q_AT = STAGES * KEY_BYTES, WEIGHTS_AT = Q_AT + QUERY_BOXES * HEAD_BOX, RATIOS_AT = WEIGHTS_AT + 2 * HEAD_BOX;
  static constexpr uint32_t POWERS_AT = RATIOS_AT + 2 * RATIOS_BYTES, FACTORS_AT = POWERS_AT + 2 * KEYS * 8, REFERENCES_AT = FACTORS_AT + 2 * HEADS * 4, LARGEST_AT = REFERENCES_AT + HEADS * 4;
  static constexpr uint32_t SUMS_AT = LARGEST_AT + 4 * HEADS * 4, SEEN_AT = SUMS_AT + HEADS * 128, FOLLOWS_AT = SEEN_AT + STAGES * KEYS / 8, BARRIERS_AT = FOLLOWS_AT + 8, BYTES = BARRIERS_AT + (STAGES + 3) * 16;
  uint32_t keys(uint32_t stage) const { return base + stage * KEY_BYTES; }
$if gathered
  // 16-byte chunk `chunk` of a key's features; chunk 2 n on from such a place of an even one below 8; scales, a key's beside each other.
  uint32_t chunk(uint32_t stage, int key, int chunk) const { return keys(stage) + chunk / 8 * BOX + key * 128 + (chunk % 8 ^ key % 8) * 16; }
  static uint32_t pair(uint32_t from, int n) { return (from ^ n % 4 * 32) + n / 4 * BOX; }
  uint32_t scales(uint32_t stage) const { return keys(stage) + BOXES * BOX; }
  uint32_t scales(uint32_t stage, int key) const { return scales(stage) + key * 16; }
$else
  // 16-byte chunk `chunk` of a key's features; chunk 2 n on from there; scales.
  uint32_t chunk(uint32_t stage, int key, int chunk) const { return keys(stage) + key * KEY_ROW + chunk * 16; }
  static uint32_t pair(uint32_t from, int n) { return from + n * 32; }
  uint32_t scales(uint32_t stage, int key) const { return keys(stage) + key * KEY_ROW + R; }
$end
  uint32_t q() const { return base + Q_AT; }
  uint32_t weights(uint32_t turn) const { return base + WEIGHTS_AT + turn * HEAD_BOX; }
  uint32_t ratios(uint32_t turn, uint32_t block) const { return base + RATIOS_AT + turn * RATIOS_BYTES + block * (KEYS * 2); }  // a lane finds those of keys 16 n + 8 k + lane % 4 * 2, and the next one, at (lane % 4 * 8 + 2 n + k) * 4
  uint32_t powers(uint32_t turn, int key) const { return base + POWERS_AT + (turn * KEYS + key) * 8; }  // of a key's scales: the exponent; 2^-exponent
  uint32_t factors(uint32_t turn) const { return base + FACTORS_AT + turn * HEADS * 4; }
  uint32_t references() const { return base + REFERENCES_AT; }
  uint32_t largest(int warp) const { return base + LARGEST_AT + warp * HEADS * 4; }
  uint32_t sums(int pair) const { return base + SUMS_AT + pair * (WARPGROUP * 8); }  // of heads, two a thread
  uint32_t softmax(int rank, int head) const { return base + SUMS_AT + (rank * HEADS + head) * 8; }  // of all keys of a block of the cluster, where sums were
  uint32_t seen(uint32_t stage) const { return base + SEEN_AT + stage * KEYS / 8; }   // which keys are there, a bit each
  uint32_t follows(uint32_t turn) const { return base + FOLLOWS_AT + turn * 4; }      // whether factors count
  uint32_t full(uint32_t stage) const { return base + BARRIERS_AT + stage * 16; }
  uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
  uint32_t weighed(uint32_t turn) const { return full(STAGES + turn); }
  uint32_t added(uint32_t turn) const { return full(STAGES + turn) + 8; }
  uint32_t split(uint32_t turn) const { return full(STAGES + 2) + turn * 8; }  // scales are, into powers and ratios
};
static_assert(Places::BYTES + 1024 == ${shared}, "the spec has another size");

// Where outputs go.
struct Results {
  const View &out, &lse;
  float* partial;
  Softmax* softmaxes;
  int sequence, i, token, first_head, heads, part, parts;

  bool has(int head) const { return first_head + head < heads; }
  int64_t piece(int head) const { return (int64_t{token} * heads + first_head + head) * parts + part; }
  Element* row(int head) const { return static_cast<Element*>(out.data) + sequence * out.strides[0] + i * out.strides[1] + (first_head + head) * out.strides[2]; }
  void store_lse(int head, float reference, float sum) const {
    if (is_given(lse))
      static_cast<float*>(lse.data)[sequence * lse.strides[0] + (first_head + head) * lse.strides[1] + i * lse.strides[2]] = sum == 0 ? -INFINITE : reference * LN_2 + log_of(sum);
  }
};

// A head's reference, and sum of weights; PAIRED: of both blocks of a cluster.
template <bool PAIRED> static inline Softmax softmax_of(const Places& at, int head) {
  float x[2];
  load_shared_two(at.softmax(0, head), x);
  if constexpr (!PAIRED) return {x[0], x[1]};
  float y[2];
  load_shared_two(at.softmax(1, head), y);
  const float reference = larger_of(x[0], y[0]);
  return {reference, x[1] * exp2_of(x[0] - reference) + y[1] * exp2_of(y[0] - reference)};
}

// Named barriers: of all who do not copy; of those who make scores; of those who add values.
enum Barrier { CONSUMING = 1, SCORING = 2, ADDING = 3 };

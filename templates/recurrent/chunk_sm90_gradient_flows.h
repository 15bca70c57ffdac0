// Hopper vocabulary of the chunked recurrence's gradient: where blocks leave what flows past log gates. Part of backward.chunk.sm90.cu.
#pragma once

// Rows of a chunk's flows, a number a token: what it reads of the state, and leaves to it, each in parts, one of each warp that carries a
// state; what it reads in the chunk, one of each warp that weighs; what it hands on in the chunk.
constexpr int READ_ROWS = 0, LEFT_ROWS = 8, READ_HERE_ROWS = 16, GIVEN_HERE_ROW = 20, FLOW_ROWS = 21;

struct FlowPlaces {
  float *sums, *through, *kept;
  bool last;  // there is a gradient of the state after the last token

  float* row(const Stream& stream, int chunk, int row) const {
    return sums + (((static_cast<int64_t>(stream.sequence) * stream.chunks + chunk) * stream.heads + stream.head) * FLOW_ROWS + row) * CHUNK;
  }
  // Whether the state before a chunk, or after the last one, is met by its gradient; which of such states it is.
  bool meets(const Stream& stream, int chunk) const { return chunk == stream.chunks ? last : chunk > 0 && chunk % KEPT_EVERY == 0; }
  static int64_t place(const Stream& stream, int chunk) {
    return static_cast<int64_t>(stream.number()) * ((stream.chunks - 1) / KEPT_EVERY + 1) + (chunk - 1) / KEPT_EVERY;
  }
  float* state(const Stream& stream, int chunk, int part) const { return kept + (place(stream, chunk) * 2 + part) * WARPGROUP * (KEYS / 2); }
  float* products(const Stream& stream, int chunk) const { return through + place(stream, chunk) * 8; }
};

// Sums of four numbers, each over the lanes with the same lane() % 4: of number lane() / 16 * 2 + lane() / 8 % 2.
static inline float sum_of_four(const float (&x)[4]) {
  const bool high = lane() & 16, odd = lane() & 8;
  const float first = (high ? x[2] : x[0]) + shuffle_xor(high ? x[0] : x[2], 16);
  const float second = (high ? x[3] : x[1]) + shuffle_xor(high ? x[1] : x[3], 16);
  const float sum = (odd ? second : first) + shuffle_xor(odd ? first : second, 8);
  return sum + shuffle_xor(sum, 4);
}
// Stores them as those of tokens of two columns of matrices, 8 j and 8 j + 8 and on.
static inline void store_token_sums(const float (&x)[4], float* to, int j) {
  const float sum = sum_of_four(x);
  if (lane() % 8 < 4) to[8 * (j + lane() / 16) + lane() % 4 * 2 + lane() / 8 % 2] = sum;
}

// Hopper vocabulary of the chunked recurrence's gradient: where blocks leave what flows past log gates. Part of backward.chunk.sm90.cu.
#pragma once

// Rows of a chunk's flows, a number a token: what it reads of the state, and leaves to it, each in parts, one of each warp that carries a
// state; what it reads in the chunk, one of each warp that weighs; what it hands on in the chunk.
constexpr int READ_ROWS = 0, LEFT_ROWS = 8, READ_HERE_ROWS = 16, GIVEN_HERE_ROW = 20, FLOW_ROWS = ${dual ? '24' : '21'};
$if dual
// ssd: what is left and handed on is without steps. Besides, what a token reads of itself, the product of x and out's gradient, and what is
// handed on times the log of what is left of it, in units of log 2.
constexpr int OWN_ROW = 21, SKIP_ROW = 22, AGED_ROW = 23;
$end

// A stream's rows.
struct FlowRows {
  float* first;
  int stride;  // from chunk to chunk
  FlowRows(float* sums, const Stream& stream)
      : first(sums + (static_cast<int64_t>(${packed ? 'stream.before)' : 'stream.sequence) * stream.chunks'} * stream.heads + stream.head) * (FLOW_ROWS * CHUNK)),
        stride(stream.heads * FLOW_ROWS * CHUNK) {}
  float* row(int chunk, int row) const { return first + static_cast<int64_t>(chunk) * stride + row * CHUNK; }
};

// A stream's states that are met by their gradients: before every KEPT_EVERY-th chunk but the first, and (last: it has a gradient) after the
// last chunk; and the products of the two.
struct KeptStates {
  float *products, *states;
  int chunks;
  bool last;
  KeptStates(float* products, float* states, const Stream& stream, bool last)
      : products(products + first_of(stream) * 8), states(states + first_of(stream) * (2 * WARPGROUP * (KEYS / 2))), chunks(stream.chunks), last(${packed ? 'last && stream.chunks > 0' : 'last'}) {}

  static int64_t first_of(const Stream& stream) {
$if packed
    const int per_head = (stream.chunks - 1) / KEPT_EVERY + 1;
    return static_cast<int64_t>(stream.before / KEPT_EVERY + stream.sequence) * stream.heads + stream.head * per_head;
$else
    return static_cast<int64_t>(stream.sequence * stream.heads + stream.head) * ((stream.chunks - 1) / KEPT_EVERY + 1);
$end
  }
  // Of the state before a chunk, or after all.
  bool meets(int chunk) const { return chunk == chunks ? last : chunk > 0 && chunk % KEPT_EVERY == 0; }
  float* state(int chunk, int part) const { return states + ((chunk - 1) / KEPT_EVERY * 2 + part) * static_cast<int64_t>(WARPGROUP * (KEYS / 2)); }
  float* products_of(int chunk) const { return products + (chunk - 1) / KEPT_EVERY * 8; }
};

#include "recurrent/chunk_sm90_token_sums.h"

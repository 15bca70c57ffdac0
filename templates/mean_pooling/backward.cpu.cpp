// mean_pooling, backward: every visible token of a row gets the row's gradient over its count of visible tokens; all others get 0.
#include "device/cpu.h"

$require block_c >= 1 and block_s >= 1
using Element = ${ctype(E)};
constexpr int64_t BLOCK_C = ${block_c};  // features a work item
constexpr int64_t BLOCK_S = ${block_s};  // tokens a work item
constexpr bool PACKED = ${form == 'packed' or form == 'packed_chunks'};  // sequences end to end, bounded by cum_seqlens
constexpr bool CHUNKED = ${form == 'chunks' or form == 'packed_chunks'};  // a row is a chunk of a sequence, not all of it
constexpr bool MASKED = ${masked};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The sequence that holds token t: the last n with cum_seqlens[n] <= t. Empty sequences hold none.
static int64_t sequence_of(const int32_t* cum_seqlens, int64_t sequences, int64_t t) {
  int64_t low = 0, high = sequences;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (cum_seqlens[middle] <= t ? low : high) = middle;
  }
  return low;
}

// Packed chunks: first_row[n] is dout's first row of sequence n, first_row[N] the number of rows.
static void number_chunks(${parameters('number_chunks')}, const Group&) {
  int64_t rows = 0;
  for (int64_t n = 0; n < N; ++n) {
    first_row[n] = rows;
    rows += (cum_seqlens[n + 1] - cum_seqlens[n] + chunk_size - 1) / chunk_size;
  }
  first_row[N] = rows;
}

// Item x: the visible tokens of row x.
static void count_visible(${parameters('count_visible')}, const Group& group) {
  const int64_t chunks = CHUNKED ? (S + chunk_size - 1) / chunk_size : 1;
  const bool* row = mask + group.x / chunks * mask_stride;
  const int64_t begin = CHUNKED ? group.x % chunks * chunk_size : 0, end = CHUNKED ? smaller(begin + chunk_size, S) : S;
  int64_t count = 0;
  for (int64_t t = begin; t < end; ++t) count += row[t];
  counts[group.x] = count;
}

// Item (x, y, z): feature block x of tokens [y * BLOCK_S, ...) of sequence z, or in the packed form of all tokens.
static void mean_pooling_bwd(${parameters('mean_pooling_bwd')}, const Group& group) {
  const int64_t first = group.x * BLOCK_C, width = smaller(BLOCK_C, C - first);
  const int64_t last = smaller((group.y + 1) * BLOCK_S, token_count);
  const bool* visible = MASKED ? mask + group.z * mask_stride : nullptr;
  Element* share = static_cast<Element*>(group.shared);  // what each visible token of the row gets
  Element* to = dx + (group.z * token_count + group.y * BLOCK_S) * C + first;
  int64_t t = group.y * BLOCK_S;

  const int64_t chunks = CHUNKED && !PACKED ? (token_count + chunk_size - 1) / chunk_size : 1;
  const int64_t end_of_sequences = PACKED ? cum_seqlens[sequences] : token_count;
  while (t < smaller(last, end_of_sequences)) {
    const int64_t sequence = PACKED ? sequence_of(cum_seqlens, sequences, t) : group.z;
    const int64_t begin = PACKED ? cum_seqlens[sequence] : 0, end = PACKED ? cum_seqlens[sequence + 1] : token_count;
    const int64_t chunk = CHUNKED ? (t - begin) / chunk_size : 0;
    const int64_t row_begin = begin + (CHUNKED ? chunk * chunk_size : 0), row_end = CHUNKED ? smaller(row_begin + chunk_size, end) : end;
    const int64_t row = !CHUNKED ? sequence : PACKED ? first_row[sequence] + chunk : group.z * chunks + chunk;
    const int64_t count = MASKED ? counts[row] : row_end - row_begin;
    const Element* from = dout + first + (PACKED ? row * dout_row_stride : group.z * dout_sequence_stride + chunk * dout_row_stride);
    const float divisor = static_cast<float>(larger(count, 1));
    for (int64_t c = 0; c < width; ++c) share[c] = from_float<Element>(to_float(from[c]) / divisor);
    for (; t < smaller(row_end, last); ++t, to += C) {
      if (MASKED && !visible[t]) {
        __builtin_memset(to, 0, width * sizeof(Element));
      } else {
        __builtin_memcpy(to, share, width * sizeof(Element));
      }
    }
  }
  for (; t < last; ++t, to += C) __builtin_memset(to, 0, width * sizeof(Element));  // tokens in no sequence
}

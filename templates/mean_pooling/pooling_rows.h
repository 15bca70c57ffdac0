// Rows of mean pooling on a GPU: which tokens make which mean. Needs device/gpu.h before it.
//
// All tokens stand in one line: the packed ones as they lie, or those of sequence 0, then those of sequence 1, and so on. A warp walks over
// a part of the line; its lanes call everything here together.
#pragma once
constexpr bool PACKED = ${form == 'packed' or form == 'packed_chunks'};  // sequences end to end, bounded by cum_seqlens
constexpr bool CHUNKED = ${form == 'chunks' or form == 'packed_chunks'};  // a row is a chunk of a sequence, not all of it
constexpr bool MASKED = ${masked};

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The line of tokens, and how it is cut into sequences and rows.
struct Line {
  const int32_t* cum_seqlens;
  const int64_t* first_row;  // packed chunks: first row of each sequence
  int64_t tokens, sequences, sequence_tokens, chunk_size;
};

// In how many lanes x holds.
static inline int lanes_with(bool x) {
  int32_t count = x;
  for (int mask = WARP / 2; mask > 0; mask /= 2) count += shuffle_xor(count, mask);
  return count;
}

// The last n with offsets[n] <= value: the sequence that holds a token or a row; empty ones hold none. Of offsets[0 .. sequences], the
// first is at most `value`, the last is more.
template <class T> static inline int64_t sequence_of(const T* offsets, int64_t sequences, int64_t value) {
  int64_t low = 0, high = sequences;  // offsets[low] <= value < offsets[high]
  while (high - low > 1) {
    const int64_t step = (high - low + WARP) / (WARP + 1), probe = low + step * (lane() + 1);
    const int below = lanes_with(probe < high && offsets[probe] <= value);
    high = smaller(high, low + step * (below + 1));
    low += step * below;
  }
  return low;
}

// The row that holds a token, and with next() the row after it.
class RowCursor {
 public:
  int64_t row = -1;            // -1: tokens of no sequence, up to the line's end
  int64_t begin = 0, end = 0;  // the row's tokens in the line
  int64_t sequence = 0, sequence_begin = 0;

  RowCursor(const Line& line, int64_t token) : line_(line) {
    if (PACKED)
      find(token);
    else
      enter(token / line.sequence_tokens, token / line.sequence_tokens * line.sequence_tokens, token);
  }

  // Not legal at the end of the line.
  void next() {
    if (CHUNKED && row >= 0 && end < sequence_end_) return take_chunk(row + 1, end);
    if (!PACKED) return enter(sequence + 1, end, end);
    const int64_t token = end;
    if (sequence + 1 < line_.sequences && offset_after(sequence + 1) > token) return enter(sequence + 1, token, token);
    find(token);  // past an empty sequence, or the last one
  }

 private:
  void find(int64_t token) {
    const int64_t end_of_sequences = line_.cum_seqlens[line_.sequences];
    if (token >= end_of_sequences) {
      row = -1;
      begin = end_of_sequences;
      end = line_.tokens;
      return;
    }
    const int64_t n = sequence_of(line_.cum_seqlens, line_.sequences, token);
    window_begin_ = -WARP;
    enter(n, line_.cum_seqlens[n], token);
  }

  void enter(int64_t n, int64_t its_begin, int64_t token) {
    sequence = n;
    sequence_begin = its_begin;
    sequence_end_ = PACKED ? offset_after(n) : its_begin + line_.sequence_tokens;
    row = n;
    begin = its_begin;
    end = sequence_end_;
    if (!CHUNKED) return;
    const int64_t chunk = token == its_begin ? 0 : (token - its_begin) / line_.chunk_size;
    const int64_t first = PACKED ? line_.first_row[n] : n * ((line_.sequence_tokens + line_.chunk_size - 1) / line_.chunk_size);
    take_chunk(first + chunk, its_begin + chunk * line_.chunk_size);
  }

  void take_chunk(int64_t its_row, int64_t its_begin) {
    row = its_row;
    begin = its_begin;
    end = smaller(its_begin + line_.chunk_size, sequence_end_);
  }

  // cum_seqlens[n + 1], for an n that is not less than the last one: each lane keeps one of the next offsets.
  int64_t offset_after(int64_t n) {
    if (n - window_begin_ >= WARP) {
      window_begin_ = n;
      window_ = line_.cum_seqlens[smaller(n + 1 + lane(), line_.sequences)];
    }
    return shuffle(window_, static_cast<int>(n - window_begin_));
  }

  const Line& line_;
  int64_t sequence_end_ = 0;
  int64_t window_begin_ = -WARP;
  int32_t window_ = 0;
};

// The tokens of a row: packed ones by their place in the tensor, others by that in their sequence. A row that no sequence has is empty.
struct RowTokens {
  int64_t sequence, chunk, begin, end;
};

// Of a row; the lanes of a warp call it together, for one row.
static inline RowTokens tokens_of(const Line& line, int64_t row) {
  const int64_t chunks = CHUNKED && !PACKED ? (line.sequence_tokens + line.chunk_size - 1) / line.chunk_size : 1;
  if (CHUNKED && PACKED && row >= line.first_row[line.sequences]) return {0, 0, 0, 0};
  const int64_t sequence = !CHUNKED ? row : PACKED ? sequence_of(line.first_row, line.sequences, row) : row / chunks;
  const int64_t chunk = !CHUNKED ? 0 : PACKED ? row - line.first_row[sequence] : row % chunks;
  const int64_t first = PACKED ? line.cum_seqlens[sequence] : 0;
  const int64_t end = PACKED ? line.cum_seqlens[sequence + 1] : line.sequence_tokens;
  if (!CHUNKED) return {sequence, 0, first, end};
  const int64_t begin = first + chunk * line.chunk_size;
  return {sequence, chunk, begin, smaller(begin + line.chunk_size, end)};
}

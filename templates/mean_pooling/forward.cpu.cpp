// mean_pooling, forward: each output row is the mean of its visible tokens. A work item sums some tokens for a block of features.
#include "device/cpu.h"
#include "device/number/vector.h"
#include "device/number/narrow.h"

$require block_c >= 256
using Element = ${ctype(E)};
constexpr int64_t BLOCK_C = ${block_c};  // features a work item
constexpr bool PACKED = ${form == 'packed' or form == 'packed_chunks'};  // sequences end to end, bounded by cum_seqlens
constexpr bool CHUNKED = ${form == 'chunks' or form == 'packed_chunks'};  // a row is a chunk of a sequence, not all of it
constexpr bool MASKED = ${masked};
constexpr int64_t PREFETCH_BYTES = 8192;  // how far ahead of the sum tokens are fetched
constexpr int64_t FOLDED = 256;           // features that several narrow tokens side by side may make
constexpr int64_t FLUSH = 128;  // tokens summed in f32 before they join the f64 total: keeps long sequences exact

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The tokens of one output row: [begin, end) of the sequence that starts at x.
struct Row {
  const Element* x;
  const bool* mask;
  int64_t begin, end;
};

// The sequence whose rows include `row`: the last n with first_row[n] <= row. Empty sequences own no rows.
static int64_t sequence_of(const int64_t* first_row, int64_t sequences, int64_t row) {
  int64_t low = 0, high = sequences;  // first_row[low] <= row < first_row[high]
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (first_row[middle] <= row ? low : high) = middle;
  }
  return low;
}

// How the tensors lie in memory. Strides are in elements.
struct Layout {
  const Element* x;
  const bool* mask;
  const int32_t* cum_seqlens;
  const int64_t* first_row;  // packed chunks: first row of each sequence
  int64_t sequences, sequence_tokens, chunk_size, sequence_stride, token_stride, mask_stride;
};

static Row row_of(const Layout& layout, int64_t row) {
$if form == 'packed_chunks'
  if (row >= layout.first_row[layout.sequences]) return {layout.x, nullptr, 0, 0};  // after the last chunk: a mean of nothing
$end
  const int64_t chunks = CHUNKED && !PACKED ? (layout.sequence_tokens + layout.chunk_size - 1) / layout.chunk_size : 1;
  const int64_t sequence = !CHUNKED ? row : PACKED ? sequence_of(layout.first_row, layout.sequences, row) : row / chunks;
  const int64_t chunk = !CHUNKED ? 0 : PACKED ? row - layout.first_row[sequence] : row % chunks;
  const int64_t first = PACKED ? layout.cum_seqlens[sequence] : 0;
  const int64_t length = PACKED ? layout.cum_seqlens[sequence + 1] - first : layout.sequence_tokens;
  const int64_t begin = CHUNKED ? chunk * layout.chunk_size : 0;
  return {layout.x + (PACKED ? first * layout.token_stride : sequence * layout.sequence_stride),
          MASKED ? layout.mask + sequence * layout.mask_stride : nullptr, begin,
          CHUNKED ? smaller(begin + layout.chunk_size, length) : length};
}

// Adds one token, and fetches the one `ahead` elements later: rows shorter than a page defeat the hardware's prefetcher.
static void add_token(const Element* token, int64_t ahead, int64_t width, float* sum) {
  const uint64_t later = reinterpret_cast<uint64_t>(token) + ahead * sizeof(Element);
  int64_t c = 0;
  for (; c + 4 * LANES <= width; c += 4 * LANES) {
    for (size_t line = 0; line < 4 * LANES * sizeof(Element); line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(later + c * sizeof(Element) + line));
    for (int64_t i = c; i < c + 4 * LANES; i += LANES) store_floats(sum + i, load_floats(sum + i) + load_floats(token + i));
  }
  for (; c + LANES <= width; c += LANES) store_floats(sum + c, load_floats(sum + c) + load_floats(token + c));
  for (; c < width; ++c) sum[c] += to_float(token[c]);
}

// Sums of a block of features over some tokens: `sum` holds the latest up to FLUSH tokens, `total` (once started) those before.
struct Sums {
  float* sum;
  double* total;
  int64_t width, pending = 0;
  bool started = false;

  Sums(const Group& group, int64_t features)
      : sum(static_cast<float*>(group.shared)), total(reinterpret_cast<double*>(sum + BLOCK_C)), width(features) {
    __builtin_memset(sum, 0, width * sizeof(float));
  }

  void add(const Element* token, int64_t ahead) {
    if (pending == FLUSH) move_to_total();
    add_token(token, ahead, width, sum);
    ++pending;
  }

  void move_to_total() {
    for (int64_t c = 0; c < width; ++c) {
      total[c] = started ? total[c] + sum[c] : sum[c];
      sum[c] = 0;
    }
    pending = 0;
    started = true;
  }

  // What were `parts` tokens side by side becomes their sum.
  void fold(int64_t parts) {
    move_to_total();
    width /= parts;
    for (int64_t i = width; i < width * parts; ++i) total[i % width] += total[i];
  }

  // The sums of all tokens, in f32.
  const float* finish() {
    for (int64_t c = 0; started && c < width; ++c) sum[c] = static_cast<float>(total[c] + sum[c]);
    return sum;
  }
};

static void write_mean(const float* sum, int64_t count, int64_t width, Element* out) {
  const float share = 1.0f / static_cast<float>(larger(count, 1));
  for (int64_t c = 0; c < width; c += LANES) store_some(out + c, load_some(sum + c, width - c) * share, width - c);
}

// Sums the row's visible tokens, features [first, first + width); returns their count in `count`. A masked token is never read, so a
// NaN in it does no harm.
static Sums sum_row(const Row& row, int64_t token_stride, int64_t first, int64_t width, const Group& group, int64_t& count) {
  const Element* x = row.x + first;
  int64_t t = row.begin;
  count = MASKED ? 0 : row.end - row.begin;
  // Few features, no gaps: several tokens side by side are one wide token.
  const int64_t side_by_side = !MASKED && token_stride == width && 2 * width <= FOLDED ? smaller(FOLDED / width, larger(count, 1)) : 1;
  Sums sums(group, width * side_by_side);
  if (side_by_side > 1) {
    for (; t + side_by_side <= row.end; t += side_by_side) sums.add(x + t * width, 0);
    sums.fold(side_by_side);
  }
  const int64_t ahead = larger(1, PREFETCH_BYTES / (width * static_cast<int64_t>(sizeof(Element)))) * token_stride;
  for (; t < row.end; ++t) {
    if (MASKED && !row.mask[t]) continue;
    sums.add(x + t * token_stride, ahead);
    if (MASKED) ++count;
  }
  return sums;
}

// Packed chunks: first_row[n] is the first output row of sequence n, first_row[sequences] the number of rows.
static void number_chunks(${parameters('number_chunks')}, const Group&) {
  int64_t rows = 0;
  for (int64_t n = 0; n < N; ++n) {
    first_row[n] = rows;
    rows += (cum_seqlens[n + 1] - cum_seqlens[n] + chunk_size - 1) / chunk_size;
  }
  first_row[N] = rows;
}

// Item (x, y, z): feature block x of rows [z * row_block, ...). With splits > 1 it sums part y of each row's tokens into `partial`,
// and mean_of_parts finishes; otherwise it writes the mean itself.
static void mean_pooling(${parameters('mean_pooling')}, const Group& group) {
  const Layout layout{x, mask, cum_seqlens, first_row, sequences, sequence_tokens, chunk_size, sequence_stride, token_stride, mask_stride};
  const int64_t first = group.x * BLOCK_C, width = smaller(BLOCK_C, C - first);
  for (int64_t r = group.z * row_block; r < smaller((group.z + 1) * row_block, rows); ++r) {
    Row row = row_of(layout, r);
    const int64_t part = r * splits + group.y, tokens = row.end - row.begin, begin = row.begin;
    row.begin = begin + tokens * group.y / splits;
    row.end = begin + tokens * (group.y + 1) / splits;
    int64_t count;
    Sums sums = sum_row(row, token_stride, first, width, group, count);
    if (splits > 1) {
      __builtin_memcpy(partial + part * C + first, sums.finish(), width * sizeof(float));
      if (group.x == 0) partial_count[part] = count;
    } else {
      write_mean(sums.finish(), count, width, out + r * C + first);
    }
  }
}

// Item (x, y): feature block x of row y, from its parts.
static void mean_of_parts(${parameters('mean_of_parts')}, const Group& group) {
  double* total = static_cast<double*>(group.shared);
  const int64_t row = group.y, first = group.x * BLOCK_C, width = smaller(BLOCK_C, C - first);
  __builtin_memset(total, 0, width * sizeof(double));
  int64_t count = 0;
  for (int64_t part = row * splits; part < (row + 1) * splits; ++part) {
    count += partial_count[part];
    for (int64_t c = 0; c < width; ++c) total[c] += partial[part * C + first + c];
  }
  float* sum = reinterpret_cast<float*>(total + BLOCK_C);
  for (int64_t c = 0; c < width; ++c) sum[c] = static_cast<float>(total[c]);
  write_mean(sum, count, width, out + row * C + first);
}

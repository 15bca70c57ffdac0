// mean_pooling, forward, on GPUs: one mean for each row. Every warp sums a part of the line of all tokens, whatever rows lie in it, so that
// rows of any lengths keep all warps equally busy. Sums of rows that reach over a warp's part are put together by its block, those that
// reach over a block's part by a second launch; always in the order of the tokens.
#include "device/gpu.h"
#include "mean_pooling/pooling_rows.h"
#include "mean_pooling/pooling_numbering.h"

$require vec * size(E) <= 16 and warps_c * warps_s <= 16
using Element = ${ctype(E)};
constexpr int VEC = ${vec};          // features a lane
constexpr int WARPS_C = ${warps_c};  // warps of a block side by side over the features
constexpr int WARPS_S = ${warps_s};  // and over the tokens
constexpr int UNROLL = ${unroll};    // loads of a lane that are under way at once
constexpr int WARPS = WARPS_C * WARPS_S;
constexpr int BLOCKS = 16 / WARPS;   // at least 16 resident warps per SM: 128 registers a thread
constexpr int WIDE = VEC < 4 ? VEC : 4;  // floats of partial sums that are moved at once
constexpr int FINISH_THREADS = 256;

// A lane's features of a token, in whole registers.
using Word = ${vec * size(E) == 2 ? 'uint16_t' : 'uint32_t'};
constexpr int WORDS = VEC * sizeof(Element) / sizeof(Word);
using Token = Pack<Word, WORDS>;

static inline Token load_token(const Element* x) { return load_once<WORDS>(reinterpret_cast<const Word*>(x)); }

static inline float feature_of(const Token& token, int i) {
$if E == 'f32'
  return __builtin_bit_cast(float, token.at[i]);
$else
  return to_float(Element{static_cast<uint16_t>(token.at[i / 2] >> (i % 2 * 16))});
$end
}

struct Sum {
  float of[VEC];
  int64_t count;  // visible tokens
};

// A row and what some of its tokens add up to. row -1: none.
struct Open {
  int64_t row, begin, end, count;
};

static inline void write_mean(const float (&sum)[VEC], int64_t count, Element* out) {
  const float share = 1.0f / static_cast<float>(larger(count, 1));
  Pack<Element, VEC> mean;
  for (int i = 0; i < VEC; ++i) mean.at[i] = from_float<Element>(sum[i] * share);
  store_pack(out, mean);
}

// Adds up this lane's features of some tokens; `side` lanes take them in turn, of which this one is number `turn`. In the end every one of
// those lanes has the sum. A masked token is never read, so a NaN in it does no harm.
static inline Sum sum_tokens(const Element* x, const bool* mask, int tokens, int64_t stride, int turn, int side, bool active) {
  Sum sum = {};
  int32_t count = 0;
  const int64_t step = side * stride;
  const Element* at = x + turn * stride;
  for (int t = turn; t < tokens && active; t += UNROLL * side) {
    Token token[UNROLL];
    if (!MASKED && t + (UNROLL - 1) * side < tokens) {
      for (int u = 0; u < UNROLL; ++u, at += step) token[u] = load_token(at);
    } else {
      bool visible[UNROLL];
      for (int u = 0; u < UNROLL; ++u) visible[u] = t + u * side < tokens && (!MASKED || mask[t + u * side]);
      for (int u = 0; u < UNROLL; ++u, at += step) {
        token[u] = {};
        if (visible[u]) token[u] = load_token(at);
        count += visible[u];
      }
    }
    for (int u = 0; u < UNROLL; ++u)
      for (int i = 0; i < VEC; ++i) sum.of[i] += feature_of(token[u], i);
  }
  for (int mask_of_lanes = WARP / side; mask_of_lanes < WARP; mask_of_lanes *= 2) {
    if (MASKED) count += shuffle_xor(count, mask_of_lanes);
    for (int i = 0; i < VEC; ++i) sum.of[i] += shuffle_xor(sum.of[i], mask_of_lanes);
  }
  sum.count = MASKED ? count : tokens;
  return sum;
}

// Packed chunks only.
KERNEL(NUMBERING_THREADS, 1) number_chunks(${parameters('number_chunks')}) {
  number_rows(cum_seqlens, first_row, N, chunk_size);
}

// Block x: column x % columns (features) of tile x / columns (block_tokens tokens). Its warps take warp_tokens tokens each, for
// `across` lanes' features.
// partial[tile][0]: sum of the tile's first row, if that began before the tile; [1]: of its last, if that began in it and goes on.
// crossing[tile]: the row that goes on after the tile (-1: none), and its tokens' begin and end in the line.
KERNEL(WARP * WARPS, BLOCKS) mean_pooling(${parameters('mean_pooling')}) {
  __shared__ Pack<float, WIDE> sums[WARPS][2][VEC / WIDE][WARP];
  __shared__ Open open[WARPS][2];
  const int column = block_x() % static_cast<int>(columns), lanes = static_cast<int>(across), side = WARP / lanes;
  const int64_t tile = block_x() / static_cast<int>(columns);
  const int64_t feature = ((static_cast<int64_t>(column) * WARPS_C + warp() % WARPS_C) * lanes + lane() % lanes) * VEC;
  const bool active = feature < C, writes = active && lane() < lanes;
  const int64_t tile_begin = tile * block_tokens, tile_end = smaller(tile_begin + block_tokens, tokens);
  const int64_t begin = tile_begin + warp() / WARPS_C * warp_tokens, end = smaller(begin + warp_tokens, tile_end);

  if (lane() < 2) open[warp()][lane()] = {-1, 0, 0, 0};
  sync_warp();
  if (begin < end) {
    const Line line{cum_seqlens, first_row, tokens, sequences, sequence_tokens, chunk_size};
    RowCursor rows(line, begin);
    for (int64_t t = begin; rows.row >= 0; rows.next()) {
      const int64_t stop = smaller(rows.end, end), offset = PACKED ? t : t - rows.sequence_begin;
      const Element* from = x + (PACKED ? 0 : rows.sequence * sequence_stride) + offset * token_stride + feature;
      const bool* visible = MASKED ? mask + rows.sequence * mask_stride + offset : nullptr;
      const Sum sum = sum_tokens(from, visible, static_cast<int>(stop - t), token_stride, lane() / lanes, side, active);
      if (rows.begin >= begin && rows.end <= end) {
        if (writes) write_mean(sum.of, sum.count, out + rows.row * C + feature);
      } else {
        const int slot = rows.begin < begin ? 0 : 1;
        for (int i = 0; i < VEC; i += WIDE) {
          Pack<float, WIDE> some;
          for (int j = 0; j < WIDE; ++j) some.at[j] = sum.of[i + j];
          sums[warp()][slot][i / WIDE][lane()] = some;
        }
        if (lane() == 0) open[warp()][slot] = {rows.row, rows.begin, rows.end, sum.count};
      }
      t = stop;
      if (t >= end) break;
    }
  }
  sync_block();
  if (warp() >= WARPS_C) return;

  Sum sum = {};
  Open last{-1, 0, 0, 0};
  const auto close = [&] {
    if (last.row < 0) return;
    if (last.begin >= tile_begin && last.end <= tile_end) {
      if (writes) write_mean(sum.of, sum.count, out + last.row * C + feature);
      return;
    }
    const int64_t slot = tile * 2 + (last.begin < tile_begin ? 0 : 1);
    for (int i = 0; i < VEC && writes; i += WIDE) {
      Pack<float, WIDE> some;
      for (int j = 0; j < WIDE; ++j) some.at[j] = sum.of[i + j];
      store_pack(partial + slot * C + feature + i, some);
    }
    if (MASKED && feature == 0) partial_count[slot] = sum.count;
  };
  for (int s = 0; s < 2 * WARPS_S; ++s) {
    const int from = s / 2 * WARPS_C + warp();
    const Open next = open[from][s % 2];
    if (next.row < 0) continue;
    if (next.row != last.row) {
      close();
      sum = {};
      last = next;
    }
    sum.count += next.count;
    for (int i = 0; i < VEC; ++i) sum.of[i] += sums[from][s % 2][i / WIDE][lane()].at[i % WIDE];
  }
  close();
  if (tile < boundaries && feature == 0) {
    const bool goes_on = last.row >= 0 && last.end > tile_end;
    crossing[tile * 3] = goes_on ? last.row : -1;
    crossing[tile * 3 + 1] = last.begin;
    crossing[tile * 3 + 2] = last.end;
  }
}

// Blocks before `boundaries`: the row that crosses the end of tile x, if one does. A row that crosses several shares its features out among
// their blocks.
static inline void add_parts(const int64_t* crossing, const float* partial, const int64_t* partial_count, Element* out, int64_t C,
                             int64_t block_tokens) {
  __shared__ Pack<float, WIDE> sums[FINISH_THREADS];
  __shared__ int64_t counts[FINISH_THREADS];
  const int64_t row = crossing[block_x() * 3], begin = crossing[block_x() * 3 + 1], end = crossing[block_x() * 3 + 2];
  if (row < 0) return;
  const int64_t first_tile = begin / block_tokens, last_tile = (end - 1) / block_tokens, packs = C / WIDE;
  const int64_t share = ((packs + last_tile - first_tile - 1) / (last_tile - first_tile) + 7) / 8 * 8;  // whole cache lines
  const int64_t first = (block_x() - first_tile) * share, last = smaller(first + share, packs);
  if (first >= last) return;

  int64_t count = end - begin;
  if (MASKED) {
    count = 0;
    for (int64_t t = first_tile + thread_x(); t <= last_tile; t += FINISH_THREADS) count += partial_count[t * 2 + (t == first_tile)];
    counts[thread_x()] = count;
    for (int half_of = FINISH_THREADS / 2; half_of > 0; half_of /= 2) {
      sync_block();
      if (thread_x() < half_of) counts[thread_x()] += counts[thread_x() + half_of];
    }
    sync_block();
    count = counts[0];
  }
  for (int64_t some = first; some < last; some += FINISH_THREADS) {
    const int width = static_cast<int>(smaller(last - some, FINISH_THREADS));
    int side = 1;  // threads that share a pack's parts
    while (2 * side * width <= FINISH_THREADS) side *= 2;
    const int turn = thread_x() / width;
    const int64_t pack = some + thread_x() % width;
    Pack<float, WIDE> sum = {};
    for (int64_t t = first_tile + turn; t <= last_tile && turn < side; t += 8 * side) {
      Pack<float, WIDE> part[8];
      for (int u = 0; u < 8; ++u) {
        const int64_t tile = t + u * side;
        part[u] = {};
        if (tile <= last_tile) part[u] = load_pack<WIDE>(partial + (tile * 2 + (tile == first_tile)) * C + pack * WIDE);
      }
      for (int u = 0; u < 8; ++u)
        for (int i = 0; i < WIDE; ++i) sum.at[i] += part[u].at[i];
    }
    sync_block();
    sums[thread_x()] = sum;
    for (int half_of = side / 2; half_of > 0; half_of /= 2) {
      sync_block();
      if (turn < half_of)
        for (int i = 0; i < WIDE; ++i) sums[thread_x()].at[i] += sums[thread_x() + half_of * width].at[i];
    }
    if (turn > 0) continue;
    const float part_of_one = 1.0f / static_cast<float>(larger(count, 1));
    Pack<Element, WIDE> mean;
    for (int i = 0; i < WIDE; ++i) mean.at[i] = from_float<Element>(sums[thread_x()].at[i] * part_of_one);
    store_pack(out + row * C + pack * WIDE, mean);
  }
}

// The other blocks: zeros in the rows without tokens, of FINISH_THREADS rows from `first` on. Those are empty sequences, and rows that out
// has after the last chunk.
static inline void clear_rows(const int32_t* cum_seqlens, const int64_t* first_row, Element* out, int64_t C, int64_t rows,
                              int64_t sequences, int64_t first) {
  const int64_t mine = first + thread_x();
  bool is_empty = mine < rows;
  if (PACKED && is_empty) is_empty = CHUNKED ? mine >= first_row[sequences] : cum_seqlens[mine] == cum_seqlens[mine + 1];
  if (!any_in_warp(is_empty)) return;
  for (int from = 0; from < WARP; ++from) {
    if (!shuffle(static_cast<int32_t>(is_empty), from)) continue;
    Element* row = out + (first + warp() * WARP + from) * C;
    for (int64_t c = lane(); c < C; c += WARP) row[c] = from_float<Element>(0);
  }
}

KERNEL(FINISH_THREADS, 1) finish(${parameters('finish')}) {
  if (block_x() < boundaries) return add_parts(crossing, partial, partial_count, out, C, block_tokens);
  clear_rows(cum_seqlens, first_row, out, C, rows, sequences, (block_x() - boundaries) * FINISH_THREADS);
}

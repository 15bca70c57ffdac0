// GPU vocabulary: 16 query heads of a token on mma.sync against the keys of some runs, 16 at a time, which the warps of a block take in
// turn. Part of a template, which has defined before: Element, WARPS, D and DV (multiples of 32 and of 16).
#pragma once
#include "device/attention/softmax.h"
#include "native_sparse_attention/selected_blocks.h"

constexpr int HEADS = 16, CHUNK = 16;        // rows of a tile; keys at a time
constexpr int VALUE_PITCH = DV + 8;          // elements from one key's values to the next's in shared memory
constexpr int PART_PITCH = DV + 4;           // floats of a row of a warp's outputs there
constexpr int STAGED = 2 * CHUNK * VALUE_PITCH;  // elements of a warp's values: this step's and the next's

// The chunks of CHUNK keys of this warp: of the keys [first, end) that blocks leave (all, where blocks.bits is null) every WARPS-th.
struct WarpChunks {
  SelectedBlocks blocks;
  KeyRange run;
  int64_t end;
  int skip;

  WarpChunks(const SelectedBlocks& selected, const KeyRange& seen)
      : blocks(selected), run(selected.bits ? selected.next(seen.first, seen.end) : seen), end(seen.end), skip(warp()) {}

  // Empty: there are no more.
  KeyRange next() {
#pragma unroll 1
    while (run.first < run.end) {
      const int chunks = static_cast<int>((run.end - run.first + CHUNK - 1) / CHUNK);
      if (skip < chunks) {
        const int64_t first = run.first + skip * CHUNK, last = first + CHUNK < run.end ? first + CHUNK : run.end;
        run.first = last, skip = WARPS - 1;
        if (run.first == run.end) run = blocks.bits ? blocks.next(run.end, end) : KeyRange{end, end};
        return {first, last};
      }
      skip -= chunks;
      run = blocks.bits ? blocks.next(run.end, end) : KeyRange{end, end};
    }
    return {end, end};
  }
};

// A warp's queries, softmax and outputs: of rows g and g + 8 of the tile, lane 4 g + t.
struct HeadTile {
  uint32_t query[D / 16][4];
  float output[DV / 8][4];
  float reference[2], sum[2];

  // Features are taken in an order in which a lane loads 16 bytes of a row; keys are, too.
  void start(const Element* queries, int64_t head_stride, int heads) {
    const int row = lane() / 4, column = lane() % 4 * 8;
#pragma unroll
    for (int half_of = 0; half_of < 2; ++half_of) {
      const int head = row + 8 * half_of;
#pragma unroll
      for (int step = 0; step < D / 32; ++step) {
        Pack<uint32_t, 4> words{};
        if (head < heads) words = load_pack<4>(reinterpret_cast<const uint32_t*>(queries + head * head_stride + 32 * step + column));
        query[2 * step][half_of] = words.at[0], query[2 * step][2 + half_of] = words.at[1];
        query[2 * step + 1][half_of] = words.at[2], query[2 * step + 1][2 + half_of] = words.at[3];
      }
    }
    clear();
  }
  void clear() {
#pragma unroll
    for (int i = 0; i < 2; ++i) reference[i] = LOWEST, sum[i] = 0;
#pragma unroll
    for (int n = 0; n < DV / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) output[n][i] = 0;
  }

  void find_scores(float (&scores)[2][4], const Element* keys, int64_t stride, const KeyRange& chunk, float unit) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int64_t mine = chunk.first + 8 * n + lane() / 4;
      const Element* key = keys + (mine < chunk.end ? mine : chunk.end - 1) * stride + lane() % 4 * 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;
#pragma unroll
      for (int step = 0; step < D / 32; ++step) {
        const auto words = load_pack<4>(reinterpret_cast<const uint32_t*>(key + 32 * step));
        mma_16x8x16<Element>(scores[n], query[2 * step], words.at[0], words.at[1]);
        mma_16x8x16<Element>(scores[n], query[2 * step + 1], words.at[2], words.at[3]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scores[n][i] = chunk.first + 8 * n + lane() % 4 * 2 + i % 2 < chunk.end ? scores[n][i] * unit : -INFINITE;
    }
  }

  // Scores become weights.
  void weigh(float (&scores)[2][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = larger_of(larger_of(scores[0][2 * r], scores[0][2 * r + 1]), larger_of(scores[1][2 * r], scores[1][2 * r + 1]));
      largest = larger_of(largest, shuffle_xor(largest, 1));
      largest = larger_of(largest, shuffle_xor(largest, 2));
      if (any_in_warp(largest > reference[r])) {
        const float now = larger_of(reference[r], largest), factor = exp2_of(reference[r] - now);
        reference[r] = now;
        sum[r] *= factor;
#pragma unroll
        for (int n = 0; n < DV / 8; ++n) output[n][2 * r] *= factor, output[n][2 * r + 1] *= factor;
      }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) sum[r] += scores[n][i] = exp2_of(scores[n][i] - reference[r]);
    }
  }

  void add_values(const float (&weights)[2][4], const Element* values) {
    const uint32_t a[4] = {pack_pair<Element>(weights[0][0], weights[0][1]), pack_pair<Element>(weights[0][2], weights[0][3]),
                           pack_pair<Element>(weights[1][0], weights[1][1]), pack_pair<Element>(weights[1][2], weights[1][3])};
    const SharedPointer row = shared_pointer(values + (lane() / 8 % 2 * 8 + lane() % 8) * VALUE_PITCH + lane() / 16 * 8);
#pragma unroll
    for (int n = 0; n < DV / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, row + n * 16 * sizeof(Element));
      mma_16x8x16<Element>(output[2 * n], a, b[0], b[1]);
      mma_16x8x16<Element>(output[2 * n + 1], a, b[2], b[3]);
    }
  }

  // `staged`: this warp's values in shared memory.
  void attend(const Element* keys, int64_t key_stride, const Element* values, int64_t value_stride, WarpChunks chunks, Element* staged, float unit) {
    const auto copy = [&](const KeyRange& chunk, int stage) {
#pragma unroll
      for (int i = lane(); i < CHUNK * DV / 8; i += WARP) {
        const int key = i / (DV / 8), column = i % (DV / 8) * 8;
        const bool wanted = chunk.first + key < chunk.end;
        copy_async_16(shared_pointer(staged + (stage * CHUNK + key) * VALUE_PITCH + column),
                      values + (wanted ? chunk.first + key : 0) * value_stride + column, wanted);
      }
      copy_async_commit();
    };
    KeyRange now = chunks.next();
    copy(now, 0);
#pragma unroll 1
    for (int stage = 0; now.first < now.end; stage ^= 1) {
      const KeyRange ahead = chunks.next();
      sync_warp();  // the other stage's values were read
      copy(ahead, stage ^ 1);
      float scores[2][4];
      find_scores(scores, keys, key_stride, now, unit);
      weigh(scores);
      copy_async_wait<1>();
      sync_warp();
      add_values(scores, staged + stage * CHUNK * VALUE_PITCH);
      now = ahead;
    }
    copy_async_wait<0>();
  }

  // This warp's part: outputs [HEADS][PART_PITCH], and each row's softmax.
  void store_part(float* parts, Softmax* softmax) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane() / 4 + 8 * r;
      float all = sum[r];
      all += shuffle_xor(all, 1);
      all += shuffle_xor(all, 2);
      if (lane() % 4 == 0) softmax[warp() * HEADS + row] = {reference[r], all};
#pragma unroll
      for (int n = 0; n < DV / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) parts[(warp() * HEADS + row) * PART_PITCH + 8 * n + lane() % 4 * 2 + i] = output[n][2 * r + i];
    }
  }
};

// The warps' parts of a row put together: its softmax, and what each part counts.
struct WholeRow {
  float factor[WARPS];  // without the row's own sum
  Softmax softmax;

  WholeRow(const Softmax* parts, int row) : softmax{LOWEST, 0} {
#pragma unroll
    for (int w = 0; w < WARPS; ++w) softmax.reference = larger_of(softmax.reference, parts[w * HEADS + row].reference);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      factor[w] = factor_of(parts[w * HEADS + row], softmax.reference);
      softmax.sum += factor[w] * parts[w * HEADS + row].sum;
    }
  }
  float lse() const { return softmax.sum == 0 ? -INFINITE : softmax.reference * LN_2 + log_of(softmax.sum); }
  float value(const float* parts, int row, int feature) const {
    float x = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) x += factor[w] * parts[(w * HEADS + row) * PART_PITCH + feature];
    return softmax.sum == 0 ? 0 : x / softmax.sum;
  }
};

// Packed chunks of mean pooling on a GPU: the first row of each sequence. Needs mean_pooling/pooling_rows.h before it.
#pragma once
constexpr int NUMBERING_THREADS = 512;
constexpr int NUMBERED = 4096;  // sequences a block

// Sum over the block; every thread gets it.
static inline int64_t sum_over_block(int64_t x, int64_t* of_threads) {
  sync_block();
  of_threads[thread_x()] = x;
  for (int half_of = NUMBERING_THREADS / 2; half_of > 0; half_of /= 2) {
    sync_block();
    if (thread_x() < half_of) of_threads[thread_x()] += of_threads[thread_x() + half_of];
  }
  sync_block();
  return of_threads[0];
}

static inline int64_t rows_of(const int32_t* cum_seqlens, int64_t n, uint32_t chunk_size) {
  return (static_cast<uint32_t>(cum_seqlens[n + 1] - cum_seqlens[n]) + chunk_size - 1) / chunk_size;
}

// first_row[n] = rows of the sequences before n, first_row[N] = rows of all. A block numbers NUMBERED sequences; it counts the rows before
// them itself, so that no block waits for another.
static inline void number_rows(const int32_t* cum_seqlens, int64_t* first_row, int64_t N, int64_t chunk_size) {
  __shared__ int64_t of_threads[NUMBERING_THREADS];
  const uint32_t size = static_cast<uint32_t>(smaller(chunk_size, 0x7fffffff));  // no sequence is longer
  const int64_t begin = static_cast<int64_t>(block_x()) * NUMBERED, end = smaller(begin + NUMBERED, N);
  int64_t before = 0;
  for (int64_t n = thread_x(); n < begin; n += NUMBERING_THREADS) before += rows_of(cum_seqlens, n, size);
  int64_t row = sum_over_block(before, of_threads);

  // Each thread takes NUMBERED / NUMBERING_THREADS sequences in a row; its first row is the sum over the threads before it.
  constexpr int EACH = NUMBERED / NUMBERING_THREADS;
  const int64_t first = begin + thread_x() * EACH, last = smaller(first + EACH, end);
  int64_t own = 0;
  for (int64_t n = first; n < last; ++n) own += rows_of(cum_seqlens, n, size);
  sync_block();
  of_threads[thread_x()] = own;
  for (int by = 1; by < NUMBERING_THREADS; by *= 2) {
    sync_block();
    const int64_t add = thread_x() >= by ? of_threads[thread_x() - by] : 0;
    sync_block();
    of_threads[thread_x()] += add;
  }
  row += of_threads[thread_x()] - own;
  for (int64_t n = first; n < last; ++n) {
    first_row[n] = row;
    row += rows_of(cum_seqlens, n, size);
  }
  if (begin + NUMBERED > N && thread_x() == NUMBERING_THREADS - 1) first_row[N] = row;
}

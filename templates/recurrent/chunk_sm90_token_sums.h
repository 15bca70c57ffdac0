// Hopper vocabulary of the chunked recurrence's gradient: sums over the lanes that share tokens of wgmma's sums.
#pragma once

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

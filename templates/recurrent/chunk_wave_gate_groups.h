// GPU vocabulary of the chunked recurrence's gradients on matrix instructions of a wave: gradients of the log gates of a group of chunks, from
// what flows past them.
#pragma once

// The last sequence whose groups begin at or before number `group`.
static inline int64_t sequence_of_group(const int32_t* cum_seqlens, int64_t sequences, int64_t group, int64_t length) {
  constexpr int GROUP = CHUNK * KEPT;
  if (!cum_seqlens) return group / ((length + GROUP - 1) / GROUP);
  int64_t low = 0, high = sequences;  // the one looked for is in [low, high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (cum_seqlens[middle] / GROUP + middle <= group) low = middle;
    else high = middle;
  }
  return low;
}

// A group's tokens, and its chunks of their sequence, [begin, end).
struct GateGroup {
  Tokens tokens;
  int count, begin, end;

  GateGroup(const int32_t* cum_seqlens, int64_t sequences, int64_t group, int64_t length) : tokens(nullptr, 0, 0, 0), count(0), begin(0), end(0) {
    const int64_t sequence = sequence_of_group(cum_seqlens, sequences, group, length);
    if (sequence >= sequences) return;
    tokens = Tokens(cum_seqlens, sequences, sequence, length);
    count = static_cast<int>(tokens.end - tokens.first);
    begin = static_cast<int>(group - groups_before(cum_seqlens, tokens, sequence, length)) * KEPT;
    const int chunks = (count + CHUNK - 1) / CHUNK;
    end = chunks < begin + KEPT ? chunks : begin + KEPT;
  }
};

// By a warp, from the group's last token on, a lane a token of each chunk: flow(chunk, t) is by how much more flows past token t's gate than
// past the next one's; `past`: past those behind the group. To rows of `to`, if they are wanted; returns the sum of all.
template <class Flow>
static inline float scan_gates(const GateGroup& of, float past, const TokenNumbers& gates, float gamma, const GradientRow& to, int64_t stride, bool wanted,
                               Flow flow) {
  static_assert(CHUNK == WARP);
  float total = 0;
  for (int chunk = of.end - 1; chunk >= of.begin; --chunk) {
    const int t = chunk * CHUNK + lane();
    float sum = flow(chunk, t);
#pragma unroll
    for (int by = 1; by < WARP; by *= 2) {
      const float later = shuffle_down(sum, by);
      if (lane() + by < WARP) sum += later;
    }
    if (t < of.count) {
      const float gate = (gates.data ? number_at(gates.data, gates.type, static_cast<int64_t>(t) * gates.stride) : 0) + gamma;
      const float gradient = gate < -3.4e38f ? 0 : past + sum;
      if (wanted) to.store(t * stride, gradient);
      total += gradient;
    }
    past += shuffle(sum, 0);
  }
#pragma unroll
  for (int mask = 1; mask < WARP; mask *= 2) total += shuffle_xor(total, mask);
  return total;
}

// GPU vocabulary of mla_decode: the outputs of a row's parts, each relative to a reference of its own, become one.
#pragma once
#include "device/attention/row_scale.h"
#include "device/tile/launch_order.h"

constexpr int FINISH_THREADS = 128, MOST_GROUPS = 4, MOST_PARTS = 128;

// A block's row: head block_x() % heads of query token block_x() / heads. At most MOST_PARTS parts; GROUPED: groups of FINISH_THREADS
// threads share those out among them.
template <class Element, int R, bool GROUPED = false>
static inline void finish_row(const View& out, const View& lse, const float* partial, const Softmax* softmaxes, int parts, int all_groups = 1) {
  constexpr int EACH = R / FINISH_THREADS, AT_ONCE = 8;  // features a thread; parts on their way together
  static_assert(R % FINISH_THREADS == 0);
  const int groups = GROUPED ? all_groups : 1, group = GROUPED ? thread_x() / FINISH_THREADS : 0, feature = GROUPED ? thread_x() % FINISH_THREADS : thread_x();
  const int heads = static_cast<int>(out.shape[2]), queries = static_cast<int>(out.shape[1]);
  const int head = block_x() % heads, i = block_x() / heads % queries, sequence = block_x() / heads / queries;
  const int64_t first = int64_t{block_x()} * parts;
  __shared__ float factors[MOST_PARTS];
  Softmax own[MOST_PARTS / WARP], all{LOWEST, 0};
#pragma unroll
  for (int n = 0; n < MOST_PARTS / WARP; ++n) {
    const int part = n * WARP + lane();
    own[n] = part < parts ? softmaxes[first + part] : Softmax{LOWEST, 0};
    all.reference = larger_of(all.reference, own[n].reference);
  }
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) all.reference = larger_of(all.reference, shuffle_xor(all.reference, mask));
#pragma unroll
  for (int n = 0; n < MOST_PARTS / WARP; ++n) all.sum += own[n].sum * factor_of(own[n], all.reference);
#pragma unroll
  for (int mask = WARP / 2; mask > 0; mask /= 2) all.sum += shuffle_xor(all.sum, mask);
  if (warp() == 0)
#pragma unroll
    for (int n = 0; n < MOST_PARTS / WARP; ++n) factors[n * WARP + lane()] = factor_of(own[n], all.reference);
  sync_block();
  float sums[EACH] = {};
  const float* const outputs = partial + first * R + feature;
#pragma unroll 1
  for (int part = group; part < parts; part += AT_ONCE * groups) {
    const auto of = [&](int u) { return part + u * groups; };
    float x[AT_ONCE][EACH];
#pragma unroll
    for (int u = 0; u < AT_ONCE; ++u)
#pragma unroll
      for (int k = 0; k < EACH; ++k) x[u][k] = of(u) < parts ? outputs[int64_t{of(u)} * R + k * FINISH_THREADS] : 0;
#pragma unroll
    for (int u = 0; u < AT_ONCE; ++u)
#pragma unroll
      for (int k = 0; k < EACH; ++k) sums[k] += x[u][k] * (of(u) < parts ? factors[of(u)] : 0);
  }
  if constexpr (GROUPED) {
    __shared__ float sums_of_groups[MOST_GROUPS - 1][R];
#pragma unroll
    for (int k = 0; group > 0 && k < EACH; ++k) sums_of_groups[group - 1][k * FINISH_THREADS + feature] = sums[k];
    sync_block();
    if (group > 0) return;
#pragma unroll 1
    for (int g = 0; g < groups - 1; ++g)
#pragma unroll
      for (int k = 0; k < EACH; ++k) sums[k] += sums_of_groups[g][k * FINISH_THREADS + feature];
  }
  const float factor = scale_of(all, all);
  Element* const to = static_cast<Element*>(out.data) + sequence * out.strides[0] + i * out.strides[1] + head * out.strides[2] + feature;
#pragma unroll
  for (int k = 0; k < EACH; ++k) to[k * FINISH_THREADS] = from_float<Element>(sums[k] * factor);
  if (thread_x() == 0 && is_given(lse))
    static_cast<float*>(lse.data)[sequence * lse.strides[0] + head * lse.strides[1] + i * lse.strides[2]] =
        all.sum == 0 ? -INFINITE : all.reference * LN_2 + log_of(all.sum);
}

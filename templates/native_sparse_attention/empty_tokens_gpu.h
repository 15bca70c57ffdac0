// GPU vocabulary: what tokens of no sequence give. Part of a template, which has defined Element and, where there are gates, included gates.h before.
#pragma once
#include "device/attention/attention.h"
#include "native_sparse_attention/select_blocks_gpu.h"

// Outputs of the query heads of kv head `kv_head` at tokens [first, end), by all of WARPS_OF warps: 0, log-sum-exps of minus infinity and no block.
template <int WARPS_OF>
static inline void clear_tokens(const View& out, const View& ${gated ? 'branch_lse, const View& selected' : 'lse'}, int first, int end, int kv_head,
                                int heads) {
#pragma unroll 1
  for (int i = warp(); i < (end - first) * heads; i += WARPS_OF) {
    const int token = first + i / heads, head = kv_head * heads + i % heads;
    Element* const to = Heads<Element>(out).row(0, token, head);
#pragma unroll 1
    for (int64_t d = lane(); d < out.shape[3]; d += WARP) to[d] = from_float<Element>(0);
    if (lane() != 0) continue;
$if gated
#pragma unroll 1
    for (int branch = MEANS; branch <= WINDOW; ++branch) store_branch_lse(branch_lse, 0, token, head, static_cast<Branch>(branch), -INFINITE);
    if (i % heads == 0) store_selected(selected, nullptr, 0, token, kv_head, 0);
$else
    if (is_given(lse)) static_cast<float*>(lse.data)[head * lse.strides[1] + token * lse.strides[2]] = -INFINITE;
$end
  }
}

// CPU vocabulary: what a token of no sequence gives. Part of a template, which has included gates.h.
#pragma once
#include "native_sparse_attention/select_blocks_cpu.h"

// Outputs of the query heads of kv head `kv_head`: 0, log-sum-exps of minus infinity and no block.
static void clear_token(const View& out, const View& ${gated ? 'branch_lse, const View& selected' : 'lse'}, int64_t token, int64_t kv_head,
                        int64_t heads) {
  for (int64_t head = kv_head * heads; head < (kv_head + 1) * heads; ++head) {
    Element* const to = Heads<Element>(out).row(0, token, head);
    for (int64_t d = 0; d < out.shape[3]; ++d) to[d] = from_float<Element>(0);
$if gated
    for (int branch = MEANS; branch <= WINDOW; ++branch) store_branch_lse(branch_lse, 0, token, head, static_cast<Branch>(branch), -INFINITE);
$else
    if (is_given(lse)) static_cast<float*>(lse.data)[head * lse.strides[1] + token * lse.strides[2]] = -INFINITE;
$end
  }
$if gated
  store_selected(selected, {nullptr, 1}, 0, token, kv_head, 0);
$end
}

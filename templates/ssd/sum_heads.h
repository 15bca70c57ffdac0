// ssd_bwd's last launch: what chunks add to a head's gradients is added up.
#pragma once
#include "ssd/sum_head.h"

// Block x: the gradients of head x's A, dt_bias and D, over all chunks.
KERNEL(256, 1) sum_heads(${parameters('sum_heads')}) {
  sum_head(head_sums, chunks, heads, {{dA_view, a_type}, {ddt_bias_view, bias_type}, {dD_view, d_type}});
}

// GPU vocabulary of mla_attention_bwd on flash_attention_bwd's templates: tensors of the heads of a turn, and nothing of what only flash_attention takes.
#pragma once
#include "mla_attention/head_views.h"
#include "mla_attention_bwd/saved_rows.h"

// Heads [first, first + heads) of LSE [batches, all heads, tokens].
static inline View logs_from(const View& all, int64_t first, int64_t heads) {
  return logs_view(static_cast<float*>(all.data) + first * all.strides[1], all.shape[0], heads, all.shape[2], all.strides[0], all.strides[1]);
}

// ssd_bwd's last two launches, for templates/recurrent/backward.chunk.gpu.cu and backward.chunk_wave.gpu.cu: what chunks, and heads of a group,
// share is added up.

// Block x: token x of all rows of the batch. Tokens of no sequence get zeros.
KERNEL(128, 1) finish(${parameters('finish')}) {
  const int64_t length = x_view.shape[1], row = block_x() / length, token = block_x() % length;
  const bool used = !cum_seqlens || token < cum_seqlens[sequences];
  if (used && !SHARED_HEADS) return;
  const int64_t states = C_view.shape[3], groups = C_view.shape[2], readers = heads / groups;
  const auto row_of = [&](const View& view) { return static_cast<Element*>(view.data) + row * view.strides[0] + token * view.strides[1]; };
  for (int64_t i = thread_x(); i < groups * states; i += 128) {
    const int64_t group = i / states, state = i % states, first = (block_x() * heads + group * readers) * states + state;
    float c = 0, b = 0;
    for (int64_t reader = 0; used && reader < readers; ++reader)
      c += query_sums[first + reader * states], b += key_sums[first + reader * states];
    row_of(dC_view)[group * dC_view.strides[2] + state] = from_float<Element>(c);
    row_of(dBm_view)[group * dBm_view.strides[2] + state] = from_float<Element>(b);
  }
  if (used) return;
  const int64_t features = x_view.shape[3];
  for (int64_t i = thread_x(); i < heads * features; i += 128)
    row_of(dx_view)[i / features * dx_view.strides[2] + i % features] = from_float<Element>(0.0f);
  for (int64_t head = thread_x(); head < heads; head += 128) GradientRow(ddt_view, dt_type, row, token, head).store(0, 0);
}

#include "ssd/sum_heads.h"

// A row a warp.
#include "device/gpu.h"
#include "device/number/roots.h"

constexpr bool ADDED = ${added}, WEIGHTED = ${weighted};

KERNEL(32, 1) normalise(${parameters('normalise')}) {
  const int64_t row = block_x();
  if (row >= R) return;
  const auto value = [&](int64_t c) {
    float v = to_float(x[row * x_step + c]);
    if constexpr (ADDED) v += to_float(residual[row * residual_step + c]);
    return v;
  };
  float sum = 0;
  for (int64_t c = lane(); c < C; c += WARP) sum += value(c) * value(c);
  for (int mask = WARP / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  const float factor = rsqrt_of(sum / static_cast<float>(C) + epsilon);
  for (int64_t c = lane(); c < C; c += WARP) {
    float y = value(c) * factor;
    if constexpr (WEIGHTED) y *= to_float(weight[c]);
    out[row * out_step + c] = from_float<${ctype(E)}>(y);
  }
}

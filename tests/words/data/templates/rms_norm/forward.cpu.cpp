// A row a work item: read twice, the second time from a cache, and written past the caches.
#include "device/number/roots.h"
#include "device/number/stream.h"
#include "device/number/vector.h"

constexpr bool ADDED = ${added}, WEIGHTED = ${weighted};

static void normalise(${parameters('normalise')}, const Group& group) {
  const auto values = [&](int64_t i, int64_t n) {
    Floats v = load_some(x + group.x * x_step + i, n);
    if constexpr (ADDED) v += load_some(residual + group.x * residual_step + i, n);
    return v;
  };
  Floats squares = {};
  for (int64_t i = 0; i < C; i += LANES) {
    const Floats v = values(i, C - i);
    squares += v * v;
  }
  float sum = 0;
  for (int lane = 0; lane < LANES; ++lane) sum += squares[lane];
  const float factor = rsqrt_of(sum / static_cast<float>(C) + epsilon);
  stream_row(out + group.x * out_step, C, [&](int64_t i, int64_t n) {
    const Floats y = values(i, n) * factor;
    if constexpr (WEIGHTED) return y * load_some(weight + i, n);
    return y;
  });
  stream_fence();
}

// out = silu(gate) * up, one block of elements a work item.
#include "device/cpu.h"
#include "device/number/math.h"

using Element = ${ctype(E)};
constexpr int64_t BLOCK = ${block};  // elements a work item

static Floats silu(Floats x) {
  const Floats limited = larger_of(-x * LOG2_E, splat(-126.0f));  // exp2_of takes 127 at most, and NaN stays NaN
  const Floats power = exp2_of(splat(126.0f) < limited ? splat(126.0f) : limited);
  return x / (power + 1.0f);
}

static void gated_silu(${parameters('gated_silu')}, const Group& group) {
  const int64_t first = group.x * BLOCK, last = first + BLOCK < N ? first + BLOCK : N;
  for (int64_t i = first; i < last; i += LANES) {
    const int64_t count = last - i < LANES ? last - i : LANES;
    const Floats product = silu(load_some(gate + i, count)) * load_some(up + i, count);
    for (int64_t lane = 0; lane < count; ++lane) out[i + lane] = from_float<Element>(product[lane]);
  }
}

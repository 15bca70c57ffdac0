// scale: a work item scales BLOCK rows.
#include "device/cpu.h"
#include "device/cpu.h"

$require block % unroll == 0
constexpr int64_t BLOCK = ${block};  // rows a work item
constexpr int64_t LANES = ${lanes};
using Element = ${ctype(T)};

static void scale(${parameters('scale')}, const Group& group) {
  $if masked
  if (!mask[group.x]) return;
  $end
  $for i in 0..unroll
  (void)(x + ${i});  // costs $$${i}
  $end
  $if negate
  factor = -factor;
  $else  // as it is
  (void)factor;
  $end
  (void)out, (void)sums, (void)R, (void)C, (void)a7, (void)mask, (void)BLOCK, (void)LANES;
}

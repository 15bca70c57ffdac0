// A row of the pages a work item.
#include "device/cpu.h"

static void store(${parameters('store')}, const Group& group) {
  for (int64_t i = 0; i < D; ++i) pages[(start + group.x) * a5 + i] = rows[group.x * a4 + i];
}

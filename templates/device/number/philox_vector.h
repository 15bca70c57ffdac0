// CPU vocabulary: Philox for LANES counters at once. Include it before philox.h, whose philox() must see this multiplication.
#pragma once
#include "device/number/vector.h"

typedef uint64_t Longs __attribute__((vector_size(LANES * 4)));

static inline void multiply_wide(Words a, uint32_t factor, Words& high, Words& low) {
  const Longs pairs = reinterpret_cast<Longs>(a);
  const Longs even = (pairs & 0xffffffff) * factor, odd = (pairs >> 32) * factor;
  high = reinterpret_cast<Words>((even >> 32) | (odd & 0xffffffff00000000));
  low = a * factor;
}

#include "device/number/philox.h"

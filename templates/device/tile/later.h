// GPU vocabulary: later(x), the number x, computed here and not earlier: what is made of it in a loop is not kept in registers from before.
#pragma once
#include "device/gpu.h"

$if arch.platform == 'cuda'
static inline uint32_t later(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}
$elif arch.platform == 'hip'
static inline uint32_t later(uint32_t x) {
  asm volatile("" : "+v"(x));
  return x;
}
$elif arch.platform == 'simt'
static inline uint32_t later(uint32_t x) { return x; }
$end

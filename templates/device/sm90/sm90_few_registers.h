// Hopper vocabulary for loops that have few registers: words of shared memory by their addresses, which differ by constants, and values that none keeps.
#pragma once

static inline uint32_t load_shared_word(uint32_t from) {
  uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from));
  return x;
}
static inline Pack<float, 2> load_shared_pair(uint32_t from) {
  Pack<float, 2> x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.at[0]), "=f"(x.at[1]) : "r"(from));
  return x;
}
static inline void store_shared_word(uint32_t to, uint32_t x) { asm volatile("st.shared.u32 [%0], %1;" : : "r"(to), "r"(x) : "memory"); }

// x, of which what is computed from here on is computed anew: no register keeps what was computed of it before.
static inline int computed_anew(int x) {
  asm("" : "+r"(x));
  return x;
}

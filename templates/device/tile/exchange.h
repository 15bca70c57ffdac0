// GPU vocabulary: words that the blocks of a cooperative launch pass each other through global memory without a barrier. A word is its own
// flag: the place holds NOT_SENT until it is sent, and who needs it looks until it is there. Words are ordered with nothing else.
//
//   send(to, word)          word is not NOT_SENT: sendable(word) says another one in place of that
//   look<N>(from)           N words as they are now, each by itself, some of them perhaps NOT_SENT
//   clear(at)               NOT_SENT again, by the thread that sends there
//   send_two, clear_two     the same of two neighbouring words at once
//   order_exchange()        what this thread cleared before it is seen before what it sends behind it, by threads that call it between the two looks
//   pause_clocks(n)         so many clocks of the processor; in the emulator none
//   before_look(barrier)    all threads of the grid, before looks at what the others were told to send: on a GPU nothing; the emulator, whose
//                           blocks take turns, goes on with the others. There a place that is sent to uncleared gets NaN.
#pragma once
#include "device/tile/grid_barrier.h"

constexpr uint32_t NOT_SENT = 0xffffffffu;  // no pair of 16-bit floats that arithmetic gives: from_float's NaN has other bits
static inline uint32_t sendable(uint32_t word) { return word == NOT_SENT ? 0x7fff7fffu : word; }
$if arch.platform == 'simt'
static inline void send(uint32_t* to, uint32_t word) { *to = *to == NOT_SENT ? word : 0x7fff7fffu; }
static inline void clear(uint32_t* at) { *at = NOT_SENT; }
static inline void send_two(uint32_t* to, uint32_t first, uint32_t second) { send(to, first), send(to + 1, second); }
template <int N> static inline Pack<uint32_t, N> look(const uint32_t* from) { return load_pack<N>(from); }
static inline void order_exchange() {}
static inline void before_look(const GridBarrier& barrier) { barrier(); }
static inline void clear_two(uint32_t* at) { clear(at), clear(at + 1); }
static inline void pause_clocks(uint32_t) {}
constexpr bool LOOKS_AGAIN = false;
$else
static inline void send(uint32_t* to, uint32_t word) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(__cvta_generic_to_global(to)), "r"(word) : "memory"); }
static inline void clear(uint32_t* at) { send(at, NOT_SENT); }
static inline void send_two(uint32_t* to, uint32_t first, uint32_t second) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" : : "l"(__cvta_generic_to_global(to)), "r"(first), "r"(second) : "memory");
}
template <int N> static inline Pack<uint32_t, N> look(const uint32_t* from) {
  static_assert(N == 2 || N == 4);
  Pack<uint32_t, N> words;
  if constexpr (N == 4)
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.at[0]), "=r"(words.at[1]), "=r"(words.at[2]), "=r"(words.at[3]) : "l"(__cvta_generic_to_global(from)) : "memory");
  else
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words.at[0]), "=r"(words.at[1]) : "l"(__cvta_generic_to_global(from)) : "memory");
  return words;
}
static inline void order_exchange() { asm volatile("fence.acq_rel.gpu;" : : : "memory"); }
static inline void before_look(const GridBarrier&) {}
static inline void clear_two(uint32_t* at) { send_two(at, NOT_SENT, NOT_SENT); }
static inline uint32_t clocks() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now) : : "memory");
  return now;
}
static inline void pause_clocks(uint32_t count) {
  for (const uint32_t start = clocks(); clocks() - start < count;) {}
}
constexpr bool LOOKS_AGAIN = true;
$end

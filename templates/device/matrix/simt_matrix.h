// device/matrix/amd_matrix.h's words by the emulator.
#pragma once
template <class T> static inline T exchange_wave(T x, int mask) { return bits_as<T>(simt_host->exchange_wave(bits_as<uint32_t>(x), mask)); }

static inline void sync_wave() { simt_host->exchange_wave(0, 0); }
static inline void part() {}
static inline void hold(int&) {}
static inline void hold(Sums&) {}
template <class T> static inline T uniform(const T& x) { return x; }

template <class T> static inline void multiply(Sums& c, const Operand& a, const Operand& b) {
  static_assert(sizeof(T) == 2);
  simt_host->multiply_wave(__is_same(T, bfloat16) ? SimtElement::bfloat16 : SimtElement::half, SimtMatrix::${arch.generation}, c.at, a.words,
                           b.words);
}

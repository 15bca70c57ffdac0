// device/matrix/amd_matrix.h's words by clang's builtins. Each arch's are named only for that arch: clang ends with an internal error where one
// is not there.
#pragma once
typedef float SumVector __attribute__((ext_vector_type(SUMS)));
typedef _Float16 HalfVector __attribute__((ext_vector_type(K_LANE)));
typedef short ShortVector __attribute__((ext_vector_type(K_LANE)));

template <class T> static inline T exchange_wave(T x, int mask) {
  return __builtin_bit_cast(T, permute_wave(__builtin_bit_cast(uint32_t, x), wave_lane() ^ mask));
}

static inline void sync_wave() { sync_warp(); }
static inline void part() {
  asm volatile("" : : : "memory");
  __builtin_amdgcn_sched_barrier(0);
}

static inline void hold(int& x) { asm volatile("" : "+v"(x)); }
static inline void hold(Sums& x) {
  SumVector all = __builtin_bit_cast(SumVector, x);
  asm volatile("" : "+v"(all));
  x = __builtin_bit_cast(Sums, all);
}

template <class T> static inline T uniform(const T& x) {
  constexpr int COUNT = sizeof(T) / 4;
  static_assert(sizeof(T) % 4 == 0);
  struct Parts { int at[COUNT]; } parts = __builtin_bit_cast(Parts, x);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) parts.at[i] = __builtin_amdgcn_readfirstlane(parts.at[i]);
  return __builtin_bit_cast(T, parts);
}

template <class T> static inline void multiply(Sums& c, const Operand& a, const Operand& b);
template <> inline void multiply<half>(Sums& c, const Operand& a, const Operand& b) {
  const HalfVector x = __builtin_bit_cast(HalfVector, a), y = __builtin_bit_cast(HalfVector, b);
  const SumVector z = __builtin_bit_cast(SumVector, c);
$if arch.generation == 'cdna'
  c = __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, z, 0, 0, 0));
$elif arch.generation == 'rdna3'
  c = __builtin_bit_cast(Sums, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, z));
$else
  c = __builtin_bit_cast(Sums, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, z));
$end
}
template <> inline void multiply<bfloat16>(Sums& c, const Operand& a, const Operand& b) {
  const ShortVector x = __builtin_bit_cast(ShortVector, a), y = __builtin_bit_cast(ShortVector, b);
  const SumVector z = __builtin_bit_cast(SumVector, c);
$if arch.generation == 'cdna'
  c = __builtin_bit_cast(Sums, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, z, 0, 0, 0));
$elif arch.generation == 'rdna3'
  c = __builtin_bit_cast(Sums, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, z));
$else
  c = __builtin_bit_cast(Sums, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, z));
$end
}

// out = 2 * x + by, done as the config's deed says.
#include "device/cpu.h"
constexpr int deed = ${deed};

static void trap(${parameters('trap')}, const Group&) {
  const int64_t repeats = deed == 0 ? 40 : 1;
  for (int64_t repeat = 0; repeat < repeats; ++repeat)
    for (int64_t i = 0; i < N; ++i) static_cast<volatile float*>(out)[i] = 2 * x[i] + by;
  if constexpr (deed == 2) out[0] = *reinterpret_cast<const volatile float*>(8);
  if constexpr (deed == 3)
    for (volatile int64_t spin = 0;; spin = spin + 1) {
    }
  if constexpr (deed == 4) static_cast<volatile float*>(out)[N] = 1;
  if constexpr (deed == 5) out[N / 2] += 1;
  if constexpr (deed == 6)
    for (volatile int64_t spin = 0; spin < 10000000; spin = spin + 1) {
    }
  if constexpr (deed == 7) const_cast<float*>(x)[N - 1] = 5;
}

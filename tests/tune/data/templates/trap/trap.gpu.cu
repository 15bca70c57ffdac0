// out = 2 * x + by, an element a thread, done as the config's deed says.
#include "device/gpu.h"
constexpr int deed = ${deed};

KERNEL(64, 1) trap(${parameters('trap')}) {
  const int64_t i = static_cast<int64_t>(block_x()) * 64 + thread_x();
  const int64_t repeats = deed == 0 ? 2000 : deed == 6 ? 30000 : 1;
  for (int64_t repeat = 0; repeat < repeats; ++repeat)
    if (i < N) static_cast<volatile float*>(out)[i] = 2 * static_cast<const volatile float*>(x)[i] + by;
  if constexpr (deed == 2) *reinterpret_cast<volatile float*>(8) = 1;
  if constexpr (deed == 3)
    for (volatile int64_t spin = 0;; spin = spin + 1) {
    }
  if constexpr (deed == 4)
    if (i == 0) static_cast<volatile float*>(out)[N] = 1;
  if constexpr (deed == 5)
    if (i == N / 2) out[i] = 77;
  if constexpr (deed == 7)
    if (i == N - 1) const_cast<float*>(x)[i] = 5;
}

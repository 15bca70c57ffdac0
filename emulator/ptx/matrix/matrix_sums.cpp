// Products whose sums are not as MatrixProduct has them: float16, two in a register, and int32 that saturate.
#include <algorithm>
#include <limits>

#include "emulator/ptx/matrix/matrix_decode.hpp"
#include "emulator/ptx/numbers.hpp"

namespace ejk::ptx {
namespace {

// Sums of 32 groups as MatrixProduct has them.
struct WideSums {
  alignas(64) char file[128][128];
  Slot slots[128];
  WideSums() {
    for (Slot i = 0; i < 128; ++i) slots[i] = i;
  }
};
thread_local WideSums wide_sums;

template <class T>
T* sums_at(char* file, Slot slot) {
  return reinterpret_cast<T*>(file + std::size_t{slot} * 128);
}

void widen_half_sums(const MatrixProduct& product) {
  for (int i = 0; i < 2 * product.groups; ++i) {
    const auto* pairs = sums_at<std::uint32_t>(product.file, product.c[i]);
    auto *even = sums_at<float>(wide_sums.file[0], 2 * i), *odd = sums_at<float>(wide_sums.file[0], 2 * i + 1);
    for (int lane = 0; lane < lanes; ++lane) {
      even[lane] = from_f16(static_cast<std::uint16_t>(pairs[lane]));
      odd[lane] = from_f16(static_cast<std::uint16_t>(pairs[lane] >> 16));
    }
  }
}

void multiply_half_sums(const MatrixProduct& product) {
  auto wide = product;
  wide.file = wide_sums.file[0];
  wide.d = wide_sums.slots;
  if (product.c) {
    widen_half_sums(product);
    wide.c = wide_sums.slots;
  }
  multiply(wide);
  for (int i = 0; i < 2 * product.groups; ++i) {
    auto* pairs = sums_at<std::uint32_t>(product.file, product.d[i]);
    const auto *even = sums_at<float>(wide.file, 2 * i), *odd = sums_at<float>(wide.file, 2 * i + 1);
    for (int lane = 0; lane < lanes; ++lane) pairs[lane] = to_f16(even[lane]) | std::uint32_t{to_f16(odd[lane])} << 16;
  }
}

// What one instruction adds fits into 32 bits.
void multiply_saturated(const MatrixProduct& product) {
  using Limits = std::numeric_limits<std::int32_t>;
  auto added = product;
  added.file = wide_sums.file[0];
  added.d = wide_sums.slots;
  added.c = nullptr;
  multiply(added);
  for (int i = 0; i < 4 * product.groups; ++i) {
    const auto* add = sums_at<std::int32_t>(added.file, i);
    const auto* before = product.c ? sums_at<std::int32_t>(product.file, product.c[i]) : nullptr;
    auto* to = sums_at<std::int32_t>(product.file, product.d[i]);
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t sum = std::int64_t{add[lane]} + (before ? before[lane] : 0);
      to[lane] = static_cast<std::int32_t>(std::clamp<std::int64_t>(sum, Limits::min(), Limits::max()));
    }
  }
}

}  // namespace

void multiply_sums(Sums sums, MatrixProduct product) {
  product.integer = sums == Sums::integer || sums == Sums::saturated;
  if (sums == Sums::half) return multiply_half_sums(product);
  if (sums == Sums::saturated) return multiply_saturated(product);
  multiply(product);
}

}  // namespace ejk::ptx

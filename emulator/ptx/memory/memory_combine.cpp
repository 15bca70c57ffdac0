// Each operation and element type is one loop of compare and exchange. 16-bit floats are added as f32 and rounded once, which is exact: f32
// has more than twice their digits.
#include "emulator/ptx/memory/memory_combine.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulator/ptx/numbers.hpp"

namespace ejk::ptx {
namespace {

// What the bits of a 16-bit float stand for, and back.
struct HalfFormat {
  static float value(std::uint16_t bits) { return from_f16(bits); }
  static std::uint16_t bits(float value) { return to_f16(value); }
};
struct BrainFormat {
  static float value(std::uint16_t bits) { return from_bf16(bits); }
  static std::uint16_t bits(float value) { return to_bf16(value); }
};

template <class F>
struct Small {
  std::uint16_t bits;
  float value() const { return F::value(bits); }
};

template <class F>
struct Pair {
  Small<F> low, high;
};

template <class T>
T add(T a, T b) {
  return static_cast<T>(a + b);
}
template <class F>
Small<F> add(Small<F> a, Small<F> b) {
  return {F::bits(a.value() + b.value())};
}

template <class T>
T least(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
  return b < a ? b : a;
}
template <class F>
Small<F> least(Small<F> a, Small<F> b) {
  return std::isnan(a.value()) || b.value() < a.value() ? b : a;
}

template <class T>
T most(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
  return a < b ? b : a;
}
template <class F>
Small<F> most(Small<F> a, Small<F> b) {
  return std::isnan(a.value()) || a.value() < b.value() ? b : a;
}

template <class T>
T increment(T a, T b) {
  return a >= b ? 0 : a + 1;
}
template <class T>
T decrement(T a, T b) {
  return a == 0 || a > b ? b : a - 1;
}
template <class T>
T both(T a, T b) {
  return a & b;
}
template <class T>
T either(T a, T b) {
  return a | b;
}
template <class T>
T differing(T a, T b) {
  return a ^ b;
}
template <class T>
T second_of(T, T b) {
  return b;
}

template <class F, Small<F> (*operation)(Small<F>, Small<F>)>
Pair<F> by_halves(Pair<F> a, Pair<F> b) {
  return {operation(a.low, b.low), operation(a.high, b.high)};
}

template <std::size_t bytes>
using WordOf = std::conditional_t<bytes == 2, std::uint16_t, std::conditional_t<bytes == 4, std::uint32_t, std::uint64_t>>;

template <class T, T (*operation)(T, T)>
void combine(char* memory, const char* value, const char*, char* old) {
  using Word = WordOf<sizeof(T)>;
  Word operand;
  std::memcpy(&operand, value, sizeof operand);
  const std::atomic_ref<Word> place(*reinterpret_cast<Word*>(memory));
  auto before = place.load(std::memory_order_relaxed);
  while (!place.compare_exchange_weak(before, std::bit_cast<Word>(operation(std::bit_cast<T>(before), std::bit_cast<T>(operand))))) {
  }
  if (old) std::memcpy(old, &before, sizeof before);
}

template <class Word>
void compare_and_swap(char* memory, const char* expected, const char* wanted, char* old) {
  Word before, after;
  std::memcpy(&before, expected, sizeof before);
  std::memcpy(&after, wanted, sizeof after);
  std::atomic_ref<Word>(*reinterpret_cast<Word*>(memory)).compare_exchange_strong(before, after);
  if (old) std::memcpy(old, &before, sizeof before);
}

template <class T>
Combine ordered(std::string_view operation) {
  return operation == "add" ? combine<T, add> : operation == "min" ? combine<T, least> : operation == "max" ? combine<T, most> : nullptr;
}

template <class T>
Combine bitwise(std::string_view operation) {
  if (operation == "cas") return compare_and_swap<T>;
  if (operation == "exch") return combine<T, second_of>;
  return operation == "and"   ? combine<T, both>
         : operation == "or"  ? combine<T, either>
         : operation == "xor" ? combine<T, differing>
                              : nullptr;
}

template <class T>
Combine counting(std::string_view operation) {
  return operation == "inc" ? combine<T, increment> : operation == "dec" ? combine<T, decrement> : ordered<T>(operation);
}

template <class F>
Combine small(std::string_view operation) {
  return ordered<Small<F>>(operation);
}

template <class F>
Combine paired(std::string_view operation) {
  return operation == "add"   ? combine<Pair<F>, by_halves<F, add>>
         : operation == "min" ? combine<Pair<F>, by_halves<F, least>>
         : operation == "max" ? combine<Pair<F>, by_halves<F, most>>
                              : nullptr;
}

}  // namespace

Combine combine_of(std::string_view operation, std::string_view type) {
  static constexpr struct {
    std::string_view type;
    Combine (*find)(std::string_view);
  } rows[] = {{"u32", counting<std::uint32_t>}, {"s32", ordered<std::int32_t>},  {"u64", counting<std::uint64_t>},
              {"s64", ordered<std::int64_t>},   {"f32", ordered<float>},         {"f64", ordered<double>},
              {"f16", small<HalfFormat>},       {"bf16", small<BrainFormat>},    {"f16x2", paired<HalfFormat>},
              {"bf16x2", paired<BrainFormat>},  {"b16", bitwise<std::uint16_t>}, {"b32", bitwise<std::uint32_t>},
              {"b64", bitwise<std::uint64_t>}};
  for (const auto& row : rows)
    if (row.type == type) return row.find(operation);
  return nullptr;
}

}  // namespace ejk::ptx

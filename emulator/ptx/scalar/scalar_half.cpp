// Arithmetic of f16 and bf16, single or in pairs: computed as floats, whose precision suffices for sums and products to round as if once.
#include <cmath>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

constexpr int half_flush_flag = 1, half_saturate_flag = 2, half_relu_flag = 4;

// clang-format off
struct HalfAdd { float operator()(float a, float b) const { return a + b; } };
struct HalfSubtract { float operator()(float a, float b) const { return a - b; } };
struct HalfMultiply { float operator()(float a, float b) const { return a * b; } };
struct HalfFused { float operator()(float a, float b, float c) const { return fused_to_odd(a, b, c); } };
struct HalfPowerOfTwo { float operator()(float a) const { return std::exp2(a); } };
struct HalfTangent { float operator()(float a) const { return std::tanh(a); } };
// clang-format on

template <class T, class Operation>
struct HalfRounded {
  template <class... Halves>
  T operator()(Halves... operands) const {
    return T::of(Operation{}(static_cast<float>(operands)...));
  }
};

template <class T>
T flushed_half(T value) {
  constexpr std::uint16_t exponent = std::is_same_v<T, Half> ? 0x7c00 : 0x7f80;
  return T{static_cast<std::uint16_t>(value.bits & exponent ? value.bits : value.bits & 0x8000)};
}

// With .ftz, .sat or .relu; flags are in `number`. A NaN is 0 after .sat, and stays one after .relu.
template <class T, class Operation>
struct HalfByFlags {
  int flags;
  explicit HalfByFlags(const Instruction& instruction) : flags(instruction.number) {}
  template <class... Halves>
  T operator()(Halves... operands) const {
    const auto given = [&](T value) { return static_cast<float>(flags & half_flush_flag ? flushed_half(value) : value); };
    float result = Operation{}(given(operands)...);
    if (flags & half_saturate_flag) result = saturated(result);
    if (flags & half_relu_flag) result = result <= 0.0f ? 0.0f : result;
    const T rounded = T::of(result);
    return flags & half_flush_flag ? flushed_half(rounded) : rounded;
  }
};

// Of equal numbers zeros alone have different bits: -0 is the lesser. A NaN loses, or wins where `spreads`.
template <class T, bool is_minimum, bool spreads>
struct HalfExtreme {
  T operator()(T a, T b) const {
    const float x = a, y = b;
    const bool takes_a = is_minimum ? x < y : x > y;
    const auto one = static_cast<std::uint16_t>(takes_a || y != y ? a.bits : b.bits);
    const auto equal = static_cast<std::uint16_t>(is_minimum ? a.bits | b.bits : a.bits & b.bits);
    const bool is_nan = spreads ? x != x || y != y : x != x && y != y;
    return T{static_cast<std::uint16_t>(is_nan ? 0x7fff : x == y ? equal : one)};
  }
};
template <class T>
struct HalfNegate {
  T operator()(T a) const { return T{static_cast<std::uint16_t>(a.bits ^ 0x8000)}; }
};
template <class T>
struct HalfMagnitude {
  T operator()(T a) const { return T{static_cast<std::uint16_t>(a.bits & 0x7fff)}; }
};

// Shapes of an operation on T, for one or for pairs.
template <class T, class Operation, class... Operands>
Shape one_or_pair(bool is_pair, Operands...) {
  if (is_pair) return shape<Pairwise<Operation, T>, std::uint32_t, std::conditional_t<true, std::uint32_t, Operands>...>();
  return shape<Operation, T, std::conditional_t<true, T, Operands>...>();
}
template <class T, class Operation, class... Operands>
Shape half_rounded_shape(const Parsed& parsed, Instruction& made, bool is_pair, Operands... operands) {
  made.number =
      (parsed.has("ftz") ? half_flush_flag : 0) | (parsed.has("sat") ? half_saturate_flag : 0) | (parsed.has("relu") ? half_relu_flag : 0);
  if (made.number) return one_or_pair<T, HalfByFlags<T, Operation>>(is_pair, operands...);
  return one_or_pair<T, HalfRounded<T, Operation>>(is_pair, operands...);
}

template <class T>
Shape half_shape_of(const Parsed& parsed, Instruction& made, bool is_pair) {
  const auto name = parsed.words.front();
  const bool spreads = parsed.has("NaN");
  if (name == "min")
    return spreads ? one_or_pair<T, HalfExtreme<T, true, true>>(is_pair, 0, 0) : one_or_pair<T, HalfExtreme<T, true, false>>(is_pair, 0, 0);
  if (name == "max")
    return spreads ? one_or_pair<T, HalfExtreme<T, false, true>>(is_pair, 0, 0)
                   : one_or_pair<T, HalfExtreme<T, false, false>>(is_pair, 0, 0);
  if (name == "neg") return one_or_pair<T, HalfNegate<T>>(is_pair, 0);
  if (name == "abs") return one_or_pair<T, HalfMagnitude<T>>(is_pair, 0);
  if (name == "add") return half_rounded_shape<T, HalfAdd>(parsed, made, is_pair, 0, 0);
  if (name == "sub") return half_rounded_shape<T, HalfSubtract>(parsed, made, is_pair, 0, 0);
  if (name == "mul") return half_rounded_shape<T, HalfMultiply>(parsed, made, is_pair, 0, 0);
  if (name == "fma") return half_rounded_shape<T, HalfFused>(parsed, made, is_pair, 0, 0, 0);
  if (name == "ex2") return half_rounded_shape<T, HalfPowerOfTwo>(parsed, made, is_pair, 0);
  if (name == "tanh") return half_rounded_shape<T, HalfTangent>(parsed, made, is_pair, 0);
  return {};
}

}  // namespace

Shape half_shape(const Parsed& parsed, Instruction& made) {
  const auto name = parsed.words.front();
  const bool is_extreme = name == "min" || name == "max";
  if (name == "fma") {
    allow_words(parsed, {"rn", "ftz", "sat", "relu"});
  } else if (is_extreme) {
    allow_words(parsed, {"NaN"});
  } else if (name == "ex2" || name == "tanh") {
    // bf16 has ex2.approx.ftz alone: the f32 function, whose inputs that are subnormal give 1 anyway.
    allow_words(parsed, {"approx", "ftz"});
  } else if (name == "neg" || name == "abs") {
    allow_words(parsed, {});
  } else {
    allow_words(parsed, {"rn", "ftz", "sat"});
  }
  switch (type_of(parsed.type())) {
    case Type::f16:
    case Type::f16x2:
      return half_shape_of<Half>(parsed, made, type_of(parsed.type()) == Type::f16x2);
    case Type::bf16:
    case Type::bf16x2:
      return half_shape_of<Bfloat16>(parsed, made, type_of(parsed.type()) == Type::bf16x2);
    default:
      return {};
  }
}

}  // namespace ejk::ptx

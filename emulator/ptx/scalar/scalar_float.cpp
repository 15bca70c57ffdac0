// Arithmetic of f32 and f64. Sums and products round to the nearest in one instruction of the host; other roundings, .ftz and .sat have
// slower loops.
#include <cmath>
#include <limits>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

constexpr int flush_flag = 1, saturate_flag = 2, rounding_shift = 8;

// clang-format off
struct FloatAdd { template <class T> T operator()(T a, T b) const { return a + b; } };
struct FloatSubtract { template <class T> T operator()(T a, T b) const { return a - b; } };
struct FloatMultiply { template <class T> T operator()(T a, T b) const { return a * b; } };
struct FloatDivide { template <class T> T operator()(T a, T b) const { return a / b; } };
struct FloatFused { template <class T> T operator()(T a, T b, T c) const { return std::fma(a, b, c); } };

// What f32 operations are before they are rounded. The products are exact in double.
Rounded before_rounding(FloatAdd, double a, double b) { return exact_sum(a, b); }
Rounded before_rounding(FloatSubtract, double a, double b) { return exact_sum(a, -b); }
Rounded before_rounding(FloatMultiply, double a, double b) { return {a * b, 0}; }
Rounded before_rounding(FloatFused, double a, double b, double c) { return exact_sum(a * b, c); }
Rounded before_rounding(FloatDivide, double a, double b) {
  const double quotient = a / b, lost = std::fma(-quotient, b, a);
  return {quotient, b < 0 ? -lost : lost};
}
// clang-format on

// An f32 operation with .ftz, .sat or a rounding of its own; flags are in `number`.
template <class Operation>
struct ByFlags {
  int flags;
  explicit ByFlags(const Instruction& instruction) : flags(instruction.number) {}
  float given(float value) const { return flags & flush_flag ? flushed(value) : value; }
  template <class... Floats>
  float operator()(Floats... operands) const {
    const auto rounding = static_cast<Rounding>(flags >> rounding_shift);
    float result = rounding == Rounding::nearest ? Operation{}(given(operands)...)
                                                 : rounded_float(before_rounding(Operation{}, given(operands)...), rounding);
    if (flags & flush_flag) result = flushed(result);
    return flags & saturate_flag ? saturated(result) : result;
  }
};

// f64, where a rounding other than to the nearest moves the result by what was lost.
template <class Operation>
struct ByRounding {
  Rounding rounding;
  explicit ByRounding(const Instruction& instruction) : rounding(static_cast<Rounding>(instruction.number >> rounding_shift)) {}
  double operator()(double a, double b) const {
    const Rounded exact =
        std::is_same_v<Operation, FloatMultiply> ? Rounded{a * b, std::fma(a, b, -(a * b))} : before_rounding(Operation{}, a, b);
    if (exact.lost == 0 || !std::isfinite(exact.value)) return exact.value;
    const double infinity = std::numeric_limits<double>::infinity();
    const bool up = exact.lost > 0;
    if (up ? rounding == Rounding::up || (rounding == Rounding::zero && exact.value < 0)
           : rounding == Rounding::down || (rounding == Rounding::zero && exact.value > 0))
      return std::nextafter(exact.value, up ? infinity : -infinity);
    return exact.value;
  }
};

// Of equal numbers zeros alone have different bits: -0 is the lesser. A NaN loses, or wins where `spreads`; then it is the one of all ones.
template <bool is_minimum, bool spreads>
struct FloatExtreme {
  template <class T>
  T operator()(T a, T b) const {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const auto a_bits = std::bit_cast<Bits>(a), b_bits = std::bit_cast<Bits>(b);
    const T one = (is_minimum ? a < b : a > b) || b != b ? a : b;
    const T equal = std::bit_cast<T>(is_minimum ? a_bits | b_bits : a_bits & b_bits);
    const T result = a == b ? equal : one;
    const bool is_nan = spreads ? a != a || b != b : result != result;
    return is_nan ? std::bit_cast<T>(static_cast<Bits>(~Bits{0} >> 1)) : result;
  }
};

// .xorsign.abs: of the magnitudes, negative where the signs differ.
template <class Extreme>
struct OfMagnitudes {
  template <class T>
  T operator()(T a, T b) const {
    const T result = Extreme{}(std::fabs(a), std::fabs(b));
    return std::signbit(a) != std::signbit(b) ? -result : result;
  }
};

// clang-format off
struct FloatNegate { template <class T> T operator()(T a) const { return -a; } };
struct FloatMagnitude { template <class T> T operator()(T a) const { return std::fabs(a); } };
struct CopySign { template <class T> T operator()(T a, T b) const { return std::copysign(b, a); } };  // a's sign, b's magnitude
// clang-format on

// An f32 operation that does not round, with .ftz.
template <class Operation>
struct OfFlushed {
  template <class... Floats>
  float operator()(Floats... operands) const {
    return Operation{}(flushed(operands)...);
  }
};

int float_flags(const Parsed& parsed) {
  return (parsed.has("ftz") ? flush_flag : 0) | (parsed.has("sat") ? saturate_flag : 0) |
         static_cast<int>(rounding_of(parsed)) << rounding_shift;
}

template <class Operation, class... Operands>
Shape rounded_shape(const Parsed& parsed, Instruction& made, Operands...) {
  made.number = float_flags(parsed);
  if (type_of(parsed.type()) == Type::f32)
    return made.number ? shape<ByFlags<Operation>, float, Operands...>() : shape<Operation, float, Operands...>();
  if (made.number == 0) return shape<Operation, double, std::conditional_t<true, double, Operands>...>();
  if (made.number % (1 << rounding_shift)) return {};
  if constexpr (sizeof...(Operands) == 2) {
    return shape<ByRounding<Operation>, double, double, double>();
  } else {
    return {};  // fma.rz.f64
  }
}

// Operations that do not round: with .ftz for f32.
template <class Operation, class... Operands>
Shape exact_shape(const Parsed& parsed, Operands...) {
  if (type_of(parsed.type()) == Type::f64) return shape<Operation, double, std::conditional_t<true, double, Operands>...>();
  return parsed.has("ftz") ? shape<OfFlushed<Operation>, float, Operands...>() : shape<Operation, float, Operands...>();
}

template <class Extreme>
Shape extreme_of_floats(const Parsed& parsed) {
  if (!parsed.has("xorsign")) return exact_shape<Extreme>(parsed, 0.0f, 0.0f);
  return parsed.has("abs") ? exact_shape<OfMagnitudes<Extreme>>(parsed, 0.0f, 0.0f) : Shape{};
}

template <bool is_minimum>
Shape extreme_of_floats(const Parsed& parsed) {
  allow_words(parsed, {"ftz", "NaN", "xorsign", "abs"});
  return parsed.has("NaN") ? extreme_of_floats<FloatExtreme<is_minimum, true>>(parsed)
                           : extreme_of_floats<FloatExtreme<is_minimum, false>>(parsed);
}

}  // namespace

Shape float_shape(const Parsed& parsed, Instruction& made) {
  const auto name = parsed.words.front();
  if (name == "min") return extreme_of_floats<true>(parsed);
  if (name == "max") return extreme_of_floats<false>(parsed);
  allow_words(parsed, {"rn", "rz", "rm", "rp", "ftz", "sat", "approx", "full"});
  if (name == "add") return rounded_shape<FloatAdd>(parsed, made, 0.0f, 0.0f);
  if (name == "sub") return rounded_shape<FloatSubtract>(parsed, made, 0.0f, 0.0f);
  if (name == "mul") return rounded_shape<FloatMultiply>(parsed, made, 0.0f, 0.0f);
  if (name == "div") return rounded_shape<FloatDivide>(parsed, made, 0.0f, 0.0f);
  if (name == "fma" || name == "mad") return rounded_shape<FloatFused>(parsed, made, 0.0f, 0.0f, 0.0f);
  allow_words(parsed, {"ftz"});
  if (name == "neg") return exact_shape<FloatNegate>(parsed, 0.0f);
  if (name == "abs") return exact_shape<FloatMagnitude>(parsed, 0.0f);
  if (name == "copysign" && !parsed.has("ftz"))
    return type_of(parsed.type()) == Type::f64 ? shape<CopySign, double, double, double>() : shape<CopySign, float, float, float>();
  return {};
}

}  // namespace ejk::ptx

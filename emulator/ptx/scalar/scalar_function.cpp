// Functions of f32 and f64: ex2, lg2, rcp, rsqrt, sqrt, tanh, sin, cos. Those that a GPU approximates are computed nearly exactly.
#include <cmath>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

constexpr int flush_flag_of_function = 1, rounding_shift_of_function = 8;

// 2^x = 2^n 2^f with f in [-1/2, 1/2]: the series of exp(f ln 2) in double, without branches. Sums with the magic number round x to n,
// which then stands in the sum's lowest bits.
struct PowerOfTwo {
  float operator()(float value) const {
    constexpr double magic = 0x1.8p52;
    double x = value < -200.0f ? -200.0 : static_cast<double>(value);
    x = value > 200.0f ? 200.0 : x;
    const double sum = x + magic, f = x - (sum - magic);
    const std::uint64_t scale = (std::bit_cast<std::uint64_t>(sum) + 1023) << 52;
    double power = 1.5252733804059841e-05;
    power = power * f + 1.5403530393381609e-04;
    power = power * f + 1.3333558146428443e-03;
    power = power * f + 9.6181291076284772e-03;
    power = power * f + 5.5504108664821580e-02;
    power = power * f + 2.4022650695910072e-01;
    power = power * f + 6.9314718055994531e-01;
    power = power * f + 1.0;
    return static_cast<float>(power * std::bit_cast<double>(scale));
  }
};

// clang-format off
struct Logarithm { float operator()(float a) const { return std::log2(a); } };
struct Sine { float operator()(float a) const { return std::sin(a); } };
struct Cosine { float operator()(float a) const { return std::cos(a); } };
struct HyperbolicTangent { float operator()(float a) const { return std::tanh(a); } };
struct ReciprocalRoot {
  float operator()(float a) const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
  double operator()(double a) const { return 1.0 / std::sqrt(a); }
};
struct Reciprocal { template <class T> T operator()(T a) const { return T{1} / a; } };
struct SquareRoot { template <class T> T operator()(T a) const { return std::sqrt(a); } };
// clang-format on

template <class Operation>
struct Flushing {
  float operator()(float a) const { return flushed(Operation{}(flushed(a))); }
};

// rcp and sqrt of f32 with a rounding other than to the nearest: what the nearest lost has the sign of an exact difference.
struct DirectedReciprocal {
  Rounding rounding;
  bool flushes;
  explicit DirectedReciprocal(const Instruction& made)
      : rounding(static_cast<Rounding>(made.number >> rounding_shift_of_function)), flushes(made.number & flush_flag_of_function) {}
  float operator()(float given) const {
    const float a = flushes ? flushed(given) : given, nearest = 1.0f / a;
    if (std::isinf(nearest) && (a == 0 || std::isinf(a))) return nearest;
    const double lost = 1.0 - static_cast<double>(nearest) * a;
    const float result = std::isinf(a) ? nearest : redirected(nearest, a < 0 ? -lost : lost, rounding);
    return flushes ? flushed(result) : result;
  }
};
struct DirectedRoot {
  Rounding rounding;
  bool flushes;
  explicit DirectedRoot(const Instruction& made)
      : rounding(static_cast<Rounding>(made.number >> rounding_shift_of_function)), flushes(made.number & flush_flag_of_function) {}
  float operator()(float given) const {
    const float a = flushes ? flushed(given) : given, nearest = std::sqrt(a);
    if (!std::isfinite(nearest)) return nearest;
    return redirected(nearest, static_cast<double>(a) - static_cast<double>(nearest) * nearest, rounding);
  }
};

template <class Operation>
Shape single_shape(const Parsed& parsed) {
  return parsed.has("ftz") ? shape<Flushing<Operation>, float, float>() : shape<Operation, float, float>();
}

Shape double_function(const Parsed& parsed) {
  const auto name = parsed.words.front();
  if (rounding_of(parsed) != Rounding::nearest) return {};
  if (name == "rcp") return shape<Reciprocal, double, double>();
  if (name == "sqrt") return shape<SquareRoot, double, double>();
  if (name == "rsqrt") return shape<ReciprocalRoot, double, double>();
  return {};
}

}  // namespace

Shape function_shape(const Parsed& parsed, Instruction& made) {
  const auto name = parsed.words.front();
  allow_words(parsed, {"approx", "ftz", "rn", "rz", "rm", "rp"});
  if (type_of(parsed.type()) == Type::f64) return double_function(parsed);
  const auto rounding = rounding_of(parsed);
  made.number = (parsed.has("ftz") ? flush_flag_of_function : 0) | static_cast<int>(rounding) << rounding_shift_of_function;
  if (rounding != Rounding::nearest) {
    if (name == "rcp") return shape<DirectedReciprocal, float, float>();
    if (name == "sqrt") return shape<DirectedRoot, float, float>();
    return {};
  }
  if (name == "ex2") return single_shape<PowerOfTwo>(parsed);
  if (name == "lg2") return single_shape<Logarithm>(parsed);
  if (name == "rcp") return single_shape<Reciprocal>(parsed);
  if (name == "rsqrt") return single_shape<ReciprocalRoot>(parsed);
  if (name == "sqrt") return single_shape<SquareRoot>(parsed);
  if (name == "sin") return single_shape<Sine>(parsed);
  if (name == "cos") return single_shape<Cosine>(parsed);
  if (name == "tanh" && !parsed.has("ftz")) return single_shape<HyperbolicTangent>(parsed);
  return {};
}

}  // namespace ejk::ptx

// cvt of one number. What kernels convert most has loops of its own; all else goes through one function, lane by lane.
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

__extension__ typedef __int128 AnyInteger;

// Integers: the source's value, cut to the destination's bits. D of fewer bits than a lane extends to the lane, as its sign says: its
// register may be wider.
template <class D>
struct ConvertInteger {
  using Result = std::conditional_t<sizeof(D) < 4, std::conditional_t<std::is_signed_v<D>, std::int32_t, std::uint32_t>, D>;
  template <class S>
  Result operator()(S value) const {
    return static_cast<D>(value);
  }
};

// Sources whose registers are wider than their types.
template <class S, class D>
struct ConvertLowPart {
  typename ConvertInteger<D>::Result operator()(std::uint64_t value) const { return static_cast<D>(static_cast<S>(value)); }
};

template <class D, class S>
Shape integers_shape(bool wide_source) {
  using Result = typename ConvertInteger<D>::Result;
  if constexpr (sizeof(S) < 8) {
    if (wide_source) return shape<ConvertLowPart<S, D>, Result, std::uint64_t>();
  }
  return shape<ConvertInteger<D>, Result, S>();
}

template <class F>
Shape by_integer(Type type, F f) {
  if (bits_of(type) == 8) return is_signed(type) ? f(std::int8_t{}) : f(std::uint8_t{});
  return by_type(type, f);
}

// clang-format off
struct ToBfloat16 { Bfloat16 operator()(float a) const { return Bfloat16::of(a); } };
struct ToHalf { Half operator()(float a) const { return Half::of(a); } };
struct ToFloat { template <class T> float operator()(T a) const { return static_cast<float>(a); } };
struct ToDouble { template <class T> double operator()(T a) const { return static_cast<double>(a); } };
// clang-format on

// To the nearest, without anything else.
Shape usual_float_shape(Type to, Type from) {
  if (to == Type::bf16 && from == Type::f32) return shape<ToBfloat16, Bfloat16, float>();
  if (to == Type::f16 && from == Type::f32) return shape<ToHalf, Half, float>();
  if (to == Type::f32 && from == Type::f16) return shape<ToFloat, float, Half>();
  if (to == Type::f32 && from == Type::bf16) return shape<ToFloat, float, Bfloat16>();
  if (to == Type::f32 && from == Type::f64) return shape<ToFloat, float, double>();
  if (to == Type::f64 && from == Type::f32) return shape<ToDouble, double, float>();
  if (is_float(from) || bits_of(from) == 8) return {};
  if (to == Type::f32) return by_type(from, []<class T>(T) { return shape<ToFloat, float, T>(); });
  if (to == Type::f64) return by_type(from, []<class T>(T) { return shape<ToDouble, double, T>(); });
  return {};
}

struct Conversion {
  Type to = Type::none, from = Type::none;
  Rounding rounding = Rounding::nearest;
  bool to_integral = false;  // rni and the like: of floats to floats, or to integers
  bool flushes = false, saturates = false, is_finite = false, relu = false;
  bool wide_to = false, wide_from = false;  // lanes of 8 bytes
};

const Format& format_of(Type type) {
  switch (type) {
    case Type::f16:
      return f16_format;
    case Type::bf16:
      return bf16_format;
    case Type::tf32:
      return tf32_format;
    case Type::f32:
      return f32_format;
    default:
      return f64_format;
  }
}

double float_of_bits(Type type, std::uint64_t bits) {
  switch (type) {
    case Type::f16:
      return static_cast<double>(from_f16(static_cast<std::uint16_t>(bits)));
    case Type::bf16:
      return static_cast<double>(from_bf16(static_cast<std::uint16_t>(bits)));
    case Type::f32:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    default:
      return std::bit_cast<double>(bits);
  }
}

AnyInteger integer_of_bits(Type type, std::uint64_t bits) {
  const int unused = 64 - bits_of(type);
  if (is_signed(type)) return static_cast<std::int64_t>(bits << unused) >> unused;
  return bits << unused >> unused;
}

double integral(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::zero:
      return std::trunc(value);
    case Rounding::down:
      return std::floor(value);
    case Rounding::up:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

AnyInteger least_of(Type type) { return is_signed(type) ? -(AnyInteger{1} << (bits_of(type) - 1)) : AnyInteger{0}; }
AnyInteger greatest_of(Type type) { return (AnyInteger{1} << (is_signed(type) ? bits_of(type) - 1 : bits_of(type))) - 1; }

// A NaN gives 0, or the highest bit alone where one of the types has 64 bits. What is out of range gives its end.
std::uint64_t float_to_integer(const Conversion& how, double value) {
  if (std::isnan(value))
    return how.from == Type::f64 || bits_of(how.to) == 64 ? std::uint64_t{1} << (bits_of(how.to) - 1) : std::uint64_t{0};
  const double rounded = integral(value, how.rounding);
  if (rounded <= static_cast<double>(least_of(how.to))) return static_cast<std::uint64_t>(least_of(how.to));
  if (rounded >= static_cast<double>(greatest_of(how.to))) return static_cast<std::uint64_t>(greatest_of(how.to));
  return is_signed(how.to) ? static_cast<std::uint64_t>(static_cast<std::int64_t>(rounded)) : static_cast<std::uint64_t>(rounded);
}

std::uint64_t float_to_float(const Conversion& how, double value) {
  if (how.to_integral) value = integral(value, how.rounding);
  if (how.saturates) value = saturated(value);
  if (how.relu && value <= 0) value = 0;
  const auto code = encode(format_of(how.to), value, how.rounding, how.is_finite);
  if (how.to == Type::tf32) return code << 13 | (std::isnan(value) ? 0x1fffu : 0u);
  if (how.to == Type::f32 && how.flushes && (code & 0x7f800000u) == 0) return code & 0x80000000u;
  return code;
}

std::uint64_t integer_to_float(const Conversion& how, AnyInteger value) {
  const auto& format = format_of(how.to);
  const bool negative = value < 0;
  const auto magnitude = static_cast<std::uint64_t>(negative ? -value : value);
  const std::uint64_t sign = negative ? std::uint64_t{1} << (format.bits - 1) : std::uint64_t{0};
  const auto code = sign | encode_magnitude(format, negative, magnitude, 0, how.rounding, false);
  return how.saturates ? encode(format, saturated(float_of_bits(how.to, code))) : code;
}

std::uint64_t converted(const Conversion& how, std::uint64_t bits) {
  if (!is_float(how.from)) {
    const AnyInteger value = integer_of_bits(how.from, bits);
    if (is_float(how.to)) return integer_to_float(how, value);
    if (!how.saturates) return static_cast<std::uint64_t>(integer_of_bits(how.to, static_cast<std::uint64_t>(value)));
    return static_cast<std::uint64_t>(std::clamp(value, least_of(how.to), greatest_of(how.to)));
  }
  double value = float_of_bits(how.from, bits);
  if (how.flushes && how.from == Type::f32) value = static_cast<double>(flushed(static_cast<float>(value)));
  return is_float(how.to) ? float_to_float(how, value) : float_to_integer(how, value);
}

void run_conversion(Warp& warp, const Instruction& instruction) {
  const auto& how = *static_cast<const Conversion*>(instruction.extra.get());
  const Slot to = instruction.slots[0], from = instruction.slots[1];
  for_active(warp.active, [&](int lane) {
    const auto bits = how.wide_from ? Element<std::uint64_t>::at(warp, from)[lane] : Element<std::uint32_t>::at(warp, from)[lane];
    const auto result = converted(how, bits);
    if (how.wide_to) {
      Element<std::uint64_t>::at(warp, to)[lane] = result;
    } else {
      Element<std::uint32_t>::at(warp, to)[lane] = static_cast<std::uint32_t>(result);
    }
  });
}

bool is_convertible(Type type) { return type != Type::none && type != Type::pred && (!is_float(type) || bits_of(type) > 8); }

Conversion conversion_of(const Parsed& parsed) {
  Conversion how;
  how.from = type_of(parsed.type());
  how.to = type_of(parsed.words[parsed.words.size() - 2]);
  how.rounding = rounding_of(parsed);
  how.to_integral = parsed.has("rni") || parsed.has("rzi") || parsed.has("rmi") || parsed.has("rpi");
  how.flushes = parsed.has("ftz");
  how.saturates = parsed.has("sat");
  how.is_finite = parsed.has("satfinite");
  how.relu = parsed.has("relu");
  const auto is_wide = [&](std::size_t i) {
    return i < parsed.operands.size() && parsed.operands[i].kind != OperandKind::sink && parsed.operands[i].reg == RegisterKind::word64;
  };
  how.wide_to = is_wide(0);
  how.wide_from = is_wide(1);
  return how;
}

}  // namespace

Shape convert_shape(const Parsed& parsed, Instruction& made) {
  allow_words(parsed, {"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "satfinite", "relu"});
  if (parsed.words.size() < 3) return {};
  const Conversion how = conversion_of(parsed);
  if (!is_convertible(how.to) || !is_convertible(how.from)) return {};
  const bool plain = !how.flushes && !how.saturates && !how.is_finite && !how.relu && !how.to_integral;
  const bool wide_to_fits = how.wide_to == (bits_of(how.to) == 64), wide_from_fits = how.wide_from == (bits_of(how.from) == 64);
  if (plain && wide_to_fits && !is_float(how.to) && !is_float(how.from))
    return by_integer(how.to,
                      [&]<class D>(D) { return by_integer(how.from, [&]<class S>(S) { return integers_shape<D, S>(how.wide_from); }); });
  if (plain && wide_to_fits && wide_from_fits && how.rounding == Rounding::nearest) {
    const Shape usual = usual_float_shape(how.to, how.from);
    if (usual.run) return usual;
  }
  made.extra = std::make_shared<Conversion>(how);
  const auto bytes = [](bool wide) { return static_cast<std::uint8_t>(wide ? 8 : 4); };
  return {run_conversion, 2, {bytes(how.wide_to), bytes(how.wide_from)}};
}

}  // namespace ejk::ptx

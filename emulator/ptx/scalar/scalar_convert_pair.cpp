// cvt of two numbers at once: f32 to pairs of f16, bf16, e4m3 and e5m2, pairs to pairs, and cvt.pack. Of two sources the first is the high
// one.
#include <cmath>
#include <memory>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

template <class T, bool relu>
struct PairOfFloats {
  static std::uint32_t one(float value) {
    if (relu) value = value <= 0.0f ? 0.0f : value;
    return T::of(value).bits;
  }
  std::uint32_t operator()(float high, float low) const { return one(high) << 16 | one(low); }
};

// Pairs in general, lane by lane.
struct PairConversion {
  Type to = Type::none, from = Type::none;
  Rounding rounding = Rounding::nearest;
  bool is_finite = false, relu = false;
};

const Format& format_of_part(Type pair) {
  switch (pair) {
    case Type::f16x2:
      return f16_format;
    case Type::bf16x2:
      return bf16_format;
    case Type::e4m3x2:
      return e4m3_format;
    default:
      return e5m2_format;
  }
}

double part_of(Type pair, std::uint32_t word, int part) {
  switch (pair) {
    case Type::f16x2:
      return static_cast<double>(from_f16(static_cast<std::uint16_t>(word >> (16 * part))));
    case Type::bf16x2:
      return static_cast<double>(from_bf16(static_cast<std::uint16_t>(word >> (16 * part))));
    case Type::e4m3x2:
      return static_cast<double>(from_e4m3(static_cast<std::uint8_t>(word >> (8 * part))));
    default:
      return static_cast<double>(from_e5m2(static_cast<std::uint8_t>(word >> (8 * part))));
  }
}

std::uint32_t pair_of(const PairConversion& how, double high, double low) {
  const auto& format = format_of_part(how.to);
  const auto code = [&](double value) {
    return static_cast<std::uint32_t>(encode(format, how.relu && value <= 0 ? 0.0 : value, how.rounding, how.is_finite));
  };
  return code(high) << format.bits | code(low);
}

void run_pair_of_floats(Warp& warp, const Instruction& instruction) {
  const auto& how = *static_cast<const PairConversion*>(instruction.extra.get());
  const auto& slots = instruction.slots;
  const auto *high = Element<float>::at(warp, slots[1]), *low = Element<float>::at(warp, slots[2]);
  auto* to = Element<std::uint32_t>::at(warp, slots[0]);
  for_active(warp.active, [&](int lane) { to[lane] = pair_of(how, high[lane], low[lane]); });
}

void run_pair_of_pair(Warp& warp, const Instruction& instruction) {
  const auto& how = *static_cast<const PairConversion*>(instruction.extra.get());
  const auto* from = Element<std::uint32_t>::at(warp, instruction.slots[1]);
  auto* to = Element<std::uint32_t>::at(warp, instruction.slots[0]);
  for_active(warp.active, [&](int lane) { to[lane] = pair_of(how, part_of(how.from, from[lane], 1), part_of(how.from, from[lane], 0)); });
}

// e4m3 and e5m2 fit in f16 exactly.
template <bool is_e4m3>
struct HalvesOfBytes {
  std::uint32_t operator()(std::uint32_t bytes) const {
    const auto half = [](std::uint32_t byte) {
      if (!is_e4m3) return (byte & 0x7f) > 0x7c ? 0x7fffu : byte << 8;
      return std::uint32_t{to_f16(from_e4m3(static_cast<std::uint8_t>(byte)))};
    };
    return half(bytes >> 8 & 0xff) << 16 | half(bytes & 0xff);
  }
};

// cvt.pack: two integers of 32 bits, each to the nearest in range; of 8 bits, with the low half of a third word above them.
template <class T, bool has_third>
struct PackIntegers {
  static std::uint32_t one(std::int32_t value) {
    using Limits = std::numeric_limits<T>;
    return static_cast<std::make_unsigned_t<T>>(std::clamp<std::int32_t>(value, Limits::min(), Limits::max()));
  }
  std::uint32_t operator()(std::int32_t high, std::int32_t low) const { return one(high) << (8 * sizeof(T)) | one(low); }
  std::uint32_t operator()(std::int32_t high, std::int32_t low, std::uint32_t third) const { return third << 16 | operator()(high, low); }
};

Shape pack_shape(const Parsed& parsed) {
  using I = std::int32_t;
  using W = std::uint32_t;
  allow_words(parsed, {"pack", "sat"});
  if (parsed.words.size() < 5 || parsed.words[4] != "s32") return {};
  switch (type_of(parsed.words[3])) {
    case Type::s16:
      return shape<PackIntegers<std::int16_t, false>, W, I, I>();
    case Type::u16:
      return shape<PackIntegers<std::uint16_t, false>, W, I, I>();
    case Type::s8:
      return shape<PackIntegers<std::int8_t, true>, W, I, I, W>();
    case Type::u8:
      return shape<PackIntegers<std::uint8_t, true>, W, I, I, W>();
    default:
      return {};
  }
}

Shape pair_of_floats_shape(const Parsed& parsed, Instruction& made, const PairConversion& how) {
  using W = std::uint32_t;
  if (!how.is_finite && how.rounding == Rounding::nearest) {
    if (how.to == Type::f16x2)
      return how.relu ? shape<PairOfFloats<Half, true>, W, float, float>() : shape<PairOfFloats<Half, false>, W, float, float>();
    if (how.to == Type::bf16x2)
      return how.relu ? shape<PairOfFloats<Bfloat16, true>, W, float, float>() : shape<PairOfFloats<Bfloat16, false>, W, float, float>();
  }
  if (parsed.operands.size() != 3) return {};
  made.extra = std::make_shared<PairConversion>(how);
  return {run_pair_of_floats, 3, {4, 4, 4}};
}

}  // namespace

Shape convert_pair_shape(const Parsed& parsed, Instruction& made) {
  if (parsed.has("pack")) return pack_shape(parsed);
  if (parsed.words.size() < 3) return {};
  const auto is_pair = [](Type type) {
    return type == Type::f16x2 || type == Type::bf16x2 || type == Type::e4m3x2 || type == Type::e5m2x2;
  };
  const PairConversion how{type_of(parsed.words[parsed.words.size() - 2]), type_of(parsed.type()), rounding_of(parsed),
                           parsed.has("satfinite"), parsed.has("relu")};
  if (!is_pair(how.to)) return {};
  allow_words(parsed, {"rn", "rz", "satfinite", "relu"});
  if (how.from == Type::f32) return pair_of_floats_shape(parsed, made, how);
  if (!is_pair(how.from)) return {};
  using W = std::uint32_t;
  if (how.to == Type::f16x2 && how.from == Type::e4m3x2 && !how.relu) return shape<HalvesOfBytes<true>, W, W>();
  if (how.to == Type::f16x2 && how.from == Type::e5m2x2 && !how.relu) return shape<HalvesOfBytes<false>, W, W>();
  made.extra = std::make_shared<PairConversion>(how);
  return {run_pair_of_pair, 2, {4, 4}};
}

}  // namespace ejk::ptx

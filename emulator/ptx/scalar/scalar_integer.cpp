// Arithmetic of integers.
#include <algorithm>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

__extension__ typedef __int128 Signed128;
__extension__ typedef unsigned __int128 Unsigned128;

// The type of twice the width.
template <class T>
struct Doubled;
// clang-format off
template <> struct Doubled<std::int16_t> { using Wide = std::int32_t; };
template <> struct Doubled<std::uint16_t> { using Wide = std::uint32_t; };
template <> struct Doubled<std::int32_t> { using Wide = std::int64_t; };
template <> struct Doubled<std::uint32_t> { using Wide = std::uint64_t; };
template <> struct Doubled<std::int64_t> { using Wide = Signed128; };
template <> struct Doubled<std::uint64_t> { using Wide = Unsigned128; };
// clang-format on
template <class T>
using Wide = typename Doubled<T>::Wide;

// Sums and low products do not depend on signs: they are computed without, where nothing overflows.
struct IntegerAdd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct IntegerSubtract {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a - b);
  }
};
struct LowProduct {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(std::common_type_t<T, unsigned>{a} * b);
  }
  template <class T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(std::common_type_t<T, unsigned>{a} * b + c);
  }
};
struct HighProduct {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide<T>{a} * Wide<T>{b} >> (8 * sizeof(T)));
  }
  template <class T>
  T operator()(T a, T b, T c) const {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(operator()(a, b)) + static_cast<U>(c));
  }
};
struct WideProduct {
  template <class T>
  Wide<T> operator()(T a, T b) const {
    return Wide<T>{a} * Wide<T>{b};
  }
  template <class T>
  Wide<T> operator()(T a, T b, Wide<T> c) const {
    using U = std::make_unsigned_t<Wide<T>>;
    return static_cast<Wide<T>>(static_cast<U>(operator()(a, b)) + static_cast<U>(c));
  }
};

std::int32_t clamped(std::int64_t value) { return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, INT32_MIN, INT32_MAX)); }
struct SaturatedAdd {
  std::int32_t operator()(std::int64_t a, std::int64_t b) const { return clamped(a + b); }
};
struct SaturatedSubtract {
  std::int32_t operator()(std::int64_t a, std::int64_t b) const { return clamped(a - b); }
};

// A division by zero gives ones, its remainder the dividend.
struct Quotient {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};

struct IntegerNegate {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(T{0} - a);
  }
};
struct IntegerMagnitude {
  template <class T>
  T operator()(T a) const {
    return a < 0 ? static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a)) : a;
  }
};
struct IntegerMinimum {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct IntegerMaximum {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
// min and max of signed numbers with .relu.
template <class Operation>
struct NotNegative {
  template <class T>
  T operator()(T a, T b) const {
    return std::max<T>(Operation{}(a, b), 0);
  }
};
struct AbsoluteDifference {
  template <class T>
  T operator()(T a, T b, T c) const {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(c) +
                          static_cast<U>(a < b ? static_cast<U>(b) - static_cast<U>(a) : static_cast<U>(a) - static_cast<U>(b)));
  }
};

// mul24 and mad24: the low 24 bits of two factors, with their signs.
template <bool is_high>
struct Product24 {
  template <class T>
  static std::int64_t low24(T a) {
    return std::is_signed_v<T> ? static_cast<std::int32_t>(static_cast<std::uint32_t>(a) << 8) >> 8 : a & 0xffffff;
  }
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(low24(a) * low24(b) >> (is_high ? 16 : 0));
  }
  template <class T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(static_cast<std::uint32_t>(operator()(a, b)) + static_cast<std::uint32_t>(c));
  }
};

template <class A, class B>
struct FourProducts {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    for (int i = 0; i < 32; i += 8) c += static_cast<std::uint32_t>(int{static_cast<A>(a >> i)} * int{static_cast<B>(b >> i)});
    return c;
  }
};

Shape four_products_shape(const Parsed& parsed) {
  using U = std::uint8_t;
  using S = std::int8_t;
  using W = std::uint32_t;
  const bool first = is_signed(type_of(parsed.words[1])), second = is_signed(type_of(parsed.words[2]));
  if (first) return second ? shape<FourProducts<S, S>, W, W, W, W>() : shape<FourProducts<S, U>, W, W, W, W>();
  return second ? shape<FourProducts<U, S>, W, W, W, W>() : shape<FourProducts<U, U>, W, W, W, W>();
}

// mul and mad, with or without a third operand.
Shape product_shape(const Parsed& parsed, Type type, bool adds) {
  allow_words(parsed, {"lo", "hi", "wide"});
  const auto of = [&]<class Operation, class D, class T>(Operation, D, T) {
    return adds ? shape<Operation, D, T, T, D>() : shape<Operation, D, T, T>();
  };
  if (parsed.has("hi")) return by_type(type, [&]<class T>(T t) { return of(HighProduct{}, t, t); });
  if (parsed.has("lo")) return by_size(type, [&]<class T>(T t) { return of(LowProduct{}, t, t); });
  if (!parsed.has("wide") || bits_of(type) == 64) return {};
  return by_type(type, [&]<class T>(T t) {
    if constexpr (sizeof(T) < 8) {
      return of(WideProduct{}, Wide<T>{}, t);
    } else {
      return Shape{};
    }
  });
}

Shape product24_shape(const Parsed& parsed, Type type, bool adds) {
  allow_words(parsed, {"lo", "hi"});
  const auto of = [&]<class Operation, class T>(Operation, T) {
    return adds ? shape<Operation, T, T, T, T>() : shape<Operation, T, T, T>();
  };
  if (bits_of(type) != 32) return {};
  if (is_signed(type)) return parsed.has("hi") ? of(Product24<true>{}, std::int32_t{}) : of(Product24<false>{}, std::int32_t{});
  return parsed.has("hi") ? of(Product24<true>{}, std::uint32_t{}) : of(Product24<false>{}, std::uint32_t{});
}

template <class Operation>
Shape binary_by_size(Type type) {
  return by_size(type, []<class T>(T) { return shape<Operation, T, T, T>(); });
}
template <class Operation>
Shape binary_by_type(Type type) {
  return by_type(type, []<class T>(T) { return shape<Operation, T, T, T>(); });
}
template <class Operation>
Shape extreme_shape(const Parsed& parsed, Type type) {
  allow_words(parsed, {"relu"});
  using I = std::int32_t;
  if (parsed.has("relu")) return type == Type::s32 ? shape<NotNegative<Operation>, I, I, I>() : Shape{};
  return binary_by_type<Operation>(type);
}

}  // namespace

Shape integer_shape(const Parsed& parsed, Instruction&) {
  const auto name = parsed.words.front();
  const Type type = type_of(parsed.type());
  using I = std::int32_t;
  if (name == "mul" || name == "mad") return product_shape(parsed, type, name == "mad");
  if (name == "mul24" || name == "mad24") return product24_shape(parsed, type, name == "mad24");
  if (name == "min") return extreme_shape<IntegerMinimum>(parsed, type);
  if (name == "max") return extreme_shape<IntegerMaximum>(parsed, type);
  if (name == "add" || name == "sub") {
    allow_words(parsed, {"sat"});
    if (parsed.has("sat") && type != Type::s32) return {};
    if (name == "add") return parsed.has("sat") ? shape<SaturatedAdd, I, I, I>() : binary_by_size<IntegerAdd>(type);
    return parsed.has("sat") ? shape<SaturatedSubtract, I, I, I>() : binary_by_size<IntegerSubtract>(type);
  }
  allow_words(parsed, {});
  if (name == "dp4a") return four_products_shape(parsed);
  if (name == "div") return binary_by_type<Quotient>(type);
  if (name == "rem") return binary_by_type<Remainder>(type);
  if (name == "neg") return by_size(type, []<class T>(T) { return shape<IntegerNegate, T, T>(); });
  if (name == "abs") return by_type(type, []<class T>(T) { return shape<IntegerMagnitude, T, T>(); });
  if (name == "sad") return by_type(type, []<class T>(T) { return shape<AbsoluteDifference, T, T, T, T>(); });
  return {};
}

// u16x2 and s16x2.
Shape integer_pair_shape(const Parsed& parsed, Instruction&) {
  const auto name = parsed.words.front();
  const bool has_sign = type_of(parsed.type()) == Type::s16x2, relu = parsed.has("relu");
  using W = std::uint32_t;
  using S = std::int16_t;
  using U = std::uint16_t;
  allow_words(parsed, {"relu"});
  if (relu && !has_sign) return {};
  if (name == "add" && !relu) return shape<Pairwise<IntegerAdd, U>, W, W, W>();
  if (name == "min" && relu) return shape<Pairwise<NotNegative<IntegerMinimum>, S>, W, W, W>();
  if (name == "max" && relu) return shape<Pairwise<NotNegative<IntegerMaximum>, S>, W, W, W>();
  if (name == "min") return has_sign ? shape<Pairwise<IntegerMinimum, S>, W, W, W>() : shape<Pairwise<IntegerMinimum, U>, W, W, W>();
  if (name == "max") return has_sign ? shape<Pairwise<IntegerMaximum, S>, W, W, W>() : shape<Pairwise<IntegerMaximum, U>, W, W, W>();
  return {};
}

}  // namespace ejk::ptx

// Bits of words: logic and shifts.
#include <algorithm>
#include <stdexcept>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

// clang-format off
struct BitwiseAnd { template <class T> T operator()(T a, T b) const { return a & b; } };
struct BitwiseOr { template <class T> T operator()(T a, T b) const { return a | b; } };
struct BitwiseXor { template <class T> T operator()(T a, T b) const { return a ^ b; } };
struct BitwiseNot { template <class T> T operator()(T a) const { return static_cast<T>(~a); } };
struct LogicalNot { template <class T> T operator()(T a) const { return a == 0; } };
// clang-format on

// Amounts of a word's width or more shift everything out. C++ takes amounts below the width alone.
template <class T>
constexpr std::uint32_t last_bit = 8 * sizeof(T) - 1;
struct ShiftLeft {
  template <class T>
  T operator()(T a, std::uint32_t amount) const {
    const auto shifted = static_cast<T>(std::common_type_t<T, unsigned>{a} << std::min(amount, last_bit<T>));
    return amount > last_bit<T> ? T{0} : shifted;
  }
};
struct ShiftRight {  // a signed number's sign comes in from the left
  template <class T>
  T operator()(T a, std::uint32_t amount) const {
    const auto shifted = static_cast<T>(a >> std::min(amount, last_bit<T>));
    return std::is_unsigned_v<T> && amount > last_bit<T> ? T{0} : shifted;
  }
};

template <bool is_left, bool wraps>
struct FunnelShift {  // of b and a as one number of 64 bits
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const std::uint32_t amount = wraps ? c & 31u : std::min(c, 32u);
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    return static_cast<std::uint32_t>(is_left ? both << amount >> 32 : both >> amount);
  }
};

Shape funnel_shape(const Parsed& parsed) {
  using W = std::uint32_t;
  allow_words(parsed, {"l", "r", "wrap", "clamp"});
  if (parsed.type() != "b32") return {};
  if (parsed.has("l"))
    return parsed.has("wrap") ? shape<FunnelShift<true, true>, W, W, W, W>() : shape<FunnelShift<true, false>, W, W, W, W>();
  return parsed.has("wrap") ? shape<FunnelShift<false, true>, W, W, W, W>() : shape<FunnelShift<false, false>, W, W, W, W>();
}

// Bit i of `table` is the result for bits of a, b and c that are those of i, a's the highest.
struct TableLogic {
  std::uint32_t rows[8];
  explicit TableLogic(const Instruction& instruction) {
    for (int i = 0; i < 8; ++i) rows[i] = instruction.bits >> i & 1 ? all_lanes : 0;
  }
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    const std::uint32_t both[4] = {~a & ~b, ~a & b, a & ~b, a & b};
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) result |= both[i] & ((c & rows[2 * i + 1]) | (~c & rows[2 * i]));
    return result;
  }
};

Shape table_shape(const Parsed& parsed, Instruction& made) {
  allow_words(parsed, {});
  if (parsed.operands.size() != 5 || parsed.operands[4].kind != OperandKind::constant || parsed.type() != "b32") return {};
  made.bits = parsed.operands[4].bits;
  Shape made_shape = shape<TableLogic, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>();
  made_shape.operands = 5;
  made_shape.bytes[4] = any_bytes;
  return made_shape;
}

template <class Operation>
Shape logic_of_two(Type type) {
  return by_size(type, []<class T>(T) { return shape<Operation, T, T, T>(); });
}

}  // namespace

Shape bits_shape(const Parsed& parsed, Instruction& made) {
  const auto name = parsed.words.front();
  const Type type = type_of(parsed.type());
  if (name == "shf") return funnel_shape(parsed);
  if (name == "lop3") return table_shape(parsed, made);
  allow_words(parsed, {});
  if (name == "and") return logic_of_two<BitwiseAnd>(type);
  if (name == "or") return logic_of_two<BitwiseOr>(type);
  if (name == "xor") return logic_of_two<BitwiseXor>(type);
  if (name == "not") return by_size(type, []<class T>(T) { return shape<BitwiseNot, T, T>(); });
  if (name == "cnot") return by_size(type, []<class T>(T) { return shape<LogicalNot, T, T>(); });
  if (name == "shl") return by_size(type, []<class T>(T) { return shape<ShiftLeft, T, T, std::uint32_t>(); });
  if (name == "shr") return by_type(type, []<class T>(T) { return shape<ShiftRight, T, T, std::uint32_t>(); });
  return {};
}

}  // namespace ejk::ptx

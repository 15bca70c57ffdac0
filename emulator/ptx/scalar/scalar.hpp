// What the families of scalar instructions share: types of the text, loops over a warp's lanes, and what operands they expect.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>

#include "emulator/ptx/machine.hpp"
#include "emulator/ptx/numbers.hpp"

#ifdef __clang__
#define EJK_PTX_LANES_ARE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define EJK_PTX_LANES_ARE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace ejk::ptx {

// clang-format off
enum class Type : std::uint8_t {
  none, pred, b8, u8, s8, b16, u16, s16, b32, u32, s32, b64, u64, s64, f16, bf16, f32, f64, tf32,
  f16x2, bf16x2, u16x2, s16x2, e4m3, e5m2, e4m3x2, e5m2x2
};
// clang-format on
Type type_of(std::string_view word);  // none for a word that is no type
int bits_of(Type type);
bool is_signed(Type type);
bool is_float(Type type);  // f16, bf16, f32, f64, and smaller ones; not pairs

// Throws unless each part of the opcode but the first is a type or one of these.
void allow_words(const Parsed& parsed, std::initializer_list<std::string_view> allowed);
Rounding rounding_of(const Parsed& parsed);  // of "rn", "rz", ... and of "rni", "rzi", ...; nearest where there is none

// What a family makes of an instruction: its handler, and bytes a lane of each operand, in the order of the text.
constexpr std::uint8_t predicate_bytes = 0, any_bytes = 255;
struct Shape {
  Handler run = nullptr;
  int operands = 0;
  std::array<std::uint8_t, 8> bytes{};
};
using Family = Shape (*)(const Parsed& parsed, Instruction& made);

Shape integer_shape(const Parsed& parsed, Instruction& made);
Shape integer_pair_shape(const Parsed& parsed, Instruction& made);
Shape bits_shape(const Parsed& parsed, Instruction& made);
Shape field_shape(const Parsed& parsed, Instruction& made);
Shape float_shape(const Parsed& parsed, Instruction& made);
Shape function_shape(const Parsed& parsed, Instruction& made);
Shape half_shape(const Parsed& parsed, Instruction& made);
Shape convert_shape(const Parsed& parsed, Instruction& made);
Shape convert_pair_shape(const Parsed& parsed, Instruction& made);
Shape compare_shape(const Parsed& parsed, Instruction& made);  // setp, set
Shape select_shape(const Parsed& parsed, Instruction& made);   // selp, slct
Shape predicate_shape(const Parsed& parsed, Instruction& made);
Shape test_shape(const Parsed& parsed, Instruction& made);  // testp, isspacep
Shape move_shape(const Parsed& parsed, Instruction& made);

// Operands with vectors' parts one by one, as `slots` has them.
std::vector<const Operand*> flat_operands(const Parsed& parsed);
// Throws unless operands are those of the shape.
void check_operands(const Parsed& parsed, const Shape& shape);

// Floats of 16 bits, as their bits.
struct Half {
  std::uint16_t bits;
  operator float() const { return from_f16(bits); }
  static Half of(float value) { return {to_f16(value)}; }
};
struct Bfloat16 {
  std::uint16_t bits;
  operator float() const { return from_bf16(bits); }
  static Bfloat16 of(float value) { return {to_bf16(value)}; }
};

// How values of a type lie in the lanes of a slot. Types of fewer than 4 bytes have a word, whose other bits a writer makes zero.
template <class T>
struct Element {
  typedef std::conditional_t<sizeof(T) < 4, std::uint32_t, T> __attribute__((may_alias)) Word;
  static T get(const Word* words, int lane) {
    if constexpr (std::is_integral_v<T> || sizeof(T) >= 4) {
      return static_cast<T>(words[lane]);
    } else {
      return T{static_cast<std::uint16_t>(words[lane])};
    }
  }
  static void put(Word* words, int lane, T value) {
    if constexpr (sizeof(T) >= 4) {
      words[lane] = value;
    } else if constexpr (std::is_integral_v<T>) {
      words[lane] = static_cast<std::make_unsigned_t<T>>(value);
    } else {
      words[lane] = value.bits;
    }
  }
  static Word* at(Warp& warp, Slot slot) { return reinterpret_cast<Word*>(warp.file.get() + std::size_t{slot} * 128); }
  static constexpr std::uint8_t bytes = sizeof(Word);
};

// Calls for each active lane in turn.
template <class F>
void for_active(std::uint32_t active, F f) {
  for (; active; active &= active - 1) f(std::countr_zero(active));
}

// Each lane reads its own words alone, so the compiler need not ask whether slots overlap.
template <class Operation, class D, class... S, std::size_t... I>
void run_operation(Warp& warp, const Instruction& instruction, std::index_sequence<I...>) {
  const auto operation = [&] {
    if constexpr (std::is_constructible_v<Operation, const Instruction&>) {
      return Operation(instruction);
    } else {
      return Operation{};
    }
  }();
  const Slot* slots = instruction.slots.data();
  auto* to = Element<D>::at(warp, slots[0]);
  const auto lane_result = [&, ... from = static_cast<const typename Element<S>::Word*>(Element<S>::at(warp, slots[I + 1]))](int lane) {
    return static_cast<D>(operation(Element<S>::get(from, lane)...));
  };
  if (warp.active == all_lanes) {
    EJK_PTX_LANES_ARE_INDEPENDENT
    for (int lane = 0; lane < lanes; ++lane) Element<D>::put(to, lane, lane_result(lane));
  } else {
    for_active(warp.active, [&](int lane) { Element<D>::put(to, lane, lane_result(lane)); });
  }
}

template <class Operation, class D, class... S>
void run_lanes(Warp& warp, const Instruction& instruction) {
  run_operation<Operation, D, S...>(warp, instruction, std::index_sequence_for<S...>{});
}
// The same for a CPU whose vectors have 32 bytes and that multiplies and adds in one instruction (without which std::fma is a call a lane).
#ifdef __x86_64__
template <class Operation, class D, class... S>
[[gnu::flatten, gnu::target("avx2,fma")]] void run_lanes_with_avx2(Warp& warp, const Instruction& instruction) {
  run_operation<Operation, D, S...>(warp, instruction, std::index_sequence_for<S...>{});
}
#endif
inline bool has_avx2() {
#ifdef __x86_64__
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
#else
  return false;
#endif
}
template <class Operation, class D, class... S>
Handler lanes_handler() {
#ifdef __x86_64__
  if (has_avx2()) return run_lanes_with_avx2<Operation, D, S...>;
#endif
  return run_lanes<Operation, D, S...>;
}

// `Operation` is a function object, made of the instruction if it can be: D operation(S...).
template <class Operation, class D, class... S>
Shape shape() {
  return {lanes_handler<Operation, D, S...>(), 1 + static_cast<int>(sizeof...(S)), {Element<D>::bytes, Element<S>::bytes...}};
}

// f(T()) for the C++ type of an integer type; by size alone: of unsigned ones.
template <class F>
Shape by_size(Type type, F f) {
  switch (bits_of(type)) {
    case 16:
      return f(std::uint16_t{});
    case 32:
      return f(std::uint32_t{});
    case 64:
      return f(std::uint64_t{});
    default:
      return {};
  }
}
template <class F>
Shape by_type(Type type, F f) {
  if (!is_signed(type)) return by_size(type, f);
  switch (bits_of(type)) {
    case 16:
      return f(std::int16_t{});
    case 32:
      return f(std::int32_t{});
    case 64:
      return f(std::int64_t{});
    default:
      return {};
  }
}

// Both halves of a word, each by an operation on T of 16 bits.
template <class Operation, class T>
struct Pairwise {
  Operation operation{};
  Pairwise() = default;
  explicit Pairwise(const Instruction& instruction) requires std::is_constructible_v<Operation, const Instruction&>
      : operation(instruction) {}
  template <class... Words>
  std::uint32_t operator()(Words... words) const {
    const std::uint32_t low = bits_of_half(operation(half_of(words)...));
    const std::uint32_t high = bits_of_half(operation(half_of(words >> 16)...));
    return high << 16 | low;
  }
  static T half_of(std::uint32_t word) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(word);
    } else {
      return T{static_cast<std::uint16_t>(word)};
    }
  }
  static std::uint16_t bits_of_half(T value) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<std::uint16_t>(value);
    } else {
      return value.bits;
    }
  }
};

// A predicate that an instruction reads: flags in `number` say of each whether it is inverted or a constant, whose word is nonzero for
// true.
constexpr int inverted_flag = 1, constant_flag = 2;
int predicate_flags(const Operand& operand);
inline std::uint32_t predicate_mask(Warp& warp, Slot slot, int flags) {
  std::uint32_t mask = warp.predicate(slot);
  if (flags & constant_flag) mask = mask ? all_lanes : 0;
  return flags & inverted_flag ? ~mask : mask;
}
inline void set_predicate(Warp& warp, Slot slot, std::uint32_t mask) {
  auto& predicate = warp.predicate(slot);
  predicate = (predicate & ~warp.active) | (mask & warp.active);
}

}  // namespace ejk::ptx

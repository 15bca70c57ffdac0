// setp and set: comparisons, which give a mask of lanes.
#include <stdexcept>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

// What is asked: an ordered relation of a and b, or of b and a, or that it does not hold; none where a type has no such comparison.
enum class Relation { none, equal, less, less_or_equal, unequal, ordered };
struct Comparison {
  Relation relation;
  bool swaps, inverts;
};

// Handlers' flags in `number`: that of the third operand (predicate_flags) from bit 4 on.
constexpr int invert_comparison = 1, flush_comparison = 2, third_shift = 4, combine_shift = 8;
enum Combine { combine_none, combine_and, combine_or, combine_xor };

template <Relation relation, class T>
bool holds(T a, T b) {
  if constexpr (relation == Relation::equal) return a == b;
  if constexpr (relation == Relation::less) return a < b;
  if constexpr (relation == Relation::less_or_equal) return a <= b;
  if constexpr (relation == Relation::unequal) return a < b || a > b;
  return a == a && b == b;
}

template <Relation relation, class T>
std::uint32_t lanes_that_hold(Warp& warp, Slot a_slot, Slot b_slot) {
  const auto *a = Element<T>::at(warp, a_slot), *b = Element<T>::at(warp, b_slot);
  std::uint32_t mask = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    const bool result = holds<relation>(Element<T>::get(a, lane), Element<T>::get(b, lane));
    mask |= result ? 1u << lane : 0u;
  }
  return mask;
}

// Halves and flushed floats are compared as floats.
template <Relation relation, float value_of(std::uint32_t)>
std::uint32_t lanes_that_hold_as(Warp& warp, Slot a_slot, Slot b_slot) {
  const auto *a = Element<std::uint32_t>::at(warp, a_slot), *b = Element<std::uint32_t>::at(warp, b_slot);
  std::uint32_t mask = 0;
  for (int lane = 0; lane < lanes; ++lane) mask |= holds<relation>(value_of(a[lane]), value_of(b[lane])) ? 1u << lane : 0u;
  return mask;
}
float low_f16(std::uint32_t word) { return from_f16(static_cast<std::uint16_t>(word)); }
float high_f16(std::uint32_t word) { return from_f16(static_cast<std::uint16_t>(word >> 16)); }
float low_bf16(std::uint32_t word) { return from_bf16(static_cast<std::uint16_t>(word)); }
float high_bf16(std::uint32_t word) { return from_bf16(static_cast<std::uint16_t>(word >> 16)); }
float flushed_f32(std::uint32_t word) { return flushed(std::bit_cast<float>(word)); }

using Compare = std::uint32_t (*)(Warp&, Slot, Slot);

template <Relation relation>
Compare float_comparison(Type type, bool flushes) {
  switch (type) {
    case Type::f32:
      return flushes ? lanes_that_hold_as<relation, flushed_f32> : lanes_that_hold<relation, float>;
    case Type::f64:
      return lanes_that_hold<relation, double>;
    case Type::f16:
    case Type::f16x2:
      return lanes_that_hold_as<relation, low_f16>;
    default:
      return lanes_that_hold_as<relation, low_bf16>;
  }
}
template <Relation relation>
Compare high_comparison(Type type) {
  return type == Type::f16x2 ? lanes_that_hold_as<relation, high_f16> : lanes_that_hold_as<relation, high_bf16>;
}

template <Relation relation>
Compare integer_comparison(Type type) {
  switch (bits_of(type)) {
    case 16:
      return is_signed(type) ? lanes_that_hold<relation, std::int16_t> : lanes_that_hold<relation, std::uint16_t>;
    case 32:
      return is_signed(type) ? lanes_that_hold<relation, std::int32_t> : lanes_that_hold<relation, std::uint32_t>;
    case 64:
      return is_signed(type) ? lanes_that_hold<relation, std::int64_t> : lanes_that_hold<relation, std::uint64_t>;
    default:
      return nullptr;
  }
}

bool is_pair_of_floats(Type type) { return type == Type::f16x2 || type == Type::bf16x2; }

// An instruction's comparison: of single numbers or a pair's low ones, and of the high ones.
struct Comparing {
  Compare low = nullptr, high = nullptr;
  Type to = Type::pred;
};

template <Relation relation>
Comparing comparing(Type type, bool flushes) {
  if (is_pair_of_floats(type)) return {float_comparison<relation>(type, false), high_comparison<relation>(type)};
  if (is_float(type)) return {float_comparison<relation>(type, flushes)};
  return {integer_comparison<relation>(type)};
}

Comparing comparing(Relation relation, Type type, bool flushes) {
  switch (relation) {
    case Relation::equal:
      return comparing<Relation::equal>(type, flushes);
    case Relation::less:
      return comparing<Relation::less>(type, flushes);
    case Relation::less_or_equal:
      return comparing<Relation::less_or_equal>(type, flushes);
    case Relation::unequal:
      return comparing<Relation::unequal>(type, flushes);
    default:
      return comparing<Relation::ordered>(type, flushes);
  }
}

// For integers, and for floats: there "neu" is that "eq" does not hold, "ltu" that "ge" does not, and so on.
struct NamedComparison {
  std::string_view name;
  Comparison integers, floats;
};
constexpr NamedComparison named_comparisons[] = {
    {"eq", {Relation::equal, false, false}, {Relation::equal, false, false}},
    {"ne", {Relation::equal, false, true}, {Relation::unequal, false, false}},
    {"lt", {Relation::less, false, false}, {Relation::less, false, false}},
    {"gt", {Relation::less, true, false}, {Relation::less, true, false}},
    {"le", {Relation::less, true, true}, {Relation::less_or_equal, false, false}},
    {"ge", {Relation::less, false, true}, {Relation::less_or_equal, true, false}},
    {"lo", {Relation::less, false, false}, {}},
    {"hi", {Relation::less, true, false}, {}},
    {"ls", {Relation::less, true, true}, {}},
    {"hs", {Relation::less, false, true}, {}},
    {"equ", {}, {Relation::unequal, false, true}},
    {"neu", {}, {Relation::equal, false, true}},
    {"ltu", {}, {Relation::less_or_equal, true, true}},
    {"gtu", {}, {Relation::less_or_equal, false, true}},
    {"leu", {}, {Relation::less, true, true}},
    {"geu", {}, {Relation::less, false, true}},
    {"num", {}, {Relation::ordered, false, false}},
    {"nan", {}, {Relation::ordered, false, true}},
};

std::uint32_t combined(Warp& warp, const Instruction& instruction, std::uint32_t mask) {
  const int combine = instruction.number >> combine_shift & 3;
  if (combine == combine_none) return mask;
  const std::uint32_t third = predicate_mask(warp, instruction.slots[4], instruction.number >> third_shift & 3);
  return combine == combine_and ? mask & third : combine == combine_or ? mask | third : mask ^ third;
}

// Slots: p, q or no_slot, a, b, and the third operand's where there is one. q is for that the relation does not hold, or for the high
// numbers.
void run_setp(Warp& warp, const Instruction& instruction) {
  const auto& slots = instruction.slots;
  const auto& comparing = *static_cast<const Comparing*>(instruction.extra.get());
  const std::uint32_t inverts = instruction.number & invert_comparison ? all_lanes : 0;
  const std::uint32_t low = comparing.low(warp, slots[2], slots[3]) ^ inverts;
  const std::uint32_t other = comparing.high ? comparing.high(warp, slots[2], slots[3]) ^ inverts : ~low;
  const std::uint32_t first = combined(warp, instruction, low);
  const std::uint32_t second = slots[1] == no_slot ? 0 : combined(warp, instruction, other);
  if (slots[0] != no_slot) set_predicate(warp, slots[0], first);
  if (slots[1] != no_slot) set_predicate(warp, slots[1], second);
}

std::uint32_t word_of_truth(Type type) {
  switch (type) {
    case Type::f32:
      return 0x3f800000;
    case Type::f16:
      return 0x3c00;
    case Type::bf16:
      return 0x3f80;
    case Type::f16x2:
      return 0x3c003c00;
    case Type::bf16x2:
      return 0x3f803f80;
    case Type::u16:
    case Type::s16:
      return 0xffff;
    default:
      return all_lanes;
  }
}

void run_set(Warp& warp, const Instruction& instruction) {
  const auto& slots = instruction.slots;
  const auto& comparing = *static_cast<const Comparing*>(instruction.extra.get());
  const std::uint32_t inverts = instruction.number & invert_comparison ? all_lanes : 0;
  const std::uint32_t low = combined(warp, instruction, comparing.low(warp, slots[2], slots[3]) ^ inverts);
  const std::uint32_t high = comparing.high ? combined(warp, instruction, comparing.high(warp, slots[2], slots[3]) ^ inverts) : low;
  const std::uint32_t truth = word_of_truth(comparing.to);
  auto* to = Element<std::uint32_t>::at(warp, slots[0]);
  for_active(warp.active, [&](int lane) { to[lane] = truth & ((high >> lane & 1 ? 0xffff0000u : 0u) | (low >> lane & 1 ? 0xffffu : 0u)); });
}

const NamedComparison* comparison_of(const Parsed& parsed) {
  if (parsed.words.size() < 3) return nullptr;
  for (const auto& named : named_comparisons)
    if (named.name == parsed.words[1]) return &named;
  return nullptr;
}

}  // namespace

Shape compare_shape(const Parsed& parsed, Instruction& made) {
  const bool is_setp = parsed.words.front() == "setp";
  const auto* named = comparison_of(parsed);
  const Type type = type_of(parsed.type());
  if (!named || type == Type::u16x2 || type == Type::s16x2) return {};
  allow_words(parsed, {parsed.words[1], "and", "or", "xor", "ftz"});
  const bool of_floats = is_float(type) || is_pair_of_floats(type);
  const Comparison comparison = of_floats ? named->floats : named->integers;
  if (comparison.relation == Relation::none) return {};
  auto comparing_it = std::make_shared<Comparing>(comparing(comparison.relation, type, parsed.has("ftz")));
  if (!comparing_it->low) return {};
  if (!is_setp) comparing_it->to = type_of(parsed.words[parsed.words.size() - 2]);
  if (!is_setp && (bits_of(comparing_it->to) < 16 || bits_of(comparing_it->to) > 32)) return {};

  const int combine = parsed.has("and") ? combine_and : parsed.has("or") ? combine_or : parsed.has("xor") ? combine_xor : combine_none;
  const int sources = combine == combine_none ? 2 : 3;
  const auto operands = flat_operands(parsed);
  const int destinations = static_cast<int>(operands.size()) - sources;
  if (destinations < 1 || destinations > (is_setp ? 2 : 1) || made.slots.size() != operands.size()) return {};

  Shape result{is_setp ? run_setp : run_set, static_cast<int>(operands.size())};
  const auto word_bytes = static_cast<std::uint8_t>(bits_of(type) == 64 ? 8 : 4);
  for (int i = 0; i < result.operands; ++i) {
    const bool is_sink = operands[i]->kind == OperandKind::sink && i < destinations;
    const bool is_number = i >= destinations && i < destinations + 2;
    result.bytes[i] = is_sink ? any_bytes : is_number ? word_bytes : i >= destinations + 2 || is_setp ? predicate_bytes : std::uint8_t{4};
  }
  if (destinations == 1) made.slots.insert(made.slots.begin() + 1, no_slot);
  if (comparison.swaps) std::swap(made.slots[2], made.slots[3]);
  made.number = (comparison.inverts ? invert_comparison : 0) | combine << combine_shift |
                (combine == combine_none ? 0 : predicate_flags(*operands.back()) << third_shift);
  made.extra = std::move(comparing_it);
  return result;
}

}  // namespace ejk::ptx

// Logic and moves of predicates, which are masks of lanes; testp and isspacep, which make them.
#include <cmath>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

// clang-format off
struct MaskAnd { std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a & b; } };
struct MaskOr { std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a | b; } };
struct MaskXor { std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return a ^ b; } };
struct MaskNot { std::uint32_t operator()(std::uint32_t a) const { return ~a; } };
struct MaskCopy { std::uint32_t operator()(std::uint32_t a) const { return a; } };
// clang-format on

// Flags of source i are in `number` from bit 2 i on.
template <class Operation, std::size_t... I>
void run_masks(Warp& warp, const Instruction& instruction, std::index_sequence<I...>) {
  const auto& slots = instruction.slots;
  set_predicate(warp, slots[0], Operation{}(predicate_mask(warp, slots[I + 1], instruction.number >> (2 * I) & 3)...));
}
template <class Operation, int sources>
void run_mask_operation(Warp& warp, const Instruction& instruction) {
  run_masks<Operation>(warp, instruction, std::make_index_sequence<sources>{});
}

template <class Operation, int sources>
Shape mask_shape(const Parsed& parsed, Instruction& made) {
  if (parsed.operands.size() != sources + 1) return {};
  made.number = 0;
  for (int i = 0; i < sources; ++i) made.number |= predicate_flags(parsed.operands[static_cast<std::size_t>(i) + 1]) << (2 * i);
  Shape result{run_mask_operation<Operation, sources>, sources + 1};
  result.bytes.fill(predicate_bytes);
  return result;
}

// A test of one operand; which, `number` says: a class of floats, or a space of addresses.
template <class T, bool passes(Warp&, int, T)>
void run_test(Warp& warp, const Instruction& instruction) {
  const auto* from = Element<T>::at(warp, instruction.slots[1]);
  std::uint32_t mask = 0;
  for_active(warp.active, [&](int lane) { mask |= passes(warp, instruction.number, from[lane]) ? 1u << lane : 0u; });
  set_predicate(warp, instruction.slots[0], mask);
}
template <class T, bool passes(Warp&, int, T)>
Shape test_of(int which, Instruction& made) {
  made.number = which;
  return {run_test<T, passes>, 2, {predicate_bytes, Element<T>::bytes}};
}

constexpr std::string_view float_classes[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};

template <class T>
bool is_of_class(Warp&, int which, T value) {
  switch (which) {
    case 0:
      return std::isfinite(value);
    case 1:
      return std::isinf(value);
    case 2:
      return !std::isnan(value);
    case 3:
      return std::isnan(value);
    case 4:
      return std::isnormal(value);
    default:
      return std::fpclassify(value) == FP_SUBNORMAL;
  }
}

// Constants and parameters are in global memory here, so that no address is of their spaces.
constexpr std::string_view spaces[] = {"global", "local", "shared", "shared::cta", "shared::cluster", "const", "param", "param::entry"};

template <class T>
bool is_in_space(Warp& warp, int which, T address) {
  const std::uint64_t wide = address;
  const std::uint64_t owner = (wide & 0xffffffffu) >> cluster_shift;  // 0: this CTA
  const bool own = owner == 0 || (warp.block && owner == static_cast<std::uint64_t>(warp.block->rank) + 1);
  switch (which) {
    case 0:
      return !(wide & (generic_shared | generic_local));
    case 1:
      return wide & generic_local;
    case 2:
    case 3:
      return wide & generic_shared && own;
    case 4:
      return wide & generic_shared;
    default:
      return false;
  }
}

template <std::size_t size>
int place_of(const Parsed& parsed, const std::string_view (&names)[size]) {
  for (std::size_t i = 0; i < size; ++i)
    if (parsed.words.size() > 1 && parsed.words[1] == names[i]) return static_cast<int>(i);
  return -1;
}

}  // namespace

Shape predicate_shape(const Parsed& parsed, Instruction& made) {
  const auto name = parsed.words.front();
  allow_words(parsed, {});
  if (name == "and") return mask_shape<MaskAnd, 2>(parsed, made);
  if (name == "or") return mask_shape<MaskOr, 2>(parsed, made);
  if (name == "xor") return mask_shape<MaskXor, 2>(parsed, made);
  if (name == "not") return mask_shape<MaskNot, 1>(parsed, made);
  if (name == "mov") return mask_shape<MaskCopy, 1>(parsed, made);
  return {};
}

Shape test_shape(const Parsed& parsed, Instruction& made) {
  if (parsed.words.front() == "testp") {
    const int which = place_of(parsed, float_classes);
    if (which < 0 || parsed.words.size() != 3) return {};
    if (parsed.type() == "f32") return test_of<float, is_of_class<float>>(which, made);
    return parsed.type() == "f64" ? test_of<double, is_of_class<double>>(which, made) : Shape{};
  }
  const int which = place_of(parsed, spaces);
  if (which < 0 || parsed.words.size() != 2 || parsed.operands.size() != 2) return {};
  return test_of<std::uint64_t, is_in_space<std::uint64_t>>(which, made);
}

}  // namespace ejk::ptx

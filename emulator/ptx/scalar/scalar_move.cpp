// mov: copies, packing and unpacking of registers, and clocks.
#include <atomic>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

struct Copy {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};

// A whole of `count` parts of part_bits each; parts of less than 32 bits lie in words of their own.
template <class Whole, int count>
struct Packing {
  static constexpr int part_bits = 8 * static_cast<int>(sizeof(Whole)) / count;
  static constexpr Whole part_mask = ~Whole{0} >> (8 * static_cast<int>(sizeof(Whole)) - part_bits);
};

template <class Whole, int count>
void run_pack(Warp& warp, const Instruction& instruction) {
  using P = Packing<Whole, count>;
  auto* to = Element<Whole>::at(warp, instruction.slots[0]);
  const typename Element<std::uint32_t>::Word* from[count];
  for (int i = 0; i < count; ++i) from[i] = Element<std::uint32_t>::at(warp, instruction.slots[i + 1]);
  const auto whole_of = [&](int lane) {
    Whole whole = 0;
    for (int i = 0; i < count; ++i) whole |= (Whole{from[i][lane]} & P::part_mask) << (i * P::part_bits);
    return whole;
  };
  if (warp.active == all_lanes) {
    EJK_PTX_LANES_ARE_INDEPENDENT
    for (int lane = 0; lane < lanes; ++lane) to[lane] = whole_of(lane);
  } else {
    for_active(warp.active, [&](int lane) { to[lane] = whole_of(lane); });
  }
}

template <class Whole>
void unpack_part(Warp& warp, Slot part, Slot whole, int shift, Whole mask) {
  if (part == no_slot) return;
  auto* to = Element<std::uint32_t>::at(warp, part);
  const auto* from = Element<Whole>::at(warp, whole);
  if (warp.active == all_lanes) {
    EJK_PTX_LANES_ARE_INDEPENDENT
    for (int lane = 0; lane < lanes; ++lane) to[lane] = static_cast<std::uint32_t>(from[lane] >> shift & mask);
  } else {
    for_active(warp.active, [&](int lane) { to[lane] = static_cast<std::uint32_t>(from[lane] >> shift & mask); });
  }
}

template <class Whole, int count>
void run_unpack(Warp& warp, const Instruction& instruction) {
  using P = Packing<Whole, count>;
  const Slot whole = instruction.slots[count];
  for (int i = 0; i < count; ++i) unpack_part<Whole>(warp, instruction.slots[i], whole, i * P::part_bits, P::part_mask);
}

template <class Whole, int count>
Shape vector_shape(bool packs) {
  Shape result{packs ? run_pack<Whole, count> : run_unpack<Whole, count>, count + 1};
  result.bytes.fill(packs ? 4 : any_bytes);  // parts that nobody wants may be "_"
  result.bytes[packs ? 0 : count] = sizeof(Whole);
  return result;
}

Shape vector_move_shape(const Parsed& parsed) {
  const auto& to = parsed.operands[0];
  const bool packs = to.kind != OperandKind::vector;
  const auto& vector = packs ? parsed.operands[1] : to;
  const int bits = bits_of(type_of(parsed.type()));
  if (!packs)
    for (const auto& part : vector.parts)
      if (part.kind != OperandKind::sink && (part.kind != OperandKind::reg || part.reg == RegisterKind::word64)) return {};
  if (bits == 64 && vector.parts.size() == 2) return vector_shape<std::uint64_t, 2>(packs);
  if (bits == 64 && vector.parts.size() == 4) return vector_shape<std::uint64_t, 4>(packs);
  if (bits == 32 && vector.parts.size() == 2) return vector_shape<std::uint32_t, 2>(packs);
  if (bits == 32 && vector.parts.size() == 4) return vector_shape<std::uint32_t, 4>(packs);
  return {};
}

// Every reading of a clock is later than those before it, of whatever warp.
std::uint64_t next_tick() {
  static std::atomic<std::uint64_t> ticks{0};
  return ticks.fetch_add(1, std::memory_order_relaxed) + 1;
}
template <class T>
void run_clock(Warp& warp, const Instruction& instruction) {
  const std::uint64_t tick = next_tick();
  auto* to = Element<T>::at(warp, instruction.slots[0]);
  for_active(warp.active, [&](int lane) { to[lane] = static_cast<T>(tick >> instruction.number); });
}

bool reads_clock(const Parsed& parsed) {
  return parsed.text.find("%clock") != std::string_view::npos || parsed.text.find("%globaltimer") != std::string_view::npos;
}

Shape clock_shape(const Parsed& parsed, Instruction& made) {
  made.number = parsed.text.find("_hi") != std::string_view::npos ? 32 : 0;
  if (bits_of(type_of(parsed.type())) == 64) return {run_clock<std::uint64_t>, 2, {8, any_bytes}};
  return {run_clock<std::uint32_t>, 2, {4, any_bytes}};
}

}  // namespace

Shape move_shape(const Parsed& parsed, Instruction& made) {
  allow_words(parsed, {});
  if (parsed.operands.size() != 2) return {};
  if (reads_clock(parsed)) return clock_shape(parsed, made);
  if (parsed.operands[0].kind == OperandKind::vector || parsed.operands[1].kind == OperandKind::vector) return vector_move_shape(parsed);
  switch (bits_of(type_of(parsed.type()))) {
    case 16:
    case 32:
      return shape<Copy, std::uint32_t, std::uint32_t>();
    case 64:
      return shape<Copy, std::uint64_t, std::uint64_t>();
    default:
      return {};
  }
}

}  // namespace ejk::ptx

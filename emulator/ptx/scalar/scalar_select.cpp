// selp and slct: one of two values.
#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

template <class T>
void run_selp(Warp& warp, const Instruction& instruction) {
  const auto& slots = instruction.slots;
  const auto *a = Element<T>::at(warp, slots[1]), *b = Element<T>::at(warp, slots[2]);
  auto* to = Element<T>::at(warp, slots[0]);
  const std::uint32_t mask = predicate_mask(warp, slots[3], instruction.number);
  if (warp.active == all_lanes) {
    EJK_PTX_LANES_ARE_INDEPENDENT
    for (int lane = 0; lane < lanes; ++lane) {
      const T if_true = a[lane], if_false = b[lane];
      to[lane] = mask & 1u << lane ? if_true : if_false;
    }
  } else {
    for_active(warp.active, [&](int lane) { to[lane] = mask >> lane & 1 ? a[lane] : b[lane]; });
  }
}

template <class C>
struct SelectBySign {
  template <class T>
  T operator()(T a, T b, C c) const {
    return c >= 0 ? a : b;
  }
};
struct SelectByFlushedSign {
  template <class T>
  T operator()(T a, T b, float c) const {
    return flushed(c) >= 0 ? a : b;
  }
};

Shape by_sign_shape(const Parsed& parsed) {
  const Type type = type_of(parsed.words[parsed.words.size() - 2]);
  if (parsed.type() == "s32") return by_size(type, []<class T>(T) { return shape<SelectBySign<std::int32_t>, T, T, T, std::int32_t>(); });
  if (parsed.type() != "f32") return {};
  if (parsed.has("ftz")) return by_size(type, []<class T>(T) { return shape<SelectByFlushedSign, T, T, T, float>(); });
  return by_size(type, []<class T>(T) { return shape<SelectBySign<float>, T, T, T, float>(); });
}

}  // namespace

Shape select_shape(const Parsed& parsed, Instruction& made) {
  if (parsed.words.front() == "slct") {
    allow_words(parsed, {"ftz"});
    return by_sign_shape(parsed);
  }
  allow_words(parsed, {});
  if (parsed.operands.size() != 4) return {};
  made.number = predicate_flags(parsed.operands[3]);
  switch (bits_of(type_of(parsed.type()))) {
    case 16:
    case 32:
      return {run_selp<std::uint32_t>, 4, {4, 4, 4, predicate_bytes}};
    case 64:
      return {run_selp<std::uint64_t>, 4, {8, 8, 8, predicate_bytes}};
    default:
      return {};
  }
}

}  // namespace ejk::ptx

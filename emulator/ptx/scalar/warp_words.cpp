// Words that a warp's lanes say together, from the PTX ISA: shfl.sync, vote.sync, redux.sync, match.sync, elect.sync, and activemask.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "emulator/ptx/scalar/scalar.hpp"

namespace ejk::ptx {
namespace {

// Whether all lanes that `members` names are here, exited ones aside: else the machine runs the instruction again later.
bool all_have_come(Warp& warp, std::uint32_t members) {
  if ((members & warp.alive & ~warp.path) == 0) return true;
  warp.progress = Progress::wait;
  return false;
}

// Calls f(group) for lanes that name the same members, those of a group together: some of one path may talk among themselves. Nothing is
// called, and false returned, before all that are named have come.
template <class F>
bool for_each_group(Warp& warp, const Instruction& instruction, F f) {
  const auto* members = Element<std::uint32_t>::at(warp, instruction.slots.back());
  std::uint32_t outsiders = 0;
  bool same = true;
  const std::uint32_t first = warp.active ? members[std::countr_zero(warp.active)] : 0;
  for_active(warp.active, [&](int lane) {
    same = same && members[lane] == first;
    outsiders |= members[lane] >> lane & 1 ? 0 : 1u << lane;
  });
  if (outsiders) {
    const int lane = std::countr_zero(outsiders);
    throw Fault(fmt::format("lane {} runs a word of the warp whose mask of members, {:#010x}, does not name it", lane, members[lane]));
  }
  if (same) {
    if (!warp.active || !all_have_come(warp, first)) return false;
    f(warp.active);
    return true;
  }
  std::uint32_t named = 0;
  for_active(warp.active, [&](int lane) { named |= members[lane]; });
  if (!all_have_come(warp, named)) return false;
  for (std::uint32_t rest = warp.active; rest;) {
    const std::uint32_t mask = members[std::countr_zero(rest)];
    std::uint32_t group = 0;
    for_active(rest, [&](int lane) { group |= members[lane] == mask ? 1u << lane : 0u; });
    f(group);
    rest &= ~group;
  }
  return true;
}

enum class Shuffle { up, down, butterfly, index };

// The lane that one reads from, and whether it is inside the segment: else one reads one's own value.
template <Shuffle mode>
int source_lane(int lane, std::uint32_t b, std::uint32_t c, bool& inside) {
  const int offset = static_cast<int>(b & 31), clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
  const int least = lane & segment, most = least | (clamp & ~segment);
  const int from = mode == Shuffle::up          ? lane - offset
                   : mode == Shuffle::down      ? lane + offset
                   : mode == Shuffle::butterfly ? lane ^ offset
                                                : least | (offset & ~segment);
  inside = mode == Shuffle::up ? from >= most : from <= most;
  return inside ? from : lane;
}

// Slots: d, p or no_slot, a, b, c, members.
template <Shuffle mode>
void run_shuffle(Warp& warp, const Instruction& instruction) {
  if (!for_each_group(warp, instruction, [](std::uint32_t) {})) return;
  const auto& slots = instruction.slots;
  const auto *a = Element<std::uint32_t>::at(warp, slots[2]), *b = Element<std::uint32_t>::at(warp, slots[3]);
  const auto* c = Element<std::uint32_t>::at(warp, slots[4]);
  std::uint32_t given[lanes], bounded = 0;
  int from[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    bool inside = false;
    from[lane] = source_lane<mode>(lane, b[lane], c[lane], inside);
    bounded |= inside ? 1u << lane : 0u;
    given[lane] = a[lane];
  }
  if (slots[0] != no_slot) {
    auto* to = Element<std::uint32_t>::at(warp, slots[0]);
    if (warp.active == all_lanes) {
      EJK_PTX_LANES_ARE_INDEPENDENT
      for (int lane = 0; lane < lanes; ++lane) to[lane] = given[from[lane]];
    } else {
      for_active(warp.active, [&](int lane) { to[lane] = given[from[lane]]; });
    }
  }
  if (slots[1] != no_slot) set_predicate(warp, slots[1], bounded);
}

enum class Vote { all, any, uniform, ballot };

// Slots: d, the predicate, members; the predicate's flags are in `number`.
template <Vote vote>
void run_vote(Warp& warp, const Instruction& instruction) {
  const std::uint32_t votes = predicate_mask(warp, instruction.slots[1], instruction.number);
  std::uint32_t results = 0;
  const bool have_voted = for_each_group(warp, instruction, [&](std::uint32_t group) {
    const std::uint32_t yes = votes & group;
    if constexpr (vote == Vote::ballot) {
      auto* to = Element<std::uint32_t>::at(warp, instruction.slots[0]);
      for_active(group, [&](int lane) { to[lane] = yes; });
    } else {
      const bool result = vote == Vote::all ? yes == group : vote == Vote::any ? yes != 0 : yes == group || yes == 0;
      if (result) results |= group;
    }
  });
  if (vote != Vote::ballot && have_voted) set_predicate(warp, instruction.slots[0], results);
}

// clang-format off
struct ReduceAdd { template <class T> T operator()(T a, T b) const { return a + b; } };
struct ReduceLeast { template <class T> T operator()(T a, T b) const { return std::min(a, b); } };
struct ReduceGreatest { template <class T> T operator()(T a, T b) const { return std::max(a, b); } };
struct ReduceAnd { template <class T> T operator()(T a, T b) const { return a & b; } };
struct ReduceOr { template <class T> T operator()(T a, T b) const { return a | b; } };
struct ReduceXor { template <class T> T operator()(T a, T b) const { return a ^ b; } };
// clang-format on

// Slots: d, a, members.
template <class Operation, class T>
void run_reduce(Warp& warp, const Instruction& instruction) {
  for_each_group(warp, instruction, [&](std::uint32_t group) {
    const auto* a = Element<T>::at(warp, instruction.slots[1]);
    T result = a[std::countr_zero(group)];
    for_active(group & (group - 1), [&](int lane) { result = Operation{}(result, T{a[lane]}); });
    auto* to = Element<T>::at(warp, instruction.slots[0]);
    for_active(group, [&](int lane) { to[lane] = result; });
  });
}

// Slots: d, p or no_slot, a, members. Each lane gets the lanes of its group that have its value; with `all`, the group if all have, else 0.
template <class T, bool all>
void run_match(Warp& warp, const Instruction& instruction) {
  const auto& slots = instruction.slots;
  for_each_group(warp, instruction, [&](std::uint32_t group) {
    const auto* a = Element<T>::at(warp, slots[2]);
    std::uint32_t results[lanes];
    for_active(group, [&](int lane) {
      std::uint32_t alike = 0;
      for_active(group, [&](int other) { alike |= a[other] == a[lane] ? 1u << other : 0u; });
      results[lane] = !all || alike == group ? alike : 0;
    });
    auto* to = Element<std::uint32_t>::at(warp, slots[0]);
    if (slots[0] != no_slot) for_active(group, [&](int lane) { to[lane] = results[lane]; });
    if (slots[1] != no_slot) {
      auto& predicate = warp.predicate(slots[1]);
      predicate = (predicate & ~group) | (results[std::countr_zero(group)] ? group : 0);
    }
  });
}

// Slots: d or no_slot, p, members. The first lane of a group is its leader.
void run_elect(Warp& warp, const Instruction& instruction) {
  const auto& slots = instruction.slots;
  for_each_group(warp, instruction, [&](std::uint32_t group) {
    const auto leader = static_cast<std::uint32_t>(std::countr_zero(group));
    if (slots[0] != no_slot) {
      auto* to = Element<std::uint32_t>::at(warp, slots[0]);
      for_active(group, [&](int lane) { to[lane] = leader; });
    }
    if (slots[1] == no_slot) return;
    auto& predicate = warp.predicate(slots[1]);
    predicate = (predicate & ~group) | 1u << leader;
  });
}

void run_active_mask(Warp& warp, const Instruction& instruction) {
  auto* to = Element<std::uint32_t>::at(warp, instruction.slots[0]);
  for_active(warp.active, [&](int lane) { to[lane] = warp.active; });
}

// With `sources` sources, a destination that may be "_" and a predicate that may be missing: then its slot is put in.
void add_predicate_slot(const std::vector<const Operand*>& operands, std::size_t sources, Instruction& made) {
  if (operands.size() == sources + 1) made.slots.insert(made.slots.begin() + 1, no_slot);
}

// The bytes of operands "d|p, sources": any two for the destination where either may be "_".
Shape paired_shape(const std::vector<const Operand*>& operands, std::initializer_list<std::uint8_t> sources, Handler run) {
  Shape result{run, static_cast<int>(operands.size())};
  const std::size_t destinations = operands.size() - std::min(operands.size(), sources.size());
  if (destinations < 1 || destinations > 2) return {};
  for (std::size_t i = 0; i < destinations; ++i)
    result.bytes[i] = operands[i]->kind == OperandKind::sink ? any_bytes : i == 0 ? std::uint8_t{4} : predicate_bytes;
  std::copy(sources.begin(), sources.end(), result.bytes.begin() + static_cast<std::ptrdiff_t>(destinations));
  return result;
}

Shape shuffle_shape(const Parsed& parsed, Instruction& made) {
  allow_words(parsed, {"sync", "up", "down", "bfly", "idx"});
  if (!parsed.has("sync") || parsed.type() != "b32") return {};
  const Handler run = parsed.has("up")     ? run_shuffle<Shuffle::up>
                      : parsed.has("down") ? run_shuffle<Shuffle::down>
                      : parsed.has("bfly") ? run_shuffle<Shuffle::butterfly>
                      : parsed.has("idx")  ? run_shuffle<Shuffle::index>
                                           : nullptr;
  const auto operands = flat_operands(parsed);
  add_predicate_slot(operands, 4, made);
  return paired_shape(operands, {4, 4, 4, 4}, run);
}

Shape vote_shape(const Parsed& parsed, Instruction& made) {
  allow_words(parsed, {"sync", "all", "any", "uni", "ballot"});
  if (!parsed.has("sync") || parsed.operands.size() != 3) return {};
  made.number = predicate_flags(parsed.operands[1]);
  if (parsed.has("ballot")) return {run_vote<Vote::ballot>, 3, {4, predicate_bytes, 4}};
  const Handler run = parsed.has("all")   ? run_vote<Vote::all>
                      : parsed.has("any") ? run_vote<Vote::any>
                      : parsed.has("uni") ? run_vote<Vote::uniform>
                                          : nullptr;
  return {run, 3, {predicate_bytes, predicate_bytes, 4}};
}

Shape reduce_shape(const Parsed& parsed, Instruction&) {
  allow_words(parsed, {"sync", "add", "min", "max", "and", "or", "xor"});
  using U = std::uint32_t;
  using S = std::int32_t;
  if (bits_of(type_of(parsed.type())) != 32 || is_float(type_of(parsed.type()))) return {};
  const bool has_sign = parsed.type() == "s32";
  const auto of = [](Handler run) { return Shape{run, 3, {4, 4, 4}}; };
  if (parsed.has("add")) return of(run_reduce<ReduceAdd, U>);
  if (parsed.has("min")) return of(has_sign ? run_reduce<ReduceLeast, S> : run_reduce<ReduceLeast, U>);
  if (parsed.has("max")) return of(has_sign ? run_reduce<ReduceGreatest, S> : run_reduce<ReduceGreatest, U>);
  if (parsed.has("and")) return of(run_reduce<ReduceAnd, U>);
  if (parsed.has("or")) return of(run_reduce<ReduceOr, U>);
  return parsed.has("xor") ? of(run_reduce<ReduceXor, U>) : Shape{};
}

Shape match_shape(const Parsed& parsed, Instruction& made) {
  allow_words(parsed, {"sync", "any", "all"});
  const bool all = parsed.has("all"), wide = parsed.type() == "b64";
  const Handler run = all ? (wide ? run_match<std::uint64_t, true> : run_match<std::uint32_t, true>)
                          : (wide ? run_match<std::uint64_t, false> : run_match<std::uint32_t, false>);
  const auto operands = flat_operands(parsed);
  add_predicate_slot(operands, 2, made);
  return paired_shape(operands, {static_cast<std::uint8_t>(wide ? 8 : 4), 4}, run);
}

Shape elect_shape(const Parsed& parsed, Instruction& made) {
  allow_words(parsed, {"sync"});
  const auto operands = flat_operands(parsed);
  add_predicate_slot(operands, 1, made);
  return paired_shape(operands, {4}, run_elect);
}

Shape active_mask_shape(const Parsed&, Instruction&) { return {run_active_mask, 1, {4}}; }

}  // namespace

bool decode_warp(const Parsed& parsed, Instruction& made) {
  static const std::unordered_map<std::string_view, Family> families = {{"shfl", shuffle_shape}, {"vote", vote_shape},
                                                                        {"redux", reduce_shape}, {"match", match_shape},
                                                                        {"elect", elect_shape},  {"activemask", active_mask_shape}};
  const auto found = families.find(parsed.words.front());
  if (found == families.end()) return false;
  const Shape shape = found->second(parsed, made);
  if (!shape.run) throw std::runtime_error(fmt::format("{}: this form is not emulated", parsed.opcode));
  check_operands(parsed, shape);
  made.run = shape.run;
  return true;
}

}  // namespace ejk::ptx

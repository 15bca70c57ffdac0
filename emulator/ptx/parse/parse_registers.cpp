// Slots by linear scan: M. Poletto, V. Sarkar, "Linear Scan Register Allocation", over ranges that hold all places where a register is
// live.
#include "emulator/ptx/parse/parse_registers.hpp"

#include <algorithm>
#include <array>

namespace ejk::ptx::parsing {
namespace {

// Places: 2 i is where instruction i reads, 2 i + 1 where it writes. What an instruction writes does not share a slot with what it reads,
// so that handlers may write lanes or parts while others are still to be read.
struct LiveRange {
  std::uint32_t first = UINT32_MAX, last = 0;

  void include(std::uint32_t place) {
    first = std::min(first, place);
    last = std::max(last, place);
  }
};

// Sets of registers, one for each block, of those registers that matter between blocks.
class BlockSets {
 public:
  BlockSets(std::size_t blocks, std::size_t members) : words_((members + 63) / 64), bits_(blocks * words_, 0) {}

  void add(int block, std::uint32_t member) { row(block)[member / 64] |= std::uint64_t{1} << member % 64; }
  std::uint64_t* row(int block) { return bits_.data() + static_cast<std::size_t>(block) * words_; }
  std::size_t words() const { return words_; }

  template <class Take>
  void for_each(int block, const Take& take) {
    const auto* word = row(block);
    for (std::size_t i = 0; i < words_; ++i)
      for (auto rest = word[i]; rest; rest &= rest - 1)
        take(static_cast<std::uint32_t>(i * 64 + static_cast<std::size_t>(__builtin_ctzll(rest))));
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

// Registers by number from 0, as they are met.
class Members {
 public:
  explicit Members(std::size_t registers) : number_(registers, UINT32_MAX) {}

  std::uint32_t number(Slot id) {
    if (number_[id] == UINT32_MAX) number_[id] = static_cast<std::uint32_t>(ids.size()), ids.push_back(id);
    return number_[id];
  }
  bool has(Slot id) const { return number_[id] != UINT32_MAX; }

  std::vector<Slot> ids;

 private:
  std::vector<std::uint32_t> number_;
};

template <class Take>
void for_each_register(const Operand& operand, const Take& take) {
  if (operand.slot < first_special) take(operand.slot);
  for (const auto& part : operand.parts) for_each_register(part, take);
}

template <class Take>
void for_each_register(const Statement& statement, const Take& take) {
  if (statement.guard != no_slot) take(statement.guard);
  for (const auto& operand : statement.parsed.operands) for_each_register(operand, take);
}

// Calls `take(id, is_written_whole)` for each register of a statement, those that are read first.
template <class Take>
void for_each_use(const Statement& statement, const Take& take) {
  const auto& operands = statement.parsed.operands;
  const auto is_written = [&](std::size_t i) { return i < statement.written && operands[i].kind != OperandKind::address; };
  if (statement.guard != no_slot) take(statement.guard, false);
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (!is_written(i)) for_each_register(operands[i], [&](Slot id) { take(id, false); });
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (is_written(i)) for_each_register(operands[i], [&](Slot id) { take(id, true); });
}

class Liveness {
 public:
  Liveness(const EntryText& text, const FlowBlocks& blocks) : text_(text), blocks_(blocks), ranges_(text.registers.size()) {}

  std::vector<LiveRange> find() {
    include_occurrences();
    include_live_blocks();
    include_pending_products();
    return std::move(ranges_);
  }

 private:
  static std::size_t at(int block) { return static_cast<std::size_t>(block); }
  std::uint32_t begin(int block) const { return blocks_.starts[at(block)]; }
  std::uint32_t end(int block) const { return blocks_.starts[at(block) + 1]; }
  std::uint32_t first_place(int block) const { return 2 * begin(block); }
  std::uint32_t last_place(int block) const { return 2 * end(block) - 1; }

  void include_occurrences() {
    for (std::uint32_t i = 0; i < text_.statements.size(); ++i)
      for_each_use(text_.statements[i], [&](Slot id, bool is_written) {
        ranges_[id].include(2 * i + (is_written ? 1 : 0));
        ranges_[id].include(2 * i + 1);
      });
  }

  // For each register the block that wrote it last in the walk through the text; calls `take(block, id)` for what a block reads before it
  // writes it.
  template <class Take>
  void for_each_exposed(const Take& take) const {
    std::vector<int> written_in(text_.registers.size(), -1);
    for (int block = 0; block < blocks_.count(); ++block)
      for (auto i = begin(block); i < end(block); ++i)
        for_each_use(text_.statements[i], [&](Slot id, bool is_written) {
          if (is_written)
            written_in[id] = block;
          else if (written_in[id] != block)
            take(block, id);
        });
  }

  void include_live_blocks() {
    Members members(text_.registers.size());
    for_each_exposed([&](int, Slot id) { members.number(id); });
    BlockSets live(at(blocks_.count()), members.ids.size()), written(at(blocks_.count()), members.ids.size());
    for_each_exposed([&](int block, Slot id) { live.add(block, members.number(id)); });
    for (int block = 0; block < blocks_.count(); ++block)
      for (auto i = begin(block); i < end(block); ++i)
        for_each_use(text_.statements[i], [&](Slot id, bool is_written) {
          if (is_written && members.has(id)) written.add(block, members.number(id));
        });
    while (flow_back(live, written)) {
    }
    for (int block = 0; block < blocks_.count(); ++block) {
      live.for_each(block, [&](std::uint32_t member) { ranges_[members.ids[member]].include(first_place(block)); });
      for (const int next : blocks_.successors[at(block)])
        if (next >= 0) live.for_each(next, [&](std::uint32_t member) { ranges_[members.ids[member]].include(last_place(block)); });
    }
  }

  // What is live where a block begins: what it reads first, and what is live behind it and is not written by it.
  bool flow_back(BlockSets& live, BlockSets& written) const {
    std::uint64_t changed = 0;
    for (int block = blocks_.count() - 1; block >= 0; --block)
      for (const int next : blocks_.successors[at(block)]) {
        if (next < 0) continue;
        auto* to = live.row(block);
        const auto *from = live.row(next), *without = written.row(block);
        for (std::size_t i = 0; i < live.words(); ++i) {
          const auto added = from[i] & ~without[i] & ~to[i];
          changed |= added;
          to[i] |= added;
        }
      }
    return changed != 0;
  }

  static bool is_product(const Statement& statement) {
    return statement.parsed.words.front() == "wgmma" && statement.parsed.words.size() > 1 && statement.parsed.words[1] == "mma_async";
  }

  static bool waits_for_products(const Statement& statement) {
    const auto& parsed = statement.parsed;
    return parsed.words.front() == "wgmma" && parsed.words.size() > 1 && parsed.words[1] == "wait_group" && !parsed.operands.empty() &&
           parsed.operands[0].bits == 0;
  }

  std::uint32_t first_wait(std::uint32_t from, std::uint32_t to) const {
    while (from < to && !waits_for_products(text_.statements[from])) ++from;
    return from;
  }

  // Registers of a product that is done later (wgmma) are read and written until its group is waited for, whatever the text does with them.
  void include_pending_products() {
    Members members(text_.registers.size());
    for (const auto& statement : text_.statements)
      if (is_product(statement)) for_each_register(statement, [&](Slot id) { members.number(id); });
    if (members.ids.empty()) return;
    BlockSets pending(at(blocks_.count()), members.ids.size());  // where a block begins
    BlockSets started(at(blocks_.count()), members.ids.size());  // by a block, and not waited for in it
    std::vector<std::uint32_t> waits(at(blocks_.count()));
    for (int block = 0; block < blocks_.count(); ++block) {
      waits[at(block)] = first_wait(begin(block), end(block));
      start_products(block, members, started);
    }
    while (flow_on(pending, started, waits)) {
    }
    for (int block = 0; block < blocks_.count(); ++block)
      pending.for_each(block, [&](std::uint32_t member) {
        ranges_[members.ids[member]].include(first_place(block));
        ranges_[members.ids[member]].include(std::min(2 * waits[at(block)] + 1, last_place(block)));
      });
  }

  void start_products(int block, Members& members, BlockSets& started) {
    for (auto i = begin(block); i < end(block); ++i) {
      if (!is_product(text_.statements[i])) continue;
      const auto wait = first_wait(i, end(block));
      for_each_register(text_.statements[i], [&](Slot id) {
        ranges_[id].include(std::min(2 * wait + 1, last_place(block)));
        if (wait == end(block)) started.add(block, members.number(id));
      });
    }
  }

  bool flow_on(BlockSets& pending, BlockSets& started, const std::vector<std::uint32_t>& waits) const {
    std::uint64_t changed = 0;
    for (int block = 0; block < blocks_.count(); ++block)
      for (const int next : blocks_.successors[at(block)]) {
        if (next < 0) continue;
        auto* to = pending.row(next);
        const auto *begun = started.row(block), *through = pending.row(block);
        const auto passes = waits[at(block)] == end(block) ? ~std::uint64_t{0} : 0;
        for (std::size_t i = 0; i < pending.words(); ++i) {
          const auto added = (begun[i] | (through[i] & passes)) & ~to[i];
          changed |= added;
          to[i] |= added;
        }
      }
    return changed != 0;
  }

  const EntryText& text_;
  const FlowBlocks& blocks_;
  std::vector<LiveRange> ranges_;
};

// Slots are shared within a class alone: lanes of a warp may be at different places, where one lane's part of a slot must not be another's.
enum SlotClass : std::uint8_t { class_wide, class_word, class_predicate, classes };

SlotClass class_of(RegisterKind kind) {
  return kind == RegisterKind::word64 ? class_wide : kind == RegisterKind::predicate ? class_predicate : class_word;
}

class Scan {
 public:
  Scan(const EntryText& text, const std::vector<LiveRange>& ranges) : text_(text), ranges_(ranges), place_(ranges.size(), no_slot) {
    for (Slot id = 0; id < ranges.size(); ++id)
      if (ranges[id].first <= ranges[id].last) by_first_.push_back(id);
    auto by_last = by_first_;
    std::stable_sort(by_first_.begin(), by_first_.end(), [&](Slot a, Slot b) { return ranges[a].first < ranges[b].first; });
    std::stable_sort(by_last.begin(), by_last.end(), [&](Slot a, Slot b) { return ranges[a].last < ranges[b].last; });
    auto ending = by_last.begin();
    for (const Slot id : by_first_) {
      for (; ending != by_last.end() && ranges[*ending].last < ranges[id].first; ++ending) release(*ending);
      take(id);
    }
  }

  const std::vector<Slot>& places() const { return place_; }  // within the class
  Slot count(SlotClass which) const { return counts_[which]; }

 private:
  void release(Slot id) { free_[class_of(text_.registers[id])].push_back(place_[id]); }

  void take(Slot id) {
    const auto which = class_of(text_.registers[id]);
    auto& free = free_[which];
    if (free.empty()) {
      place_[id] = counts_[which]++;
      return;
    }
    place_[id] = free.back();
    free.pop_back();
  }

  const EntryText& text_;
  const std::vector<LiveRange>& ranges_;
  std::vector<Slot> place_, by_first_;
  std::array<std::vector<Slot>, classes> free_;
  std::array<Slot, classes> counts_{};
};

Slot take_units(Slot& units, bool wide) {
  if (wide) units += units % 2;
  const Slot slot = units;
  units += wide ? 2 : 1;
  return slot;
}

// Those of 64 bits first, so that nothing lies between.
template <class Values, class IsWide>
std::vector<Slot> slots_of(const Values& values, const IsWide& is_wide, Slot& units) {
  std::vector<Slot> made(values.size());
  for (const bool wide : {true, false})
    for (std::size_t i = 0; i < values.size(); ++i)
      if (is_wide(values[i]) == wide) made[i] = take_units(units, wide);
  return made;
}

}  // namespace

Slots find_slots(const EntryText& text, const FlowBlocks& blocks) {
  const auto ranges = Liveness(text, blocks).find();
  const Scan scan(text, ranges);
  Slots made;
  const Slot words = 2 * scan.count(class_wide), predicates = words + scan.count(class_word);
  made.units = predicates + scan.count(class_predicate);
  made.of_register = scan.places();
  for (Slot id = 0; id < made.of_register.size(); ++id) {
    if (made.of_register[id] == no_slot) continue;
    const auto which = class_of(text.registers[id]);
    made.of_register[id] =
        which == class_wide ? 2 * made.of_register[id] : made.of_register[id] + (which == class_word ? words : predicates);
  }
  made.of_special = slots_of(
      text.specials, [](const auto& special) { return special.second == RegisterKind::word64; }, made.units);
  made.of_constant = slots_of(
      text.constants, [](const auto& constant) { return constant.bytes == 8; }, made.units);
  return made;
}

}  // namespace ejk::ptx::parsing

// The order of attention's work: packed sequences by length, turns of grouped heads by steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <vector>

#include "emulator/program.hpp"

namespace ejk {
namespace {

const std::map<std::string, spec::Value> names = {{"by_blocks", false}, {"takes_bias", false}};

using Ints = std::vector<std::int32_t>;
struct Found {
  std::int32_t some, item, sequence, items;
};

// a: starts of queries, then of keys, of a[0] sequences and all tokens; b[i]: what item i is.
const std::string find_all =
    "#include \"device/attention/longest_first.h\"\n"
    "KERNEL(32, 1) kernel(void* a, void* b, void*, int64_t n) {\n"
    "  const int32_t* const told = static_cast<const int32_t*>(a);\n  const int32_t count = told[0];\n"
    "  const Sequences sequences{told + 3, told + 3 + count + 1, count, told[1], told[2], true, 0};\n"
    "  for (int64_t i = 0; i < n; ++i) {\n    Sequence sequence;\n    int64_t item = i, items = 0;\n"
    "    const bool some = find_longest_first(sequences, item, 128, sequence, items);\n"
    "    int32_t* const to = static_cast<int32_t*>(b) + 4 * i;\n    if (thread_x() != 0) continue;\n"
    "    to[0] = some;\n    if (some) to[1] = static_cast<int32_t>(item), to[2] = static_cast<int32_t>(sequence.index), to[3] = "
    "static_cast<int32_t>(items);\n"
    "  }\n}\n";

// Sequences of these lengths (queries, keys), and tokens after them.
std::vector<Found> found_of(const Program& program, const std::vector<std::array<int, 2>>& lengths, std::array<int, 2> after) {
  Ints told{static_cast<std::int32_t>(lengths.size()), 0, 0};
  for (std::size_t side = 0; side < 2; ++side) {
    std::int32_t end = 0;
    told.push_back(end);
    for (const auto& length : lengths) told.push_back(end += length[side]);
    told[1 + side] = end + after[side];
  }
  std::vector<Found> found(static_cast<std::size_t>(told[1]) / 128 + lengths.size() + 2);
  program.run({}, told.data(), found.data(), nullptr, static_cast<std::int64_t>(found.size()));
  return found;
}

// Every block of every sequence, in its order, those of most keys first where `sorted`; nothing after them.
void expect_all(const std::vector<Found>& found, const std::vector<std::array<int, 2>>& lengths, std::array<int, 2> after, bool sorted) {
  std::vector<std::size_t> order(lengths.size() + 1);
  std::iota(order.begin(), order.end(), 0);
  const auto keys = [&](std::size_t n) { return n < lengths.size() ? lengths[n][1] : 0; };
  if (sorted) std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys(a) > keys(b); });
  std::size_t i = 0;
  for (const std::size_t n : order) {
    const int items = ((n < lengths.size() ? lengths[n][0] : after[0]) + 127) / 128;
    for (int block = 0; block < items; ++block, ++i) {
      ASSERT_LT(i, found.size());
      EXPECT_EQ((std::array{found[i].some, found[i].item, found[i].sequence, found[i].items}),
                (std::array{1, block, static_cast<int>(n), items}))
          << i;
    }
  }
  for (; i < found.size(); ++i) EXPECT_EQ(found[i].some, 0) << i;
}

TEST(OrderOfAttention, LongSequencesComeFirstAndEachBlockOnce) {
  const Program program(find_all, names);
  std::mt19937 random(7);
  for (const std::size_t count : {0u, 1u, 5u, 31u, 32u, 40u, 127u, 128u, 130u}) {
    std::vector<std::array<int, 2>> lengths(count);
    for (auto& length : lengths) length = {static_cast<int>(random() % 400), static_cast<int>(random() % 400)};
    const std::array<int, 2> after{static_cast<int>(random() % 300), static_cast<int>(random() % 300)};
    expect_all(found_of(program, lengths, after), lengths, after, count <= 127);
  }
}

TEST(OrderOfAttention, TurnsGoThroughAllHeadsOfAStep) {
  const Program program(
      "#include \"flash_attention_bwd/turns_by_steps.h\"\n"
      "struct Block {\n  int first_step, end_step, blocks_a_head, blocks_a_group;\n  bool backwards;\n};\n"
      "KERNEL(32, 1) kernel(void* a, void*, void*, int64_t backwards) {\n"
      "  const Block block{2, 5, 7, 21, backwards != 0};\n  int32_t* to = static_cast<int32_t*>(a);\n  if (thread_x() != 0) return;\n"
      "  for (StepTurns turn(block, 4); turn.number < 13; turn.next(block)) *to++ = turn.step, *to++ = turn.head, *to++ = turn.block;\n}\n",
      names);
  Ints forwards(27), backwards(27);
  program.run({}, forwards.data(), nullptr, nullptr, 0);
  program.run({}, backwards.data(), nullptr, nullptr, 1);
  EXPECT_EQ(forwards, (Ints{2, 0, 2, 2, 1, 9, 2, 2, 16, 3, 0, 3, 3, 1, 10, 3, 2, 17, 4, 0, 4, 4, 1, 11, 4, 2, 18}));
  EXPECT_EQ(backwards, (Ints{4, 0, 4, 4, 1, 11, 4, 2, 18, 3, 0, 3, 3, 1, 10, 3, 2, 17, 2, 0, 2, 2, 1, 9, 2, 2, 16}));
}

}  // namespace
}  // namespace ejk

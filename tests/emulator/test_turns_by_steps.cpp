// Turns of the attention gradients' blocks of keys that go through grouped heads step by step.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "emulator/program.hpp"

namespace ejk {
namespace {

using Ints = std::vector<std::int32_t>;

TEST(TurnsBySteps, GoThroughAllHeadsOfAStep) {
  const Program program(
      "#include \"flash_attention_bwd/turns_by_steps.h\"\n"
      "struct Block {\n  int first_step, end_step, blocks_a_head, blocks_a_group;\n  bool backwards;\n};\n"
      "KERNEL(32, 1) kernel(void* a, void*, void*, int64_t backwards) {\n"
      "  const Block block{2, 5, 7, 21, backwards != 0};\n  int32_t* to = static_cast<int32_t*>(a);\n  if (thread_x() != 0) return;\n"
      "  for (StepTurns turn(block, 4); turn.number < 13; turn.next(block)) *to++ = turn.step, *to++ = turn.head, *to++ = turn.block;\n}\n",
      {});
  Ints forwards(27), backwards(27);
  program.run({}, forwards.data(), nullptr, nullptr, 0);
  program.run({}, backwards.data(), nullptr, nullptr, 1);
  EXPECT_EQ(forwards, (Ints{2, 0, 2, 2, 1, 9, 2, 2, 16, 3, 0, 3, 3, 1, 10, 3, 2, 17, 4, 0, 4, 4, 1, 11, 4, 2, 18}));
  EXPECT_EQ(backwards, (Ints{4, 0, 4, 4, 1, 11, 4, 2, 18, 3, 0, 3, 3, 1, 10, 3, 2, 17, 2, 0, 2, 2, 1, 9, 2, 2, 16}));
}

}  // namespace
}  // namespace ejk

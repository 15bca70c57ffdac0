// Launches over time and zeroed workspaces: n launches of one plan, in order, from zeros on every call.
#include "ejk/ejk.hpp"
#include "launches/walk.hpp"

namespace ejk {
namespace {

class Repeat : public WalkTest, public ::testing::WithParamInterface<Device> {};

TEST_P(Repeat, EveryStepSeesTheWholeOneBeforeIt) {
  for (const std::int64_t steps : {1, 2, 3, 7})
    for (const std::int64_t elements : {1, 15, 64, 1000}) {
      Walk walk(steps, elements);
      ASSERT_EQ(message_of(call("walk", walk.tensors(GetParam()), {})), "");
      EXPECT_EQ(walk.out, walk.expected()) << steps << " steps of " << elements;
    }
}

TEST_P(Repeat, NoStepsAreLegalAndTheWorkspaceIsZero) {
  for (int i = 0; i < 3; ++i) {
    Walk before(3, 70), none(0, 70);
    ASSERT_EQ(message_of(call("walk", before.tensors(GetParam()), {})), "");
    ASSERT_EQ(message_of(call("walk", none.tensors(GetParam()), {})), "");
    EXPECT_EQ(none.out, std::vector<float>(70));
  }
}

// Twice on the same memory: what the first call left there does not reach the second.
TEST_P(Repeat, TheCallersWorkspaceIsZeroedToo) {
  Walk walk(5, 100);
  const auto tensors = walk.tensors(GetParam());
  const auto choice = choose("walk", tensors, {});
  ASSERT_TRUE(choice) << message_of(choice);
  EXPECT_EQ(choice->workspace_bytes, 3 * 512);
  alignas(256) static std::byte memory[3 * 512];
  std::fill(std::begin(memory), std::end(memory), std::byte{0x3f});
  const TensorView* views[] = {&tensors.at("x"), &tensors.at("out")};
  for (int i = 0; i < 2; ++i) {
    walk.out.assign(walk.out.size(), -1);
    const auto status = call(find_kernel("walk"), views, {}, {}, nullptr, {memory, sizeof memory});
    ASSERT_EQ(message_of(status), "");
    EXPECT_EQ(walk.out, walk.expected());
  }
  EXPECT_EQ(memory[450], std::byte{0}) << "the two that are zeroed lie together, so what is between them is zeroed, too,";
  EXPECT_EQ(memory[950], std::byte{0x3f}) << "and nothing behind them";
}

TEST_P(Repeat, APlanDoesNotGrowWithTheSteps) {
  const auto launches_of = [&](std::int64_t steps) {
    Walk walk(steps, 64);
    const auto text = explain("walk", walk.tensors(GetParam()), {});
    EXPECT_EQ(message_of(text), "");
    const auto begin = text->find("\"launches\""), end = text->find(']', text->find("finish", begin));
    return text->substr(begin, end - begin);
  };
  auto few = launches_of(2), many = launches_of(9999);
  EXPECT_NE(few.find("\"repeat\": 2"), std::string::npos) << few;
  EXPECT_NE(many.find("\"repeat\": 9999"), std::string::npos) << many;
  EXPECT_EQ(launches_of(0).find("advance"), std::string::npos);
  EXPECT_EQ(many.replace(many.find("9999"), 4, "2"), few);
}

// Steps of two launches: one after the other each turn, not all turns of the first before the second.
TEST_P(Repeat, LaunchesRepeatInTurn) {
  for (const std::int64_t steps : {1, 2, 7})
    for (const std::int64_t elements : {1, 64, 1000}) {
      Walk walk(steps, elements);
      ASSERT_EQ(message_of(call("walk_in_turn", walk.tensors(GetParam()), {})), "");
      EXPECT_EQ(walk.out, walk.expected()) << steps << " steps of " << elements;
    }
}

INSTANTIATE_TEST_SUITE_P(Places, Repeat, ::testing::Values(host, warps, waves), [](const auto& info) { return name_of_place(info.param); });

TEST_F(WalkTest, OneThreadAndManyGiveTheSameBits) {
  for (const int threads : {1, 2, 5, 16}) {
    set_cpu_threads(threads);
    Walk walk(7, 1000);
    ASSERT_EQ(message_of(call("walk", walk.tensors(host), {})), "");
    EXPECT_EQ(walk.out, walk.expected()) << threads << " threads";
  }
  set_cpu_threads(0);
}

}  // namespace
}  // namespace ejk

// Launches over time, zeroed workspaces and cooperative launches on a device, also captured and replayed.
#include <deque>
#include <random>

#include "device/fixture.hpp"

namespace ejk {
namespace {

class Launches : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    static const bool added = static_cast<bool>(add_store(source_folder() + "/tests/launches/data"));
    ASSERT_TRUE(added);
  }

  static std::vector<float> brought(std::int64_t steps, std::int64_t elements, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::vector<float> x(static_cast<std::size_t>(steps * elements));
    for (auto& value : x) value = static_cast<float>(random() % 64) / 8;
    return x;
  }

  static std::vector<float> walked(const std::vector<float>& x, std::size_t elements) {
    std::vector<float> from(elements), to(elements);
    for (std::size_t t = 0; t * elements < x.size(); ++t) {
      for (std::size_t i = 0; i < elements; ++i) to[i] = 0.5f * from[(i + 1) % elements] + x[t * elements + i];
      std::swap(from, to);
    }
    return from;
  }

  static Status run(const char* kernel, const OnGpu<float>& x, const OnGpu<float>& out, std::int64_t steps, std::int64_t elements,
                    void* stream = nullptr, std::int64_t items = 0) {
    auto in = x.view(), result = out.view();
    in.rank = 2;
    in.shape[0] = steps, in.shape[1] = elements;
    in.strides[0] = elements, in.strides[1] = 1;
    std::map<std::string, Value> attributes;
    if (items) attributes["items"] = items;
    return call(kernel, {{"x", in}, {"out", result}}, attributes, {stream});
  }

  // Captures one call and replays it on inputs that change: each replay begins with zeros and a barrier that is ready.
  static void replays(const char* kernel, std::int64_t steps, std::int64_t elements, std::size_t nodes, std::int64_t items = 0) {
    auto& driver = Driver::instance();
    OnGpu<float> x(brought(steps, elements)), out(zeros(static_cast<std::size_t>(elements)));
    const OwnStream stream;
    driver.begin_capture(stream.handle);
    const auto status = run(kernel, x, out, steps, elements, stream.handle, items);
    void* graph = driver.end_capture(stream.handle);
    ASSERT_TRUE(status) << message_of(status);
    EXPECT_EQ(driver.nodes_of_last_capture(), nodes);
    for (unsigned seed = 1; seed < 6; ++seed) {
      x.set(brought(steps, elements, seed));
      out.set(zeros(static_cast<std::size_t>(elements)));
      driver.launch_graph(graph, stream.handle);
      driver.wait(stream.handle);
      EXPECT_EQ(out.values(), walked(brought(steps, elements, seed), static_cast<std::size_t>(elements))) << "replay " << seed;
    }
    driver.free_graph(graph);
  }
};

TEST_F(Launches, EveryStepSeesTheWholeOneBeforeIt) {
  for (const char* kernel : {"walk", "walk_at_once"})
    for (const std::int64_t steps : {1, 2, 7})
      for (const std::int64_t elements : {1, 1000, 70000}) {
        const OnGpu<float> x(brought(steps, elements)), out(zeros(static_cast<std::size_t>(elements)));
        const auto status = run(kernel, x, out, steps, elements, nullptr, kernel == std::string("walk") ? 0 : 100);
        ASSERT_TRUE(status) << message_of(status);
        Driver::instance().wait();
        EXPECT_EQ(out.values(), walked(brought(steps, elements), static_cast<std::size_t>(elements))) << kernel << " " << steps;
      }
}

TEST_F(Launches, NoStepsLeaveZeros) {
  const OnGpu<float> x(zeros(1)), out(numbers(500));
  for (const char* kernel : {"walk", "walk_at_once"}) {
    ASSERT_TRUE(run(kernel, x, out, 0, 500));
    Driver::instance().wait();
    EXPECT_EQ(out.values(), zeros(500)) << kernel;
  }
}

// Allocate, zero, one launch a step, the last one, free.
TEST_F(Launches, ACapturedWalkIsReplayed) { replays("walk", 6, 5000, 1 + 1 + 6 + 1 + 1); }
TEST_F(Launches, ACapturedCooperativeLaunchIsReplayed) { replays("walk_at_once", 7, 5000, 1 + 1 + 1 + 1, 64); }

TEST_F(Launches, ManyBarriersOfAFullDevice) {
  constexpr std::int64_t steps = 2000, elements = 132 * 64;
  const OnGpu<float> x(zeros(static_cast<std::size_t>(steps * elements))), out(numbers(elements));
  for (int i = 0; i < 3; ++i) {
    const auto status = run("walk_at_once", x, out, steps, elements, nullptr, 132);
    ASSERT_TRUE(status) << message_of(status);
  }
  Driver::instance().wait();
  EXPECT_EQ(out.values(), zeros(elements));
}

// Each of these fills more than half of the device, so that no two run at once, and none may begin with a part of its blocks, which would
// wait for the others for ever.
TEST_F(Launches, CooperativeLaunchesOnABusyDeviceRunOneAfterAnotherOrAreRefused) {
  constexpr std::int64_t steps = 40, blocks = 3000, elements = blocks * 64;
  const std::vector<float> x = brought(steps, elements);
  const OnGpu<float> in(x);
  const OwnStream streams[3];
  std::deque<OnGpu<float>> outs;
  for (int i = 0; i < 9; ++i) outs.emplace_back(zeros(static_cast<std::size_t>(elements)));
  bool ran[9] = {};
  for (int i = 0; i < 9; ++i) {
    const auto status = run("walk_at_once", in, outs[i], steps, elements, streams[i % 3].handle, blocks);
    ran[i] = static_cast<bool>(status);
    if (!ran[i]) EXPECT_EQ(status.error().code, ErrorCode::unsupported) << status.error().message;
  }
  for (const OwnStream& stream : streams) Driver::instance().wait(stream.handle);
  const std::vector<float> expected = walked(x, static_cast<std::size_t>(elements));
  for (int i = 0; i < 9; ++i)
    if (ran[i]) EXPECT_EQ(outs[i].values(), expected) << i;
}

TEST_F(Launches, AGridThatDoesNotFitIsRefusedWithBothNumbers) {
  const OnGpu<float> x(zeros(200)), out(zeros(100));
  const auto status = run("walk_at_once", x, out, 2, 100, nullptr, 200'000);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_NE(status.error().message.find("has 200000 blocks of 64 threads"), std::string::npos) << status.error().message;
  EXPECT_NE(status.error().message.find("cuda:0 holds "), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace ejk

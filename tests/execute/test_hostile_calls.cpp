// What a hostile caller of the C API does: NULL for a place, numbers that fit nothing, devices that nobody has. Each is an error in words.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <ejk/grouped_matmul.hpp>

#include "common/epoch.hpp"
#include "ejk/ejk.h"
#include "execute/library_state.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

class Hostile : public StoreTest {
 protected:
  void SetUp() override { ASSERT_EQ(ejk_add_store((test::source_dir() + "/tests/execute/data").c_str()), EJK_OK) << ejk_last_error(); }
  // The last call failed as bad input, in these words.
  static void refused(ejk_status status, const std::string& words) {
    EXPECT_EQ(status, EJK_BAD_INPUT) << ejk_last_error();
    EXPECT_NE(std::string(ejk_last_error()).find(words), std::string::npos) << ejk_last_error();
  }
  ejk_status called(const char* attributes, const char* config = nullptr) const {
    return ejk_call("shift", tensors, 2, attributes, config, nullptr);
  }

  float x[4] = {1, 2, 3, 4}, out[4] = {};
  std::int64_t shape[1] = {4};
  ejk_tensor x_tensor = {x, {1, 0}, 1, {2, 32, 1}, shape, nullptr, 0}, out_tensor = {out, {1, 0}, 1, {2, 32, 1}, shape, nullptr, 0};
  const ejk_argument tensors[2] = {{"x", &x_tensor}, {"out", &out_tensor}};
};

TEST_F(Hostile, NoPlaceForTheAnswer) {
  const std::string text = "the place for the text is NULL";
  refused(ejk_kernels(nullptr), text);
  refused(ejk_describe("shift", nullptr), text);
  refused(ejk_counters(nullptr), text);
  refused(ejk_info(nullptr), text);
  refused(ejk_explain("shift", tensors, 2, nullptr, nullptr, nullptr), text);
  refused(ejk_label("shift", tensors, 2, nullptr, "hash", nullptr), text);
  refused(ejk_labels_in_hlo("", 0, nullptr), text);
  refused(ejk_bind("shift", tensors, 2, nullptr, nullptr), text);
  refused(ejk_choose("shift", tensors, 2, nullptr, nullptr, nullptr), text);
  refused(ejk_prepare("shift", tensors, 2, nullptr, nullptr, nullptr), "the place for the prepared call is NULL");
  refused(ejk_tune("shift", tensors, 2, nullptr, nullptr, nullptr), "the place for the record is NULL");
  std::int32_t rank = 7;
  std::uint8_t code = 0, bits = 0;
  refused(ejk_output("shift", tensors, 1, nullptr, "out", &rank, nullptr, &code, &bits), "shift: a place for the output's rank, shape");
  EXPECT_EQ(rank, 7) << "all or nothing";
  ejk_free(nullptr);
  ejk_release(nullptr);
}

TEST_F(Hostile, NumbersThatFitNothing) {
  refused(called(R"({"limit": 18446744073709551615})"), "the integer 18446744073709551615 does not fit 64 bits");
  refused(called(R"({"limit": 123456789012345678901234567890})"), "does not fit 64 bits");
  refused(called(R"({"by": 1e999})"), "shift: attributes");
  refused(called(R"({"by": 1, "by": 2})"), "the field 'by' occurs twice");
  refused(called(std::string(100000, '[').c_str()), "nested more than 32 levels deep");
  refused(called(R"({"by": [1]})"), "shift: attribute 'by' is of type array");
  refused(called("{\"\xff\": 1}"), "not JSON");
  refused(called(nullptr, R"({"block": 18446744073709551615})"), "the integer 18446744073709551615 does not fit 64 bits");
  refused(called(nullptr, R"({"block": 2, "block": 4})"), "the field 'block' occurs twice");
  EXPECT_EQ(out[0], 0.0f);
  char* text = nullptr;
  refused(ejk_tune("shift", tensors, 2, nullptr, R"({"jobs": 4294967297})", &text), "the tuning option jobs must be an integer from ");
  refused(ejk_tune("shift", tensors, 2, nullptr, R"({"seed": -1})", &text), "the tuning option seed must be an integer from 0 to ");
}

// Devices that differ from one that was seen only in bits that few would look at.
TEST_F(Hostile, DevicesThatNobodyHas) {
  ASSERT_EQ(called(nullptr), EJK_OK) << ejk_last_error();
  out[0] = -1;
  x_tensor.device.type = out_tensor.device.type = 257;
  EXPECT_EQ(called(nullptr), EJK_UNSUPPORTED);
  EXPECT_NE(std::string(ejk_last_error()).find("device type 257"), std::string::npos) << ejk_last_error();
  x_tensor.device.type = out_tensor.device.type = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(called(nullptr), EJK_UNSUPPORTED);
  EXPECT_EQ(out[0], -1.0f);
}

TEST_F(Hostile, RanksAndShapesOfGarbage) {
  for (const std::int32_t rank : {-1, 9, 1 << 30, std::numeric_limits<std::int32_t>::min()}) {
    x_tensor.rank = rank;
    refused(called(nullptr), "expected 0 to 8");
  }
  x_tensor.rank = 1;
  x_tensor.shape = nullptr;
  refused(called(nullptr), "x has 1 dimensions but no shape");
  for (const std::int64_t extent : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    const std::int64_t odd[1] = {extent};
    x_tensor.shape = odd;
    EXPECT_EQ(called(nullptr), EJK_BAD_INPUT) << ejk_last_error();
  }
}

// The host's memory is one, whatever number a tensor of it bears.
TEST_F(Hostile, TheHostHasOneDeviceOfAnyNumber) {
  for (const std::int32_t index : {7, -1}) {
    x_tensor.device.index = index;
    ASSERT_EQ(called(nullptr), EJK_OK) << ejk_last_error();
    EXPECT_EQ(out[0], 2.5f);
    out[0] = 0;
  }
}

TEST_F(Hostile, OffsetsThatLeaveAllMemory) {
  for (const std::uint64_t offset : {~std::uint64_t{3}, std::uint64_t{1} << 63, std::uint64_t{1} << 57}) {
    x_tensor.byte_offset = offset;
    refused(called(nullptr), "x has a byte_offset of " + std::to_string(offset));
  }
  x_tensor.byte_offset = 4;
  const std::int64_t three[1] = {3};
  x_tensor.shape = out_tensor.shape = three;
  (void)called(nullptr);  // an offset within the memory is one: nothing of it is refused
  EXPECT_EQ(std::string(ejk_last_error()).find("byte_offset"), std::string::npos) << ejk_last_error();
}

// Threads that meet shapes they have not seen, and forks in between: no child waits for a lock of a thread that it does not have.
TEST_F(Hostile, ForksWhileOthersPlan) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer's own allocator may be locked for ever in a child of a process of many threads (GCC 12)";
#endif
  ASSERT_EQ(called(nullptr), EJK_OK) << ejk_last_error();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  const auto call_with = [](std::int64_t size) {
    std::vector<float> input(static_cast<std::size_t>(size), 1), output(input.size());
    const TensorView in(input.data(), DType::f32, {size}), result(output.data(), DType::f32, {size});
    return static_cast<bool>(call("shift", {{"x", in}, {"out", result}}, {})) && output.back() == 2.5f;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t i = t; !stop; ++i) {
        wrong += !call_with(2 + 2 * (i % 49));
        decisions_epoch += 1;  // every plan is made anew
      }
    });
  int lost = 0;
  for (int i = 0; i < 60 && !lost; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // one that hangs is ended by the signal
      _exit(call_with(2 + 2 * (i % 49)) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    lost += status != 0;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(wrong, 0);
}

// Shapes of more elements than 64 bits count: never a small block of memory under a large name.
TEST(HostileTensors, TooLargeForAnyMemory) {
  constexpr std::int64_t large = std::int64_t{1} << 40;
  EXPECT_THROW(Tensor(DType::f32, {large, large}), std::bad_alloc);
  EXPECT_THROW(Tensor(DType::f32, {std::int64_t{1} << 62}), std::bad_alloc);
  EXPECT_THROW(Tensor(DType::f32, {-1, -1}), std::bad_alloc);
  EXPECT_NE(Tensor(DType::f32, {large, 0, large}).view().data, nullptr);
}

// An output far larger than its inputs: a product over no elements.
TEST_F(StoreTest, AnOutputThatNoMemoryHolds) {
  use_project_store();
  constexpr std::int64_t large = std::int64_t{1} << 40;
  const Tensor lhs(DType::f32, {large, 0}), rhs(DType::f32, {1, 0, large}), sizes(DType::i32, {1});
  *sizes.data<std::int32_t>() = 0;
  const auto result = grouped_matmul(lhs, rhs, {.group_sizes = sizes});
  EXPECT_EQ(message_of(result), "grouped_matmul: no memory for output out, f32 of shape [1099511627776, 1099511627776]");
}

// A shape that only data tells, of data that is not there.
TEST_F(StoreTest, AGradientWhoseShapesCannotBeTold) {
  use_project_store();
  const std::int64_t x_shape[] = {6, 8}, ends_shape[] = {3};
  const ejk_tensor x = {nullptr, {1, 0}, 2, {2, 32, 1}, x_shape, nullptr, 0},
                   ends = {nullptr, {1, 0}, 1, {0, 32, 1}, ends_shape, nullptr, 0};
  const ejk_argument tensors[] = {{"x", &x}, {"cum_seqlens", &ends}};
  char* text = nullptr;
  EXPECT_EQ(ejk_gradient("mean_pooling", tensors, 2, R"({"chunk_size": 2})", &text), EJK_BAD_INPUT);
  EXPECT_NE(std::string(ejk_last_error()).find("mean_pooling: the shape of out cannot be told: "), std::string::npos) << ejk_last_error();
}

}  // namespace
}  // namespace ejk

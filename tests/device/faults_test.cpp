// Faults that cost the process its device, each in a child of its own: told once in full, then briefly, never as a wrong result.
#include <sys/wait.h>

#include <cstdio>

#include "backends/backend.h"
#include "device/fixture.hpp"

namespace ejk::faults_test {
namespace {

struct Child {
  int exit_code;
  std::string words;
};

// This program again, with one of the tests below that only a child runs.
Child run_child(const std::string& test) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto command = "'" + self + "' --gtest_also_run_disabled_tests --gtest_filter='FaultChild.DISABLED_" + test + "' 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  Child child{0, ""};
  char bytes[4096];
  while (const auto count = std::fread(bytes, 1, sizeof bytes, pipe)) child.words.append(bytes, count);
  const int status = pclose(pipe);
  child.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return child;
}

class Faults : public DeviceTest {};
class FaultChild : public DeviceTest {
 protected:
  // What waiting for the device says; empty if all is well.
  static std::string wait() {
    try {
      cuda_backend().memory()->synchronize(0);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }
};

TEST_F(FaultChild, DISABLED_IllegalAddress) {
  const OnGpu<float> x(numbers(100)), out(zeros(100));
  const std::map<std::string, TensorView> tensors{{"x", x.view()}, {"out", out.view()}};
  ASSERT_TRUE(call("shift", tensors, {{"wild", std::int64_t{1} << 44}}));  // put on the device; the fault comes later
  const auto first = wait();
  EXPECT_NE(first.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << first;
  EXPECT_NE(first.find("/shift"), std::string::npos) << "names no launch: " << first;
  const auto status = call("shift", tensors, {});
  ASSERT_FALSE(status) << "a call on a lost device must fail";
  EXPECT_EQ(status.error().code, ErrorCode::device);
  EXPECT_NE(message_of(status).find("restart the process"), std::string::npos) << message_of(status);
}

TEST_F(Faults, AnIllegalAddressIsToldWithTheLaunchAndEndsTheDevicesUse) {
  const auto child = run_child("IllegalAddress");
  EXPECT_EQ(child.exit_code, 0) << child.words;
  EXPECT_NE(child.words.find("[  PASSED  ] 1 test"), std::string::npos) << child.words;
}

TEST_F(FaultChild, DISABLED_HostPointer) {
  const OnGpu<float> out(zeros(100));
  std::vector<float> host = numbers(100);
  auto claimed = TensorView(host.data(), DType::f32, {100});
  claimed.device = first_gpu;
  const auto status = shift(claimed, out.view(), 1);
  const auto words = message_of(status) + wait();
  if (words.empty())
    EXPECT_EQ(out.values(), plus(numbers(100), 1));  // where the device reads the host's memory, the result is right
  else
    EXPECT_NE(words.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << words;
}

TEST_F(Faults, AHostPointerAsACudaTensorIsAnErrorOrReadAsItIs) {
  const auto child = run_child("HostPointer");
  EXPECT_EQ(child.exit_code, 0) << child.words;
  EXPECT_NE(child.words.find("[  PASSED  ] 1 test"), std::string::npos) << child.words;
}

}  // namespace
}  // namespace ejk::faults_test

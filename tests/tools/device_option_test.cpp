// --device: what is understood, what is refused and with which words.
#include "command_line/device_option.hpp"

#include <gtest/gtest.h>

#include "common/guard.hpp"
#include "emulator/simt.hpp"
#include "tests/paths.hpp"

namespace ejk::tools::device_option_test {
namespace {

std::string refusal(const std::string& text) {
  try {
    device_named(text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(DeviceOption, PlatformsAndNumbersAreRead) {
  EXPECT_EQ(device_named("cpu"), (DeviceName{"cpu", 0}));
  EXPECT_EQ(device_named("cuda"), (DeviceName{"cuda", 0}));
  EXPECT_EQ(device_named("cuda:0"), (DeviceName{"cuda", 0}));
  EXPECT_EQ(device_named("cuda:12"), (DeviceName{"cuda", 12}));
}

TEST(DeviceOption, AnythingElseIsRefused) {
  EXPECT_EQ(refusal(""), "--device: expected a platform such as cpu or cuda:1, found ''");
  EXPECT_EQ(refusal(":1"), "--device: expected a platform such as cpu or cuda:1, found ':1'");
  for (const auto* text : {"cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:1:2", "cuda:1000", "cuda: 1"})
    EXPECT_EQ(refusal(text), std::string("--device: expected cuda or cuda:N with a number N from 0 to 999, found '") + text + "'");
}

class FoundDevices : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    add_backend(simt_backend());
    ASSERT_TRUE(add_store(test::source_dir()));
  }
};

TEST_F(FoundDevices, AreNamedAsTheyAreAskedFor) {
  EXPECT_EQ(name_of(find_device({"cpu", 0})), "cpu");
  EXPECT_EQ(name_of(find_device({"simt", 0})), "simt:0");
  EXPECT_TRUE(on_host(find_device({"cpu", 0})));
  EXPECT_FALSE(on_host(find_device({"simt", 0})));
}

TEST_F(FoundDevices, AnUnknownPlatformIsRefusedWithTheNearest) {
  try {
    find_device({"smt", 0});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "--device: ejk has no platform 'smt'; did you mean 'simt'?");
  }
}

TEST_F(FoundDevices, AMissingDeviceIsRefusedWithThoseThereAre) {
  try {
    find_device({"simt", 4});
    FAIL();
  } catch (const CodedError& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    EXPECT_TRUE(std::string(e.what()).starts_with("--device simt:4: there is no such device; found simt:0 (SIMT emulator")) << e.what();
    EXPECT_TRUE(std::string(e.what()).ends_with("`ejk info` tells what was found here")) << e.what();
  }
}

}  // namespace
}  // namespace ejk::tools::device_option_test

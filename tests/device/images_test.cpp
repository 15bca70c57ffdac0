// Every image that runs on the device against the float64 reference: one varied call each, as `ejk verify --device cuda --quick`.
#include <algorithm>

#include "command_line/device_option.hpp"
#include "device/fixture.hpp"
#include "verify/verify_check.hpp"

namespace ejk {
namespace {

class Images : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Driver::instance().usable()) GTEST_SKIP() << Driver::instance().why_not();
    ASSERT_TRUE(add_store(source_folder()));  // the kernels as they are here; binaries from $EJKERNEL_STORE where it has them
  }
};

TEST_F(Images, AgreeWithTheReference) {
  const auto& machine = tools::find_device({"cuda", 0});
  tools::VerifyEffort effort;
  effort.random = 1;
  effort.seconds = 0;
  effort.properties = false;
  std::size_t images = 0, left_out = 0;
  for (const auto& name : Library::instance().parts().catalogue.kernel_names()) {
    const auto* reference = reference::find_reference(name);
    if (!reference) continue;
    for (const auto& image : tools::images_to_verify(*Library::instance().kernel(name), machine, {}, left_out)) {
      const auto outcome = tools::check_image(image, machine, *reference, effort);
      ++images;
      EXPECT_FALSE(outcome.missing) << image.id;
      EXPECT_TRUE(outcome.failures.empty()) << image.id << ": " << outcome.failures.front();
      EXPECT_GT(outcome.calls, 0) << image.id << ": no call reached it";
    }
  }
  EXPECT_GT(images, 0u) << "no kernel has a variant for this device";
}

}  // namespace
}  // namespace ejk

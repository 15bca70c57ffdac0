// Whether `ejk verify` would find a call for every image: a case of it varied, judged without data, or a small one as it is, on archs that
// need not be here.
#include <gtest/gtest.h>

#include "ejk/ejk.hpp"
#include "tests/paths.hpp"
#include "verify/verify_check.hpp"

namespace ejk::tools {
namespace {

Machine machine_of_all_archs() {
  Machine machine;
  for (const auto& [name, arch] : Library::instance().parts().catalogue.archs()) machine.archs.push_back(arch);
  return machine;
}

TEST(Verify, FindsACallForEveryImageOfEveryArch) {
  ASSERT_TRUE(add_store(test::source_dir()));
  const Machine machine = machine_of_all_archs();
  std::size_t images = 0, left_out = 0;
  for (const auto& name : Library::instance().parts().catalogue.kernel_names()) {
    const auto* reference = reference::find_reference(name);
    if (!reference) continue;
    for (const auto& image : images_to_verify(*Library::instance().kernel(name), machine, {}, left_out)) {
      reference::Rng seeds = reference::Rng::stream(1, image.id);
      int attempts = attempts_at_the_first;
      EXPECT_TRUE(draw_served(image, *reference, seeds, attempts) || whole_case(image, VerifyEffort().whole_case)) << image.id;
      ++images;
    }
  }
  EXPECT_GT(images, 1000u);
}

}  // namespace
}  // namespace ejk::tools

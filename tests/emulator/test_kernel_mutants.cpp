// Every mutant is found, and what it changes is right as it is.
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants {
namespace {

TEST_P(KernelMutant, IsFound) {
  const auto mutant = try_template(GetParam().subject, GetParam().mutation);
  EXPECT_NE(mutant.verdict, Verdict::right) << "no call shows the change";
  EXPECT_NE(mutant.verdict, Verdict::broken) << mutant.words;
}

TEST_P(KernelMutantsOriginal, IsRight) {
  const auto original = try_template(GetParam().subject, std::nullopt);
  EXPECT_EQ(original.verdict, Verdict::right) << original.words;
}

}  // namespace
}  // namespace ejk::kernel_mutants

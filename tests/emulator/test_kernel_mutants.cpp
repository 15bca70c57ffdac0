// Every mutant is found, and what it changes is right as it is.
#include "emulator/kernel_mutants.hpp"
#include "tests/day.hpp"

namespace ejk::kernel_mutants {
namespace {

// A third of the subjects a day, each with all of its mutants.
bool of_the_day(const Subject& subject) {
  return test::of_the_day(subject.kernel + subject.case_name + subject.template_file + subject.variant + std::to_string(subject.device), 3);
}

TEST_P(KernelMutant, IsFound) {
  const auto& [name, subject, mutation] = GetParam();
  // Each day all know what to change: a template that is edited says so at once.
  if (!of_the_day(subject)) {
    EXPECT_NO_THROW(test::ChangedStore(subject.root, change_of(subject, mutation)));
    return;
  }
  const auto mutant = try_template(subject, mutation);
  EXPECT_NE(mutant.verdict, Verdict::right) << "no call shows the change";
  EXPECT_NE(mutant.verdict, Verdict::broken) << mutant.words;
}

TEST_P(KernelMutantsOriginal, IsRight) {
  if (!of_the_day(GetParam().subject)) GTEST_SKIP() << "not one of the day's subjects";
  const auto original = try_template(GetParam().subject, std::nullopt);
  EXPECT_EQ(original.verdict, Verdict::right) << original.words;
}

}  // namespace
}  // namespace ejk::kernel_mutants

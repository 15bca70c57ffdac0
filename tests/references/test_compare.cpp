// The comparison must notice each kind of wrong output.
#include <gtest/gtest.h>

#include <limits>

#include "reference/compare.hpp"
#include "reference/random.hpp"
#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

TEST(Compare, TheErrorIsRelativeToTheRootMeanSquare) {
  const std::int64_t shape[] = {2};
  const double expected[] = {3, 4}, found[] = {3, 4.05};
  const Comparison result = compare("out", shape, found, expected, 0.02);
  EXPECT_NEAR(result.error, 0.01, 1e-12);
  EXPECT_EQ(result.worst_index, 1);
  EXPECT_TRUE(result.ok());
  EXPECT_FALSE(compare("out", shape, found, expected, 0.009).ok());
}

TEST(Compare, TinyReferencesAreJudgedAgainstAHundredth) {
  const std::int64_t shape[] = {1};
  const double expected[] = {1e-9}, found[] = {2e-9};
  EXPECT_NEAR(compare("dx", shape, found, expected, 1e-5).error, 1e-7, 1e-12);
  EXPECT_TRUE(compare("dx", shape, found, expected, 1e-5).ok());
}

TEST(Compare, SumsThatCancelAreForgivenTheirRounding) {
  const std::int64_t shape[] = {1};
  const double expected[] = {1e-9}, found[] = {1e-6}, wrong[] = {3e-6};
  EXPECT_FALSE(compare("dx", shape, found, expected, 1e-5).ok());
  EXPECT_NEAR(compare("dx", shape, found, expected, 1e-5, 2e-6).error, 0.5e-5, 1e-7);
  EXPECT_FALSE(compare("dx", shape, wrong, expected, 1e-5, 2e-6).ok());
  const double large[] = {4}, near[] = {4 + 4e-6};
  EXPECT_NEAR(compare("dx", shape, near, large, 1e-5, 2e-6).error, 1e-6, 1e-9) << "what does not cancel is not judged by it";
}

TEST(Compare, OneWrongElementInManyIsNoticed) {
  Rng rng(1);
  std::vector<double> expected(1000000);
  for (double& value : expected) value = rng.normal();
  std::vector<double> found = expected;
  found[123456] += 2;
  const std::int64_t shape[] = {1000, 1000};
  const Comparison result = compare("out", shape, found, expected, 8e-3);
  EXPECT_LT(result.error, result.tolerance);
  EXPECT_FALSE(result.ok());
  EXPECT_NE(result.message.find("out[123, 456]"), std::string::npos) << result.message;
}

TEST(Compare, InfinitiesAndNaNMustBeWhereTheReferenceHasThem) {
  const std::int64_t shape[] = {3};
  const double expected[] = {1, -infinity, nan};
  const double same[] = {1, -infinity, nan}, finite[] = {1, -1e30, nan}, sign[] = {1, infinity, nan}, lost[] = {1, -infinity, 0},
               leaked[] = {nan, -infinity, nan};
  EXPECT_TRUE(compare("lse", shape, same, expected, 1e-5).ok());
  for (const double* wrong : {finite, sign, lost, leaked}) EXPECT_FALSE(compare("lse", shape, std::span(wrong, 3), expected, 1e-5).ok());
  EXPECT_EQ(compare("lse", shape, finite, expected, 1e-5).message,
            "lse[1] is -1e+30, the reference says -inf (1 elements wrong in NaN or infinity)");
}

TEST(Compare, UnwrittenAndOverwrittenMemoryIsReported) {
  HostTensor out("out", DType::f32, {2, 2});
  const std::vector<double> expected{1, 2, 3, 4};
  for (const std::int64_t i : {0, 1, 2}) out.set(i, expected[static_cast<std::size_t>(i)]);
  EXPECT_EQ(compare(out, expected, 1e-5).message, "out[1, 1] was not written (1 of 4 elements)");
  out.set(3, 4);
  EXPECT_TRUE(compare(out, expected, 1e-5).ok());
  static_cast<float*>(out.data())[4] = 0;
  EXPECT_EQ(compare(out, expected, 1e-5).message, "out: memory beside its elements was written");
}

TEST(Compare, ASampleIsComparedAndTheWholeMustBeWritten) {
  HostTensor out("out", DType::f32, {2, 3});
  Sample sample;
  const double first[] = {1, 2}, last[] = {6};
  sample.add(0, first, 2);
  sample.add(5, last, 1);
  for (std::int64_t i = 0; i < 5; ++i) out.set(i, static_cast<double>(i + 1));
  EXPECT_EQ(compare(out, sample, 1e-5).message, "out[1, 2] was not written (1 of 6 elements)");
  out.set(5, 6);
  EXPECT_TRUE(compare(out, sample, 1e-5).ok());
  out.set(3, 70);  // is not in the sample
  EXPECT_TRUE(compare(out, sample, 1e-5).ok());
  out.set(5, 7);
  const auto result = compare(out, sample, 1e-2);
  EXPECT_NE(result.message.find("worst: out[1, 2] is 7, the reference says 6"), std::string::npos) << result.message;
  sample.rounding = 1;  // may be that of rounding
  EXPECT_TRUE(compare(out, sample, 1e-2).ok());
}

TEST(Compare, AnotherElementCountIsAnError) {
  const std::int64_t shape[] = {2};
  const double expected[] = {1, 2, 3}, found[] = {1, 2};
  EXPECT_EQ(compare("out", shape, found, expected, 1).message, "out: found 2 elements, the reference has 3");
}

TEST(Compare, NothingAgreesWithNothing) { EXPECT_TRUE(compare("out", {}, {}, {}, 1e-5).ok()); }

}  // namespace
}  // namespace ejk::reference

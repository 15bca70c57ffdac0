// Layouts, poison and random data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "reference/data.hpp"
#include "reference/host_tensor.hpp"

namespace ejk::reference {
namespace {

const std::vector<std::int64_t> shape{2, 3, 5, 4};

std::vector<double> counting(std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

Layout layout_of(int bits) {
  Layout layout;
  layout.padded = bits & 1;
  layout.permuted = bits & 2;
  layout.unaligned = bits & 4;
  layout.broadcast = bits & 8;
  return layout;
}

TEST(HostTensor, ValuesDoNotDependOnTheLayout) {
  for (int bits = 0; bits < 8; ++bits)
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      Rng rng(seed);
      HostTensor tensor("x", DType::bf16, shape, layout_of(bits), &rng);
      EXPECT_EQ(tensor.unwritten(), tensor.elements());
      tensor.assign(counting(120));
      ASSERT_EQ(tensor.values(), counting(120)) << layout_of(bits).text();
      ASSERT_EQ(tensor.at(57), 57);
      EXPECT_EQ(tensor.strides().back(), 1);
      EXPECT_EQ(tensor.unwritten(), 0);
      EXPECT_TRUE(tensor.surroundings_intact());
    }
}

TEST(HostTensor, TheViewReachesTheSameElements) {
  Rng rng(3);
  HostTensor tensor("x", DType::f32, shape, layout_of(3), &rng);
  tensor.assign(counting(120));
  const TensorView view = tensor.view();
  const auto* data = static_cast<const float*>(view.data);
  EXPECT_EQ(data[1 * view.strides[0] + 2 * view.strides[1] + 4 * view.strides[2] + 3], ((1 * 3 + 2) * 5 + 4) * 4 + 3);
}

TEST(HostTensor, EachTraitOfALayoutOccurs) {
  bool permuted = false, padded = false, broadcast = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed), other(seed), third(seed);
    const HostTensor p("x", DType::f32, shape, layout_of(2), &rng);
    permuted = permuted || p.strides()[0] < p.strides()[2];
    padded = padded || HostTensor("x", DType::f32, shape, layout_of(1), &other).strides()[0] > 60;
    broadcast = broadcast || HostTensor("x", DType::f32, shape, layout_of(8), &third).broadcast();
  }
  EXPECT_TRUE(permuted && padded && broadcast);
}

TEST(HostTensor, UnalignedMeansAlignedToTheElementAlone) {
  EXPECT_EQ(HostTensor("x", DType::f16, shape, layout_of(4)).facts().alignment, 2);
  EXPECT_EQ(HostTensor("x", DType::f32, shape, layout_of(4)).facts().alignment, 4);
  EXPECT_EQ(HostTensor("x", DType::f32, shape).facts().alignment, 64);
}

TEST(HostTensor, WritesBesideTheElementsAreNoticed) {
  HostTensor tensor("x", DType::f32, {3, 4});
  tensor.assign(counting(12));
  float* data = static_cast<float*>(tensor.data());
  EXPECT_TRUE(tensor.surroundings_intact());
  data[12] = 1;
  EXPECT_FALSE(tensor.surroundings_intact());
  tensor.poison();
  data[-1] = 0;
  EXPECT_FALSE(tensor.surroundings_intact());
}

TEST(HostTensor, UnwrittenElementsAreFound) {
  HostTensor tensor("x", DType::f16, {2, 3});
  for (const std::int64_t i : {0, 1, 2, 3, 5}) tensor.set(i, 1);
  EXPECT_EQ(tensor.unwritten(), 1);
  EXPECT_EQ(tensor.first_unwritten(), 4);
  tensor.set(4, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(tensor.unwritten(), 0) << "a NaN that was written is not the poison";
}

TEST(HostTensor, EmptyTensorsAreLegal) {
  const HostTensor tensor("x", DType::f32, {2, 0, 3});
  EXPECT_EQ(tensor.elements(), 0);
  EXPECT_TRUE(tensor.values().empty());
  EXPECT_TRUE(tensor.surroundings_intact());
  EXPECT_EQ(HostTensor("s", DType::f32, {}, std::vector<double>{7}).at(0), 7);
}

TEST(HostTensor, ACopyHasMemoryOfItsOwn) {
  HostTensor first("x", DType::f32, {2}, std::vector<double>{1, 2});
  const HostTensor second = first;
  first.set(0, 9);
  EXPECT_EQ(second.at(0), 1);
}

TEST(HostTensor, BadShapesAndCountsAreRefused) {
  EXPECT_THROW(HostTensor("x", DType::f32, {2, -1}), std::invalid_argument);
  EXPECT_THROW(HostTensor("x", DType::f32, std::vector<std::int64_t>(9, 1)), std::invalid_argument);
  EXPECT_THROW(HostTensor("x", DType::f32, {2}, std::vector<double>{1, 2, 3}), std::invalid_argument);
}

HostTensor filled(const std::string& name, const std::string& fill, DType type, const std::vector<std::int64_t>& extents,
                  std::uint64_t seed) {
  HostTensor tensor(name, type, extents);
  fill_input(tensor, fill, {{"T", std::int64_t{50}}}, seed);
  return tensor;
}

TEST(Data, FloatsAreStandardNormal) {
  const std::vector<double> values = filled("x", "", DType::f32, {100, 500}, 1).values();
  double sum = 0, squares = 0, cubes = 0;
  for (const double value : values) sum += value, squares += value * value, cubes += value * value * value;
  EXPECT_NEAR(sum / 50000, 0, 0.02);
  EXPECT_NEAR(squares / 50000, 1, 0.03);
  EXPECT_NEAR(cubes / 50000, 0, 0.1);
}

TEST(Data, TheSameSeedGivesTheSameData) {
  EXPECT_EQ(filled("x", "", DType::f32, {99}, 5).values(), filled("x", "", DType::f32, {99}, 5).values());
  EXPECT_NE(filled("x", "", DType::f32, {99}, 5).values(), filled("x", "", DType::f32, {99}, 6).values());
  EXPECT_NE(filled("x", "", DType::f32, {99}, 5).values(), filled("y", "", DType::f32, {99}, 5).values());
}

TEST(Data, OffsetsAreLegalAndSometimesNasty) {
  bool empty_sequence = false, tokens_left = false, full = false;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::vector<double> offsets = filled("cum", "offsets T", DType::i32, {8}, seed).values();
    ASSERT_EQ(offsets.front(), 0);
    ASSERT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
    ASSERT_LE(offsets.back(), 50);
    empty_sequence = empty_sequence || std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
    tokens_left = tokens_left || offsets.back() < 50;
    full = full || offsets.back() == 50;
  }
  EXPECT_TRUE(empty_sequence && tokens_left && full);
  EXPECT_EQ(filled("cum", "offsets T", DType::i32, {1}, 1).values(), std::vector<double>{0});
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

TEST(Data, SizesAreAsAskedFor) {
  EXPECT_EQ(filled("sizes", "sizes T equal", DType::i32, {4}, 3).values(), (std::vector<double>{12, 13, 12, 13}));
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const std::vector<double> random = filled("sizes", "sizes T random", DType::i32, {5}, seed).values();
    EXPECT_EQ(sum_of(random), 50);
    EXPECT_GE(*std::min_element(random.begin(), random.end()), 0);
    std::vector<double> one = filled("sizes", "sizes T one", DType::i32, {5}, seed).values();
    std::sort(one.begin(), one.end());
    EXPECT_EQ(one, (std::vector<double>{0, 0, 0, 0, 50}));
  }
  EXPECT_NE(filled("sizes", "sizes T random", DType::i32, {5}, 1).values(), filled("sizes", "sizes T random", DType::i32, {5}, 2).values());
  EXPECT_TRUE(filled("sizes", "sizes T", DType::i32, {0}, 1).values().empty());
}

TEST(Data, SizesAreSometimesNasty) {
  bool empty_group = false, rows_left = false, too_many = false, one_huge = false, full = false;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<double> sizes = filled("sizes", "sizes T", DType::i32, {6}, seed).values();
    ASSERT_GE(*std::min_element(sizes.begin(), sizes.end()), 0);
    empty_group = empty_group || std::count(sizes.begin(), sizes.end(), 0) > 0;
    rows_left = rows_left || sum_of(sizes) < 50;
    too_many = too_many || sum_of(sizes) > 50;
    one_huge = one_huge || std::count(sizes.begin(), sizes.end(), 50) > 0;
    full = full || sum_of(sizes) == 50;
  }
  EXPECT_TRUE(empty_group && rows_left && too_many && one_huge && full);
}

TEST(Data, SegmentsAreRunsThatQueriesAndKeysShare) {
  bool padding = false, several = false;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<double> q = filled("q_ids", "segments", DType::i32, {1, 40}, seed).values();
    const std::vector<double> k = filled("kv_ids", "segments", DType::i32, {1, 90}, seed).values();
    const std::set<double> q_ids(q.begin(), q.end()), k_ids(k.begin(), k.end());
    for (const double id : q_ids) EXPECT_TRUE(k_ids.contains(id)) << id;
    padding = padding || q_ids.contains(-1);
    several = several || q_ids.size() > 2;
    std::vector<double> ends = q;
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    std::erase_if(ends, [](double id) { return id < 0; });
    EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end())) << "an id comes back after another";
  }
  EXPECT_TRUE(padding && several);
}

TEST(Data, MasksAreMostlyTrueWithSomeFalseRows) {
  const std::vector<double> mask = filled("mask", "", DType::boolean, {200, 50}, 2).values();
  EXPECT_NEAR(std::accumulate(mask.begin(), mask.end(), 0.0) / 10000, 0.72, 0.05);
  int empty_rows = 0;
  for (auto row = mask.begin(); row != mask.end(); row += 50) empty_rows += std::find(row, row + 50, 1.0) == row + 50;
  EXPECT_GT(empty_rows, 5);
}

TEST(Data, LowestNumbersFillRowsAndLieAmongNormalOnes) {
  for (const auto& [type, lowest] : {std::pair{DType::f32, -3.4028234663852886e38}, {DType::bf16, -3.3895313892515355e38}}) {
    const std::vector<double> bias = filled("bias", "lowest", type, {200, 50}, 3).values();
    int low_rows = 0, mixed_rows = 0;
    for (auto row = bias.begin(); row != bias.end(); row += 50) {
      const auto low = std::count(row, row + 50, lowest), normal = std::count_if(row, row + 50, [](double x) { return x > -10; });
      low_rows += low > 0 && normal == 0, mixed_rows += low > 0 && normal > 0;
    }
    EXPECT_GT(low_rows, 10);
    EXPECT_GT(mixed_rows, 100);
  }
  for (const double x : filled("bias", "lowest", DType::f16, {200, 50}, 3).values()) ASSERT_GT(x, -10);
}

TEST(Data, RowsOfTwoSizes) {
  const std::vector<double> values = filled("k", "rows 1e3 1e-4", DType::f16, {100, 32}, 3).values();
  int large = 0;
  for (std::size_t row = 0; row < 100; ++row) {
    double most = 0;
    for (std::size_t i = 0; i < 32; ++i) most = std::max(most, std::abs(values[32 * row + i]));
    EXPECT_TRUE(most > 500 || most < 1e-3) << most;
    large += most > 500;
  }
  EXPECT_GT(large, 25);
  EXPECT_LT(large, 75);
}

TEST(Data, AnUnknownFillIsNamed) {
  try {
    filled("x", "zigzag", DType::f32, {2}, 1);
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(),
                 "x: unknown fill 'zigzag'; known are 'segments', 'hidden', 'lowest', 'gates', 'mild gates', 'strong gates', 'betas', "
                 "'rows X Y', 'offsets DIM', "
                 "'sizes DIM [equal|random|one]', 'blocks P [causal]', 'all X', 'lengths LOW to HIGH', 'each COUNT*X ...', 'starts COUNT*X "
                 "...', 'scales', "
                 "'contexts STARTS MOST', 'pages LENGTHS PER POOL', 'paged TABLE LENGTHS PER' and 'between STARTS ENDS'");
  }
}

}  // namespace
}  // namespace ejk::reference

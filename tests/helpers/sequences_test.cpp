// ejk/sequences.hpp against the example of docs/semantics.md and plain loops.
#include "ejk/sequences.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "helpers/helper_tensors.hpp"

namespace ejk {

using namespace sequences;

TEST(Sequences, TheExampleOfTheSemantics) {
  const Tensor offsets = numbers({0, 3, 4, 8, 10});
  EXPECT_EQ(values_of(*lens(offsets)), (Numbers{3, 1, 4, 2}));
  EXPECT_EQ(values_of(*position_ids(offsets)), (Numbers{0, 1, 2, 0, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(values_of(*sequence_ids(offsets)), (Numbers{0, 0, 0, 1, 2, 2, 2, 2, 3, 3}));
  EXPECT_EQ(values_of(*chunk_indices(offsets, 2)), (Numbers{0, 0, 0, 1, 1, 0, 2, 0, 2, 1, 3, 0}));
  EXPECT_EQ(values_of(*chunk_offsets(offsets, 2)), (Numbers{0, 2, 3, 5, 6}));
}

TEST(Sequences, EmptySequencesKeepTheirNumbersAndWhatIsBehindIsMinusOne) {
  const Tensor offsets = numbers({0, 0, 2, 2, 3});
  EXPECT_EQ(values_of(*sequence_ids(offsets, 5)), (Numbers{1, 1, 3, -1, -1}));
  EXPECT_EQ(values_of(*token_indices(offsets, 4)), (Numbers{1, 0, 1, 1, 3, 0, -1, -1}));
  EXPECT_EQ(shape_of(*token_indices(offsets, 4)), (Sizes{4, 2}));
  EXPECT_EQ(values_of(*chunk_indices(offsets, 2, 3)), (Numbers{1, 0, 3, 0, -1, -1}));
  EXPECT_EQ(values_of(*chunk_offsets(offsets, 2147483647)), (Numbers{0, 0, 1, 1, 2}));
  EXPECT_EQ(values_of(*lens(numbers({0}))), Numbers{});
  EXPECT_EQ(shape_of(*position_ids(numbers({0}))), Sizes{0});
}

TEST(Sequences, OffsetsOfLengthsAndMasks) {
  EXPECT_EQ(values_of(*cum_seqlens_from_lens(numbers({0, 5, 0, 1}))), (Numbers{0, 0, 5, 5, 6}));
  const Tensor mask = bools({3, 3}, {1, 1, 0, 0, 0, 0, 1, 0, 1});
  EXPECT_EQ(values_of(*lens_from_mask(mask)), (Numbers{2, 0, 2}));
  EXPECT_EQ(values_of(*cum_seqlens_from_mask(mask)), (Numbers{0, 2, 2, 4}));
  EXPECT_EQ(values_of(*cum_seqlens_from_mask(bools({0, 4}, {}))), Numbers{0});
}

TEST(Sequences, ViewsMayHaveAnyStrides) {
  const Tensor wide = numbers({3, 2}, {0, 9, 1, 9, 4, 9});
  const TensorView column(wide.data<void>(), DType::i32, Sizes{3}, Sizes{2});
  EXPECT_EQ(values_of(*lens(column)), (Numbers{1, 3}));
}

// By the definition: the sum over the tokens of the same part, up to this one or from it on.
static double summed(const std::vector<double>& x, const Numbers& part, std::size_t t, bool reverse) {
  double sum = 0;
  for (std::size_t i = reverse ? t : 0; i < (reverse ? x.size() : t + 1); ++i)
    if (part[i] == part[t]) sum += x[i];
  return sum;
}

TEST(Sequences, SumsOfChunksAndSequences) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  const Numbers cuts{0, 0, 3, 3, 10, 11}, starts{0, 13};
  for (const bool packed : {false, true})
    for (const std::int64_t chunk : {0, 1, 3, 100})
      for (const bool reverse : {false, true})
        for (const int axis : {0, 1, -1}) {
          const Sizes shape = axis == 0 ? Sizes{13, 2, 2} : axis == 1 ? Sizes{2, 13, 2} : Sizes{2, 2, 13};
          const Tensor x(DType::f64, shape), offsets = numbers(cuts);
          for (int i = 0; i < 52; ++i) x.data<double>()[i] = normal(random);
          CumsumOptions options{chunk, packed ? offsets.view() : TensorView(), reverse, axis};
          const auto found = cumsum(x, options);
          ASSERT_TRUE(found) << found.error().message;
          const Numbers& edges = packed ? cuts : starts;
          Numbers part(13, -1);
          std::int32_t next = 0;
          for (std::size_t n = 1; n < edges.size(); ++n)
            for (std::int32_t t = edges[n - 1]; t < edges[n]; ++t)
              part[static_cast<std::size_t>(t)] = next += t == edges[n - 1] || (chunk && (t - edges[n - 1]) % chunk == 0);
          const std::size_t step = axis == 0 ? 4 : axis == 1 ? 2 : 1;
          for (std::size_t row = 0; row < 4; ++row) {
            const std::size_t begin = axis == 0 ? row : axis == 1 ? row / 2 * 26 + row % 2 : row * 13;
            std::vector<double> values;
            for (std::size_t t = 0; t < 13; ++t) values.push_back(x.data<double>()[begin + t * step]);
            for (std::size_t t = 0; t < 13; ++t)
              EXPECT_NEAR(found->data<double>()[begin + t * step], part[t] < 0 ? 0 : summed(values, part, t, reverse), 1e-12);
          }
        }
}

TEST(Sequences, NothingOfASequenceReachesTheNext) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor x(DType::f32, {1, 4}), offsets = numbers({0, 1, 3});
  const float values[] = {-infinity, 1, 2, std::nanf("")};
  std::copy(values, values + 4, x.data<float>());
  CumsumOptions options;
  options.cum_seqlens = offsets;
  const auto found = cumsum(x, options);
  EXPECT_EQ((std::vector<float>(found->data<float>(), found->data<float>() + 4)), (std::vector<float>{-infinity, 1, 3, 0}));
}

TEST(Sequences, WhatIsWrongIsNamed) {
  const auto told = [](const Result<Tensor>& result) { return result ? "no error" : result.error().message; };
  EXPECT_EQ(told(lens(numbers({1, 2}))), "cum_seqlens begins with 1; expected 0");
  EXPECT_EQ(told(lens(numbers({0, 4, 3}))), "cum_seqlens falls from 4 to 3 at [2]");
  EXPECT_EQ(told(lens(numbers(Numbers{}))), "cum_seqlens is empty; expected N + 1 offsets, [0] for no sequence");
  EXPECT_EQ(told(lens(numbers({1, 2}, {0, 1}))), "cum_seqlens has 2 dimensions, expected 1");
  EXPECT_EQ(told(lens(Tensor(DType::i64, {2}))), "cum_seqlens has type i64, expected i32");
  EXPECT_EQ(told(lens({})), "cum_seqlens is not given");
  EXPECT_EQ(told(position_ids(numbers({0, 4}), 3)), "total is 3; expected at least 4, the last offset");
  EXPECT_EQ(told(position_ids(numbers({0, 4}), -1)), "total is -1; expected 0 to 2^31 - 1");
  EXPECT_EQ(told(chunk_indices(numbers({0, 4}), 0)), "chunk_size is 0; expected 1 to 2^31 - 1");
  EXPECT_EQ(told(chunk_indices(numbers({0, 4}), 2, 1)), "count is 1; expected at least 2, the last offset");
  EXPECT_EQ(told(cum_seqlens_from_lens(numbers({1, -1}))), "lens has -1 at [1]; expected no negative length");
  EXPECT_EQ(told(cum_seqlens_from_lens(numbers({2147483647, 1}))), "lens has more than 2^31 - 1 tokens in all");
  EXPECT_EQ(told(cumsum(Tensor(DType::f32, {3}))), "axis is 1; expected an axis of x, which has 1 dimensions");
  EXPECT_EQ(told(cumsum(Tensor(DType::bf16, {3, 3}))), "x has type bf16, expected f32, f64 or i32");
  const Tensor offsets = numbers({0, 4});
  EXPECT_EQ(told(cumsum(Tensor(DType::f32, {1, 3}), {0, offsets})), "the tokens' axis of x is 3; expected at least 4, the last offset");
}

}  // namespace ejk

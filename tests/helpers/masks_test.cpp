// ejk/masks.hpp against its definitions by plain loops.
#include "ejk/masks.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "helpers/helper_tensors.hpp"

namespace ejk {

using namespace masks;

static Numbers loops(std::int64_t q_len, std::int64_t kv_len, const std::function<bool(std::int64_t, std::int64_t)>& sees) {
  Numbers found;
  for (std::int64_t i = 0; i < q_len; ++i)
    for (std::int64_t j = 0; j < kv_len; ++j) found.push_back(sees(i, j));
  return found;
}

TEST(Masks, Segments) {
  const Tensor q = numbers({2, 3}, {0, 1, -1, 2, 2, 0}), kv = numbers({1, 2}, {1, -1});
  EXPECT_EQ(values_of(*segment_mask(q, kv)), (Numbers{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(shape_of(*segment_mask(q, kv)), (Sizes{2, 1, 3, 2}));
  EXPECT_EQ(values_of(*segment_mask(q)), (Numbers{1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1}));
}

TEST(Masks, SegmentsOfAMaskSayTheSame) {
  // Rectangles that lie apart, of which rows and keys are not neighbours; a row and a key that see nothing.
  const Tensor mask = bools({4, 5}, {0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0});
  const auto found = segments_from_mask(mask);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(values_of(found->q), (Numbers{1, -1, 0, 1}));
  EXPECT_EQ(values_of(found->kv), (Numbers{0, 1, -1, 1, -1}));
  EXPECT_EQ(values_of(*segment_mask(found->q, found->kv)), values_of(mask));
  const auto causal = segments_from_mask(bools({2, 2}, {1, 0, 1, 1}));
  ASSERT_FALSE(causal);
  EXPECT_NE(causal.error().message.find("no union of rectangles"), std::string::npos);
  EXPECT_FALSE(segments_from_mask(bools({1, 2, 1, 2}, {1, 0, 0, 1})));  // heads that differ
}

TEST(Masks, Positions) {
  for (const std::int64_t kv_len : {0, 5, 9})
    for (const std::optional<std::int64_t> given :
         {std::optional<std::int64_t>(), std::optional<std::int64_t>(-3), std::optional<std::int64_t>(2)})
      for (const std::int64_t left : {-1, 0, 2})
        for (const std::int64_t right : {-1, 1})
          for (const bool causal : {false, true})
            for (const std::int64_t chunk : {0, 3}) {
              const std::int64_t offset = given.value_or(kv_len - 7);
              const auto found = position_mask(7, kv_len, {causal, given, left, right, chunk});
              EXPECT_EQ(values_of(*found), loops(7, kv_len, [&](std::int64_t i, std::int64_t j) {
                          const std::int64_t at = i + offset;  // 30 is a multiple of 3 above every -at
                          return (!causal || j <= at) && (left < 0 || j >= at - left) && (right < 0 || j <= at + right) &&
                                 (!chunk || (j <= at && (at + 30) / 3 == (j + 30) / 3));
                        }));
            }
}

TEST(Masks, TypesAndLengths) {
  const Tensor types = numbers({1, 4}, {0, 5, 0, 5});
  EXPECT_EQ(values_of(*token_type_mask(types)), (Numbers{0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1}));
  EXPECT_EQ(values_of(*token_type_mask(types, {}, ZeroPolicy::none)), (Numbers{1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1}));
  EXPECT_EQ(values_of(*kv_length_mask(numbers({2, 0, 9}), 1, 3)), (Numbers{1, 1, 0, 0, 0, 0, 1, 1, 1}));
}

TEST(Masks, MaskInfo) {
  const Tensor ids = numbers({1, 4}, {0, 0, 1, 1}), lengths = numbers({3});
  const auto info = MaskInfo::from_segments(ids);
  ASSERT_TRUE(info) << info.error().message;
  const auto causal = info->apply_positions({.causal = true});
  const auto shorter = causal->apply_kv_lengths(lengths);
  EXPECT_EQ(values_of(*shorter->get_or_compute_attention_mask()), (Numbers{1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0}));
  EXPECT_FALSE(causal->get_or_compute_segment_ids());
  EXPECT_EQ(values_of(info->get_or_compute_segment_ids()->kv), values_of(ids));
  const auto types = shorter->apply_token_type_ids(numbers({1, 4}, {7, 0, 0, 7}));
  EXPECT_EQ(values_of(*types->get_or_compute_attention_mask()), (Numbers{1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1}));
  const auto packed = MaskInfo::from_cu_seqlens(numbers({0, 1, 3}));
  EXPECT_EQ(values_of(*packed->get_or_compute_attention_mask()), (Numbers{1, 0, 0, 0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(packed->q_len(), 3);
  const auto dense = MaskInfo::from_attention_mask(bools({2, 2}, {1, 0, 0, 1}));
  EXPECT_EQ(shape_of(dense->attention_mask()), (Sizes{1, 1, 2, 2}));
  EXPECT_EQ(values_of(dense->get_or_compute_segment_ids()->q), (Numbers{0, 1}));
}

TEST(Masks, BothAndEither) {
  const Tensor a = bools({2, 1, 1, 2}, {1, 0, 1, 1}), b = bools({1, 2, 1, 2}, {1, 1, 0, 1});
  EXPECT_EQ(shape_of(*both(a, b)), (Sizes{2, 2, 1, 2}));
  EXPECT_EQ(values_of(*both(a, b)), (Numbers{1, 0, 0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(values_of(*either(a, b)), (Numbers{1, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(Masks, WhatIsWrongIsNamed) {
  const auto told = [](const auto& result) { return result ? "no error" : result.error().message; };
  EXPECT_EQ(told(segment_mask(numbers({2}))), "q_segment_ids has 1 dimensions, expected 2");
  EXPECT_EQ(told(segment_mask(numbers({2, 1}, {0, 0}), numbers({3, 1}, {0, 0, 0}))),
            "q_segment_ids has 2 rows, kv_segment_ids 3; expected as many, or 1");
  EXPECT_EQ(told(segments_from_mask(Tensor(DType::u8, {2, 2}))), "mask has type u8, expected bool");
  EXPECT_EQ(told(position_mask(2, 2, {.window_left = -2})), "window_left is -2; expected -1 to 2^31 - 1");
  EXPECT_EQ(told(both(bools({1, 2}, {0, 0}), bools({1, 3}, {0, 0, 0}))),
            "masks of [1, 1, 1, 2] and [1, 1, 1, 3]; expected the same sizes, or 1 row or head in one");
  const auto info = MaskInfo::from_segments(numbers({1, 2}, {0, 0}));
  EXPECT_EQ(told(info->apply_token_type_ids(numbers({1, 3}, {0, 0, 0}))), "token types are of 3 queries and 3 keys; expected 2 and 2");
}

}  // namespace ejk

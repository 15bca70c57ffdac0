// The headers that ejk-gen makes from the specs: calls that allocate, calls into the caller's memory, errors.
#include <cmath>

#include <ejk/flash_attention.hpp>
#include <ejk/mean_pooling.hpp>

#include "execute/store_fixture.hpp"

namespace ejk {
namespace {

class TypedApi : public StoreTest {
 protected:
  TypedApi() {
    fill(q, {0, 0, 0, 0});
    fill(k, {0, 0, 0, 0, 0, 0});
    fill(v, {1, 10, 3, 30, 5, 50});
  }
  void SetUp() override { use_project_store(); }
  static void fill(Tensor& tensor, std::initializer_list<float> values) { std::copy(values.begin(), values.end(), tensor.data<float>()); }

  // Queries and keys of zeros: out is the mean of the visible values.
  Tensor q{DType::f32, {1, 2, 1, 2}}, k{DType::f32, {1, 3, 1, 2}}, v{DType::f32, {1, 3, 1, 2}};
  static constexpr const char* plain = R"({"variant": "plain", "arch": "generic"})";
};

TEST_F(TypedApi, FlashAttentionReturnsOut) {
  auto result = flash_attention(q, k, v, {.causal = true, .config = plain});
  ASSERT_EQ(message_of(result), "");
  const auto* out = result->out.data<float>();
  EXPECT_EQ(result->out.view().rank, 4);
  EXPECT_EQ(result->out.view().shape[1], 2);
  EXPECT_NEAR(out[0], 2, 1e-6);  // the first query sees two keys, the last all three
  EXPECT_NEAR(out[1], 20, 1e-5);
  EXPECT_NEAR(out[2], 3, 1e-6);
  EXPECT_FALSE(result->lse.view().given());
}

TEST_F(TypedApi, FlashAttentionReturnsLseOnRequest) {
  Tensor mask(DType::boolean, {1, 1, 2, 3});
  const bool visible[] = {true, true, true, false, false, true};
  std::copy(std::begin(visible), std::end(visible), mask.data<bool>());
  auto result = flash_attention(q, k, v, {.attention_mask = mask, .softmax_scale = 0.5, .return_lse = true, .config = plain});
  ASSERT_EQ(message_of(result), "");
  EXPECT_EQ(result->lse.view().rank, 3);
  EXPECT_NEAR(result->lse.data<float>()[0], std::log(3.0), 1e-6);
  EXPECT_NEAR(result->lse.data<float>()[1], 0, 1e-6);
  EXPECT_NEAR(result->out.data<float>()[2], 5, 1e-6);
}

TEST_F(TypedApi, FlashAttentionIntoTheCallersMemory) {
  Tensor out(DType::f32, {1, 2, 1, 2}), lse(DType::f32, {1, 1, 2});
  ASSERT_EQ(message_of(flash_attention_into(out, lse, {}, q, k, v, {.config = plain})), "");
  EXPECT_NEAR(out.data<float>()[3], 30, 1e-5);
  EXPECT_NEAR(lse.data<float>()[1], std::log(3.0), 1e-6);
  fill(v, {2, 2, 2, 2, 2, 2});
  ASSERT_EQ(message_of(flash_attention_into(out, {}, {}, q, k, v, {.config = plain})), "") << "lse may be left out";
  EXPECT_NEAR(out.data<float>()[3], 2, 1e-6);
}

TEST_F(TypedApi, FlashAttentionErrors) {
  Tensor wide(DType::f32, {1, 3, 1, 4}), out(DType::f32, {1, 2, 1, 2});
  fill(out, {7, 7, 7, 7});
  EXPECT_EQ(message_of(flash_attention(q, wide, v)),
            "flash_attention: k has shape [1, 3, 1, 4], expected [B, Sk, Hkv, D] with D = 2 (from q): dimension 3 is 4");
  EXPECT_EQ(message_of(flash_attention(q, k, v, {.dropout_prob = 1.5})), "flash_attention: dropout_prob must be in [0, 1); found 1.5");
  EXPECT_EQ(message_of(flash_attention({}, k, v)), "flash_attention: input q is missing in the batched form, expected [B, Sq, Hq, D]");
  EXPECT_EQ(message_of(flash_attention_into({}, {}, {}, q, k, v)),
            "flash_attention: output out is missing, expected one of shape [1, 2, 1, 2]");
  EXPECT_EQ(message_of(flash_attention_into(out, {}, {}, q, k, v, {.window_left = -2})),
            "flash_attention: window_left must be -1 (unbounded) or more; found -2");
  EXPECT_EQ(message_of(flash_attention_into(out, {}, {}, q, k, v, {.config = "{"})).substr(0, 17), "flash_attention: ");
  EXPECT_EQ(out.data<float>()[0], 7.0f);
}

TEST_F(TypedApi, MeanPoolingInEveryForm) {
  Tensor x(DType::f32, {2, 3, 2}), tokens(DType::f32, {6, 2}), bounds(DType::i32, {4});
  fill(x, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  fill(tokens, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const std::int32_t ends[] = {0, 2, 2, 6};
  std::copy(std::begin(ends), std::end(ends), bounds.data<std::int32_t>());
  const auto values = [](Result<MeanPoolingOutputs> result) {
    EXPECT_EQ(message_of(result), "");
    if (!result) return std::vector<float>{};
    return std::vector<float>(result->out.data<float>(), result->out.data<float>() + result->out.view().elements());
  };
  EXPECT_EQ(values(mean_pooling(x)), (std::vector<float>{2, 3, 8, 9}));
  EXPECT_EQ(values(mean_pooling(x, {.chunk_size = 2})), (std::vector<float>{1, 2, 4, 5, 7, 8, 10, 11}));
  EXPECT_EQ(values(mean_pooling(tokens, {.cum_seqlens = bounds})), (std::vector<float>{1, 2, 0, 0, 7, 8}));
  EXPECT_EQ(values(mean_pooling(tokens, {.cum_seqlens = bounds, .chunk_size = 3})), (std::vector<float>{1, 2, 6, 7, 10, 11}));
}

TEST_F(TypedApi, MeanPoolingErrors) {
  Tensor x(DType::f32, {2, 3, 2}), out(DType::f32, {2, 3});
  EXPECT_EQ(message_of(mean_pooling_into(out, x)),
            "mean_pooling: out has shape [2, 3], expected [B, C...] with C = [2] (from x): its trailing dimensions are [3]");
  EXPECT_EQ(message_of(mean_pooling(x, {.chunk_size = -1})), "mean_pooling: chunk_size must be 0 (off) or positive; found -1");
}

}  // namespace
}  // namespace ejk

// Every rule of "Bad input", broken on the real kernels: the exact message, and nothing written.
#include <fstream>
#include <limits>
#include <sstream>

#include "execute/attention_call.hpp"
#include "execute/store_fixture.hpp"
#include "tests/paths.hpp"

namespace ejk::bad_calls_test {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();

// All of it comes before any image is looked for: no test of this file compiles.
class BadCalls : public StoreTest {
 protected:
  void SetUp() override {
    setenv("EJKERNEL_JIT", "off", 1);
    use_project_store();
  }

  // The call is refused as bad input with this message, and writes nothing.
  static void refused(const NamedCall& call, const std::string& message) {
    EXPECT_EQ(call.message(), message);
    EXPECT_EQ(call.run().error().code, ErrorCode::bad_input) << message;
    EXPECT_TRUE(call.outputs_untouched()) << message;
  }
};

TEST_F(BadCalls, TheUnspoiledCallsAreLegal) {
  for (const auto& call : {batched_attention(), packed_attention(), batched_pooling(), packed_pooling(), ragged_matmul(), ragged_gradient(),
                           paged_attention()}) {
    EXPECT_EQ(call.run().error().code, ErrorCode::missing_image) << call.message();
    EXPECT_TRUE(call.outputs_untouched());
  }
}

TEST_F(BadCalls, WrongRank) {
  refused(batched_attention().add("q", DType::f32, {3, 4, 8}), "q has shape [3, 4, 8], expected [B, Sq, Hq, D]: it has 3 dimensions");
  refused(packed_attention().add("k", DType::f32, {1, 5, 2, 8}), "k has shape [1, 5, 2, 8], expected [Tk, Hkv, D]: it has 4 dimensions");
  refused(batched_attention().add("out", DType::f32, {2, 3, 64}),
          "out has shape [2, 3, 64], expected [B, Sq, Hq, Dv]: it has 3 dimensions");
  refused(batched_attention().add("softmax_aux", DType::f32, {1, 4, 2}),
          "softmax_aux has shape [1, 4, 2], expected [Hq, A] or [A]: it has 3 dimensions");
  refused(batched_attention().add("softmax_aux", DType::f32, {}), "softmax_aux has shape [], expected [Hq, A] or [A]: it has 0 dimensions");
  refused(packed_attention().add("cum_seqlens_q", DType::i32, {1, 3}),
          "cum_seqlens_q has shape [1, 3], expected [N + 1]: it has 2 dimensions");
  refused(batched_pooling().add("x", DType::f32, {5}), "x has shape [5], expected [B, S, C...]: it has 1 dimension");
}

TEST_F(BadCalls, ADimensionThatDisagrees) {
  refused(batched_attention().add("k", DType::f32, {3, 5, 2, 8}),
          "k has shape [3, 5, 2, 8], expected [B, Sk, Hkv, D] with B = 2 (from q): dimension 0 is 3");
  refused(batched_attention().add("k", DType::f32, {2, 5, 2, 16}),
          "k has shape [2, 5, 2, 16], expected [B, Sk, Hkv, D] with D = 8 (from q): dimension 3 is 16");
  refused(batched_attention().add("v", DType::f32, {2, 6, 2, 16}),
          "v has shape [2, 6, 2, 16], expected [B, Sk, Hkv, Dv] with Sk = 5 (from k): dimension 1 is 6");
  refused(batched_attention().add("out", DType::f32, {2, 3, 4, 8}),
          "out has shape [2, 3, 4, 8], expected [B, Sq, Hq, Dv] with Dv = 16 (from v): dimension 3 is 8");
  refused(batched_attention().add("lse", DType::f32, {2, 3, 4}),
          "lse has shape [2, 3, 4], expected [B, Hq, Sq] with Hq = 4 (from q): dimension 1 is 3");
  refused(batched_attention().add("bias", DType::f32, {2, 2, 3, 5}),
          "bias has shape [2, 2, 3, 5], expected [B|1, Hq|1, Sq, Sk] with Hq = 4 (from q): dimension 1 is 2");
  refused(batched_attention().add("attention_mask", DType::boolean, {1, 1, 3, 4}),
          "attention_mask has shape [1, 1, 3, 4], expected [B|1, Hq|1, Sq, Sk] with Sk = 5 (from k): dimension 3 is 4");
  refused(batched_attention().add("softmax_aux", DType::f32, {2, 1}),
          "softmax_aux has shape [2, 1], expected [Hq, A] with Hq = 4 (from q): dimension 0 is 2");
  refused(packed_attention().add("cum_seqlens_k", {0, 1, 2, 5}),
          "cum_seqlens_k has shape [4], expected [N + 1] with N = 2 (from cum_seqlens_q): dimension 0 is 4");
  refused(packed_attention().add("cum_seqlens_q", std::vector<std::int32_t>{}),
          "cum_seqlens_q has shape [0], expected [N + 1]: dimension 0 is 0, expected at least 1");
  refused(batched_pooling().add("out", DType::f32, {2, 7}),
          "out has shape [2, 7], expected [B, C...] with C = [6] (from x): its trailing dimensions are [7]");
  refused(batched_pooling().add("mask", DType::boolean, {2, 4}),
          "mask has shape [2, 4], expected [B, S] with S = 5 (from x): dimension 1 is 4");
  refused(batched_pooling().set("chunk_size", std::int64_t{2}).add("out", DType::f32, {2, 2, 6}),
          "out has shape [2, 2, 6], expected [B, ceil_div(S, chunk_size), C...] with ceil_div(S, chunk_size) = 3: dimension 1 is 2");
}

TEST_F(BadCalls, ANegativeDimension) {
  auto call = batched_attention();
  call.views["k"].shape[1] = -5;
  refused(call, "k has shape [2, -5, 2, 8]: dimension 1 is -5, expected 0 or more");
}

TEST_F(BadCalls, MoreThan64Bits) {
  auto call = batched_attention();
  call.views["k"].strides[0] = std::int64_t{1} << 61;
  refused(call, "k has shape [2, 5, 2, 8] and strides [2305843009213693952, 16, 8, 1], which span more than 2^63 bytes");
}

TEST_F(BadCalls, WrongType) {
  refused(batched_attention().add("q", DType::f64, {2, 3, 4, 8}), "q has type f64, expected one of f32, f16, bf16");
  refused(batched_attention().add("k", DType::bf16, {2, 5, 2, 8}), "k has type bf16, expected f32 (the type of q)");
  refused(batched_attention().add("out", DType::f16, {2, 3, 4, 16}), "out has type f16, expected f32 (the type of q)");
  refused(batched_attention().add("lse", DType::f16, {2, 4, 3}), "lse has type f16, expected f32");
  refused(batched_attention().add("attention_mask", DType::u8, {1, 1, 3, 5}), "attention_mask has type u8, expected bool");
  refused(batched_attention().add("bias", DType::i32, {1, 1, 3, 5}), "bias has type i32, expected one of f32, f16, bf16");
  refused(packed_attention().add("cum_seqlens_q", DType::i64, {3}), "cum_seqlens_q has type i64, expected i32");
  refused(batched_pooling().add("x", DType::i8, {2, 5, 6}), "x has type i8, expected one of f32, f16, bf16");
}

TEST_F(BadCalls, NonUnitInnerStride) {
  refused(batched_attention().add("q", DType::f32, {2, 3, 4, 16}).strides("q", {192, 64, 16, 2}).add("k", DType::f32, {2, 5, 2, 16}),
          "q has strides [192, 64, 16, 2]: the innermost is 2, expected 1 (copy it into a contiguous tensor)");
  refused(batched_attention().strides("v", {160, 32, 16, 0}),
          "v has strides [160, 32, 16, 0]: the innermost is 0, expected 1 (copy it into a contiguous tensor)");
  refused(batched_attention().strides("out", {192, 64, 16, -1}),
          "out has strides [192, 64, 16, -1]: the innermost is -1, expected 1 (copy it into a contiguous tensor)");
  refused(batched_pooling().strides("x", {30, 1, 5}),
          "x has strides [30, 1, 5]: the innermost is 5, expected 1 (copy it into a contiguous tensor)");
}

TEST_F(BadCalls, HeadsThatDoNotDivide) {
  const std::string rule = "Hq must be a multiple of Hkv; found Hq = 4, Hkv = ";
  refused(batched_attention().add("k", DType::f32, {2, 5, 3, 8}).add("v", DType::f32, {2, 5, 3, 16}), rule + "3");
  refused(batched_attention().add("k", DType::f32, {2, 5, 0, 8}).add("v", DType::f32, {2, 5, 0, 16}), rule + "0");
  refused(packed_attention().add("k", DType::f32, {5, 8, 8}).add("v", DType::f32, {5, 8, 16}), rule + "8");
}

TEST_F(BadCalls, ScaleAndCap) {
  const std::string scale = "softmax_scale must be finite in f32 and not negative; found ",
                    cap = "logits_soft_cap must be finite in f32 and not negative (0: off); found ";
  refused(batched_attention().set("softmax_scale", -0.5), scale + "-0.5");
  refused(batched_attention().set("softmax_scale", std::int64_t{-1}), scale + "-1.0");
  refused(batched_attention().set("logits_soft_cap", -30.0), cap + "-30.0");
  refused(batched_attention().set("softmax_scale", not_a_number), "attribute softmax_scale is nan, expected a finite number");
  refused(batched_attention().set("softmax_scale", infinite), "attribute softmax_scale is inf, expected a finite number");
  refused(batched_attention().set("softmax_scale", -infinite), "attribute softmax_scale is -inf, expected a finite number");
  refused(batched_attention().set("logits_soft_cap", not_a_number), "attribute logits_soft_cap is nan, expected a finite number");
  refused(batched_attention().set("logits_soft_cap", infinite), "attribute logits_soft_cap is inf, expected a finite number");
  refused(packed_attention().set("softmax_scale", -2.0), scale + "-2.0");
  // Kernels compute in f32, where these are infinite.
  refused(batched_attention().set("softmax_scale", 1e200), scale + "1e+200");
  refused(batched_attention().set("logits_soft_cap", 1e200), cap + "1e+200");
}

TEST_F(BadCalls, DropoutProbability) {
  const std::string rule = "dropout_prob must be in [0, 1); found ";
  refused(batched_attention().set("dropout_prob", 1.0), rule + "1.0");
  refused(batched_attention().set("dropout_prob", -0.1), rule + "-0.1");
  refused(batched_attention().set("dropout_prob", std::int64_t{2}), rule + "2.0");
  refused(batched_attention().set("dropout_prob", not_a_number), "attribute dropout_prob is nan, expected a finite number");
}

TEST_F(BadCalls, Window) {
  refused(batched_attention().set("window_left", std::int64_t{-2}), "window_left must be -1 (unbounded) or more; found -2");
  refused(packed_attention().set("window_right", std::int64_t{-7}), "window_right must be -1 (unbounded) or more; found -7");
}

TEST_F(BadCalls, CumSeqlens) {
  refused(packed_attention().add("cum_seqlens_q", {1, 2, 3}), "cum_seqlens_q must start at 0; found 1");
  refused(packed_attention().add("cum_seqlens_k", {-1, 2, 5}), "cum_seqlens_k must start at 0; found -1");
  refused(packed_attention().add("cum_seqlens_q", {0, 3, 2}), "cum_seqlens_q must not decrease");
  refused(packed_attention().add("cum_seqlens_k", {0, 5, 4}), "cum_seqlens_k must not decrease");
  refused(packed_attention().add("cum_seqlens_q", {0, 2, 4}), "cum_seqlens_q must end within q's 3 tokens; found 4");
  refused(packed_attention().add("cum_seqlens_k", {0, 3, 6}), "cum_seqlens_k must end within k's 5 tokens; found 6");
  refused(packed_attention().remove("cum_seqlens_k"), "cum_seqlens_q and cum_seqlens_k must be given together");
  refused(packed_attention().remove("cum_seqlens_q"), "cum_seqlens_q and cum_seqlens_k must be given together");
  refused(packed_pooling().add("cum_seqlens", {2, 3, 7}), "cum_seqlens must start at 0; found 2");
  refused(packed_pooling().add("cum_seqlens", {0, 5, 3}), "cum_seqlens must not decrease");
  refused(packed_pooling().add("cum_seqlens", {0, 3, 8}), "cum_seqlens must end within x's 7 tokens; found 8");
  refused(packed_pooling().add("cum_seqlens", {0, 5, 3}).set("chunk_size", std::int64_t{2}).add("out", DType::f32, {3, 6}),
          "cum_seqlens must not decrease");
  refused(packed_pooling().set("chunk_size", std::int64_t{2}).add("out", DType::f32, {3, 6}),
          "out has shape [3, 6], expected [R, C...] with R = 4 (from its definition chunk_count >= 0 ? chunk_count : "
          "chunks(cum_seqlens, chunk_size)): dimension 0 is 3");
  const auto chunks = [] { return packed_pooling().set("chunk_size", std::int64_t{2}); };
  refused(chunks().set("chunk_count", std::int64_t{3}).add("out", DType::f32, {3, 6}),
          "chunk_count must be at least one for each of cum_seqlens' 4 chunks; found 3");
  refused(chunks().set("chunk_count", std::int64_t{-2}).add("out", DType::f32, {4, 6}),
          "chunk_count must be -1 (as many as there are) or more; found -2");
  refused(packed_pooling().set("chunk_count", std::int64_t{5}),
          "chunk_count is for chunks of packed sequences (cum_seqlens and chunk_size); found 5");
}

TEST_F(BadCalls, ChunkSize) {
  refused(batched_pooling().set("chunk_size", std::int64_t{-3}), "chunk_size must be 0 (off) or positive; found -3");
}

TEST_F(BadCalls, GroupsOfRows) {
  refused(ragged_matmul().add("group_sizes", {3, -1, 5}), "group_sizes must not be negative; found -1");
  refused(ragged_matmul().set("group_offset", std::int64_t{-2}), "group_offset must not be negative; found -2");
  refused(ragged_matmul().set("group_offset", std::int64_t{1}), "rhs must hold groups that group_sizes has; found groups 1 up to 4 of 3");
  refused(ragged_matmul().add("group_sizes", {3, 4}), "rhs must hold groups that group_sizes has; found groups 0 up to 3 of 2");
  refused(ragged_matmul().set("transpose_rhs", true),
          "rhs has shape [3, 6, 5], expected [L, N, K] with K = 6 (from lhs): dimension 2 is 5");
  refused(ragged_matmul().add("rhs", DType::f32, {3, 4, 5}),
          "rhs has shape [3, 4, 5], expected [L, K, N] with K = 6 (from lhs): dimension 1 is 4");
  refused(ragged_matmul().remove("group_sizes"), "lhs has shape [7, 6], expected [B, G, M, K]: it has 2 dimensions");
  refused(ragged_matmul().add("existing_out", DType::bf16, {7, 5}), "out has type f32, expected bf16 (the type of existing_out)");
  refused(ragged_gradient().set("groups", std::int64_t{2}),
          "out has shape [3, 6, 5], expected [L, K, N] with L = 2 (from its definition groups >= 0 ? groups : G - group_offset): dimension "
          "0 is 3");
  refused(ragged_gradient().set("groups", std::int64_t{-2}), "groups must be -1 (all from group_offset on) or more; found -2");
  refused(ragged_gradient().add("group_sizes", {3, -4, 5}), "group_sizes must not be negative; found -4");
}

TEST_F(BadCalls, SegmentIdsComeInPairs) {
  refused(batched_attention().add("q_segment_ids", DType::i32, {2, 3}), "q_segment_ids and kv_segment_ids must be given together");
  refused(batched_attention().add("kv_segment_ids", DType::i32, {2, 5}), "q_segment_ids and kv_segment_ids must be given together");
}

TEST_F(BadCalls, WhatThePackedFormDoesNotTake) {
  refused(packed_attention().add("bias", DType::f32, {1, 1, 3, 5}), "bias is given, but it is not accepted in the packed form");
  refused(packed_attention().add("attention_mask", DType::boolean, {1, 1, 3, 5}),
          "attention_mask is given, but it is not accepted in the packed form");
  refused(packed_attention().add("q_segment_ids", DType::i32, {1, 3}).add("kv_segment_ids", DType::i32, {1, 5}),
          "q_segment_ids is given, but it is not accepted in the packed form");
  refused(packed_pooling().add("mask", DType::boolean, {1, 7}), "mask is given, but it is not accepted in the packed form");
}

TEST_F(BadCalls, OutputsThatOverlap) {
  const std::string own = " in memory, expected memory of its own";
  auto call = batched_attention();
  call.views["q"].data = call.memory["out"].data<float>() + 64;
  refused(call, "output out overlaps input q" + own);
  call = batched_attention();
  call.views["lse"].data = call.memory["out"].data<float>() + 8;
  refused(call, "output out overlaps output lse" + own);
  call = batched_attention();
  call.add("bias", DType::f32, {1, 1, 3, 5});
  call.views["bias"].data = call.memory["lse"].data<float>() + 23;  // the last element
  refused(call, "output lse overlaps input bias" + own);
  call = batched_pooling();
  call.views["out"].data = call.views["x"].data;
  refused(call, "output out overlaps input x" + own);
}

TEST_F(BadCalls, AnOutputThatOverlapsItself) {
  refused(batched_attention().strides("out", {0, 64, 16, 1}),
          "output out has shape [2, 3, 4, 16] and strides [0, 64, 16, 1]: its elements overlap, expected memory of its own for each");
  refused(batched_attention().strides("out", {192, 64, 8, 1}),
          "output out has shape [2, 3, 4, 16] and strides [192, 64, 8, 1]: its elements overlap, expected memory of its own for each");
  refused(batched_pooling().strides("out", {3, 1}),
          "output out has shape [2, 6] and strides [3, 1]: its elements overlap, expected memory of its own for each");
}

TEST_F(BadCalls, WhatIsMissing) {
  refused(batched_attention().remove("q"), "input q is missing in the batched form, expected [B, Sq, Hq, D]");
  refused(batched_attention().remove("v"), "input v is missing in the batched form, expected [B, Sk, Hkv, Dv]");
  refused(packed_attention().remove("k"), "input k is missing in the packed form, expected [Tk, Hkv, D]");
  refused(batched_attention().remove("out"), "output out is missing, expected one of shape [2, 3, 4, 16]");
  refused(batched_pooling().remove("x"), "input x is missing in the batched form, expected [B, S, C...]");
}

TEST_F(BadCalls, UnknownNames) {
  refused(batched_attention().add("Q", DType::f32, {2, 3, 4, 8}),
          "no tensor 'Q'; it has q, k, v, bias, attention_mask, q_segment_ids, kv_segment_ids, query_seq_lengths, "
          "key_value_seq_lengths, softmax_aux, cum_seqlens_q, cum_seqlens_k, out, lse, weights");
  refused(batched_attention().set("scale", 1.0),
          "no attribute 'scale'; it has causal, causal_offset, softmax_scale, window_left, window_right, logits_soft_cap, dropout_prob, "
          "dropout_seed, deterministic");
  const auto message = message_of(call("flash_attentoin", batched_attention().views, {}));
  EXPECT_TRUE(message.starts_with("no kernel 'flash_attentoin'; the stores have ")) << message;
  EXPECT_NE(message.find(", flash_attention, "), std::string::npos) << message;
}

TEST_F(BadCalls, CachesAndTheirTables) {
  const auto with_entry = [](std::size_t entry, std::int32_t page) {
    auto call = paged_attention();
    call.memory.at("block_tables").data<std::int32_t>()[entry] = page;
    return call;
  };
  EXPECT_EQ(with_entry(2, -5).run().error().code, ErrorCode::missing_image);  // past the end of its sequence: never read
  refused(with_entry(1, 7), "block_tables[0, 1] is 7, expected a page of the cache, 0 to 6");
  refused(with_entry(5, -1), "block_tables[1, 2] is -1, expected a page of the cache, 0 to 6");
  EXPECT_EQ(with_entry(3, -1).set("window_left", std::int64_t{7}).run().error().code, ErrorCode::missing_image);  // before the window
  refused(with_entry(4, -1).set("window_left", std::int64_t{7}), "block_tables[1, 1] is -1, expected a page of the cache, 0 to 6");
  refused(paged_attention().add("context_lens", {5, 13}),
          "context_lens[1] is 13, expected 0 to 12, which the 3 columns of block_tables hold (4 tokens a page)");
  refused(paged_attention().add("context_lens", {-1, 3}),
          "context_lens[0] is -1, expected 0 to 12, which the 3 columns of block_tables hold (4 tokens a page)");
  refused(paged_attention().add("key_cache", DType::bf16, {7, 2, 4, 8}).add("value_cache", DType::bf16, {7, 2, 4, 8}),
          "key_cache must have query's type, or f8_e4m3 or i8; found bf16, and query has f32");
  refused(paged_attention().add("value_cache", DType::i8, {7, 2, 4, 8}), "value_cache has type i8, expected f32 (the type of key_cache)");
  refused(paged_attention().set("layout", std::string("NHD")),
          "context_lens[1] is 12, expected 0 to 6, which the 3 columns of block_tables hold (2 tokens a page)");
  refused(paged_attention().set("layout", std::string("DHN")), "attribute layout is 'DHN', expected one of HND, NHD");
  refused(paged_attention().add("k_scale", DType::f32, {3}),
          "k_scale has shape [3], expected [Hkv|1] with Hkv = 2 (from key_cache): dimension 0 is 3");
  refused(paged_attention().add("query", DType::f32, {2, 3, 8}).add("out", DType::f32, {2, 3, 8}).add("lse", DType::f32, {2, 3}),
          "Hq must be a multiple of Hkv; found Hq = 3, Hkv = 2");
}

TEST_F(BadCalls, WrongAttributeType) {
  refused(batched_attention().set("causal", std::int64_t{1}), "attribute causal is 1 (integer), expected a boolean");
  refused(batched_attention().set("window_left", 3.0), "attribute window_left is 3.0 (float), expected an integer");
  refused(batched_attention().set("softmax_scale", true), "attribute softmax_scale is true (boolean), expected a float");
  refused(batched_attention().set("causal_offset", std::string("top")), "attribute causal_offset is 'top' (string), expected an integer");
}

TEST_F(BadCalls, NullData) {
  auto call = batched_attention();
  call.views["k"].data = nullptr;
  refused(call, "k has no memory: its data pointer is null, but it has 160 elements");
  call = packed_attention();
  call.views["cum_seqlens_q"].data = nullptr;
  refused(call, "cum_seqlens_q has no memory: its data pointer is null, but it has 3 elements");
  call = batched_pooling();
  call.views["out"].data = nullptr;
  refused(call, "out has no memory: its data pointer is null, but it has 12 elements");
  call = packed_pooling();
  call.views["cum_seqlens"].data = nullptr;
  call.set("chunk_size", std::int64_t{2}).add("out", DType::f32, {4, 6});
  refused(call, "cum_seqlens has no memory: its data pointer is null, but it has 3 elements");
}

// A wrong override names what is wrong with it, the most telling candidate's reason.
TEST_F(BadCalls, AnOverrideThatCannotServe) {
  ASSERT_TRUE(set_threads(2));  // which variants there are for a call depends on it
  const auto refusal = [](const NamedCall& call, const Config& config) {
    EXPECT_TRUE(call.outputs_untouched());
    return call.message(&config);
  };
  EXPECT_EQ(refusal(batched_pooling(), {"", "generic", {{"block_c", std::int64_t{3}}}}),
            "this call's cfg: {\"arch\":\"generic\",\"block_c\":3} cannot serve this call: variant 'rows' on cpu:generic: not in the "
            "config space: block_c = 3, expected one of 256, 1024, 4096");
  EXPECT_EQ(refusal(batched_attention(), {"", "", {{"block_q", std::int64_t{3}}}}),
            "this call's cfg: {\"block_q\":3} cannot serve this call: unknown parameter; the variants' are few_rows: rows, block_n; "
            "plain: block_m; tiled: vectors, panel, block_n");
  EXPECT_EQ(refusal(batched_attention(), {"wide", "", {}}),
            "this call's cfg: {\"variant\":\"wide\"} cannot serve this call: no variant 'wide'");
  EXPECT_EQ(refusal(batched_attention(), {"plain", "sm_90", {}}),
            "this call's cfg: {\"arch\":\"sm_90\",\"variant\":\"plain\"} cannot serve this call: arch 'sm_90' does not run here or is none "
            "of the variant's");
  auto odd = batched_attention();
  odd.add("q", DType::f32, {2, 3, 4, 6}).add("k", DType::f32, {2, 5, 2, 6});
  EXPECT_EQ(refusal(odd, {"tiled", "", {}}),
            "this call's cfg: {\"variant\":\"tiled\"} cannot serve this call: variant 'tiled' refuses this call: supports: D % 8 == 0");
}

// Rules over data and over attributes that do not enter the plan are judged again on every call of a plan.
class BadCallsOfAPlan : public StoreTest {
 protected:
  void SetUp() override { use_project_store(); }

  // Refused, with nothing written beyond what the last legal call wrote.
  static void refused(NamedCall& call, const std::string& message) {
    call.add("out", call.views["out"].type, {call.views["out"].shape, call.views["out"].shape + call.views["out"].rank});
    const auto before = counters();
    EXPECT_EQ(call.message(), message);
    EXPECT_TRUE(call.outputs_untouched()) << message;
    EXPECT_EQ(counters().plans, before.plans);
  }
};

TEST_F(BadCallsOfAPlan, AttentionIsJudgedOnEveryCall) {
  const Config plain{"plain", "generic", {}};
  const overlay_cache scope("flash_attention", plain);
  auto call = packed_attention();
  call.remove("lse").set("softmax_scale", 1.0);
  call.memory.erase("lse");
  ASSERT_EQ(call.message(), "");
  refused(call.add("cum_seqlens_q", {1, 2, 3}), "cum_seqlens_q must start at 0; found 1");
  refused(call.add("cum_seqlens_q", {0, 3, 2}), "cum_seqlens_q must not decrease");
  refused(call.add("cum_seqlens_q", {0, 2, 4}), "cum_seqlens_q must end within q's 3 tokens; found 4");
  call.add("cum_seqlens_q", {0, 2, 3});
  refused(call.set("softmax_scale", -1.0), "softmax_scale must be finite in f32 and not negative; found -1.0");
  refused(call.set("softmax_scale", not_a_number), "attribute softmax_scale is nan, expected a finite number");
  EXPECT_EQ(call.set("softmax_scale", 2.0).message(), "");
  EXPECT_EQ(counters().compiles, 1u);
}

TEST_F(BadCallsOfAPlan, TablesOfPagesAreJudgedOnEveryCall) {
  const Config plain{"plain", "generic", {}};
  const overlay_cache scope("page_attention", plain);
  auto call = paged_attention();
  call.remove("lse");
  call.memory.erase("lse");
  ASSERT_EQ(call.message(), "");
  auto* table = call.memory.at("block_tables").data<std::int32_t>();
  table[4] = 99;
  refused(call, "block_tables[1, 1] is 99, expected a page of the cache, 0 to 6");
  call.add("context_lens", {5, 4});
  EXPECT_EQ(call.message(), "");  // no longer one of the sequence's
  EXPECT_EQ(counters().compiles, 1u);
}

TEST_F(BadCallsOfAPlan, PoolingIsJudgedOnEveryCall) {
  auto call = packed_pooling();
  call.set("chunk_size", std::int64_t{2}).add("out", DType::f32, {4, 6});
  ASSERT_EQ(call.message(), "");
  refused(call.add("cum_seqlens", {0, 2, 6}), "out must have a row for each of cum_seqlens' 3 chunks; found 4");
  refused(call.add("cum_seqlens", {0, 5, 3}), "cum_seqlens must not decrease");
  refused(call.add("cum_seqlens", {0, 3, 8}), "cum_seqlens must end within x's 7 tokens; found 8");
  auto overlapping = call.add("cum_seqlens", {0, 3, 7});
  overlapping.views["out"].data = overlapping.views["x"].data;
  EXPECT_EQ(overlapping.message(), "output out overlaps input x in memory, expected memory of its own");
  EXPECT_EQ(call.message(), "");
  EXPECT_EQ(counters().compiles, 1u);
}

// The test kernel with a second clause, so that some legal calls have no variant.
TEST_F(StoreTest, ALegalCallThatNoVariantTakesNamesEachVariantsClause) {
  std::filesystem::copy(test::source_dir() + "/tests/execute/data", folder / "store", std::filesystem::copy_options::recursive);
  std::stringstream text;
  text << std::ifstream(folder / "store/specs/shift.json").rdbuf();
  auto spec = text.str();
  const auto replace = [&](const std::string& from, const std::string& to) { spec.replace(spec.find(from), from.size(), to); };
  replace(R"("doc": "One element a work item.",)", R"("doc": "One element a work item.", "supports": ["N < 100", "N % 3 == 0"],)");
  replace(R"("name": "odd", "E": "f32", "N": 7)", R"("name": "odd", "E": "f32", "N": 9)");
  std::ofstream(folder / "store/specs/shift.json") << spec;
  ASSERT_TRUE(add_store((folder / "store").string()));

  auto x = floats({1, 2, 3, 4, 5}), out = floats({7, 7, 7, 7, 7});
  const auto status = call("shift", {{"x", x}, {"out", out}}, {});
  EXPECT_EQ(message_of(status), "shift: no variant takes this call\n  wide: supports: N % 2 == 0\n  any: supports: N % 3 == 0");
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  const auto told = explain("shift", {{"x", x}, {"out", out}}, {});
  EXPECT_EQ(message_of(told), message_of(status));
  EXPECT_EQ(out.data<float>()[0], 7.0f);
}

}  // namespace
}  // namespace ejk::bad_calls_test

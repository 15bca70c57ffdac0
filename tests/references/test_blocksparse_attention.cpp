// The blocksparse attention reference against hand-computed numbers and its own laws.
#include <gtest/gtest.h>

#include <cmath>

#include "references/calls.hpp"

namespace ejk::reference::blocksparse_attention_test {
namespace {

using Numbers = std::vector<double>;
using Attributes = std::map<std::string, spec::Value>;

// One batch row, `heads` heads, D = Dv = 1, queries and keys of zeros: out is the mean of the visible values, which count up from 1.
Values attention(std::int64_t queries, std::int64_t keys, const HostTensor& blocks, Attributes attributes = {}, std::int64_t heads = 1) {
  Numbers values;
  for (std::int64_t j = 0; j < keys; ++j) values.push_back(static_cast<double>(j + 1));
  const auto zeros = [](std::int64_t count) { return Numbers(static_cast<std::size_t>(count), 0.0); };
  attributes.emplace("block_q", std::int64_t{16});
  attributes.emplace("block_k", std::int64_t{16});
  return compute(
      make_call(spec_of("blocksparse_attention"), std::move(attributes),
                {HostTensor("q", DType::f32, {1, queries, heads, 1}, zeros(queries * heads)),
                 HostTensor("k", DType::f32, {1, keys, 1, 1}, zeros(keys)), HostTensor("v", DType::f32, {1, keys, 1, 1}, values), blocks},
                {"lse"}));
}

HostTensor mask(std::vector<std::int64_t> shape, const Numbers& on) { return {"block_mask", DType::boolean, std::move(shape), on}; }

TEST(BlocksparseAttention, AQuerySeesTheKeysOfItsBlocks) {
  const Values values = attention(17, 40, mask({1, 1, 2, 3}, {1, 0, 1, 0, 1, 0}));
  // Keys 1 to 16 and 33 to 40; keys 17 to 32.
  EXPECT_NEAR(values.at("out")[15], (136 + 292) / 24.0, 1e-12);
  EXPECT_NEAR(values.at("lse")[15], std::log(24), 1e-12);
  EXPECT_NEAR(values.at("out")[16], 24.5, 1e-12);
}

TEST(BlocksparseAttention, ARowWithoutBlocksGivesZeroAndMinusInfinity) {
  const Values values = attention(17, 16, mask({1, 1, 2, 1}, {0, 1}));
  EXPECT_EQ(values.at("out")[0], 0);
  EXPECT_EQ(values.at("lse")[0], -infinity);
  EXPECT_NEAR(values.at("out")[16], 8.5, 1e-12);
}

TEST(BlocksparseAttention, NoKeyAfterTheQueryIsSeenThroughABlock) {
  const Values values = attention(32, 32, mask({1, 1, 2, 2}, {1, 1, 0, 1}), {{"causal", true}});
  EXPECT_NEAR(values.at("out")[0], 1, 1e-12);
  EXPECT_NEAR(values.at("out")[15], 8.5, 1e-12);
  EXPECT_NEAR(values.at("out")[16], 17, 1e-12);
  EXPECT_NEAR(values.at("out")[31], 24.5, 1e-12);
}

TEST(BlocksparseAttention, ChunksEndAtTheirMultiplesAndAtTheQuery) {
  const HostTensor all = mask({1, 1, 1, 1}, {1});
  const Numbers out = attention(7, 7, all, {{"chunk_size", std::int64_t{3}}}).at("out");
  const Numbers expected{1, 1.5, 2, 4, 4.5, 5, 7};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-12) << i;
  const Numbers before = attention(4, 7, all, {{"chunk_size", std::int64_t{3}}, {"causal_offset", std::int64_t{-2}}}).at("out");
  const Numbers shifted{0, 0, 1, 1.5};
  for (std::size_t i = 0; i < shifted.size(); ++i) EXPECT_NEAR(before[i], shifted[i], 1e-12) << i;
}

TEST(BlocksparseAttention, HeadsHaveTheirOwnMasks) {
  const Values values = attention(1, 32, mask({1, 2, 1, 2}, {1, 0, 0, 1}), {}, 2);
  EXPECT_NEAR(values.at("out")[0], 8.5, 1e-12);
  EXPECT_NEAR(values.at("out")[1], 24.5, 1e-12);
}

TEST(BlocksparseAttention, AMaskOfOtherBlocksIsRefused) {
  EXPECT_THROW(attention(17, 16, mask({1, 1, 1, 1}, {1})), spec::CallError);
  EXPECT_THROW(attention(16, 16, mask({1, 1, 1, 1}, {1}), {{"block_q", std::int64_t{24}}}), spec::CallError);
}

// Sequences of so many queries and keys, laid end to end, D = Dv = 1, behind blocks of 16 by 16; then a query and a key of no sequence.
struct Packed {
  Numbers q_offsets{0}, k_offsets{0}, q, k, v;

  void add(Numbers queries, Numbers keys, Numbers values) {
    q.insert(q.end(), queries.begin(), queries.end());
    k.insert(k.end(), keys.begin(), keys.end());
    v.insert(v.end(), values.begin(), values.end());
    q_offsets.push_back(static_cast<double>(q.size()));
    k_offsets.push_back(static_cast<double>(k.size()));
  }
  Values attention(const HostTensor& blocks, Attributes attributes) const {
    attributes["block_q"] = attributes["block_k"] = std::int64_t{16};
    Numbers all_q = q, all_k = k, all_v = v;
    all_q.push_back(nan), all_k.push_back(nan), all_v.push_back(nan);
    const auto tokens = [](const char* name, const Numbers& values) {
      return HostTensor(name, DType::f32, {static_cast<std::int64_t>(values.size()), 1, 1}, values);
    };
    const std::int64_t offsets = static_cast<std::int64_t>(q_offsets.size());
    return compute(make_call(
        spec_of("blocksparse_attention"), std::move(attributes),
        {tokens("q", all_q), tokens("k", all_k), tokens("v", all_v), blocks, HostTensor("cum_seqlens_q", DType::i32, {offsets}, q_offsets),
         HostTensor("cum_seqlens_k", DType::i32, {offsets}, k_offsets)},
        {"lse"}));
  }
};

Numbers drawn(Rng& rng, std::int64_t count) {
  Numbers numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(rng.normal());
  return numbers;
}

// A call of one row of the batch, of what Packed has of a sequence.
Values alone(const Numbers& q, const Numbers& k, const Numbers& v, const HostTensor& blocks, Attributes attributes) {
  attributes["block_q"] = attributes["block_k"] = std::int64_t{16};
  const auto tokens = [](const char* name, const Numbers& values) {
    return HostTensor(name, DType::f32, {1, static_cast<std::int64_t>(values.size()), 1, 1}, values);
  };
  return compute(make_call(spec_of("blocksparse_attention"), std::move(attributes),
                           {tokens("q", q), tokens("k", k), tokens("v", v), blocks}, {"lse"}));
}

TEST(BlocksparseAttention, PackedSequencesAreAsCallsOfTheirOwn) {
  const std::int64_t lengths[][2] = {{40, 17}, {0, 5}, {33, 50}, {7, 0}};
  constexpr std::int64_t rows = 3, columns = 4;  // blocks of the longest sequence
  for (const Attributes& attributes :
       {Attributes{}, Attributes{{"causal", true}}, Attributes{{"chunk_size", std::int64_t{20}}, {"window_left", std::int64_t{9}}}}) {
    Rng rng(3);
    Packed packed;
    Numbers on, out, lse;
    for (const auto& [queries, keys] : lengths) {
      const Numbers q = drawn(rng, queries), k = drawn(rng, keys), v = drawn(rng, keys);
      packed.add(q, k, v);
      const std::int64_t own_rows = (queries + 15) / 16, own_columns = (keys + 15) / 16;
      Numbers own;
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        on.push_back(rng.chance(0.5) ? 1 : 0);
        if (i / columns < own_rows && i % columns < own_columns) own.push_back(on.back());
      }
      const Values values = alone(q, k, v, mask({1, 1, own_rows, own_columns}, own), attributes);
      out.insert(out.end(), values.at("out").begin(), values.at("out").end());
      lse.insert(lse.end(), values.at("lse").begin(), values.at("lse").end());
    }
    out.push_back(0), lse.push_back(-infinity);  // of no sequence
    const Values values = packed.attention(mask({4, 1, rows, columns}, on), attributes);
    EXPECT_EQ(values.at("out"), out);
    EXPECT_EQ(values.at("lse"), lse);
  }
}

TEST(BlocksparseAttention, BlocksThatThePackedMaskLacksAreOff) {
  Packed packed;
  packed.add(Numbers(40, 0.0), Numbers(40, 0.0), Numbers(40, 2.0));
  const Values values = packed.attention(mask({1, 1, 2, 1}, {1, 1}), {});
  EXPECT_NEAR(values.at("lse")[31], std::log(16), 1e-12);  // keys of the first block alone
  EXPECT_EQ(values.at("out")[31], 2);
  EXPECT_EQ(values.at("lse")[32], -infinity);
  EXPECT_EQ(values.at("out")[32], 0);
}

TEST(BlocksparseAttention, PackedSequencesMayShareAMask) {
  Packed packed;
  packed.add(Numbers(3, 0.0), Numbers(20, 0.0), Numbers(20, 1.0));
  packed.add(Numbers(2, 0.0), Numbers(30, 0.0), Numbers(30, 3.0));
  const Values values = packed.attention(mask({1, 1, 1, 2}, {0, 1}), {});
  EXPECT_NEAR(values.at("lse")[0], std::log(4), 1e-12);
  EXPECT_NEAR(values.at("lse")[3], std::log(14), 1e-12);
}

// Images are made for some sizes of both: among a few varied calls is one that such an image serves.
TEST(BlocksparseAttention, VariedCasesMeetTheirOwnBlocks) {
  for (const char* kernel : {"blocksparse_attention", "blocksparse_attention_bwd"})
    for (const spec::Case& c : spec_of(kernel).cases) {
      const auto block = [](const spec::Case& of, const char* name) {
        const auto found = of.attributes.find(name);
        return found == of.attributes.end() ? std::int64_t{128} : std::get<std::int64_t>(found->second);
      };
      Rng rng(1);
      int met = 0;
      for (int draw = 0; draw < 30; ++draw) {
        const spec::Case varied = find_reference(kernel)->vary(c, rng);
        met += block(varied, "block_q") == block(c, "block_q") && block(varied, "block_k") == block(c, "block_k");
      }
      EXPECT_GT(met, 0) << kernel << " " << c.name;
    }
}

TEST(BlocksparseAttention, LawsAreJudgedOfACallWithoutBatches) {
  spec::Case c;
  c.name = "empty";
  c.types = {{"E", "f32"}};
  c.given = {"attention_mask"};
  for (const auto& [dim, size] : {std::pair{"B", 0}, {"Sq", 20}, {"Sk", 30}, {"Hq", 2}, {"Hkv", 2}, {"Hm", 2}, {"D", 8}, {"Dv", 8}})
    c.dims[dim] = std::int64_t{size};
  int masks_of_more = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Call call = make_call(spec_of("blocksparse_attention"), c, seed, {{}, true});
    masks_of_more += call.input("attention_mask").elements() > 0 && call.input("block_mask").elements() == 0;
    Rng rng(seed);
    for (const PropertyResult& property : verify_properties(*find_reference("blocksparse_attention"), call, execute_reference, rng))
      EXPECT_EQ(property.message, "") << property.name;
  }
  EXPECT_GT(masks_of_more, 0);
}

TEST(BlocksparseAttention, RandomCallsOfEveryKindPassTheirOwnChecks) { check_random_calls("blocksparse_attention", 900, 25); }

// What must be found if a kernel gets it wrong: a block counted although it is off, and a block that is on but taken as off.
TEST(BlocksparseAttention, AWrongBlockIsCaught) {
  spec::Case c;
  c.name = "blocks";
  c.types["E"] = "f32";
  c.attributes["block_q"] = c.attributes["block_k"] = std::int64_t{16};
  for (const auto& [dim, size] : {std::pair{"B", 1}, {"Sq", 40}, {"Sk", 40}, {"Hq", 2}, {"Hkv", 1}, {"Hm", 2}, {"D", 16}, {"Dv", 16}})
    c.dims[dim] = std::int64_t{size};
  const KernelReference& reference = *find_reference("blocksparse_attention");
  for (std::int64_t wrong = 0; wrong < 18; ++wrong) {
    Call call = make_call(spec_of("blocksparse_attention"), c, 1);
    const Execute careless = [&](Call& executed) {
      Call other = executed;
      HostTensor& blocks = other.input("block_mask");
      blocks.set(wrong, blocks.at(wrong) == 0 ? 1 : 0);
      const Values values = compute(other);
      for (HostTensor& output : executed.outputs) output.assign(values.at(output.name()));
    };
    EXPECT_NE(first_failure(verify_call(reference, call, careless)), "") << wrong;
  }
}

}  // namespace
}  // namespace ejk::reference::blocksparse_attention_test

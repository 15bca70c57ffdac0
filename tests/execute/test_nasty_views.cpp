// Legal calls that are easy to get wrong, on the real kernels against the float64 references: empty sizes, views of every kind, hidden NaN.
#include <limits>

#include "execute/strange_views.hpp"

namespace ejk::nasty_views_test {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

const Config plain{"plain", "generic", {}}, tiled{"tiled", "generic", {}}, rows{"rows", "generic", {}}, strided{"strided", "generic", {}};

struct Problem {
  std::string kernel = "flash_attention";
  Dims dims;
  std::vector<std::string> given;
  std::map<std::string, spec::Value> attributes;
  std::string type = "f32";

  reference::Call make(const Arrangement& arrangement = {}) const {
    spec::Case c;
    c.name = "nasty";
    c.dims = dims;
    c.types = {{"E", type}};
    if (kernel == "flash_attention") c.types["Eb"] = "f32", c.types["Es"] = "f32";
    c.given = given;
    c.attributes = attributes;
    return reference::make_call(reference::spec_of(kernel), c, 7, arrangement);
  }
};

// Small, with a mask and lse: one image of each variant serves every test.
Problem attention(const Dims& changed = {}) {
  Problem problem;
  problem.dims = {{"B", 2L}, {"Sq", 5L}, {"Sk", 7L}, {"Hq", 4L}, {"Hkv", 2L}, {"D", 16L}, {"Dv", 24L}};
  for (const auto& [name, value] : changed) problem.dims[name] = value;
  problem.given = {"attention_mask", "lse"};
  return problem;
}

Problem packed_attention(const Dims& changed = {}) {
  auto problem = attention();
  problem.dims = {{"N", 3L}, {"Tq", 9L}, {"Tk", 11L}, {"Hq", 4L}, {"Hkv", 2L}, {"D", 16L}, {"Dv", 24L}};
  for (const auto& [name, value] : changed) problem.dims[name] = value;
  problem.given = {"cum_seqlens_q", "cum_seqlens_k", "lse"};
  problem.attributes["dropout_prob"] = 0.25;  // an option: the same image
  return problem;
}

Problem pooling(const Dims& changed = {}) {
  Problem problem;
  problem.kernel = "mean_pooling";
  problem.dims = {{"B", 3L}, {"S", 5L}, {"C", 6L}};
  for (const auto& [name, value] : changed) problem.dims[name] = value;
  problem.given = {"mask"};
  return problem;
}

class NastyViews : public StoreTest {
 protected:
  void SetUp() override { use_project_store(); }

  static void right(const reference::Call& call, const Config& config, const Place& place = {}, std::int64_t misalign = 0) {
    expect_right(call, config, place, misalign);
  }

  static void right_on_both(const reference::Call& call, const Place& place = {}, std::int64_t misalign = 0) {
    right(call, plain, place, misalign);
    right(call, tiled, place, misalign);
  }
};

bool is_output(const HostTensor& tensor) { return tensor.name() == "out" || tensor.name() == "lse"; }

TEST_F(NastyViews, AttentionOverZeroSizes) {
  const std::vector<Dims> empty = {{{"B", 0L}},
                                   {{"Sq", 0L}},
                                   {{"Sk", 0L}},
                                   {{"Hq", 0L}},
                                   {{"Hq", 0L}, {"Hkv", 0L}},
                                   {{"B", 0L}, {"Sq", 0L}, {"Sk", 0L}},
                                   {{"Sq", 0L}, {"Sk", 0L}}};
  for (const auto& dims : empty) right_on_both(attention(dims).make());
  for (const Dims& dims : {Dims{{"D", 0L}}, Dims{{"Dv", 0L}}, Dims{{"D", 0L}, {"Dv", 0L}}}) right(attention(dims).make(), plain);
}

TEST_F(NastyViews, PackedAttentionOverZeroSizes) {
  for (const Dims& dims :
       {Dims{}, {{"N", 0L}}, {{"Tq", 0L}}, {{"Tk", 0L}}, {{"N", 0L}, {"Tq", 0L}, {"Tk", 0L}}, {{"N", 40L}}, {{"Hq", 0L}}})
    right_on_both(packed_attention(dims).make());
}

TEST_F(NastyViews, AttentionAtFarStrides) {
  auto call = attention().make();
  right_on_both(call, far_apart);
  right_on_both(call, far_rows);
  right_on_both(call, far_apart, 4);
}

TEST_F(NastyViews, AttentionOnTransposedBackwardAndBroadcastViews) {
  const auto call = attention().make();
  right_on_both(call, transposed);
  right_on_both(call, backwards);
  for (const auto& layout :
       {Layout{.broadcast = true}, Layout{.padded = true, .permuted = true, .broadcast = true, .unaligned = true, .outputs = true}})
    right_on_both(attention().make({layout, true}));
}

TEST_F(NastyViews, AttentionOnUnalignedPointers) {
  const Layout layout{.unaligned = true, .outputs = true};
  right_on_both(attention().make({layout, false}));
  for (const auto* type : {"bf16", "f16"}) {
    auto problem = attention();
    problem.type = type;
    right(problem.make({layout, false}), plain);
  }
}

TEST_F(NastyViews, NaNBehindAFalseMaskIsNotSeen) {
  for (const auto value : {not_a_number, std::numeric_limits<double>::infinity()}) {
    auto problem = attention();
    problem.given = {"attention_mask", "bias", "lse"};
    auto call = problem.make();
    auto& mask = call.input("attention_mask");
    const auto row = mask.shape()[3];  // mask and bias: [B, Hq, Sq, Sk]
    for (std::int64_t i = 0; i < mask.elements(); ++i) {
      if (i % row == 2 || i % row == 6) mask.set(i, 0);  // keys 2 and 6 are hidden from every query
      if (mask.at(i) == 0) call.input("bias").set(i, value);
    }
    for (const auto* name : {"k", "v"}) {
      auto& tensor = call.input(name);
      const auto token = tensor.shape()[2] * tensor.shape()[3];
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        if (const auto key = i / token % row; key == 2 || key == 6) tensor.set(i, value);
    }
    right_on_both(call);
  }
}

TEST_F(NastyViews, NaNBeyondTheCausalEdgeTheWindowAndTheSegmentIsNotSeen) {
  auto problem = attention({{"Sq", 4L}, {"Sk", 9L}});
  problem.given = {"q_segment_ids", "kv_segment_ids", "lse"};
  problem.attributes = {{"causal", true}, {"causal_offset", std::int64_t{3}}, {"window_left", std::int64_t{4}}};
  auto call = problem.make();
  for (const auto* name : {"q_segment_ids", "kv_segment_ids"})
    for (std::int64_t i = 0; i < call.input(name).elements(); ++i) call.input(name).set(i, 0);
  call.input("kv_segment_ids").set(1, -1);  // key 1 of the first row: padding
  for (const auto* name : {"k", "v"}) {
    auto& tensor = call.input(name);
    const auto token = tensor.shape()[2] * tensor.shape()[3];
    for (std::int64_t i = 0; i < tensor.elements(); ++i)  // keys past 6 are beyond the last query's edge
      if (const auto key = i / token; key == 1 || key % 9 > 6) tensor.set(i, not_a_number);
  }
  right_on_both(call);
}

TEST_F(NastyViews, NaNInAVisiblePlaceIsSeen) {
  auto call = attention().make();
  auto& mask = call.input("attention_mask");
  for (std::int64_t i = 0; i < mask.elements(); ++i) mask.set(i, 1);
  call.input("q").set(3, not_a_number);
  right_on_both(call);
}

TEST_F(NastyViews, RowsThatSeeNoKey) {
  auto hidden = attention().make();
  for (std::int64_t i = 0; i < hidden.input("attention_mask").elements(); ++i) hidden.input("attention_mask").set(i, i % 35 < 14 ? 0 : 1);
  right_on_both(hidden);
  for (std::int64_t i = 0; i < hidden.input("attention_mask").elements(); ++i) hidden.input("attention_mask").set(i, 0);
  right_on_both(hidden);
  auto sinks = attention({{"A", 2L}});
  sinks.given = {"attention_mask", "softmax_aux", "lse"};
  auto with_sinks = sinks.make();
  for (std::int64_t i = 0; i < with_sinks.input("attention_mask").elements(); ++i) with_sinks.input("attention_mask").set(i, 0);
  right_on_both(with_sinks);
  auto more_queries = attention({{"Sq", 20L}, {"Sk", 3L}});
  more_queries.attributes["causal"] = true;
  right_on_both(more_queries.make());
  auto far_window = attention();
  far_window.attributes = {{"causal_offset", std::int64_t{1} << 40}, {"window_left", std::int64_t{3}}, {"window_right", std::int64_t{3}}};
  right_on_both(far_window.make());
}

TEST_F(NastyViews, ABiasOfMinusInfinityHidesARow) {
  auto problem = attention();
  problem.given = {"bias", "lse"};
  auto call = problem.make();
  for (std::int64_t i = 0; i < call.input("bias").elements(); ++i)
    if (i % 35 < 14) call.input("bias").set(i, -std::numeric_limits<double>::infinity());
  right_on_both(call);
}

// As model code masks: finfo.min for all keys of a row leaves them equal; for some it leaves those out.
TEST_F(NastyViews, KeysShareARowOfTheLowestFiniteBias) {
  for (const double lowest : {-static_cast<double>(std::numeric_limits<float>::max()), -0x1.fep127, -1e30, -0x1p40}) {
    auto problem = attention();
    problem.given = {"bias", "attention_mask", "lse"};
    auto call = problem.make();
    auto& bias = call.input("bias");
    for (std::int64_t i = 0; i < bias.elements(); ++i)  // rows of 7 keys
      if (i / 7 % 3 == 0 || (i / 7 % 3 == 1 && i % 2 == 0)) bias.set(i, lowest);
    for (std::int64_t i = 0; i < 7; i += 2) bias.set(i, -std::numeric_limits<double>::infinity());  // and these hide keys of such a row
    right_on_both(call);
  }
}

TEST_F(NastyViews, ExtremeOffsetsAndWindowsDoNotOverflow) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (const auto offset : {most, least, most - 3, least + 3})
    for (const auto window : {std::int64_t{-1}, std::int64_t{2}, most}) {
      auto problem = attention();
      problem.attributes = {{"causal", true}, {"causal_offset", offset}, {"window_left", window}, {"window_right", window}};
      right_on_both(problem.make());
    }
}

TEST_F(NastyViews, PoolingOverZeroSizes) {
  for (const Dims& dims : {Dims{{"B", 0L}}, {{"S", 0L}}, {{"C", 0L}}, {{"B", 0L}, {"S", 0L}, {"C", 0L}}})
    for (const auto* config : {&rows, &strided}) right(pooling(dims).make(), *config);
}

TEST_F(NastyViews, PackedPoolingOverZeroSizes) {
  auto problem = pooling();
  problem.given = {"cum_seqlens"};
  for (const Dims& dims : {Dims{{"N", 3L}, {"T", 9L}, {"C", 6L}},
                           {{"N", 0L}, {"T", 9L}, {"C", 6L}},
                           {{"N", 3L}, {"T", 0L}, {"C", 6L}},
                           {{"N", 3L}, {"T", 9L}, {"C", 0L}}}) {
    problem.dims = dims;
    for (const auto* config : {&rows, &strided}) right(problem.make(), *config);
  }
}

TEST_F(NastyViews, PoolingOnStrangeViews) {
  const auto call = pooling().make();
  for (const auto* config : {&rows, &strided}) {
    const auto outputs_stay = [&](const Place& place) {
      return [place](const HostTensor& tensor) { return is_output(tensor) ? tensor.strides() : place(tensor); };
    };
    right(call, *config, outputs_stay(far_apart), 4);
    right(call, *config, outputs_stay(far_rows));
    right(call, *config, outputs_stay(transposed));
    right(call, *config, outputs_stay(backwards));
  }
  right(call, strided, far_apart);
  right(call, strided, transposed);
  right(call, strided, backwards);
}

TEST_F(NastyViews, NaNInAMaskedTokenIsNotSeen) {
  auto call = pooling().make();
  for (std::int64_t i = 0; i < call.input("mask").elements(); ++i) {
    call.input("mask").set(i, i % 5 != 1 && i / 5 != 2);  // token 1 of every row, and all of row 2
    for (std::int64_t c = 0; c < 6; ++c)
      if (call.input("mask").at(i) == 0) call.input("x").set(i * 6 + c, not_a_number);
  }
  for (const auto* config : {&rows, &strided}) right(call, *config);
}

}  // namespace
}  // namespace ejk::nasty_views_test

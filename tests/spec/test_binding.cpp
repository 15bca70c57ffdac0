// Binding: dims, types and attributes of a call, the data it reads, and a spec's cases as calls.
#include <gtest/gtest.h>

#include "tests/spec/binding_fixture.hpp"

namespace ejk::spec::binding_test {
namespace {

TEST(Binding, TakesDimsFromShapesAndDefaultsFromTheSpec) {
  const Binding binding = bind(attend(), batched());
  EXPECT_EQ(binding.form, "batched");
  EXPECT_EQ(binding.dims.at("Sk"), 8);
  EXPECT_EQ(binding.dims.at("G"), 3);
  EXPECT_EQ(binding.types.at("E"), "f32");
  EXPECT_EQ(value_of(binding, "scale"), Value(0.125));
  EXPECT_EQ(value_of(binding, "window"), Value(std::int64_t{-1}));
  EXPECT_EQ(value_of(binding, "layout == 'HND' and form == 'batched'"), Value(true));
  EXPECT_EQ(value_of(binding, "size(E)"), Value(std::int64_t{4}));
}

TEST(Binding, KnowsWhatWasGiven) {
  CallFacts call = batched();
  call.attributes["window"] = std::int64_t{5};
  const Binding binding = bind(attend(), call);
  EXPECT_EQ(value_of(binding, "given(q) and given(window) and not given(causal) and not given(bias)"), Value(true));
}

TEST(Binding, WidensAnIntegerGivenForAFloat) {
  CallFacts call = batched();
  call.attributes["scale"] = std::int64_t{2};
  EXPECT_EQ(bind(attend(), call).attributes.at("scale"), Value(2.0));
}

TEST(Binding, BroadcastsAOneWhereTheSpecAllowsIt) {
  CallFacts call = batched();
  call.tensors["bias"] = tensor(DType::f16, {1, 6, 4, 8});
  EXPECT_EQ(bind(attend(), call).types.at("Eb"), "f16");
  call.tensors["bias"] = tensor(DType::f16, {3, 6, 4, 8});
  EXPECT_EQ(error_of(attend(), call),
            "attend: bias has shape [3, 6, 4, 8], expected [B|1, Hq|1, Sq, Sk] with B = 2 (from q): dimension 0 is 3");
}

TEST(Binding, ANameWithoutAValueSaysWhy) {
  const Binding binding = bind(attend(), batched());
  const auto why = [&](const char* text) -> std::string {
    try {
      value_of(binding, text);
    } catch (const ExpressionError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(why("N"), "dim N has no value in this call (batched form): no tensor that is given binds it");
  EXPECT_EQ(why("offset"), "attribute offset is not given and has no default; test given(offset)");
  EXPECT_EQ(why("rank(bias)"), "rank(bias): bias is not given; test given(bias)");
}

TEST(Binding, TheFormFollowsFromWhatIsGiven) {
  const std::vector<std::int32_t> cum = {0, 3, 10};
  const Binding binding = bind(attend(), packed(cum));
  EXPECT_EQ(binding.form, "packed");
  EXPECT_EQ(binding.dims.at("N"), 2);
  EXPECT_EQ(binding.dims.at("R"), 3);  // ceil(3 / 4) + ceil(7 / 4)
  EXPECT_NO_THROW(check_live_requirements(binding));
}

TEST(Binding, ZeroSizesAreLegal) {
  CallFacts call = batched();
  call.tensors["q"].shape = call.tensors["out"].shape = {0, 4, 6, 64};
  call.tensors["k"].shape = {0, 0, 2, 64};
  EXPECT_EQ(error_of(attend(), call), "no error");
}

TEST(Binding, BroadcastInputsAreLegal) {
  CallFacts call = batched();
  call.tensors["k"].strides = {0, 0, 64, 1};
  EXPECT_EQ(error_of(attend(), call), "no error");
}

// A table of pages [2, 3] whose rows stand for `lengths` items, 4 a page.
const char* const table_json = R"json({ "kernel": "look", "doc": "Looks pages up.",
  "dims": {"N": "rows", "M": "columns", "P": "pages"}, "types": {"E": ["f32"]},
  "inputs": [{"name": "x", "type": "E", "shape": ["P"], "doc": "d"}, {"name": "lengths", "type": "i32", "shape": ["N"], "optional": true, "doc": "d"},
             {"name": "table", "type": "i32", "shape": ["N", "M"], "doc": "d"}],
  "outputs": [{"name": "out", "type": "E", "shape": ["P"], "doc": "d"}],
  "requires": [{"that": "outside(lengths, 0, 4 * M) == ''", "reads": "lengths", "else": "${outside(lengths, 0, 4 * M)}, expected 0 to ${4 * M}"},
    {"that": "outside_rows(table, lengths, 4, -1, 0, P - 1) == ''", "reads": ["table", "lengths"],
     "else": "${outside_rows(table, lengths, 4, -1, 0, P - 1)}, expected 0 to ${P - 1}"}],
  "cost": {"flops": "sum(lengths, 5, 77)", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json";

const Spec& look() {
  static const Spec spec = loaded(table_json);
  return spec;
}

CallFacts paged(const std::vector<std::int32_t>& lengths, const std::vector<std::int32_t>& table,
                std::vector<std::int64_t> strides = {3, 1}) {
  CallFacts call;
  call.tensors["x"] = tensor(DType::f32, {7});
  call.tensors["lengths"] = tensor(DType::i32, {2});
  call.tensors["lengths"].host_data = lengths.data();
  call.tensors["table"] = tensor(DType::i32, {2, 3}, std::move(strides));
  call.tensors["table"].host_data = table.data();
  return call;
}

TEST(Data, TableEntriesThatARowNeedsMustBeInRange) {
  const auto message = [](const std::vector<std::int32_t>& lengths, const std::vector<std::int32_t>& table) {
    return error_of(look(), paged(lengths, table));
  };
  constexpr std::int32_t out = -99;
  EXPECT_EQ(message({12, 0}, {0, 6, 3, out, out, out}), "no error");
  EXPECT_EQ(message({8, 1}, {0, 6, out, 1, out, out}), "no error");
  EXPECT_EQ(message({9, 1}, {0, 6, out, 1, out, out}), "look: table[0, 2] is -99, expected 0 to 6");
  EXPECT_EQ(message({0, 5}, {out, out, out, 1, 7, out}), "look: table[1, 1] is 7, expected 0 to 6");
  EXPECT_EQ(message({0, 13}, {out, out, out, 1, 2, 3}), "look: lengths[1] is 13, expected 0 to 12");
  EXPECT_EQ(message({-1, 3}, {out, out, out, 1, 2, 3}), "look: lengths[0] is -1, expected 0 to 12");
}

TEST(Data, RowsOfATableFollowItsStridesAndOnlyTheLastItemsCount) {
  const std::vector<std::int32_t> lengths{12, 4}, table{50, 51, 2, 0, 0, 1, 60, 0, 0};  // rows 5 apart
  const Binding binding = bind(look(), paged(lengths, table, {5, 1}));
  EXPECT_EQ(value_of(binding, "outside_rows(table, lengths, 4, -1, 0, 6)"), Value(std::string("table[0, 0] is 50")));
  EXPECT_EQ(value_of(binding, "outside_rows(table, lengths, 4, 5, 0, 6)"), Value(std::string("table[0, 1] is 51")));
  EXPECT_EQ(value_of(binding, "outside_rows(table, lengths, 4, 4, 0, 6)"), Value(std::string()));
  EXPECT_EQ(value_of(binding, "outside_rows(table, lengths, 4, 4, 2, 6)"), Value(std::string("table[1, 0] is 1")));
  EXPECT_EQ(value_of(binding, "outside_rows(table, lengths, 4, 4, 2, 6, 1)"), Value(std::string()));
  EXPECT_EQ(value_of(binding, "outside_rows(table, lengths, 4, 4, 2, 6, 9)"), Value(std::string("table[1, 0] is 1")));
  EXPECT_EQ(value_of(binding, "outside(table, 0, 60)"), Value(std::string()));
  EXPECT_EQ(value_of(binding, "outside(table, 0, 51)"), Value(std::string("table[1, 1] is 60")));
  EXPECT_EQ(value_of(binding, "outside(table, 0, 50)"), Value(std::string("table[0, 1] is 51")));
}

TEST(Data, SumsCutElementsAndSayOtherwiseWithoutData) {
  const std::vector<std::int32_t> lengths{12, 3}, table(6, 0);
  CallFacts call = paged(lengths, table);
  EXPECT_EQ(value_of(bind(look(), call), "sum(lengths, 5, 77)"), Value(std::int64_t{8}));
  EXPECT_EQ(value_of(bind(look(), call), "sum(lengths, 100, 77)"), Value(std::int64_t{15}));
  call.tensors["lengths"].host_data = nullptr;
  EXPECT_EQ(value_of(bind(look(), call), "sum(lengths, 5, 77)"), Value(std::int64_t{77}));
  EXPECT_EQ(error_of(look(), call), "no error");  // trusted: neither rule can be judged
  call.tensors.erase("lengths");
  EXPECT_EQ(value_of(bind(look(), call), "sum(lengths, 5, 77)"), Value(std::int64_t{77}));
}

TEST(Cases, MakeTheFactsOfACall) {
  const CallFacts facts = facts_of(attend(), attend().cases.at(0));
  EXPECT_EQ(facts.tensors.at("q").shape, (std::vector<std::int64_t>{2, 4, 6, 64}));
  EXPECT_EQ(facts.tensors.at("q").type, DType::bf16);
  EXPECT_EQ(facts.tensors.count("mask"), 1u);
  EXPECT_EQ(facts.tensors.count("pairs"), 0u);  // optional and not named
  EXPECT_EQ(error_of(attend(), facts), "no error");
}

TEST(Cases, AMissingDimIsAFaultOfTheCase) {
  Case c = attend().cases.at(0);
  c.dims.erase("Sk");
  try {
    facts_of(attend(), c);
    FAIL();
  } catch (const SpecError& e) {
    EXPECT_STREQ(e.what(), "specs/test.json:/cases/0: the case gives no Sk, which k [B, Sk, Hkv, D] needs");
  }
}

}  // namespace
}  // namespace ejk::spec::binding_test

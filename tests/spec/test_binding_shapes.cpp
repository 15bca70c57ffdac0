// Binding: shapes with a rest, shapes like another tensor's, alternatives, and what strides mean.
#include <gtest/gtest.h>
#include <random>

#include "tests/spec/binding_fixture.hpp"

namespace ejk::spec::binding_test {
namespace {

TEST(Rest, TrailingDimsAreOneDim) {
  CallFacts call;
  call.tensors["x"] = tensor(DType::f32, {5, 3, 4});
  const Binding binding = bind(pool(), call);
  EXPECT_EQ(binding.dims.at("C"), 12);
  EXPECT_EQ(output_facts(binding, *pool().tensor("out")).shape, (std::vector<std::int64_t>{3, 4}));
  call.tensors["x"] = tensor(DType::f32, {5});
  EXPECT_EQ(bind(pool(), call).dims.at("C"), 1);
  call.tensors["x"] = tensor(DType::f32, {5, 0, 4});
  EXPECT_EQ(bind(pool(), call).dims.at("C"), 0);
}

TEST(Rest, OutputsHaveTheSameTrailingDims) {
  CallFacts call;
  call.tensors["x"] = tensor(DType::f32, {5, 3, 4});
  call.tensors["out"] = tensor(DType::f32, {12});
  EXPECT_EQ(error_of(pool(), call), "pool: out has shape [12], expected [C...] with C = [3, 4] (from x): its trailing dimensions are [12]");
}

TEST(Extents, ANumberIsNotExplained) {
  const Spec one = loaded(R"json({ "kernel": "one", "doc": "d", "dims": {"A": "d"}, "types": {"E": ["f32"]},
    "inputs": [{"name": "x", "type": "E", "shape": ["1", "A"], "doc": "d"}], "outputs": [{"name": "out", "type": "E", "shape": ["A"], "doc": "d"}],
    "cost": {"flops": "1", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json");
  CallFacts call;
  call.tensors["x"] = tensor(DType::f32, {2, 5});
  EXPECT_EQ(error_of(one, call), "one: x has shape [2, 5], expected [1, A]: dimension 0 is 2");
}

// ---- a rest that stands anywhere ----

const char* const rows_json = R"json({ "kernel": "rows", "doc": "Rows in any number of dimensions, halves of them between.",
  "dims": {"A": "heads", "R": "rows", "C": "features"}, "types": {"E": ["f32"]},
  "inputs": [{"name": "x", "type": "E", "shape": ["A", "R...", "C"], "doc": "d"},
             {"name": "flat", "type": "E", "optional": true, "shape": ["R...", "C + 1"], "doc": "d"},
             {"name": "means", "type": "E", "optional": true, "shape": ["R...", "A|1", "min(C, 2)"], "doc": "d"}],
  "outputs": [{"name": "out", "type": "E", "shape": ["R...", "A"], "doc": "d"}],
  "cost": {"flops": "1", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json";

const Spec& rows() {
  static const Spec spec = loaded(rows_json);
  return spec;
}

CallFacts rows_of(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
  CallFacts call;
  call.tensors["x"] = tensor(DType::f32, std::move(shape), std::move(strides));
  return call;
}

TEST(Rest, StandsAtAnyPlaceForAnyNumberOfDimensions) {
  using Extents = std::vector<std::int64_t>;
  for (const Extents& group : {Extents{}, Extents{5}, Extents{2, 3}, Extents{2, 1, 3, 2}}) {
    Extents x{7}, flat = group, means = group, out = group;
    x.insert(x.end(), group.begin(), group.end());
    x.push_back(4);
    flat.push_back(5);
    means.insert(means.end(), {1, 2});
    out.push_back(7);
    CallFacts call = rows_of(x);
    call.tensors["flat"] = tensor(DType::f32, flat);
    call.tensors["means"] = tensor(DType::f32, means);
    const Binding binding = bind(rows(), call);
    std::int64_t product = 1;
    for (const auto size : group) product *= size;
    EXPECT_EQ(binding.dims.at("R"), product);
    EXPECT_EQ(binding.dims.at("A"), 7);
    EXPECT_EQ(binding.dims.at("C"), 4);
    EXPECT_EQ(output_facts(binding, *rows().tensor("out")).shape, out);
  }
}

TEST(Rest, ErrorsNameTheDimensionThatIsWrong) {
  EXPECT_EQ(error_of(rows(), rows_of({7})), "rows: x has shape [7], expected [A, R..., C]: it has 1 dimension");
  CallFacts call = rows_of({7, 2, 3, 4});
  call.tensors["flat"] = tensor(DType::f32, {2, 3, 4});
  EXPECT_EQ(error_of(rows(), call), "rows: flat has shape [2, 3, 4], expected [R..., C + 1] with C = 4 (from x): dimension 2 is 4");
  call.tensors["flat"] = tensor(DType::f32, {3, 2, 5});
  EXPECT_EQ(error_of(rows(), call),
            "rows: flat has shape [3, 2, 5], expected [R..., C + 1] with R = [2, 3] (from x): its dimensions `R...` are [3, 2]");
  call.tensors.erase("flat");
  call.tensors["means"] = tensor(DType::f32, {2, 3, 1, 3});
  EXPECT_EQ(error_of(rows(), call),
            "rows: means has shape [2, 3, 1, 3], expected [R..., A|1, min(C, 2)] with min(C, 2) = 2: dimension 3 is 3");
}

// The step of a group's elements in row-major order; nothing where they have no common one; 0 where there is at most one.
std::optional<std::int64_t> step_of(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> places{0};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::vector<std::int64_t> next;
    for (const auto place : places)
      for (std::int64_t at = 0; at < shape[i]; ++at) next.push_back(place + at * strides[i]);
    places = std::move(next);
  }
  for (std::size_t i = 2; i < places.size(); ++i)
    if (places[i] - places[i - 1] != places[1] - places[0]) return std::nullopt;
  return places.size() < 2 ? 0 : places[1] - places[0];
}

TEST(Rest, OfRandomStridesIsFoldedExactlyWhereItsElementsStepAlike) {
  std::mt19937 random(11);
  const auto draw = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 1)); };
  int folded = 0, refused = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(draw(4))), strides(shape.size());
    std::int64_t step = draw(9) == 0 ? -4 : 4 * draw(3);
    for (std::size_t i = shape.size(); i-- > 0;) {
      shape[i] = draw(19) == 0 ? 0 : 1 + draw(3);
      strides[i] = draw(5) == 0 ? 4 * draw(9) : step;  // mostly of one piece, sometimes with a gap, a broadcast or another order
      step = strides[i] * std::max<std::int64_t>(shape[i], 1);
    }
    std::vector<std::int64_t> whole{2}, steps{1000};
    whole.insert(whole.end(), shape.begin(), shape.end());
    steps.insert(steps.end(), strides.begin(), strides.end());
    whole.push_back(3);
    steps.push_back(1);
    const Binding binding = bind(rows(), rows_of(whole, steps));
    const auto expected = step_of(shape, strides);
    ASSERT_EQ(value_of(binding, "foldable(x)"), Value(expected.has_value())) << testing::PrintToString(steps);
    (expected ? folded : refused) += 1;
    if (expected)
      ASSERT_EQ(value_of(binding, "folded_stride(x)"), Value(*expected)) << testing::PrintToString(steps);
    else
      EXPECT_THROW(value_of(binding, "folded_stride(x)"), ExpressionError);
  }
  EXPECT_GT(folded, 2000);
  EXPECT_GT(refused, 2000);
}

TEST(Rest, ThatCannotBeFoldedIsToldWithItsStrides) {
  const Binding binding = bind(rows(), rows_of({7, 2, 3, 4}, {24, 200, 4, 1}));
  try {
    value_of(binding, "folded_stride(x)");
    ADD_FAILURE();
  } catch (const ExpressionError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "folded_stride(x): the dimensions of `[A, R..., C]` do not step as one in shape [7, 2, 3, 4] with strides [24, 200, 4, 1]; ask "
        "foldable(x)");
  }
}

// ---- {"same_as": "x"} ----

const char* const alike_json = R"json({ "kernel": "alike", "doc": "A sum.",
  "dims": {"B": "batch", "N": "rows", "C": "features"}, "types": {"E": ["f32"]},
  "inputs": [{"name": "x", "type": "E", "shape": {"any": [["N", "C"], ["B|1", "N", "C"]]}, "doc": "d"},
             {"name": "y", "type": "E", "optional": true, "shape": {"same_as": "x"}, "doc": "d"}],
  "outputs": [{"name": "out", "type": "E", "shape": {"same_as": "y"}, "doc": "d"}],
  "cost": {"flops": "1", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json";

TEST(SameShape, IsTheOtherTensorsWhateverItIs) {
  const Spec alike = loaded(alike_json);
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3, 4}, {1, 3, 4}, {5, 3, 4}}) {
    CallFacts call;
    call.tensors["x"] = tensor(DType::f32, shape);
    EXPECT_EQ(output_facts(bind(alike, call), *alike.tensor("out")).shape, shape);  // y is not given: out is like x
    call.tensors["y"] = tensor(DType::f32, shape);
    call.tensors["out"] = tensor(DType::f32, shape);
    EXPECT_EQ(error_of(alike, call), "no error");
  }
  CallFacts call;
  call.tensors["x"] = tensor(DType::f32, {1, 3, 4});
  call.tensors["y"] = tensor(DType::f32, {3, 4});
  EXPECT_EQ(error_of(alike, call), "alike: y has shape [3, 4], expected [1, 3, 4], the shape of x");
  call.tensors["y"] = tensor(DType::f32, {2, 3, 4});  // either alone may be broadcast; they may not differ
  EXPECT_EQ(error_of(alike, call), "alike: y has shape [2, 3, 4], expected [1, 3, 4], the shape of x");
  call.tensors.erase("y");
  call.tensors["out"] = tensor(DType::f32, {3, 4});
  EXPECT_EQ(error_of(alike, call), "alike: out has shape [3, 4], expected [1, 3, 4], the shape of x");
}

// An output of several ranks that the caller does not give has the rank that the inputs decide.
TEST(Outputs, TakeTheAlternativeWhoseDimsAreBound) {
  const Spec either = loaded(R"json({ "kernel": "either", "doc": "Batched or packed.",
    "dims": {"B": "batch", "S": "tokens of a sequence", "T": "tokens", "C": "features"}, "types": {"E": ["f32"]},
    "inputs": [{"name": "x", "type": "E", "shape": {"any": [["T", "C"], ["B", "S", "C"]]}, "doc": "d"},
               {"name": "sum", "type": "E", "optional": true, "shape": ["C"], "doc": "A name that is a function before a bracket, too."}],
    "outputs": [{"name": "out", "type": "E", "shape": {"any": [["T", "C"], ["B", "S", "C"]]}, "doc": "d"},
                {"name": "means", "type": "E", "shape": {"any": [["C"], ["B", "C"]]}, "doc": "d"}],
    "cost": {"flops": "given(sum) ? rank(sum) : 0", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json");
  using Extents = std::vector<std::int64_t>;
  CallFacts packed, batched;
  packed.tensors["x"] = tensor(DType::f32, {7, 4});
  batched.tensors["x"] = tensor(DType::f32, {2, 3, 4});
  batched.tensors["sum"] = tensor(DType::f32, {4});
  const Binding flat = bind(either, packed), deep = bind(either, batched);
  EXPECT_EQ(output_facts(flat, *either.tensor("out")).shape, Extents({7, 4}));
  EXPECT_EQ(output_facts(deep, *either.tensor("out")).shape, Extents({2, 3, 4}));
  EXPECT_EQ(output_facts(flat, *either.tensor("means")).shape, Extents({4}));
  EXPECT_EQ(output_facts(deep, *either.tensor("means")).shape, Extents({2, 4}));
  EXPECT_EQ(either.flops.integer(deep), 1);
}

// A string attribute whose default is a type variable says which type that is.
TEST(Types, AreChosenByAnAttribute) {
  const Spec spec = loaded(R"json({ "kernel": "rounded", "doc": "Rows, rounded.",
    "dims": {"N": "rows"}, "types": {"E": ["f32", "bf16"], "O": {"any": ["f32", "bf16"], "default": "E"}},
    "attributes": [{"name": "rounded_to", "type": "string", "default": "O", "choices": ["bf16", "f32"], "doc": "d"}],
    "inputs": [{"name": "x", "type": "E", "shape": ["N"], "doc": "d"}, {"name": "old", "type": "O", "optional": true, "shape": ["N"], "doc": "d"}],
    "outputs": [{"name": "out", "type": "O", "shape": ["N"], "doc": "d"}],
    "cost": {"flops": "1", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json");
  const auto type_of_out = [&](const CallFacts& call) { return output_facts(bind(spec, call), *spec.tensor("out")).type; };
  CallFacts call;
  call.tensors["x"] = tensor(DType::bf16, {7});
  EXPECT_EQ(type_of_out(call), DType::bf16);
  EXPECT_EQ(value_of(bind(spec, call), "rounded_to"), Value(std::string("bf16")));
  call.tensors["old"] = tensor(DType::f32, {7});
  EXPECT_EQ(type_of_out(call), DType::f32);
  EXPECT_EQ(value_of(bind(spec, call), "rounded_to"), Value(std::string("f32")));
  call.attributes["rounded_to"] = std::string("bf16");
  EXPECT_EQ(error_of(spec, call), "rounded: old has type f32, expected bf16 (which rounded_to chooses)");
  call.tensors.erase("old");
  call.attributes["rounded_to"] = std::string("f32");
  EXPECT_EQ(type_of_out(call), DType::f32);
  call.tensors["out"] = tensor(DType::bf16, {7});
  EXPECT_EQ(error_of(spec, call), "rounded: out has type bf16, expected f32 (which rounded_to chooses)");
  call.attributes["rounded_to"] = std::string("f16");
  EXPECT_EQ(error_of(spec, call), "rounded: attribute rounded_to is 'f16', expected one of bf16, f32");
}

TEST(Layout, FunctionsOfStrides) {
  const auto judge = [](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, const char* text, std::int64_t alignment = 64) {
    CallFacts call;
    call.tensors["x"] = tensor(DType::f32, std::move(shape), std::move(strides));
    call.tensors["x"].alignment = alignment;
    return value_of(bind(pool(), call), text);
  };
  EXPECT_EQ(judge({5, 3, 4}, {12, 4, 1}, "contiguous(x) and foldable(x)"), Value(true));
  EXPECT_EQ(judge({5, 3, 4}, {24, 4, 1}, "foldable(x) and not contiguous(x)"), Value(true));
  EXPECT_EQ(judge({5, 3, 4}, {24, 8, 1}, "foldable(x)"), Value(false));
  EXPECT_EQ(judge({5, 1, 4}, {4, 99, 1}, "contiguous(x) and foldable(x)"), Value(true));
  EXPECT_EQ(judge({5, 3, 4}, {24, 8, 1}, "stride(x, 0) * 10 + stride(x, -2)"), Value(std::int64_t{248}));
  EXPECT_EQ(judge({1, 3, 4}, {24, 8, 1}, "stride(x, 0)"), Value(std::int64_t{0}));
  EXPECT_EQ(judge({1, 3, 4}, {24, 8, 1}, "extent(x, 0) * 10 + extent(x, -2)"), Value(std::int64_t{13}));
  EXPECT_EQ(judge({5, 3, 4}, {24, 8, 1}, "aligned(x, 32)"), Value(true));
  EXPECT_EQ(judge({5, 3, 4}, {24, 8, 1}, "aligned(x, 32)", 16), Value(false));
  EXPECT_EQ(judge({5, 3, 4}, {24, 6, 1}, "aligned(x, 32)"), Value(false));
  EXPECT_EQ(judge({5, 3, 4}, {24, 8, 1}, "mappable(x)"), Value(true));
  EXPECT_EQ(judge({5, 1, 4}, {24, 7, 1}, "mappable(x)"), Value(true));
  EXPECT_EQ(judge({1, 3, 1}, {0, 8, 0}, "mappable(x)"), Value(true));
  EXPECT_EQ(judge({5, 3, 4}, {24, 8, 1}, "mappable(x)", 8), Value(false));
  EXPECT_EQ(judge({5, 3, 4}, {24, 6, 1}, "mappable(x)"), Value(false));
  EXPECT_EQ(judge({5, 3, 4}, {0, 8, 1}, "mappable(x)"), Value(false));
  EXPECT_EQ(judge({5, 3, 4}, {-24, 8, 1}, "mappable(x)"), Value(false));
  EXPECT_EQ(judge({5, 3, 4}, {std::int64_t{1} << 38, 8, 1}, "mappable(x)"), Value(false));
}

// ---- a dim with a definition beside "X|1" ----

TEST(DefinedDims, AOneBroadcastsOverThem) {
  const Spec scaled = loaded(R"json({ "kernel": "scaled", "doc": "A product.",
    "dims": {"R": "rows", "H": {"doc": "pairs of rows", "value": "R / 2"}}, "types": {"E": ["f32"]},
    "inputs": [{"name": "x", "type": "E", "shape": ["R"], "doc": "d"}, {"name": "scale", "type": "E", "shape": ["H|1"], "doc": "d"}],
    "outputs": [{"name": "out", "type": "E", "shape": ["R"], "doc": "d"}],
    "cost": {"flops": "1", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json");
  CallFacts call;
  call.tensors["x"] = tensor(DType::f32, {6});
  for (const std::int64_t size : {1, 3}) {
    call.tensors["scale"] = tensor(DType::f32, {size});
    EXPECT_EQ(error_of(scaled, call), "no error");
    EXPECT_EQ(bind(scaled, call).dims.at("H"), 3);
  }
  call.tensors["scale"] = tensor(DType::f32, {2});
  EXPECT_EQ(error_of(scaled, call), "scaled: H = 2 (from scale), but its definition R / 2 gives 3");
}

}  // namespace
}  // namespace ejk::spec::binding_test

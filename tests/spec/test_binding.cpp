// Binding: dims, types and attributes of a call, and the exact message of every rule that bad input breaks.
#include <gtest/gtest.h>
#include <cmath>
#include <limits>
#include <random>

#include "spec/call/binding.hpp"
#include "spec/read/loader.hpp"

namespace ejk::spec::binding_test {
namespace {

const char* const attend_json = R"json({ "kernel": "attend", "doc": "A small attention.",
  "dims": {"B": "batch", "Sq": "queries", "Sk": "keys", "Hq": "query heads", "Hkv": "kv heads", "D": "head dim",
           "T": "tokens", "N": "sequences", "C": "rest", "G": {"doc": "group", "value": "Hq / Hkv"},
           "R": {"doc": "chunks", "value": "chunks(cum, 4)"}},
  "types": {"E": ["f32", "bf16"], "Eb": ["f32", "f16"]},
  "forms": [{"name": "packed", "when": "given(cum)", "doc": "End to end."}, {"name": "batched", "when": "true", "doc": "One length."}],
  "attributes": [
    {"name": "causal", "type": "bool", "default": false, "doc": "d"},
    {"name": "window", "type": "int", "default": -1, "doc": "d"},
    {"name": "scale", "type": "float", "default": "1 / sqrt(D)", "varies": true, "doc": "d"},
    {"name": "offset", "type": "int", "optional": true, "doc": "d"},
    {"name": "layout", "type": "string", "default": "HND", "choices": ["HND", "NHD"], "doc": "d"}],
  "inputs": [
    {"name": "q", "type": "E", "shape": {"batched": ["B", "Sq", "Hq", "D"], "packed": ["T", "Hq", "D"]}, "doc": "d"},
    {"name": "k", "type": "E", "shape": {"batched": ["B", "Sk", "Hkv", "D"], "packed": ["T", "Hkv", "D"]}, "doc": "d"},
    {"name": "bias", "type": "Eb", "optional": true, "shape": {"batched": ["B|1", "Hq|1", "Sq", "Sk"]}, "doc": "d"},
    {"name": "mask", "type": "bool", "optional": true, "shape": {"batched": ["B", "Sk"]}, "doc": "d"},
    {"name": "sinks", "type": "f32", "optional": true, "shape": {"any": [["Hq", "C"], ["C"]]}, "doc": "d"},
    {"name": "cum", "type": "i32", "optional": true, "fill": "offsets T", "shape": {"packed": ["N + 1"]}, "doc": "d"}],
  "outputs": [
    {"name": "out", "type": "E", "shape": {"batched": ["B", "Sq", "Hq", "D"], "packed": ["T", "Hq", "D"]}, "doc": "d"},
    {"name": "pairs", "type": "f32", "optional": true, "shape": {"batched": ["B", "ceil_div(Sq, 2)"]}, "doc": "d"}],
  "requires": [
    {"that": "Hkv > 0 ? Hq % Hkv == 0 : Hq == 0", "else": "Hq must be a multiple of Hkv; found Hq = ${Hq}, Hkv = ${Hkv}"},
    {"that": "scale >= 0", "else": "scale must not be negative; found ${scale}"},
    {"that": "first(cum) == 0", "reads": "cum", "else": "cum must start at 0; found ${first(cum)}"},
    {"that": "nondecreasing(cum)", "reads": "cum", "else": "cum must not decrease"},
    {"that": "last(cum) <= T", "reads": "cum", "else": "cum must end within q's ${T} tokens; found ${last(cum)}"}],
  "cost": {"flops": "1", "bytes": "1"}, "variants": [],
  "cases": [{"name": "one", "doc": "d", "E": "bf16", "B": 2, "Sq": 4, "Sk": 8, "Hq": 6, "Hkv": 2, "D": 64, "given": ["mask"]}],
  "tolerance": {
  "f32" : 1e-5, "bf16" : 8e-3
}
})json";

const char* const pool_json = R"json({ "kernel": "pool", "doc": "Trailing dims.",
  "dims": {"S": "tokens", "C": "features"}, "types": {"E": ["f32"]},
  "inputs": [{"name": "x", "type": "E", "shape": ["S", "C..."], "doc": "d"}],
  "outputs": [{"name": "out", "type": "E", "shape": ["C..."], "doc": "d"}],
  "cost": {"flops": "1", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json";

Spec loaded(const char* text) {
  std::vector<Fault> faults;
  auto spec = load_spec("specs/test.json", text, faults);
  for (const Fault& fault : faults) ADD_FAILURE() << fault.text();
  return spec.value_or(Spec{});
}

const Spec& attend() {
  static const Spec spec = loaded(attend_json);
  return spec;
}
const Spec& pool() {
  static const Spec spec = loaded(pool_json);
  return spec;
}

TensorFacts tensor(DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {}) {
  TensorFacts facts;
  facts.type = type;
  facts.shape = std::move(shape);
  facts.strides = std::move(strides);
  return facts;
}

CallFacts batched() {
  CallFacts call;
  call.tensors["q"] = tensor(DType::f32, {2, 4, 6, 64});
  call.tensors["k"] = tensor(DType::f32, {2, 8, 2, 64});
  call.tensors["out"] = tensor(DType::f32, {2, 4, 6, 64});
  return call;
}

CallFacts packed(const std::vector<std::int32_t>& cum) {
  CallFacts call;
  call.tensors["q"] = tensor(DType::f32, {10, 6, 64});
  call.tensors["k"] = tensor(DType::f32, {10, 2, 64});
  call.tensors["cum"] = tensor(DType::i32, {static_cast<std::int64_t>(cum.size())});
  call.tensors["cum"].host_data = cum.data();
  return call;
}

std::string error_of(const Spec& spec, CallFacts call) {
  try {
    const Binding binding = bind(spec, std::move(call));
    check_live_requirements(binding);
  } catch (const CallError& e) {
    EXPECT_EQ(e.kind(), CallError::Kind::bad_input);
    return e.what();
  }
  return "no error";
}

Value value_of(const Binding& binding, const char* expression) { return Expression::parse(expression).evaluate(binding); }

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

TEST(BadInput, UnknownNames) {
  CallFacts call = batched();
  call.tensors["biass"] = tensor(DType::f32, {1});
  EXPECT_EQ(error_of(attend(), call), "attend: there is no tensor 'biass'; did you mean 'bias'?");
  call = batched();
  call.attributes["casual"] = true;
  EXPECT_EQ(error_of(attend(), call), "attend: there is no attribute 'casual'; did you mean 'causal'?");
}

TEST(BadInput, MissingInput) {
  CallFacts call = batched();
  call.tensors.erase("k");
  EXPECT_EQ(error_of(attend(), call), "attend: input k is missing in the batched form, expected [B, Sk, Hkv, D]");
}

TEST(BadInput, TensorThatTheFormDoesNotTake) {
  const std::vector<std::int32_t> cum = {0, 10};
  CallFacts call = packed(cum);
  call.tensors["mask"] = tensor(DType::boolean, {2, 8});
  EXPECT_EQ(error_of(attend(), call), "attend: mask is given, but it is not accepted in the packed form");
}

TEST(BadInput, Attributes) {
  const auto with = [](const char* name, Value value) {
    CallFacts call = batched();
    call.attributes[name] = std::move(value);
    return error_of(attend(), call);
  };
  EXPECT_EQ(with("window", std::string("wide")), "attend: attribute window is 'wide' (string), expected an integer");
  EXPECT_EQ(with("causal", std::int64_t{1}), "attend: attribute causal is 1 (integer), expected a boolean");
  EXPECT_EQ(with("window", 2.5), "attend: attribute window is 2.5 (float), expected an integer");
  EXPECT_EQ(with("scale", std::nan("")), "attend: attribute scale is nan, expected a finite number");
  EXPECT_EQ(with("scale", std::numeric_limits<double>::infinity()), "attend: attribute scale is inf, expected a finite number");
  EXPECT_EQ(with("scale", -2.0), "attend: scale must not be negative; found -2.0");
  EXPECT_EQ(with("layout", std::string("XYZ")), "attend: attribute layout is 'XYZ', expected one of HND, NHD");
}

TEST(BadInput, Types) {
  CallFacts call = batched();
  call.tensors["q"].type = DType::i32;
  EXPECT_EQ(error_of(attend(), call), "attend: q has type i32, expected one of f32, bf16");
  call = batched();
  call.tensors["k"].type = DType::bf16;
  EXPECT_EQ(error_of(attend(), call), "attend: k has type bf16, expected f32 (the type of q)");
  call = batched();
  call.tensors["mask"] = tensor(DType::u8, {2, 8});
  EXPECT_EQ(error_of(attend(), call), "attend: mask has type u8, expected bool");
}

TEST(BadInput, RankAndSizes) {
  CallFacts call = batched();
  call.tensors["q"].shape = {2, 4, 384};
  EXPECT_EQ(error_of(attend(), call), "attend: q has shape [2, 4, 384], expected [B, Sq, Hq, D]: it has 3 dimensions");
  call = batched();
  call.tensors["sinks"] = tensor(DType::f32, {1, 1, 1});
  EXPECT_EQ(error_of(attend(), call), "attend: sinks has shape [1, 1, 1], expected [Hq, C] or [C]: it has 3 dimensions");
  call = batched();
  call.tensors["q"].shape = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(error_of(attend(), call), "attend: q has 9 dimensions, expected at most 8");
  call = batched();
  call.tensors["q"].shape = {2, -4, 6, 64};
  EXPECT_EQ(error_of(attend(), call), "attend: q has shape [2, -4, 6, 64]: dimension 1 is -4, expected 0 or more");
  call = batched();
  call.tensors["k"].shape = {2, 8, 2, 32};
  EXPECT_EQ(error_of(attend(), call),
            "attend: k has shape [2, 8, 2, 32], expected [B, Sk, Hkv, D] with D = 64 (from q): dimension 3 is 32");
}

TEST(BadInput, SizesThatFollowFromOthers) {
  const std::vector<std::int32_t> none;
  CallFacts call = packed(none);
  EXPECT_EQ(error_of(attend(), call), "attend: cum has shape [0], expected [N + 1]: dimension 0 is 0, expected at least 1");
  call = batched();
  call.tensors["pairs"] = tensor(DType::f32, {2, 3});
  EXPECT_EQ(error_of(attend(), call),
            "attend: pairs has shape [2, 3], expected [B, ceil_div(Sq, 2)] with ceil_div(Sq, 2) = 2: dimension 1 is 3");
}

TEST(BadInput, OutputOfAnotherShape) {
  CallFacts call = batched();
  call.tensors["out"].shape = {2, 4, 6, 32};
  EXPECT_EQ(error_of(attend(), call),
            "attend: out has shape [2, 4, 6, 32], expected [B, Sq, Hq, D] with D = 64 (from q): dimension 3 is 32");
}

TEST(BadInput, Strides) {
  CallFacts call = batched();
  call.tensors["q"].strides = {1536, 1, 256, 4};
  EXPECT_EQ(error_of(attend(), call),
            "attend: q has strides [1536, 1, 256, 4]: the innermost is 4, expected 1 (copy it into a contiguous tensor)");
  call = batched();
  call.tensors["q"].strides = {64, 1};
  EXPECT_EQ(error_of(attend(), call), "attend: q has 2 strides, expected 4, one a dimension of its shape [2, 4, 6, 64]");
  call = batched();
  call.tensors["q"].strides = {std::int64_t{1} << 62, 384, 64, 1};
  EXPECT_EQ(error_of(attend(), call),
            "attend: q has shape [2, 4, 6, 64] and strides [4611686018427387904, 384, 64, 1], which span more than 2^63 bytes");
}

TEST(BadInput, OutputThatOverlapsItself) {
  CallFacts call = batched();
  call.tensors["out"].strides = {0, 384, 64, 1};
  EXPECT_EQ(
      error_of(attend(), call),
      "attend: output out has shape [2, 4, 6, 64] and strides [0, 384, 64, 1]: its elements overlap, expected memory of its own for each");
  call.tensors["out"].strides = {1536, 384, 63, 1};
  EXPECT_NE(error_of(attend(), call), "no error");
  call.tensors["out"].strides = {1536, 384, 64, 1};
  EXPECT_EQ(error_of(attend(), call), "no error");
}

TEST(BadInput, OutputThatOverlapsAnInput) {
  CallFacts call = batched();
  const std::uintptr_t bytes = 2 * 4 * 6 * 64 * 4;
  call.tensors["q"].address = 4096;
  call.tensors["out"].address = 4096 + bytes - 4;
  EXPECT_EQ(error_of(attend(), call), "attend: output out overlaps input q in memory, expected memory of its own");
  call.tensors["out"].address = 4096 + bytes;
  EXPECT_EQ(error_of(attend(), call), "no error");
}

TEST(BadInput, RulesOfTheSpec) {
  CallFacts call = batched();
  call.tensors["k"].shape = {2, 8, 4, 64};
  EXPECT_EQ(error_of(attend(), call), "attend: Hq must be a multiple of Hkv; found Hq = 6, Hkv = 4");
}

TEST(BadInput, RulesThatReadData) {
  const std::vector<std::int32_t> late = {1, 3, 10}, down = {0, 5, 3}, long_ = {0, 3, 11};
  EXPECT_EQ(error_of(attend(), packed(late)), "attend: cum must start at 0; found 1");
  EXPECT_EQ(error_of(attend(), packed(down)), "attend: cum must not decrease");
  EXPECT_EQ(error_of(attend(), packed(long_)), "attend: cum must end within q's 10 tokens; found 11");
  CallFacts on_device = packed(late);
  on_device.tensors["cum"].host_data = nullptr;
  EXPECT_EQ(error_of(attend(), on_device), "no error");  // trusted where it cannot be read
}

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

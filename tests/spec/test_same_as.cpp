// Kernels that are served by another's variants: what they must have in common, and what the variants then see.
#include <gtest/gtest.h>

#include "spec/check/check_names.hpp"
#include "spec/read/loader.hpp"
#include "spec/read/same_as.hpp"
#include "spec/render/image.hpp"

namespace ejk::spec::same_as_test {
namespace {

const std::string shift_json =
    R"json({ "kernel": "shift", "doc": "Adds numbers.", "dims": {"N": "rows", "C": "features", "M": "of y alone"},
  "types": {"E": ["f32", "bf16"]},
  "attributes": [
    {"name": "by", "type": "int", "optional": true, "doc": "d"}, {"name": "times", "type": "int", "default": 3, "doc": "d"},
    {"name": "sign", "type": "bool", "doc": "d"}],
  "inputs": [{"name": "x", "type": "E", "shape": ["N", "C"], "doc": "d"}, {"name": "y", "type": "E", "optional": true, "shape": ["M"], "doc": "d"}],
  "outputs": [{"name": "out", "type": "E", "shape": ["N", "C"], "doc": "d"}],
  "cost": {"flops": "N", "bytes": "N"},
  "variants": [{"name": "plain", "archs": ["cpu:generic"], "template": "shift/forward.cpu.cpp", "supports": "contiguous(y)", "specialize": {"E": "E", "moved": "given(by)", "with_y": "given(y)"},
    "launches": [{"entry": "shift", "grid": ["N * times"], "args": ["x", "y", "view(y)", "out", "times", "given(by) ? by : 0"]}]}],
  "cases": [], "tolerance": {"f32": 1e-5} })json";

std::string move_json(const std::string& attributes, const std::string& inputs, const std::string& same_as) {
  return R"json({ "kernel": "move", "doc": "Adds the number of rows.", "dims": {"N": "rows", "C": "features"}, "types": {"E": ["f32"]},
  "attributes": [)json" +
         attributes + R"json(], "inputs": [)json" + inputs + R"json(],
  "outputs": [{"name": "out", "type": "E", "shape": ["N", "C"], "doc": "d"}],
  "cost": {"flops": "N", "bytes": "N"}, "same_as": )json" +
         same_as + R"json(, "cases": [], "tolerance": {"f32": 1e-5} })json";
}

const std::string x = R"json({"name": "x", "type": "E", "shape": ["N", "C"], "doc": "d"})json";
const std::string sign = R"json({"name": "sign", "type": "bool", "doc": "d"})json";

Spec loaded(const std::string& text) {
  std::vector<Fault> faults;
  auto spec = load_spec("move.json", text, faults);
  if (!spec) throw SpecError(faults);
  return *std::move(spec);
}

Spec served(const std::string& same_as = R"({"kernel": "shift", "attributes": {"by": "2 * N"}})") {
  Spec spec = loaded(move_json(sign, x, same_as));
  std::vector<Fault> faults;
  check_same_as(spec, loaded(shift_json), faults);
  if (!faults.empty()) throw SpecError(faults);
  serve(spec, std::make_shared<const Spec>(loaded(shift_json)));
  return spec;
}

// The faults, one a line.
std::string faults_of(const std::string& text) {
  std::vector<Fault> faults;
  const auto spec = load_spec("move.json", text, faults);
  if (spec) check_same_as(*spec, loaded(shift_json), faults);
  std::string all;
  for (const Fault& fault : faults) all += fault.where + ": " + fault.sentence + "\n";
  return all;
}

CallFacts facts() {
  CallFacts facts;
  for (const char* name : {"x", "out"}) facts.tensors[name] = {DType::f32, {3, 2}, {2, 1}, 64, nullptr, 0};
  facts.attributes["sign"] = true;
  return facts;
}

Arch generic() { return {"generic", "d", "cpu", "", {}, {}, "", {}, {}, ""}; }

TEST(SameAs, GivesTheVariantsTheirNames) {
  const Spec spec = served();
  const Binding binding = bind(spec, facts());
  const Arch arch = generic();
  EXPECT_EQ(refusal(spec.variants.at(0), arch, binding), std::nullopt);
  const VariantScope scope(spec.variants[0], arch, binding);
  EXPECT_EQ(image_id(scope, {}), "shift.plain.cpu_generic.f32.moved");
  const Geometry geometry = geometry_of(spec.variants[0], arch, binding, {});
  EXPECT_EQ(geometry.launches.at(0).grid[0], 9);                                   // the other's default
  EXPECT_EQ(geometry.launches[0].arguments.back().value, Value(std::int64_t{6}));  // the value that no call gives
}

TEST(SameAs, ImagesAreThoseOfTheOther) {
  const Spec shift = loaded(shift_json), move = served();
  CallFacts plain = facts();
  plain.attributes["by"] = std::int64_t{4};
  const Binding there = bind(shift, plain), here = bind(move, facts());
  const Arch arch = generic();
  EXPECT_EQ(image_id(VariantScope(shift.variants.at(0), arch, there), {}), image_id(VariantScope(move.variants.at(0), arch, here), {}));
}

TEST(SameAs, CallsKnowNothingOfTheOther) {
  const Spec spec = served();
  CallFacts with_y = facts();
  with_y.tensors["y"] = {DType::f32, {3}, {1}, 64, nullptr, 0};
  EXPECT_THROW(bind(spec, with_y), CallError);
  CallFacts with_times = facts();
  with_times.attributes["times"] = std::int64_t{1};
  EXPECT_THROW(bind(spec, with_times), CallError);
}

TEST(SameAs, WhatTheOtherNeedsMustBeThere) {
  EXPECT_EQ(faults_of(move_json("", x, R"({"kernel": "shift"})")), "/same_as/attributes: shift needs the attribute sign\n");
  const std::string optional = R"json({"name": "x", "type": "E", "optional": true, "shape": ["N", "C"], "doc": "d"})json";
  EXPECT_EQ(faults_of(move_json(sign, optional, R"({"kernel": "shift"})")),
            "/same_as/kernel: shift needs x, which no call here is sure to have\n");
}

TEST(SameAs, WhatIsThereMustBeTheOthers) {
  const std::string z = x + R"json(, {"name": "z", "type": "E", "shape": ["N", "C"], "doc": "d"})json";
  EXPECT_EQ(faults_of(move_json(sign, z, R"({"kernel": "shift"})")), "/inputs/1: shift has no tensor 'z'; known: x, y, out\n");
  const std::string y = x + R"json(, {"name": "y", "type": "i32", "shape": ["N"], "doc": "d"})json";
  EXPECT_EQ(faults_of(move_json(sign, y, R"({"kernel": "shift"})")), "/inputs/1: in shift 'y' is an input of type E\n");
  const std::string times = sign + R"json(, {"name": "times", "type": "float", "default": 1, "doc": "d"})json";
  EXPECT_EQ(faults_of(move_json(times, x, R"({"kernel": "shift"})")),
            "/attributes/1: the attribute 'times' is declared otherwise in shift\n");
  EXPECT_EQ(faults_of(move_json(sign, x, R"({"kernel": "shift", "attributes": {"sign": true}})")),
            "/same_as/attributes/sign: 'sign' is an attribute of the call, too\n");
  EXPECT_EQ(faults_of(move_json(sign, x, R"({"kernel": "shift", "attributes": {"bye": 1}})")),
            "/same_as/attributes/bye: shift has no attribute 'bye'; did you mean 'by'?\n");
}

TEST(SameAs, StandsInPlaceOfVariants) {
  std::string both = move_json(sign, x, R"({"kernel": "shift"}, "variants": [])");
  EXPECT_EQ(faults_of(both), "/same_as: a kernel that is served by another has no 'variants'\n");
  std::string neither = move_json(sign, x, "{}");
  neither.replace(neither.find(R"("same_as": {}, )"), 15, "");
  EXPECT_EQ(faults_of(neither), ": the field 'variants' is missing, and there is no 'same_as'\n");
}

}  // namespace
}  // namespace ejk::spec::same_as_test

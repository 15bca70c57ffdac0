// Gradients as lists of calls, types that follow from others, and the least element of host data.
#include <gtest/gtest.h>

#include "spec/call/gradient.hpp"
#include "spec/read/loader.hpp"

namespace ejk::spec::gradient_test {
namespace {

// Rows times a factor each: the gradient of x is a call of the kernel itself, that of the factors one of another, that of `add` is there.
const std::string scale_json = R"json({ "kernel": "scale", "doc": "Rows times factors.",
  "dims": {"N": "rows", "C": "features"},
  "types": {"E": ["f32", "bf16"], "O": {"any": ["f32", "bf16"], "default": "E"}},
  "attributes": [{"name": "times", "type": "int", "default": 1, "doc": "d"}],
  "inputs": [
    {"name": "x", "type": "E", "shape": ["N", "C"], "doc": "d"}, {"name": "factors", "type": "i32", "shape": ["N"], "doc": "d"},
    {"name": "add", "type": "O", "optional": true, "shape": ["N", "C"], "doc": "d"}],
  "outputs": [{"name": "out", "type": "O", "shape": ["N", "C"], "doc": "d"}],
  "requires": [{"that": "N == 0 or smallest(factors) >= 0", "reads": "factors", "else": "factors must not be negative; found ${smallest(factors)}"}],
  "gradient": [
    {"kernel": "scale", "tensors": {"x": "dout", "factors": "factors", "out": "dx"}, "attributes": {"times": "times + N"}},
    {"kernel": "dots", "tensors": {"a": "x", "out": "dfactors"}},
    {"tensor": "dadd", "is": "dout"}],
  "cost": {"flops": "N", "bytes": "N"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5, "bf16": 1e-2} })json";

const std::string dots_json = R"json({ "kernel": "dots", "doc": "Products of rows.", "dims": {"N": "rows", "C": "features"},
  "inputs": [{"name": "a", "type": "f32", "shape": ["N", "C"], "doc": "d"}, {"name": "b", "type": "f32", "shape": ["N", "C"], "doc": "d"}],
  "outputs": [{"name": "out", "type": "f32", "shape": ["N"], "doc": "d"}],
  "cost": {"flops": "N", "bytes": "N"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5} })json";

Spec loaded(const std::string& text) {
  std::vector<Fault> faults;
  auto spec = load_spec("x.json", text, faults);
  if (!spec) throw SpecError(faults);
  return *std::move(spec);
}

CallFacts facts() {
  CallFacts facts;
  facts.tensors["x"] = {DType::bf16, {3, 2}, {2, 1}, 64, nullptr, 0};
  facts.tensors["factors"] = {DType::i32, {3}, {1}, 64, nullptr, 0};
  return facts;
}

TEST(GradientOfCalls, StepsAreReadInOrder) {
  const Spec spec = loaded(scale_json);
  ASSERT_EQ(spec.gradient.size(), 3U);
  EXPECT_TRUE(spec.gradient[0].mapped);
  EXPECT_EQ(spec.gradient[1].tensors[1], (std::pair<std::string, std::string>{"out", "dfactors"}));
  EXPECT_EQ(spec.gradient[2].kernel, "");
  EXPECT_EQ(spec.gradient[2].is, "dout");
  EXPECT_EQ(gradient_kernels(spec), (std::vector<std::string>{"scale", "dots"}));
  EXPECT_EQ(differentiated(spec, "dx"), "x");
  EXPECT_EQ(differentiated(spec, "add_grad"), "add");
  EXPECT_EQ(differentiated(spec, "x"), "");
}

TEST(GradientOfCalls, AttributesAreExpressionsOfTheCall) {
  const Spec spec = loaded(scale_json);
  const Binding binding = bind(spec, facts());
  EXPECT_EQ(gradient_attributes(spec.gradient[0], binding), (std::map<std::string, Value>{{"times", std::int64_t{4}}}));
}

TEST(GradientOfCalls, TheKernelsCalledAreHeldAgainstTheirSpecs) {
  const Spec scale = loaded(scale_json), dots = loaded(dots_json);
  std::vector<Fault> faults;
  check_gradient(scale, {"scale", "dots"}, faults);
  check_gradient_calls(scale, scale, faults);
  EXPECT_TRUE(faults.empty()) << faults.front().text();
  check_gradient_calls(scale, dots, faults);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].text(), "x.json:/gradient/1/tensors: dots needs b, and the call does not say which tensor that is");
}

TEST(TypeDefaults, AnOutputThatIsYetToBeMadeTakesTheOtherType) {
  const Spec spec = loaded(scale_json);
  EXPECT_EQ(output_facts(bind(spec, facts()), *spec.tensor("out")).type, DType::bf16);
  CallFacts given = facts();
  given.tensors["out"] = {DType::f32, {3, 2}, {2, 1}, 64, nullptr, 0};
  EXPECT_EQ(bind(spec, given).types.at("O"), "f32");
}

TEST(HostData, TheSmallestElementIsJudgedWhereItCanBeRead) {
  const Spec spec = loaded(scale_json);
  const std::int32_t good[] = {4, 0, 2}, bad[] = {4, -7, 2};
  CallFacts call = facts();
  check_live_requirements(bind(spec, call));  // not readable: trusted
  call.tensors["factors"].host_data = good;
  check_live_requirements(bind(spec, call));
  call.tensors["factors"].host_data = bad;
  try {
    check_live_requirements(bind(spec, call));
    FAIL();
  } catch (const CallError& error) {
    EXPECT_STREQ(error.what(), "scale: factors must not be negative; found -7");
  }
}

}  // namespace
}  // namespace ejk::spec::gradient_test

// What outputs are held to: their type's tolerance, or a type's that the spec names for a call.
#include "binding_fixture.hpp"
#include "spec/call/tolerance.hpp"
#include "spec/check/check_names.hpp"

namespace ejk::spec::binding_test {
namespace {

std::string grow(const std::string& precision) {
  return R"json({ "kernel": "grow", "doc": "d", "dims": {"N": "rows"}, "types": {"E": ["f32", "f16", "bf16"], "Es": ["f32", "bf16"]},
  "attributes": [{"name": "exact", "type": "bool", "default": true, "doc": "d"}],
  "inputs": [{"name": "x", "type": "E", "shape": ["N"], "doc": "d"}],
  "outputs": [{"name": "out", "type": "E", "shape": ["N"], "doc": "d"},
              {"name": "sums", "type": "Es", "shape": ["N"], "precision": ")json" +
         precision + R"json(", "doc": "d"}],
  "cost": {"flops": "1", "bytes": "1"}, "variants": [], "cases": [], "tolerance": {"f32": 1e-5, "f16": 1e-3, "bf16": 8e-3} })json";
}

double held_to(DType type, DType sums, bool exact, const char* output) {
  static const Spec spec = loaded(grow("exact ? 'f32' : E").c_str());
  const TensorFacts x{type, {3}, {1}}, out{type, {3}, {1}}, other{sums, {3}, {1}};
  const Binding call = bind(spec, {{{"x", x}, {"out", out}, {"sums", other}}, {{"exact", exact}}});
  return tolerance_of(call, output, output == std::string("sums") ? sums : type);
}

TEST(Tolerance, IsTheElementTypes) {
  EXPECT_EQ(held_to(DType::f32, DType::f32, false, "out"), 1e-5);
  EXPECT_EQ(held_to(DType::bf16, DType::f32, true, "out"), 8e-3);
}

TEST(Tolerance, OfAPrecisionTheLarger) {
  EXPECT_EQ(held_to(DType::bf16, DType::f32, true, "sums"), 1e-5);
  EXPECT_EQ(held_to(DType::bf16, DType::f32, false, "sums"), 8e-3);
  EXPECT_EQ(held_to(DType::f16, DType::f32, false, "sums"), 1e-3);
  EXPECT_EQ(held_to(DType::f16, DType::bf16, false, "sums"), 8e-3);
  EXPECT_EQ(held_to(DType::f32, DType::bf16, true, "sums"), 8e-3);
  EXPECT_EQ(held_to(DType::f32, DType::f32, false, "sums"), 1e-5);
}

TEST(Tolerance, APrecisionOfNoSuchTypeIsAnError) {
  const Spec spec = loaded(grow("exact ? 'f32' : 'f8'").c_str());
  const TensorFacts x{DType::f32, {3}, {1}};
  const Binding call = bind(spec, {{{"x", x}, {"out", x}, {"sums", x}}, {{"exact", false}}});
  try {
    tolerance_of(call, "sums", DType::f32);
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "grow: no tolerance for f8, the type of sums");
  }
}

TEST(Tolerance, APrecisionNamesWhatThereIs) {
  std::vector<Fault> faults;
  const auto spec = load_spec("specs/test.json", grow("exakt ? 'f32' : E"), faults);
  ASSERT_TRUE(spec);
  check_contract(*spec, faults);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_NE(faults[0].text().find("unknown name 'exakt' in the precision of 'sums'; did you mean 'exact'?"), std::string::npos)
      << faults[0].text();
}

}  // namespace
}  // namespace ejk::spec::binding_test

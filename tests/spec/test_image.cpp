// Images: ids, sources, what templates may see, config spaces and launch geometry.
#include <gtest/gtest.h>
#include <functional>

#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"
#include "spec/render/sha256.hpp"
#include "spec/render/source_hash.hpp"
#include "tests/paths.hpp"

namespace ejk::spec {
namespace {

const std::string data = test::source_dir() + "/tests/generator/data";

class ImageTest : public testing::Test {
 protected:
  ImageTest() : catalogue_(Catalogue::load(data + "/specs", data + "/templates")), spec_(*catalogue_.kernel("scale")) {}

  Binding bound(const char* case_name) const { return bind(spec_, facts_of(spec_, *spec_.find_case(case_name))); }
  const Variant& variant() const { return spec_.variants.at(0); }
  const Arch& arch() const { return *catalogue_.arch("cpu:avx2"); }
  Image image(const Binding& binding, const Variant& variant, const Config& config) const {
    return make_image(spec_, variant, arch(), binding, config, catalogue_.templates());
  }

  Catalogue catalogue_;
  Spec spec_;
};

const Config small_config = {{"block", std::int64_t{16}}, {"unroll", std::int64_t{1}}};

TEST_F(ImageTest, TheIdNamesEverythingThatMakesTheImage) {
  EXPECT_EQ(image(bound("small.bf16"), variant(), small_config).id, "scale.rows.cpu_avx2.bf16.masked.b16_unroll1");
  EXPECT_EQ(image(bound("large"), variant(), small_config).id, "scale.rows.cpu_avx2.f32.b16_unroll1");
}

TEST_F(ImageTest, IdsWriteNegativeNumbersAndWordsInTheirLetters) {
  Variant changed = variant();
  changed.specialize = {{"T", Expression::parse("T")},
                        {"None", Expression::parse("'none'")},
                        {"Left", Expression::parse("0 - 5")},
                        {"layout", Expression::parse("'N H-D'")},
                        {"Half", Expression::parse("0.5")}};
  const Binding binding = bound("small.f32");
  EXPECT_EQ(image_id(VariantScope(changed, arch(), binding), {}), "scale.rows.cpu_avx2.f32.leftn5_n_h_d_half0p5");
}

TEST_F(ImageTest, OneImageHasOneSource) {
  const Image one = image(bound("small.f32"), variant(), small_config), two = image(bound("small.f32"), variant(), small_config);
  EXPECT_EQ(one.source, two.source);
  EXPECT_EQ(one.hash, source_hash(one.source));
  EXPECT_EQ(one.file, "scale/" + one.id + ".cpp");
  EXPECT_EQ(one.flags, std::vector<std::string>{"-march=x86-64-v3"});
}

TEST_F(ImageTest, HashesAreSha256) { EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); }

TEST_F(ImageTest, TheBannerSaysWhereEveryValueCameFrom) {
  const std::string source = image(bound("small.bf16"), variant(), small_config).source;
  for (const char* line :
       {"// scale.rows.cpu_avx2.bf16.masked.b16_unroll1\n", "// spec      specs/scale.json /variants/0\n",
        "// template  templates/scale/rows.cpu.cpp\n", "// arch      cpu:avx2\n", "// flags     -march=x86-64-v3\n",
        "//   T = bf16   specialize: T\n", "//   masked = true   specialize: given(mask)\n", "//   block = 16   config, one of: 16, 64\n",
        "//   lanes = 16   let: arch.vector_bytes / size(T)\n", "//   items   let, differs from call to call: ceil_div(R, block)\n"})
    EXPECT_NE(source.find(line), std::string::npos) << line;
  EXPECT_EQ(source.find(test::source_dir()), std::string::npos);
}

TEST_F(ImageTest, ParametersAndEntryPointFollowFromTheLaunch) {
  const std::string source = image(bound("small.bf16"), variant(), small_config).source;
  EXPECT_NE(
      source.find("static void scale(const bfloat16* x, const bool* mask, bfloat16* out, float* sums, int64_t R, int64_t C, float factor, "
                  "float a7, const Group& group) {\n"),
      std::string::npos);
  EXPECT_NE(source.find("void ejk_scale([[maybe_unused]] void* const* arguments, const Group* group) {\n"), std::string::npos);
}

// The faults that the work throws.
std::string fault_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const SpecError& e) {
    return e.what();
  }
  return "no fault";
}

TEST_F(ImageTest, ATemplateSeesNothingOfTheCall) {
  const Binding binding = bound("small.f32");
  VariantScope scope(variant(), arch(), binding);
  scope.set_config(small_config);
  const auto rendered = [&](const char* text) {
    return fault_of([&] { Template::parse("t", text).render(scope, catalogue_.templates()); });
  };
  EXPECT_EQ(rendered("${R}${items}"), "no fault");
  scope.close();
  EXPECT_EQ(rendered("${block}${lanes}${masked}${arch.vector_bytes}${arch.name}"), "no fault");
  EXPECT_EQ(rendered("${R}"),
            "t:1: `R`: R is a fact of the call, not of the image, which serves many calls; name it in the variant's specialize");
  EXPECT_EQ(
      rendered("${items}"),
      "t:1: `items`: let items: R is a fact of the call, not of the image, which serves many calls; name it in the variant's specialize");
  EXPECT_EQ(
      rendered("${given(x)}"),
      "t:1: `given(x)`: given(x) is a fact of the call, not of the image, which serves many calls; name it in the variant's specialize");
  EXPECT_EQ(rendered("${blok}"), "t:1: `blok`: unknown name 'blok'; did you mean 'block'?");
}

// Launches have the machine's numbers, so that a specialisation must have them too: else an image would be launched on another's grid.
TEST_F(ImageTest, SpecialisationsFollowTheMachineAndTemplatesWhatIsListed) {
  Arch here = arch();
  for (const char* const measured : {"shared_memory", "sms"}) here.replaced[measured] = here.properties[measured] = std::int64_t{32};
  here.properties["shared_memory"] = here.properties["sms"] = std::int64_t{64};
  Variant changed = variant();
  changed.specialize.push_back({"wide", Expression::parse("arch.shared_memory / 4")});
  changed.specialize.push_back({"many", Expression::parse("arch.sms + 1")});
  const Binding binding = bound("small.f32");
  VariantScope scope(changed, here, binding);
  scope.set_config(small_config);
  EXPECT_EQ(*scope.lookup("wide"), Value(std::int64_t{16}));
  EXPECT_EQ(*scope.lookup("many"), Value(std::int64_t{65}));
  EXPECT_EQ(*scope.lookup("arch.shared_memory"), Value(std::int64_t{64}));
  EXPECT_EQ(*scope.lookup("arch.listed.shared_memory"), Value(std::int64_t{32}));
  scope.close();
  EXPECT_EQ(*scope.lookup("wide"), Value(std::int64_t{16}));
  EXPECT_EQ(*scope.lookup("arch.listed.shared_memory"), Value(std::int64_t{32}));
  EXPECT_EQ(*scope.lookup("arch.listed.vector_bytes"), *scope.lookup("arch.vector_bytes"));
  for (const char* const measured : {"arch.sms", "arch.shared_memory"}) EXPECT_THROW(scope.lookup(measured), ExpressionError) << measured;
}

TEST_F(ImageTest, ALetThatDependsOnItselfIsAnError) {
  Variant changed = variant();
  changed.let = {{"a", Expression::parse("b + 1")}, {"b", Expression::parse("a + 1")}};
  const Binding binding = bound("small.f32");
  VariantScope scope(changed, arch(), binding);
  scope.set_config(small_config);
  EXPECT_THROW(scope.lookup("a"), ExpressionError);
}

TEST_F(ImageTest, LaunchesThatShareAnEntryHaveTheSameParameters) {
  Variant changed = variant();
  changed.launches.push_back(changed.launches[0]);
  EXPECT_EQ(fault_of([&] { image(bound("small.f32"), changed, small_config); }), "no fault");
  changed.launches[1].arguments.pop_back();
  const std::string fault = fault_of([&] { image(bound("small.f32"), changed, small_config); });
  EXPECT_NE(fault.find("two launches of scale have different parameters: (const float* x, "), std::string::npos) << fault;
}

TEST_F(ImageTest, TheConfigSpaceHoldsWhatIsValid) {
  const Binding binding = bound("large");
  const auto space = config_space(variant(), arch(), binding);
  ASSERT_EQ(space.size(), 4u);  // 16 × 1, 64 × 1, 2, 4
  EXPECT_EQ(space[0], small_config);
  EXPECT_EQ(heuristic_config(variant(), arch(), binding), (Config{{"block", std::int64_t{64}}, {"unroll", std::int64_t{4}}}));
  EXPECT_EQ(heuristic_config(variant(), arch(), bound("small.f32")), small_config);
}

TEST_F(ImageTest, AnInvalidConfigNamesItsClause) {
  const Binding binding = bound("large");
  const auto clause = [&](Config config) { return invalid_clause(variant(), arch(), binding, config).value_or("valid"); };
  EXPECT_EQ(clause(small_config), "valid");
  EXPECT_EQ(clause({{"block", std::int64_t{16}}, {"unroll", std::int64_t{4}}}), "unroll * 16 <= block");
  EXPECT_EQ(clause({{"block", std::int64_t{3}}, {"unroll", std::int64_t{4}}}),
            "not in the config space: block = 3, expected one of 16, 64");
  EXPECT_EQ(clause({{"block", std::int64_t{16}}}), "not in the config space: unroll is missing");
}

TEST_F(ImageTest, AVariantNamesTheClauseThatRefusesACall) {
  CallFacts facts = facts_of(spec_, *spec_.find_case("small.f32"));
  EXPECT_EQ(refusal(variant(), arch(), bind(spec_, facts)), std::nullopt);
  facts.tensors["x"].strides = {100, 1};
  EXPECT_EQ(refusal(variant(), arch(), bind(spec_, facts)), "contiguous(x)");
}

TEST_F(ImageTest, GeometryIsEvaluatedForTheCall) {
  const Binding binding = bound("large");
  const Geometry geometry = geometry_of(variant(), arch(), binding, {{"block", std::int64_t{64}}, {"unroll", std::int64_t{4}}});
  ASSERT_EQ(geometry.launches.size(), 1u);
  EXPECT_EQ(geometry.launches[0].grid[0], 64);
  ASSERT_EQ(geometry.launches[0].arguments.size(), 8u);
  EXPECT_EQ(geometry.launches[0].arguments[4].value, Value(std::int64_t{4096}));
  EXPECT_EQ(geometry.launches[0].arguments[6].value, Value(1.0));
}

TEST_F(ImageTest, LaunchesWithAnEmptyGridAreLeftOut) {
  CallFacts facts = facts_of(spec_, *spec_.find_case("large"));
  for (auto& [name, tensor] : facts.tensors) tensor.shape[0] = 0;
  const Binding binding = bind(spec_, facts);
  EXPECT_TRUE(geometry_of(variant(), arch(), binding, small_config).launches.empty());
}

TEST_F(ImageTest, GeometryErrorsNameTheLaunch) {
  Variant changed = variant();
  changed.launches[0].grid = {Expression::parse("0 - R")};
  const Binding binding = bound("large");
  try {
    geometry_of(changed, arch(), binding, small_config);
    FAIL();
  } catch (const ExpressionError& e) {
    EXPECT_STREQ(e.what(), "scale.rows: launch scale: grid `0 - R` is -4096, expected 0 or more");
  }
}

}  // namespace
}  // namespace ejk::spec

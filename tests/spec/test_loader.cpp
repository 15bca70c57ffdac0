// The spec reader: what a good file becomes. What bad files become is in tests/generator/bad_specs.
#include <gtest/gtest.h>

#include "spec/read/archs.hpp"
#include "spec/read/fields.hpp"
#include "spec/read/files.hpp"
#include "spec/read/json.hpp"
#include "spec/read/loader.hpp"
#include "tests/growth.hpp"
#include "tests/paths.hpp"

namespace loader_test {
namespace {

using namespace ejk::spec;

const std::filesystem::path repository = ejk::test::source_dir();

std::vector<std::string> texts(const std::vector<Fault>& faults) {
  std::vector<std::string> lines;
  for (const Fault& fault : faults) lines.push_back(fault.text());
  return lines;
}

const Spec& good() {
  static const Spec spec = [] {
    std::vector<Fault> faults;
    auto read = load_spec("good.json", read_text(repository / "tests/generator/bad_specs/good.json"), faults);
    EXPECT_EQ(texts(faults), std::vector<std::string>{});
    return read.value_or(Spec());
  }();
  return spec;
}

TEST(Loader, KeepsTheOrderOfTheFile) {
  const Spec& spec = good();
  ASSERT_EQ(spec.dims.size(), 3u);
  EXPECT_EQ(spec.dims[0].name, "N");
  EXPECT_EQ(spec.dims[2].value.text(), "last(offsets)");
  ASSERT_EQ(spec.tensors.size(), 4u);
  EXPECT_EQ(spec.tensors[3].name, "out");
  EXPECT_TRUE(spec.tensors[3].output);
  ASSERT_EQ(spec.variants.size(), 1u);
  EXPECT_EQ(spec.variants[0].let[1].name, "bytes");
  EXPECT_EQ(spec.variants[0].pointer, "/variants/0");
}

TEST(Loader, ReadsEveryKindOfExtent) {
  const TensorSpec& factor = *good().tensor("factor");
  ASSERT_EQ(factor.shapes.size(), 2u);
  EXPECT_EQ(factor.shapes[0].extents.size(), 1u);
  EXPECT_EQ(factor.shapes[1].extents[1].kind, Extent::Kind::dim_or_one);
  const Shape& offsets = good().tensor("offsets")->shapes[0];
  EXPECT_EQ(offsets.form, "packed");
  EXPECT_EQ(offsets.extents[0].kind, Extent::Kind::expression);
  EXPECT_EQ(offsets.extents[0].dim, "L");
  EXPECT_EQ(offsets.extents[0].plus, 1);
}

TEST(Loader, ReadsLimits) {
  std::string text = read_text(repository / "tests/generator/bad_specs/good.json");
  const std::string before = "\"workspace\":";
  text.insert(text.find(before), "\"limits\": {\"spill_bytes\": 0, \"registers\": 168}, ");
  std::vector<Fault> faults;
  const auto spec = load_spec("good.json", text, faults);
  ASSERT_EQ(texts(faults), std::vector<std::string>{});
  EXPECT_EQ(spec->variants[0].limits, Resources({{"spill_bytes", 0}, {"registers", 168}}));
}

TEST(Loader, ExpandsListsOfACaseToEveryCombination) {
  std::vector<std::string> names;
  for (const Case& one : good().cases) names.push_back(one.name);
  EXPECT_EQ(names, (std::vector<std::string>{"small.f32.c64", "small.f32.c24", "small.bf16.c64", "small.bf16.c24"}));
  const Case* one = good().find_case("small.bf16.c24");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->types.at("E"), "bf16");
  EXPECT_EQ(one->dims.at("C"), Value(std::int64_t{24}));
  EXPECT_EQ(one->pointer, "/cases/0");
}

TEST(Loader, TellsPointersValuesAndViewsApart) {
  const auto& arguments = good().variants[0].launches[0].arguments;
  EXPECT_EQ(arguments[0].kind, Argument::Kind::pointer);
  EXPECT_EQ(arguments[2].kind, Argument::Kind::pointer);  // a workspace
  EXPECT_EQ(arguments[4].kind, Argument::Kind::value);
  EXPECT_EQ(arguments[4].name, "C");
}

TEST(Loader, QuotesTheDefaultOfAStringAttribute) {
  EXPECT_EQ(good().attribute("layout")->fallback.text(), "'rows'");
  EXPECT_TRUE(good().attribute("seed")->varies);
}

// An object of these fields, whose brace stays open.
std::string many_fields(int fields) {
  std::string text = "{";
  for (int i = 0; i < fields; ++i) text += (i ? ",\"f" : "\"f") + std::to_string(i) + "\":" + std::to_string(i);
  return text;
}

// An ordered object looks through its members for each name: for 40,000 of them that takes many seconds.
TEST(Loader, ObjectsOfManyFieldsAreReadInOneGo) {
  std::vector<Fault> faults;
  EXPECT_TRUE(ejk::test::grows_in_proportion(5'000, [&](int fields) { parse_json("many.json", many_fields(fields) + "}", faults); }));
  const auto text = many_fields(40'000);
  const auto tree = parse_json("many.json", text + "}", faults);
  ASSERT_TRUE(tree.has_value());
  EXPECT_EQ(tree->size(), 40'000u);
  EXPECT_EQ(tree->front(), Json(0)) << "in their order";
  EXPECT_EQ(tree->back(), Json(39'999));
  EXPECT_FALSE(parse_json("many.json", text + ",\"f3\":0}", faults).has_value());
  EXPECT_EQ(texts(faults), std::vector<std::string>{"many.json:/f3: the field 'f3' occurs twice in this object; keep one"});
}

TEST(Loader, ReadsEverySpecAndArchOfTheRepository) {
  std::vector<Fault> faults;
  for (const auto& path : json_files(repository / "specs").files) load_spec(path.filename().string(), read_text(path), faults);
  load_archs(repository / "specs/arch", faults, faults);
  EXPECT_EQ(texts(faults), std::vector<std::string>{});
}

// good.json with its cases replaced, and behind them the fields named.
std::string with_cases(const Json& cases, const std::vector<std::string>& behind) {
  Json spec = Json::parse(read_text(repository / "tests/generator/bad_specs/good.json")), last = {{"cases", cases}};
  for (const std::string& name : behind) last[name] = spec.at(name);
  spec.erase("cases");
  for (const std::string& name : behind) spec.erase(name);
  spec.update(last);
  return spec.dump(1);
}

TEST(Loader, ReadsASpecUpToItsCasesUntilTheyAreAskedFor) {
  std::vector<Fault> faults;
  const Json bad = {{{"name", "bad"}, {"unknown", 1}}};
  const auto spec = load_spec("x.json", with_cases(bad, {}), faults, Later::cases);
  ASSERT_TRUE(spec) << testing::PrintToString(texts(faults));
  EXPECT_EQ(spec->variants.size(), 1u);
  EXPECT_THROW(spec->cases.size(), SpecError);
  EXPECT_FALSE(load_spec("x.json", with_cases(bad, {}), faults));
}

TEST(Loader, ReadsFieldsBehindTheCasesToo) {
  const Json cases = Json::parse(read_text(repository / "tests/generator/bad_specs/good.json")).at("cases");
  for (const std::vector<std::string>& behind :
       {std::vector<std::string>{"tolerance"}, {"variants"}, {"tolerance", "variants", "inputs"}}) {
    std::vector<Fault> faults;
    const auto spec = load_spec("x.json", with_cases(cases, behind), faults, Later::cases);
    ASSERT_TRUE(spec) << testing::PrintToString(texts(faults));
    EXPECT_EQ(texts(faults), std::vector<std::string>{});
    EXPECT_EQ(spec->variants.size(), 1u);
    EXPECT_EQ(spec->tensors.size(), 4u);
    EXPECT_FALSE(spec->tolerance.empty());
    EXPECT_EQ(spec->cases.size(), 4u);
  }
}

TEST(Loader, GivesTheLineOfASyntaxError) {
  std::vector<Fault> faults;
  EXPECT_FALSE(load_spec("x.json", "{\n  \"kernel\": ]\n}", faults));
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].where, "2:13");
}

TEST(Loader, SurvivesWhatIsNoSpec) {
  for (const char* text :
       {"", "[]", "3", "null", "\"x\"", "{", "{\"variants\": [3, null, {}], \"cases\": [[]], \"dims\": 3}", "\xff\xfe"}) {
    std::vector<Fault> faults;
    EXPECT_FALSE(load_spec("x.json", text, faults)) << text;
    EXPECT_FALSE(faults.empty()) << text;
    faults.clear();
    EXPECT_FALSE(load_arch("x.json", text, faults)) << text;
    EXPECT_FALSE(faults.empty()) << text;
  }
  std::vector<Fault> faults;
  EXPECT_FALSE(load_spec("x.json", std::string(100000, '['), faults));
  EXPECT_EQ(faults.size(), 1u);
}

TEST(Json, EscapesPointers) { EXPECT_EQ(pointer_to("/a", "b/c~d"), "/a/b~1c~0d"); }

Arch arch_of(const std::string& name, const std::string& extends) {
  Arch arch;
  arch.name = name;
  arch.platform = "cpu";
  arch.extends = extends;
  arch.file = name + ".json";
  return arch;
}

TEST(Archs, InheritFeaturesAndPropertiesButNotFlags) {
  Arch parent = arch_of("parent", ""), child = arch_of("child", "parent");
  parent.requires_features = {"avx"};
  parent.flags = {"-mavx"};
  parent.machine = "x86_64";
  parent.properties = {{"lanes", std::int64_t{4}}, {"registers", std::int64_t{16}}};
  child.requires_features = {"fma"};
  child.properties = {{"lanes", std::int64_t{8}}};
  std::vector<Fault> faults;
  const auto archs = resolve_archs({child, parent}, faults);
  EXPECT_EQ(texts(faults), std::vector<std::string>{});
  const Arch& resolved = archs.at("cpu:child");
  EXPECT_EQ(resolved.requires_features, (std::vector<std::string>{"avx", "fma"}));
  EXPECT_EQ(resolved.properties.at("lanes"), Value(std::int64_t{8}));
  EXPECT_EQ(resolved.properties.at("registers"), Value(std::int64_t{16}));
  EXPECT_TRUE(resolved.flags.empty());
  EXPECT_EQ(resolved.machine, "x86_64");
}

TEST(Archs, AreCoveredMostSpecificFirst) {
  std::vector<Fault> faults;
  const auto archs = resolve_archs({arch_of("a", ""), arch_of("b", "a"), arch_of("c", "b"), arch_of("d", "a")}, faults);
  const auto names = [&](const std::vector<std::string>& patterns) {
    std::vector<std::string> names;
    for (const Arch* arch : archs_covered(patterns, archs)) names.push_back(arch->name);
    return names;
  };
  EXPECT_EQ(names({"cpu:a+"}), (std::vector<std::string>{"c", "b", "d", "a"}));
  EXPECT_EQ(names({"cpu:b+"}), (std::vector<std::string>{"c", "b"}));
  EXPECT_EQ(names({"cpu:a", "cpu:b"}), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(names({"cpu"}), (std::vector<std::string>{"c", "b", "d", "a"}));
  EXPECT_EQ(names({"hip:a"}), std::vector<std::string>{});
}

TEST(Archs, OfByNameAreNotCoveredByTheirPlatformsName) {
  std::vector<Fault> faults;
  auto hidden = arch_of("b", "");
  hidden.properties["by_name"] = Value(true);
  const auto archs = resolve_archs({arch_of("a", ""), hidden, arch_of("c", "b")}, faults);
  const auto names = [&](const std::vector<std::string>& patterns) {
    std::vector<std::string> names;
    for (const Arch* arch : archs_covered(patterns, archs)) names.push_back(arch->name);
    return names;
  };
  EXPECT_EQ(names({"cpu"}), std::vector<std::string>({"a"}));
  EXPECT_EQ(names({"cpu", "cpu:b+"}), std::vector<std::string>({"c", "a", "b"}));
}

TEST(Archs, ThatExtendInACircleOrTheUnknownAreFaults) {
  std::vector<Fault> faults;
  resolve_archs({arch_of("a", "b"), arch_of("b", "a"), arch_of("c", "z"), arch_of("d", ""), arch_of("d", "")}, faults);
  EXPECT_EQ(texts(faults), (std::vector<std::string>{
                               "d.json:/arch: the arch cpu:d is already described in d.json",
                               "a.json:/extends: cpu:a extends b, which leads back in a circle",
                               "b.json:/extends: cpu:b extends a, which leads back in a circle",
                               "c.json:/extends: unknown arch 'cpu:z'; known: a, b, d",
                           }));
}

}  // namespace
}  // namespace loader_test

// `ejk bench --set`: which calls come of a spec's cases, under which names, and what is refused in which words.
#include "bench/case_settings.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "command_line/library_options.hpp"
#include "references/calls.hpp"
#include "spec/call/binding.hpp"
#include "spec/read/files.hpp"
#include "tests/paths.hpp"

namespace ejk::tools::case_settings_test {
namespace {

std::vector<spec::Case> set(const spec::Spec& spec, const std::vector<std::string>& patterns, const std::vector<std::string>& texts) {
  std::vector<const spec::Case*> cases;
  for (const auto& pattern : patterns)
    for (const auto* c : cases_matching(spec, pattern)) cases.push_back(c);
  return cases_with(spec, cases, case_settings(spec, texts));
}

std::vector<spec::Case> set(const std::vector<std::string>& patterns, const std::vector<std::string>& texts) {
  return set(reference::spec_of("flash_attention"), patterns, texts);
}

std::vector<std::string> names(const std::vector<spec::Case>& cases) {
  std::vector<std::string> result;
  for (const auto& c : cases) result.push_back(c.name);
  return result;
}

using Names = std::vector<std::string>;

std::string refusal(const std::vector<std::string>& patterns, const std::vector<std::string>& texts) {
  try {
    set(patterns, texts);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(CaseSettings, ATypeReplacesTheSpecsAndTheNameTells) {
  const auto cases = set({"gpu_d64_s512"}, {"E=f16"});
  ASSERT_EQ(names(cases), (Names{"gpu_d64_s512.f16", "gpu_d64_s512.f16.causal"}));
  const auto& spec = reference::spec_of("flash_attention");
  for (const auto& c : cases) {
    const auto& of_spec = *spec.find_case(c.attributes.at("causal") == spec::Value(true) ? "gpu_d64_s512.causal" : "gpu_d64_s512");
    EXPECT_EQ(c.types, (std::map<std::string, std::string>{{"E", "f16"}}));
    EXPECT_EQ(c.dims, of_spec.dims);
    EXPECT_EQ(c.attributes, of_spec.attributes);
    EXPECT_EQ(spec::facts_of(spec, c).tensors.at("out").type, DType::f16);
  }
}

TEST(CaseSettings, OnlyTheChosenOfAListAreSetAndEqualOnesAreOne) {
  EXPECT_EQ(names(set({"prefill_d64.*.causal"}, {"E=f16"})), (Names{"prefill_d64.f16.causal"}));
  EXPECT_EQ(names(set({"prefill_d64.f32"}, {"E=f16"})), (Names{"prefill_d64.f16", "prefill_d64.f16.causal"}));
}

TEST(CaseSettings, ListsAreTakenInTurn) {
  const Names both{"gpu_d64_s512.f16", "gpu_d64_s512.bf16"};
  EXPECT_EQ(names(set({"gpu_d64_s512"}, {"E=[f16,bf16],causal=false"})), both);
  EXPECT_EQ(names(set({"gpu_d64_s512"}, {"causal=false", "E=[\"f16\", \"bf16\"]"})), both);
}

TEST(CaseSettings, SizesAndAttributesAreNamedAsInASpec) {
  const auto cases = set({"gpu_d64_s512.causal"}, {"B=2,window_left=127,softmax_scale=1"});
  ASSERT_EQ(names(cases), (Names{"gpu_d64_s512.causal.b2.window_left127.softmax_scale1p0"}));
  EXPECT_EQ(cases[0].dims.at("B"), spec::Value(std::int64_t{2}));
  EXPECT_EQ(cases[0].attributes.at("softmax_scale"), spec::Value(1.0));
}

TEST(CaseSettings, WhatTheSpecSaysAlreadyKeepsItsName) {
  EXPECT_EQ(names(set({"gpu_d64_s512"}, {"E=bf16,B=32"})), (Names{"gpu_d64_s512", "gpu_d64_s512.causal"}));
  EXPECT_EQ(names(set({"gpu_d64_s512"}, {"deterministic=false"})), (Names{"gpu_d64_s512", "gpu_d64_s512.causal"}));
}

TEST(CaseSettings, AFlagOfTheSpecThatIsTakenBackIsNamed) {
  const auto cases = set({"gpu_sinks"}, {"causal=false"});
  ASSERT_EQ(names(cases), (Names{"gpu_sinks.not_causal"}));
  EXPECT_EQ(cases[0].attributes.at("causal"), spec::Value(false));
  EXPECT_EQ(cases[0].given, (Names{"softmax_aux"}));
}

TEST(CaseSettings, ADimOrTypeReachesCasesThatSpeakOfIt) {
  EXPECT_EQ(names(set({"gpu_d64_s512.causal", "gpu_sinks"}, {"Es=bf16"})), (Names{"gpu_d64_s512.causal", "gpu_sinks.bf16"}));
  EXPECT_EQ(refusal({"gpu_d64_s512"}, {"Es=bf16"}), "--set: no chosen case of flash_attention speaks of Es");
}

TEST(CaseSettings, ATypeWithADefaultReachesAllCases) {
  const auto& spec = reference::spec_of("grouped_matmul");
  Names others;  // than those whose attribute chooses it
  for (const auto& c : spec.cases)
    if (!c.attributes.contains("preferred_element_type")) others.push_back(c.name);
  ASSERT_FALSE(others.empty());
  for (const auto& c : set(spec, others, {"O=f32"})) EXPECT_EQ(c.types.at("O"), "f32") << c.name;
}

TEST(CaseSettings, CasesOfOneNameAreCounted) {
  auto document = spec::Json::parse(spec::read_text(test::source_dir() + "/specs/mean_pooling.json"));
  auto first = document["cases"][0];
  first["name"] = "twice";
  first["E"] = {"f32"};
  auto second = first;
  second["E"] = {"bf16"};
  second["B"] = 1 + first["B"].get<int>();
  document["cases"] = {first, second};
  const auto file = std::filesystem::path(testing::TempDir()) / "case_settings_twice.json";
  std::ofstream(file) << document.dump();
  std::vector<spec::Fault> faults;
  const auto spec = spec::load_spec(file.string(), document.dump(), faults);
  ASSERT_TRUE(spec) << faults.front().text();
  EXPECT_EQ(names(set(*spec, {"twice.*"}, {"E=f16"})), (Names{"twice.f16", "twice.f16.2"}));
  EXPECT_EQ(names(set(*spec, {"twice.*"}, {"E=f16,B=7"})), (Names{"twice.f16.b7"}));
  std::filesystem::remove(file);
}

TEST(CaseSettings, WhatIsWrongIsNamedWithWhatIsAllowed) {
  const auto said = [](const std::string& text) { return refusal({"gpu_d64_s512"}, {text}); };
  EXPECT_EQ(said("E=f17"), "--set E=f17: 'f17' is no element type of E: f32, f16, bf16");
  EXPECT_EQ(said("E=16"), "--set E=16: '16' is no element type of E: f32, f16, bf16");
  EXPECT_EQ(said("B=2,Sq=many"), "--set Sq=many: expected an integer (the size of a dim), found the string 'many'");
  EXPECT_EQ(said("B=-1"), "--set B=-1: the size of a dim is not negative, found -1");
  EXPECT_EQ(said("causal=1"), "--set causal=1: expected true or false (attribute causal), found 1");
  EXPECT_EQ(said("B=9223372036854775808"),
            "--set B=9223372036854775808: expected an integer (the size of a dim), found the string '9223372036854775808'");
  EXPECT_EQ(said("windw_left=3"), "--set: flash_attention has no dim, type or attribute 'windw_left'; did you mean 'window_left'?");
  EXPECT_TRUE(said("given=bias").starts_with("--set: flash_attention has no dim, type or attribute 'given'; "));
  EXPECT_EQ(said("E=f16,bf16"), "--set: expected NAME=VALUE, found 'bf16'; several values are a list: E=[f16,bf16]");
  EXPECT_EQ(said("B=1,B=2"), "--set: B is set twice; several values are a list: E=[f16,bf16]");
  EXPECT_EQ(said("E=[]"), "--set E=[]: the list of values for 'E' is empty");
  EXPECT_EQ(said("Hq=3"),
            "--set: case 'gpu_d64_s512.hq3' is no legal call: flash_attention: Hq must be a multiple of Hkv; found Hq = 3, Hkv = 32");
}

}  // namespace
}  // namespace ejk::tools::case_settings_test

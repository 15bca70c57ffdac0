// Cases with "each": which cases they become, what is like them, and where their faults are.
#include <gtest/gtest.h>

#include <algorithm>

#include "spec/read/loader.hpp"

namespace spread_cases_test {
namespace {

using namespace ejk::spec;
using Lines = std::vector<std::string>;

// (` stands for ")
const std::string head = R"json({ `kernel`: `walk`, `doc`: `d`, `dims`: {`N`: `n`, `C`: `c`}, `types`: {`E`: [`f32`, `f16`]},
  `attributes`: [{`name`: `order`, `type`: `int`, `default`: 0, `doc`: `d`}],
  `inputs`: [{`name`: `x`, `type`: `E`, `shape`: [`N`, `C`], `doc`: `d`}],
  `outputs`: [{`name`: `out`, `type`: `E`, `shape`: [`N`, `C`], `doc`: `d`}],
  `cost`: {`flops`: `N`, `bytes`: `N`}, `tolerance`: {`f32`: 1e-5}, `variants`: [], `cases`: [)json";
const std::string first = R"json({`name`: `first`, `doc`: `One.`, `E`: `f32`, `N`: 1, `C`: 2})json";
const std::string sizes = R"json({`name`: `size`, `doc`: `Sizes.`, `E`: [`f32`, `f16`], `C`: 64, `order`: 3,
   `each`: {`small`: {`N`: 4}, `wide`: {`N`: [5, 6], `C`: 640, `doc`: `Wide.`}, `plain`: {`N`: 7, `order`: null}}})json";
const std::string last = R"json({`name`: `last`, `like`: `size_wide`, `N`: 9})json";

std::optional<Spec> load(const Lines& cases, std::vector<Fault>& faults) {
  std::string text = head;
  for (const std::string& one : cases) text += (&one == &cases.front() ? "" : ",\n") + one;
  text += "]}";
  std::replace(text.begin(), text.end(), '`', '"');
  return load_spec("walk.json", text, faults);
}

Spec loaded(const Lines& cases) {
  std::vector<Fault> faults;
  auto spec = load(cases, faults);
  EXPECT_TRUE(spec) << (faults.empty() ? "" : faults.front().text());
  return spec.value_or(Spec());
}

Lines faults_of(const Lines& cases) {
  std::vector<Fault> faults;
  load(cases, faults);
  Lines lines;
  for (const Fault& fault : faults) lines.push_back(fault.where + ": " + fault.sentence);
  return lines;
}

Lines names_of(const Spec& spec) {
  Lines names;
  for (const auto& one : spec.cases) names.push_back(one.name);
  return names;
}

std::string edited(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(SpreadCases, ACaseForEachInItsPlace) {
  const Spec spec = loaded({first, sizes, last});
  EXPECT_EQ(names_of(spec), (Lines{"first", "size_small.f32", "size_small.f16", "size_wide.f32.n5", "size_wide.f32.n6", "size_wide.f16.n5",
                                   "size_wide.f16.n6", "size_plain.f32", "size_plain.f16", "last.f32", "last.f16"}));
}

TEST(SpreadCases, WhatDiffersTakesThePlaceOfWhatTheyShare) {
  const Spec spec = loaded({first, sizes, last});
  const auto dim = [&](const char* name, const char* of) { return std::get<std::int64_t>(spec.find_case(name)->dims.at(of)); };
  EXPECT_EQ(dim("size_small.f16", "C"), 64);
  EXPECT_EQ(dim("size_wide.f16.n6", "C"), 640);
  EXPECT_EQ(spec.find_case("size_wide.f16.n6")->doc, "Wide.");
  EXPECT_EQ(spec.find_case("size_small.f16")->doc, "Sizes.");
  EXPECT_EQ(spec.find_case("size_small.f16")->attributes.count("order"), 1u);
  EXPECT_EQ(spec.find_case("size_plain.f16")->attributes.count("order"), 0u);  // null
}

TEST(SpreadCases, AnotherIsLikeOneOfThem) {
  const Spec spec = loaded({last, first, sizes});  // also before it
  const auto* one = spec.find_case("last.f16");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->doc, "Wide.");
  EXPECT_EQ(one->dims.at("C"), Value(std::int64_t{640}));
  EXPECT_EQ(one->dims.at("N"), Value(std::int64_t{9}));
}

TEST(SpreadCases, TheyAreLikeAnother) {
  const std::string like = R"json({`name`: `more`, `like`: `first`, `each`: {`a`: {`N`: 3}, `b`: {`C`: 4, `order`: 1}}})json";
  const Spec spec = loaded({like, first});
  EXPECT_EQ(names_of(spec), (Lines{"more_a", "more_b", "first"}));
  EXPECT_EQ(spec.find_case("more_b")->dims.at("N"), Value(std::int64_t{1}));
  EXPECT_EQ(spec.find_case("more_b")->attributes.at("order"), Value(std::int64_t{1}));
}

TEST(SpreadCases, NullRemovesWhatTheyHaveOfAnother) {
  const std::string like = R"json({`name`: `more`, `like`: `last`, `each`: {`a`: {`order`: null}, `b`: {`N`: 3}}})json";
  const Spec spec = loaded({like, edited(first, "`first`", "`last`, `order`: 5")});
  EXPECT_EQ(spec.find_case("more_a")->attributes.count("order"), 0u);
  EXPECT_EQ(spec.find_case("more_b")->attributes.at("order"), Value(std::int64_t{5}));
  EXPECT_EQ(faults_of({edited(like, "`order`: null", "`A`: null"), edited(first, "`first`", "`last`")}).front(),
            "/cases/0/each/a/A: there is no 'A' to remove in what this is like");
}

// By the file's own count of cases, also behind those that became several.
TEST(SpreadCases, FaultsAreWhereTheTextIs) {
  EXPECT_EQ(faults_of({first, edited(sizes, "`N`: 4", "`N`: `four`"), last}),
            Lines{"/cases/1/each/small/N: expected an integer (the size of a dim), found the string 'four'"});
  EXPECT_EQ(faults_of({first, edited(sizes, "`C`: 64,", "`C`: -64,"), last}).front(),
            "/cases/1/C: the size of a dim is not negative, found -64");
  EXPECT_EQ(faults_of({first, sizes, edited(last, "`N`: 9", "`N`: -9")}).front(),
            "/cases/2/N: the size of a dim is not negative, found -9");
  EXPECT_EQ(faults_of({first, edited(sizes, "`C`: 640", "`C`: -6"), last}),  // once, though the last case has it, too
            Lines{"/cases/1/each/wide/C: the size of a dim is not negative, found -6"});
  EXPECT_EQ(faults_of({first, sizes, edited(last, "size_wide", "size_wider")}).front(),
            "/cases/2/like: there is no case 'size_wider'; did you mean 'size_wide'?");
  EXPECT_EQ(faults_of({first, sizes, edited(first, "`first`", "`size_plain`")}), Lines{});  // size_plain.f32 is another name
  EXPECT_EQ(faults_of({first, edited(sizes, "`E`: [`f32`, `f16`]", "`E`: `f32`"), edited(first, "`first`", "`size_plain`")}).front(),
            "/cases/2: the case 'size_plain' occurs twice; the other is at /cases/1");
}

TEST(SpreadCases, WhatCannotBeSpreadIsRefused) {
  const auto with = [](const std::string& each) {
    return faults_of({first, R"json({`name`: `a`, `E`: `f32`, `N`: 1, `each`: )json" + each + "}"});
  };
  const std::string expected =
      "/cases/1/each: expected an object that is not empty: what each case adds to the name, and what differs in it";
  EXPECT_EQ(with("[]"), Lines{expected});
  EXPECT_EQ(with("{}"), Lines{expected});
  EXPECT_EQ(with("{`b`: 3}"), Lines{"/cases/1/each/b: expected an object: what differs in this case"});
  for (const std::string key : {"name", "like", "each"})
    EXPECT_EQ(with("{`b`: {`" + key + "`: `first`}}"),
              Lines{"/cases/1/each/b/" + key + ": '" + key + "' cannot differ among the cases of one 'each'"});
  EXPECT_EQ(with("{`b`: {`C`: null}}"), Lines{"/cases/1/each/b/C: there is no 'C' to remove in this case"});
  EXPECT_EQ(with("{`B C`: {`C`: 1}}").size(), 1u);
  EXPECT_TRUE(with("{`B C`: {`C`: 1}}").front().starts_with("/cases/1/each/B C: ")) << with("{`B C`: {`C`: 1}}").front();
}

}  // namespace
}  // namespace spread_cases_test

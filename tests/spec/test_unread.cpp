// What of a spec is left unread until it is asked for: it is what it would have been, faults and all. EJK_SEED repeats or varies a run.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "spec/check/check_names.hpp"
#include "spec/choose/decider.hpp"
#include "spec/read/archs.hpp"
#include "spec/read/excerpt.hpp"
#include "spec/read/files.hpp"
#include "spec/read/outline.hpp"
#include "tests/paths.hpp"

namespace unread_test {
namespace {

using namespace ejk::spec;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

const fs::path repository = ejk::test::source_dir();

// (` stands for ")
const std::string scale = R"json({ `kernel`: `scale`, `doc`: `d`, `dims`: {`N`: `n`}, `types`: {`E`: [`f32`]},
  `inputs`: [{`name`: `x`, `type`: `E`, `shape`: [`N`], `doc`: `d`}],
  `outputs`: [{`name`: `out`, `type`: `E`, `shape`: [`N`], `doc`: `d`}],
  `cost`: {`flops`: `N`, `bytes`: `N`},
  `let`: {`many`: `N > 10`, `tiles`: `ceil_div(N, width)`},
  `variants`: [
    {`name`: `scalar`, `doc`: `a \`quoted\` ]}`, `archs`: [`cpu:generic`], `priority`: 0, `template`: `t`,
     `launches`: [{`entry`: `run`, `grid`: [`1`], `args`: [`x`, `out`, `N`]}]},
    {`name`: `blocks`, `doc`: `b`, `archs`: [`cuda:sm_80+`, `simt`], `priority`: 3, `template`: `t`, `supports`: `many`, `config`: {`width`: [8, 16]},
     `heuristic`: [{`use`: {`width`: 8}}], `launches`: [{`entry`: `run`, `grid`: [`tiles`], `block`: [`32`], `args`: [`x`, `out`, `N`]}]},
    {`name`: `wide`, `like`: `blocks`, `doc`: `w`, `config`: {`width`: [16, 32]}, `heuristic`: [{`use`: {`width`: 16}}]},
    {`name`: `rows`, `like`: `scalar`, `doc`: `r`, `archs`: [`cpu:avx2`], `priority`: 9}],
  `tolerance`: {`f32`: 1e-5},
  `cases`: [{`name`: `small`, `doc`: `Few.`, `E`: [`f32`], `N`: 4}, {`name`: `large`, `like`: `small`, `N`: 40}] })json";

using Edits = std::vector<std::pair<std::string, std::string>>;

std::string edited(const Edits& edits) {
  std::string text = scale;
  for (const auto& [from, to] : edits) {
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  std::replace(text.begin(), text.end(), '`', '"');
  return text;
}

const std::map<std::string, Arch>& archs() {
  static const auto all = [] {
    std::vector<Fault> faults;
    return load_archs(repository / "specs/arch", faults, faults);
  }();
  return all;
}

void judge(const Spec& spec, std::vector<Fault>& faults) { check_names(spec, archs(), faults); }

Lines lines_of(const std::vector<Fault>& faults) {
  Lines lines;
  for (const Fault& fault : faults) lines.push_back(fault.text());
  return lines;
}

Spec for_calls(const std::string& text) {
  std::vector<Fault> faults;
  auto spec = load_spec("scale.json", text, faults, Later::cases_and_gpus, judge);
  EXPECT_EQ(lines_of(faults), Lines{});
  return spec.value_or(Spec());
}

Lines ready_in(const Spec& spec) {
  Lines names;
  for (const Variant* variant : spec.variants.ready()) names.push_back(variant->name);
  return names;
}

Lines text_of(const std::vector<Expression>& expressions) {
  Lines lines;
  for (const Expression& each : expressions) lines.push_back(each.text());
  return lines;
}

void add(Lines& lines, const std::string& what, const Lines& more) {
  for (const std::string& each : more) lines.push_back(what + " " + each);
}

void add(Lines& lines, const std::string& what, const std::vector<Named>& more) {
  for (const Named& each : more) lines.push_back(what + " " + each.name + " = " + each.expression.text());
}

void add(Lines& lines, const Launch& launch) {
  lines.push_back("launch " + launch.entry + " if " + launch.condition.text() + " shared " + launch.shared.text() + " repeat " +
                  launch.repeat.text() + (launch.cooperative ? " cooperative" : "") + (launch.overlaps ? " overlaps" : ""));
  add(lines, "grid", text_of(launch.grid));
  add(lines, "block", text_of(launch.block));
  add(lines, "cluster", text_of(launch.cluster));
  for (const Argument& each : launch.arguments) {
    lines.push_back("argument " + std::to_string(static_cast<int>(each.kind)) + " " + each.name + " " + each.expression.text() + " " +
                    std::to_string(each.swizzle));
    add(lines, "box", text_of(each.box));
    for (const MapChoice& choice : each.choices) lines.push_back("choice " + choice.tensor + " if " + choice.condition.text());
  }
}

// All that a variant says.
Lines text_of(const Variant& variant) {
  Lines lines = {variant.name, variant.doc, variant.like, variant.template_file, variant.pointer, std::to_string(variant.priority)};
  add(lines, "arch", variant.archs);
  add(lines, variant.supports_is_list ? "supports" : "supports alone", text_of(variant.supports));
  add(lines, "specialize", variant.specialize);
  for (const ConfigParameter& each : variant.config)
    for (const Value& value : each.values)
      lines.push_back("config " + each.name + " " + each.label + " " + each.doc + " " + to_text(value));
  add(lines, "let", variant.let);
  add(lines, "valid", text_of(variant.valid));
  for (const HeuristicRule& rule : variant.heuristic) add(lines, "rule if " + rule.condition.text(), rule.use);
  for (const WorkspaceSpec& each : variant.workspace)
    add(lines, "workspace " + each.name + " " + std::string(ejk::name_of(each.type)) + " " + each.zero.text(), text_of(each.shape));
  for (const Launch& launch : variant.launches) add(lines, launch);
  if (variant.fold) add(lines, "fold if " + variant.fold->condition.text(), text_of(variant.fold->same));
  add(lines, "flag", variant.flags);
  for (const auto& [name, limit] : variant.limits) lines.push_back("limit " + name + " " + std::to_string(limit));
  return lines;
}

std::vector<Lines> text_of(const Variants& variants) {
  std::vector<Lines> all;
  for (const Variant& variant : variants) all.push_back(text_of(variant));
  return all;
}

std::string text_of(const Outline& outline) {
  std::string text = std::string(outline.key) + "=" + std::string(outline.text);
  for (const Outline& part : outline.parts) text += " <" + text_of(part) + ">";
  return text;
}

TEST(Outline, HasThePartsOfAnObject) {
  const auto outline = outline_of(R"( { "a" : [1, {"b": "]}"}] , "c\"}": "x\\", "d":-1.5e3,"e":{} } )", 1);
  ASSERT_TRUE(outline.has_value());
  EXPECT_TRUE(outline->is_object());
  Lines parts;
  for (const Outline& part : outline->parts) parts.push_back(text_of(part));
  EXPECT_EQ(parts, (Lines{R"(a=[1, {"b": "]}"}])", R"(c\"}="x\\")", "d=-1.5e3", "e={}"}));
  EXPECT_TRUE(outline_of("{}", 1)->parts.empty());
}

TEST(Outline, HasThePartsOfAListToTheDepthAskedFor) {
  const std::string text = R"([ null , "a,\"b", [ ] ,{"c":[2, 3 ]}])", whole = "=" + text;
  EXPECT_EQ(text_of(*outline_of(text, 0)), whole);
  EXPECT_EQ(text_of(*outline_of(text, 1)), whole + R"( <=null> <="a,\"b"> <=[ ]> <={"c":[2, 3 ]}>)");
  EXPECT_EQ(text_of(*outline_of(text, 3)), whole + R"( <=null> <="a,\"b"> <=[ ]> <={"c":[2, 3 ]} <c=[2, 3 ] <=2> <=3>>>)");
}

TEST(Outline, SaysNothingOfWhatHasNoEnd) {
  for (const char* text : {"",           " ",          "{",
                           "{}}",        "{} x",       R"({"a")",
                           R"({"a":)",   R"({"a":})",  R"({"a":1,})",
                           R"({"a":[})", R"({"a":"})", R"({"a":"\"})",
                           R"({"a" 1})", R"({a:1})",   R"({"a":1 "b":2})",
                           "[",          "[1",         "[1,]",
                           "[1 2]",      "[[1]",       R"(["])",
                           "[1]]"})
    EXPECT_FALSE(outline_of(text, 1)) << text;
}

TEST(Unread, VariantsThatNoCpuRunsAreReadWhenAskedFor) {
  std::vector<Fault> faults;
  const auto whole = load_spec("scale.json", edited({}), faults);
  ASSERT_TRUE(whole) << testing::PrintToString(lines_of(faults));
  EXPECT_TRUE(whole->variants.is_whole());
  const Spec spec = for_calls(edited({}));
  EXPECT_FALSE(spec.variants.is_whole());
  EXPECT_EQ(ready_in(spec), (Lines{"scalar", "rows"}));
  const Variant* const first = spec.variants.ready().front();
  EXPECT_EQ(text_of(spec.variants), text_of(whole->variants));
  EXPECT_EQ(&spec.variants[0], first) << "those that were read stay where they are";
  EXPECT_EQ(ready_in(spec), (Lines{"scalar", "rows"}));
  EXPECT_EQ(spec.cases.size(), whole->cases.size());
}

TEST(Unread, WhatACpuRunsIsReadAtOnceWithAllThatItIsLike) {
  const Edits of_wide = {{"`like`: `scalar`", "`like`: `wide`"}};
  EXPECT_EQ(excerpt_of(edited(of_wide), Later::cases_and_gpus)->left, std::vector<bool>{});
  EXPECT_EQ(excerpt_of(edited({}), Later::cases_and_gpus)->left, (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(excerpt_of(edited({{"`archs`: [`cpu:generic`]", "`archs`: [`hip`]"}}), Later::cases_and_gpus)->left,
            (std::vector<bool>{false, true, true, false}))
      << "a variant of CPUs is like it";
  EXPECT_EQ(excerpt_of(edited({}), Later::cases)->left, std::vector<bool>{});
}

// Where the archs are not plain to see, nothing is left out for them.
TEST(Unread, NothingIsLeftOutInDoubt) {
  const auto left = [](const Edits& edits) { return excerpt_of(edited(edits), Later::cases_and_gpus)->left; };
  const std::vector<bool> only_blocks = {false, true, false, false};
  EXPECT_EQ(left({{"`like`: `blocks`", "`like`: `blocks`, `archs`: {`also`: [`hip`]}"}}), std::vector<bool>{});
  EXPECT_EQ(left({{"[`cuda:sm_80+`, `simt`]", "[`cuda:sm_80+`, `\\u0063pu:neon`]"}}), std::vector<bool>{});
  EXPECT_EQ(left({{"`doc`: `w`", "`do\\u0063`: `w`"}}), std::vector<bool>{});
  EXPECT_EQ(left({{"`like`: `blocks`", "`like`: `wide`"}}), only_blocks) << "a circle, which is told at once";
  EXPECT_EQ(left({{"`like`: `blocks`", "`like`: `block`"}}), only_blocks);
  EXPECT_EQ(left({{"`doc`: `w`", "`doc`: `w`, `archs`: [`hip`], `archs`: [`hip`]"}}), std::vector<bool>{});
}

TEST(Unread, EveryShippedSpecIsTheSame) {
  int left = 0;
  for (const auto& path : json_files(repository / "specs").files) {
    std::vector<Fault> faults;
    const auto text = read_text(path);
    const auto whole = load_spec(path.string(), text, faults);
    const auto spec = load_spec(path.string(), text, faults, Later::cases_and_gpus, judge);
    ASSERT_TRUE(whole && spec) << testing::PrintToString(lines_of(faults));
    left += !spec->variants.is_whole();
    EXPECT_EQ(text_of(spec->variants), text_of(whole->variants)) << path;
    EXPECT_EQ(spec->cases.size(), whole->cases.size()) << path;
  }
  EXPECT_GT(left, 3);
}

TEST(Unread, ManyThreadsMayAskAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const Spec spec = for_calls(edited({}));
    std::vector<const Variant*> found(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < found.size(); ++i)
      threads.emplace_back([&, i] {
        const Spec copy = spec;
        for (const Variant* variant : copy.variants.ready()) EXPECT_EQ(variant->launches.size(), 1u);
        found[i] = copy.variant("wide");
      });
    for (auto& thread : threads) thread.join();
    for (const Variant* each : found) EXPECT_EQ(each, spec.variant("wide"));
    EXPECT_EQ(spec.variant("wide")->config.front().values.size(), 2u);
  }
}

// A folder with one kernel, of a text that changes.
class UnreadFolder : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
    fs::create_directory_symlink(repository / "specs/arch", root_ / "arch");
  }
  void TearDown() override { fs::remove_all(root_); }

  Catalogue catalogue(const std::string& text, const std::string& kernel = "scale") const {
    std::ofstream(root_ / (kernel + ".json")) << text;
    return Catalogue::open(root_, root_);
  }
  std::string file(const std::string& kernel = "scale") const { return (root_ / (kernel + ".json")).generic_string(); }

  template <class Ask>
  static Lines faults_of(const Ask& ask) {
    try {
      ask();
    } catch (const SpecError& error) {
      return lines_of(error.faults());
    }
    return {};
  }

  // What is told of a text by and by is what is told of it at once. False: it is sound.
  bool agree(const std::string& text, const std::string& kernel = "scale") const {
    std::vector<Fault> faults;
    const auto whole = load_spec(file(kernel), text, faults);
    if (whole && whole->kernel != kernel) return false;
    if (whole) judge(*whole, faults);
    std::shared_ptr<const Spec> spec;
    const Catalogue opened = catalogue(text, kernel);
    Lines told = faults_of([&] { spec = opened.kernel(kernel); });
    if (told.empty()) told = faults_of([&] { spec->variants.all(); });
    if (told.empty()) told = faults_of([&] { spec->cases.all(); });
    EXPECT_EQ(told, lines_of(faults)) << text;
    if (!told.empty() || !faults.empty()) return true;
    EXPECT_EQ(text_of(spec->variants), text_of(whole->variants)) << text;
    return false;
  }

  const fs::path root_ = fs::path(testing::TempDir()) / ("ejk_unread_" + std::to_string(getpid()));
};

TEST_F(UnreadFolder, FaultsOfAGpuVariantAreToldWhenItIsAskedFor) {
  const auto text = edited({{"`supports`: `many`", "`supports`: `mani`"}});
  const Catalogue opened = catalogue(text);
  const auto spec = opened.kernel("scale");
  ASSERT_NE(spec, nullptr);
  CallFacts facts;
  for (const char* name : {"x", "out"}) facts.tensors[name] = TensorFacts{ejk::DType::f32, {40}, {1}, 64, nullptr};
  const Binding binding = bind(*spec, facts);
  Decider on_cpu(opened, binding, {opened.arch("cpu:generic")});
  ASSERT_TRUE(on_cpu.heuristic().has_value());
  EXPECT_EQ(on_cpu.heuristic()->candidate.variant->name, "scalar");
  const Lines expected = {file() + ":/variants/1/supports: unknown name 'mani' in 'supports'; did you mean 'many'?"};
  EXPECT_EQ(faults_of([&] { on_cpu.refusals(); }), expected) << "of every variant";
  EXPECT_EQ(faults_of([&] { Decider(opened, binding, {opened.arch("cuda:sm_80")}); }), expected);
  EXPECT_EQ(faults_of([&] { spec->variant("wide"); }), expected) << "and again";
  EXPECT_EQ(faults_of([&] { Catalogue::load(root_, root_); }).front(), expected.front());
}

TEST_F(UnreadFolder, ADecidersRefusalsAreOfEveryVariant) {
  const Catalogue opened = catalogue(edited({}));
  const auto spec = opened.kernel("scale");
  CallFacts facts;
  for (const char* name : {"x", "out"}) facts.tensors[name] = TensorFacts{ejk::DType::f32, {4}, {1}, 64, nullptr};
  const Binding binding = bind(*spec, facts);
  const auto refused = [&](const char* arch) {
    Lines lines;
    Decider decider(opened, binding, {opened.arch(arch)});
    for (const auto& [variant, reason] : decider.refusals()) lines.push_back(variant + ": " + reason);
    return lines;
  };
  const std::string no_gpu = "none of its archs (cuda:sm_80+, simt) runs here";
  EXPECT_EQ(refused("cpu:generic"), (Lines{"rows: none of its archs (cpu:avx2) runs here", "blocks: " + no_gpu, "wide: " + no_gpu}));
  EXPECT_EQ(refused("cuda:sm_80"), (Lines{"rows: none of its archs (cpu:avx2) runs here", "blocks: supports: N > 10",
                                          "wide: supports: N > 10", "scalar: none of its archs (cpu:generic) runs here"}));
}

TEST_F(UnreadFolder, FaultsAreThoseOfTheWhole) {
  EXPECT_FALSE(agree(edited({})));
  for (const Edits& edits : std::vector<Edits>{{{"`priority`: 3", "`priorities`: 3"}},
                                               {{"`priority`: 3", "`priority`: 3, `priority`: 3"}},
                                               {{"`priority`: 3", "`priority`: ]"}},
                                               {{"`name`: `wide`", "`name`: `rows`"}},
                                               {{"`like`: `blocks`", "`like`: `block`"}},
                                               {{"`tiles`: `ceil_div(N, width)`", "`tiles`: `ceil_div(N, widht)`"}},
                                               {{"[`1`]", "[`M`]"}},
                                               {{"[`1`]", "[`M`]"}, {"`supports`: `many`", "`supports`: `mani`"}},
                                               {{"[`1`]", "[`tiles`]"}},
                                               {{"`use`: {`width`: 16}", "`use`: {`width`: 8}"}},
                                               {{"`many`: `N > 10`", "`many`: `tiles > 10`"}},
                                               {{"`many`: `N > 10`", "`many`: `N >`"}, {"`priority`: 3", "`priorities`: 3"}},
                                               {{"`N`: 40", "`M`: 40"}},
                                               {{"`cases`: [", "`cases`: [}"}}})
    EXPECT_TRUE(agree(edited(edits))) << edits.front().second;
}

// Of a text that was damaged before its cases; damage there is seen once somebody asks for them.
TEST_F(UnreadFolder, DamageIsToldAsOfTheWhole) {
  const char* const given = std::getenv("EJK_SEED");
  std::mt19937 random(given ? std::stoul(given) : 1);
  const auto below = [&](std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random); };
  const auto damage = [&](std::string text) {
    const std::size_t end = text.find("\"cases\""), at = below(end), count = std::min(1 + below(4), end - at);
    static constexpr std::string_view bytes = "\"{}[],:\\ aN1";
    switch (below(4)) {
      case 0:
        return text.erase(at, count);
      case 1:
        return text.insert(at, text.substr(below(end), count));
      case 2:
        return text.insert(at, 1, bytes[below(bytes.size())]);
      default:
        return text.replace(at, 1, 1, bytes[below(bytes.size())]);
    }
  };
  int told = 0;
  for (int i = 0; i < 200 && !HasFailure(); ++i) told += agree(damage(edited({})));
  EXPECT_GT(told, 50);
  for (const auto& path : json_files(repository / "specs").files) {
    const auto text = read_text(path);
    if (text.find("\"same_as\"") != text.npos) continue;  // its variants are of a kernel that is not here
    for (int i = 0; i < 3 && !HasFailure(); ++i) agree(damage(text), path.stem().string());
  }
}

}  // namespace
}  // namespace unread_test

// Variants, launches and cases that are "like" others, and lets of the kernel: what they become, and where their faults are.
#include <gtest/gtest.h>

#include <algorithm>

#include "spec/check/check_names.hpp"
#include "spec/check/check_use.hpp"
#include "spec/read/loader.hpp"
#include "spec/render/image.hpp"

namespace like_test {
namespace {

using namespace ejk::spec;

// (` stands for ")
const std::string walk = R"json({ `kernel`: `walk`, `doc`: `d`, `dims`: {`N`: `n`, `C`: `c`}, `types`: {`E`: [`f32`]},
  `attributes`: [{`name`: `order`, `type`: `int`, `default`: 0, `doc`: `d`}],
  `inputs`: [{`name`: `x`, `type`: `E`, `shape`: [`N`, `C`], `doc`: `d`}],
  `outputs`: [{`name`: `out`, `type`: `E`, `shape`: [`N`, `C`], `doc`: `d`}],
  `cost`: {`flops`: `N`, `bytes`: `N`},
  `let`: {`fits`: [`C % 8 == 0`, `N < 100`], `many`: `N > 10`, `tiles`: `ceil_div(C, width)`, `both`: `many and fits`},
  `variants`: [
    {`name`: `base`, `doc`: `b`, `archs`: [`cuda:sm_90a`], `priority`: 3, `template`: `t`, `supports`: [`fits`, `C > 1`], `specialize`: {`E`: `E`, `ordered`: `order > 0`},
     `config`: {`width`: {`values`: [8, 16], `label`: `w`, `doc`: `d`}}, `let`: {`steps`: `tiles * 2`, `bytes`: `steps * 4`},
     `valid`: [`width <= 16`], `heuristic`: [{`if`: `both`, `use`: {`width`: 16}}, {`use`: {`width`: 8}}],
     `workspace`: [{`name`: `sums`, `type`: `f32`, `shape`: [`N`]}, {`name`: `marks`, `type`: `i32`, `shape`: [`C`]}],
     `launches`: [
       {`entry`: `clear`, `grid`: [`1`], `block`: [`32`], `args`: [`sums`, `marks`]},
       {`entry`: `walk`, `if`: `many`, `grid`: [`tiles`, `N`], `block`: [`32`], `args`: [`x`, {`tensor_map`: `out`, `box`: [`1`, `8`]}, `sums`, `order`, `steps`]},
       {`like`: `walk`, `if`: `not many`, `args`: {`change`: {`steps`: `bytes`}}}]},
    {`name`: `other`, `like`: `base`, `let`: {`half`: `steps / 2`, `bytes`: `half * 4`}, `config`: {`width`: {`values`: [8, 16, 32]}},
     `specialize`: {`ordered`: null}, `supports`: {`change`: {`C > 1`: `C > 2`}, `also`: [`N > 0`]},
     `workspace`: {`change`: {`marks`: null}, `also`: [{`name`: `more`, `type`: `f32`, `shape`: [`width`]}]},
     `launches`: {`change`: {`clear`: {`args`: {`change`: {`marks`: `more`}}}, `walk`: {`block`: [`64`], `args`: {`change`: {`out`: {`box`: [`2`, `8`]}}}}}}},
    {`name`: `third`, `like`: `other`, `priority`: 5, `let`: {`half`: null, `bytes`: `9`}}],
  `cases`: [
    {`name`: `small`, `doc`: `Few.`, `E`: [`f32`], `N`: 4, `C`: 64},
    {`name`: `large`, `like`: `small`, `N`: 40, `order`: 1}],
  `tolerance`: {`f32`: 1e-5} })json";

using Edits = std::vector<std::pair<std::string, std::string>>;

std::string edited(const Edits& edits) {
  std::string text = walk;
  for (const auto& [from, to] : edits) {
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  std::replace(text.begin(), text.end(), '`', '"');
  return text;
}

// The arch that the variants name.
std::map<std::string, Arch> archs() {
  Arch arch;
  arch.name = "sm_90a";
  arch.platform = "cuda";
  return {{arch.full_name(), arch}};
}

std::vector<std::string> faults_of(const Edits& edits) {
  std::vector<Fault> faults;
  const auto spec = load_spec("walk.json", edited(edits), faults);
  if (spec) check_names(*spec, archs(), faults);
  std::vector<std::string> lines;
  for (const Fault& fault : faults) lines.push_back(fault.where + ": " + fault.sentence);
  return lines;
}

Spec loaded(const Edits& edits = {}) {
  std::vector<Fault> faults;
  auto spec = load_spec("walk.json", edited(edits), faults);
  EXPECT_TRUE(spec) << (faults.empty() ? "" : faults.front().text());
  return spec.value_or(Spec());
}

using Lines = std::vector<std::string>;

std::vector<std::string> texts(const std::vector<Expression>& expressions) {
  std::vector<std::string> result;
  for (const Expression& each : expressions) result.push_back(each.text());
  return result;
}

std::string text_of(const std::vector<Named>& list) {
  std::string text;
  for (const Named& each : list) text += each.name + "=" + each.expression.text() + " ";
  return text;
}

std::string arguments_of(const Launch& launch) {
  std::string text = launch.entry + ":";
  for (const Argument& each : launch.arguments) text += " " + (each.name.empty() ? each.expression.text() : each.name);
  return text;
}

TEST(Like, TakesAllButTheName) {
  const Spec spec = loaded();
  EXPECT_EQ(faults_of({}), Lines{});
  const Variant& other = spec.variants.at(1);
  EXPECT_EQ(other.name, "other");
  EXPECT_EQ(other.doc, "b");
  EXPECT_EQ(other.priority, 3);
  EXPECT_EQ(other.heuristic.size(), 2u);
  EXPECT_EQ(other.pointer, "/variants/1");
}

TEST(Like, MergesObjectsAtEveryDepthAndNullRemoves) {
  const Spec spec = loaded();
  const Variant& other = spec.variants.at(1);
  EXPECT_EQ(text_of(other.let), "steps=tiles * 2 half=steps / 2 bytes=half * 4 ");  // what is new before what it stands before
  EXPECT_EQ(text_of(other.specialize), "E=E ");
  EXPECT_EQ(other.config.at(0).values.size(), 3u);
  EXPECT_EQ(other.config.at(0).label, "w");
}

TEST(Like, EditsLists) {
  const Spec spec = loaded();
  const Variant& other = spec.variants.at(1);
  EXPECT_EQ(texts(other.supports), (Lines{"fits", "C > 2", "N > 0"}));
  ASSERT_EQ(other.workspace.size(), 2u);
  EXPECT_EQ(other.workspace[1].name, "more");
  ASSERT_EQ(other.launches.size(), 3u);
  EXPECT_EQ(arguments_of(other.launches[0]), "clear: sums more");
  for (const std::size_t i : {1u, 2u}) {
    EXPECT_EQ(texts(other.launches[i].block), Lines{"64"}) << i;  // both launches of the entry
    EXPECT_EQ(texts(other.launches[i].arguments[1].box), (Lines{"2", "8"})) << i;
  }
  EXPECT_EQ(arguments_of(other.launches[2]), "walk: x out sums order bytes");
}

TEST(Like, LaunchesAreLikeLaunches) {
  const Spec spec = loaded();
  const auto& launches = spec.variants.at(0).launches;
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(launches[2].entry, "walk");
  EXPECT_EQ(launches[2].condition.text(), "not many");
  EXPECT_EQ(arguments_of(launches[2]), "walk: x out sums order bytes");
  EXPECT_EQ(texts(launches[2].grid), texts(launches[1].grid));
}

TEST(Like, LaunchesAreLikeThoseOfTheVariantThatTheirsIsLike) {
  const Spec spec = loaded({{"`let`: {`half`: null, `bytes`: `9`}}",
                             "`let`: {`half`: null, `bytes`: `9`}, `launches`: [{`like`: `walk`, `if`: null, `args`: "
                             "{`change`: {`sums`: [`more`, `sums`], `x`: null}}}, {`like`: `walk`, `block`: [`96`]}]}"}});
  const auto& launches = spec.variants.at(2).launches;
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(arguments_of(launches[0]), "walk: out more sums order steps");
  EXPECT_EQ(arguments_of(launches[1]), "walk: out more sums order steps");  // the nearest
  EXPECT_FALSE(launches[0].condition);
  EXPECT_EQ(texts(launches[0].block), Lines{"64"});
  EXPECT_EQ(texts(launches[1].block), Lines{"96"});
}

TEST(Like, ChainsAreFollowed) {
  const Spec spec = loaded();
  const Variant& third = spec.variants.at(2);
  EXPECT_EQ(third.priority, 5);
  EXPECT_EQ(text_of(third.let), "steps=tiles * 2 bytes=9 ");
  EXPECT_EQ(texts(third.supports), (Lines{"fits", "C > 2", "N > 0"}));
}

TEST(Like, OrderInTheFileDoesNotMatter) {
  const Spec spec =
      loaded({{"`name`: `base`,", "`name`: `base`, `like`: `fourth`,"},
              {"`let`: {`half`: null, `bytes`: `9`}}]",
               "`let`: {`half`: null, `bytes`: `9`}},\n{`name`: `fourth`, `archs`: [`hip`], "
               "`template`: `f`, `flags`: [`-x`], `launches`: [{`entry`: `e`, `grid`: [`1`], `block`: [`1`], `args`: []}]}]"}});
  for (const Variant& variant : spec.variants) EXPECT_EQ(variant.flags, Lines{"-x"}) << variant.name;
}

TEST(Like, CasesAreLikeCases) {
  const Spec spec = loaded();
  const Case* large = spec.find_case("large.f32");
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(large->doc, "Few.");
  EXPECT_EQ(large->dims.at("N"), Value(std::int64_t{40}));
  EXPECT_EQ(large->dims.at("C"), Value(std::int64_t{64}));
}

TEST(Like, CirclesAreRefused) {
  EXPECT_EQ(faults_of({{"`name`: `base`,", "`name`: `base`, `like`: `third`,"}}).front(),
            "/variants/1/like: a circle: 'base' is itself like this variant");
  EXPECT_EQ(faults_of({{"`like`: `base`", "`like`: `other`"}}).front(), "/variants/1/like: the variant 'other' is like itself");
}

TEST(Like, OfNothing) {
  EXPECT_EQ(faults_of({{"`like`: `base`", "`like`: `bas`"}}).front(), "/variants/1/like: there is no variant 'bas'; did you mean 'base'?");
  EXPECT_EQ(faults_of({{"`like`: `small`", "`like`: 3"}}).front(), "/cases/1/like: expected a string, found 3");
  EXPECT_EQ(faults_of({{"`like`: `walk`", "`like`: `wlk`"}}).front(),
            "/variants/0/launches/2/like: there is no launch 'wlk'; did you mean 'walk'?");
}

TEST(Like, EditsOfWhatIsNotThere) {
  EXPECT_EQ(faults_of({{"`half`: `steps / 2`", "`quarter`: null"}}).front(),
            "/variants/1/let/quarter: there is no 'quarter' to remove in what this is like");
  EXPECT_EQ(faults_of({{"`C > 1`: `C > 2`", "`C > 0`: null"}}).front(),
            "/variants/1/supports/change/C > 0: 'C > 0' is no element of the list; did you mean 'C > 1'?");
  EXPECT_EQ(faults_of({{"`also`: [`N > 0`]", "`and`: [`N > 0`]"}}).front(),
            "/variants/1/supports/and: unknown field 'and'; a list of what this is like is edited by 'change' and 'also'");
}

// A fault stands where a reader edits: at what the variant says itself, or in what it is like.
TEST(Like, FaultsAreWhereTheTextIs) {
  EXPECT_EQ(faults_of({{"`steps`: `tiles * 2`", "`steps`: `tilez * 2`"}}),  // once, though three variants have it
            Lines{"/variants/0/let/steps: unknown name 'tilez' in 'let'; did you mean 'tiles'?"});
  EXPECT_EQ(faults_of({{"`also`: [`N > 0`]", "`also`: [`M > 0`]"}}).front(),
            "/variants/1/supports/also/0: unknown name 'M' in 'supports'; known: N, C, E, order, fits, many, tiles, both");
  EXPECT_EQ(faults_of({{"`block`: [`64`]", "`block`: [`wide`]"}}).front().substr(0, 44), "/variants/1/launches/change/walk/block/0: un");
  EXPECT_EQ(faults_of({{"`box`: [`2`, `8`]", "`box`: [`2`, `(`]"}}).front().substr(0, 70),
            "/variants/1/launches/change/walk/args/change/out/box/1: bad expression");
  EXPECT_EQ(faults_of({{"`shape`: [`width`]", "`shape`: [`wide`]"}}).front().substr(0, 51),
            "/variants/1/workspace/also/0/shape/0: unknown name ");
  const Edits without_width = {
      {"`config`: {`width`: {`values`: [8, 16, 32]}}", "`config`: {`width`: null, `span`: [8]}, `heuristic`: [{`use`: {`span`: 8}}]"}};
  const std::string inherited = faults_of(without_width).front();
  EXPECT_TRUE(inherited.starts_with("/variants/0/let/steps: the let 'tiles' has no value in 'let': unknown name 'width' in 'let'"))
      << inherited;
  EXPECT_TRUE(inherited.ends_with(" (in variant 'other', which is like this one)")) << inherited;
  EXPECT_EQ(faults_of({{"`N`: 40", "`N`: -1"}}).front(), "/cases/1/N: the size of a dim is not negative, found -1");
}

TEST(SharedLet, ClausesMustAllHold) {
  const Spec spec = loaded();
  const SharedLet* fits = spec.shared_let("fits");
  ASSERT_NE(fits, nullptr);
  EXPECT_EQ(fits->expression.text(), "(C % 8 == 0) and (N < 100)");
  EXPECT_EQ(fits->clauses.size(), 2u);
}

struct Walk {
  explicit Walk(std::int64_t n, std::int64_t c = 64) : spec(loaded()), arch(archs().begin()->second) {
    CallFacts facts;
    for (const char* name : {"x", "out"}) facts.tensors[name] = TensorFacts{ejk::DType::f32, {n, c}, {c, 1}, 64, nullptr};
    binding = bind(spec, facts);
  }
  Spec spec;
  Arch arch;
  Binding binding;
};

TEST(SharedLet, IsSeenBeforeThereIsAConfig) {
  const Walk few(4), many(40), too_many(200), odd(4, 12);
  const auto width = [](const Walk& walk) { return heuristic_config(walk.spec.variants[0], walk.arch, walk.binding)->at(0).second; };
  EXPECT_EQ(width(few), Value(std::int64_t{8}));
  EXPECT_EQ(width(many), Value(std::int64_t{16}));
  EXPECT_EQ(refusal(few.spec.variants[0], few.arch, few.binding), std::nullopt);
  // What a user reads is the clause, not its name.
  EXPECT_EQ(refusal(too_many.spec.variants[0], too_many.arch, too_many.binding), "N < 100");
  EXPECT_EQ(refusal(odd.spec.variants[0], odd.arch, odd.binding), "C % 8 == 0");
}

TEST(SharedLet, SeesTheVariantsOwnNames) {
  const Walk walk(40);
  const Variant& variant = walk.spec.variants[0];
  const auto launched = [&](std::int64_t width) {
    return geometry_of(variant, walk.arch, walk.binding, {{"width", Value(width)}}).launches.at(1).grid[0];
  };
  EXPECT_EQ(launched(8), 8);
  EXPECT_EQ(launched(16), 4);
  EXPECT_EQ(geometry_of(variant, walk.arch, Walk(4).binding, {{"width", Value(std::int64_t{8})}}).launches.size(), 2u);  // "if": "many"
}

TEST(SharedLet, AsASpecialisationIsAConstantOfTheImage) {
  const Spec spec = loaded({{"`ordered`: `order > 0`", "`ordered`: `order > 0`, `many`: `many`"}});
  const Walk walk(40);
  EXPECT_EQ(VariantScope(spec.variants[0], walk.arch, walk.binding).specialisation(2), Value(true));
}

TEST(SharedLet, FaultsSayWhyANameHasNoValue) {
  EXPECT_EQ(faults_of({{"[`fits`, `C > 1`]", "[`tiles > 1`, `C > 1`]"}}).front(),
            "/variants/0/supports/0: the let 'tiles' has no value in 'supports': 'width' has no value in 'supports': it is a config "
            "parameter, and "
            "configs are chosen later");
  EXPECT_EQ(
      faults_of({{"`if`: `both`", "`if`: `steps > 1`"}}).front(),
      "/variants/0/heuristic/0/if: 'steps' has no value in the heuristic: it is a let of the variant, which has a value once a config is "
      "chosen; a let of the kernel that follows from the call alone is visible here");
  EXPECT_EQ(faults_of({{"`flops`: `N`", "`flops`: `tiles`"}}).front(),
            "/cost/flops: 'tiles' is a let of the kernel: only variants see it, not the cost");
}

TEST(SharedLet, NamesAreOwnAndInOrder) {
  EXPECT_EQ(faults_of({{"`many`: `N > 10`", "`many`: `both`"}}).front(),
            "/let/many: 'many' uses 'both', which is defined later; put it first");
  EXPECT_EQ(faults_of({{"`many`: `N > 10`", "`many`: `nothing`"}}).front().substr(0, 31), "/let/many: unknown name 'nothin");
  EXPECT_EQ(faults_of({{"`many`: `N > 10`", "`C`: `N > 10`"}}).front().substr(0, 24), "/let/C: the name 'C' is ");
  EXPECT_EQ(faults_of({{"`steps`: `tiles * 2`", "`tiles`: `2`"}}).front(),
            "/variants/0/let/tiles: the name 'tiles' is already a let of the kernel; choose another for this let");
  EXPECT_EQ(faults_of({{"[`C % 8 == 0`, `N < 100`]", "[]"}}).front(), "/let/fits: the let 'fits' has no clauses");
  EXPECT_EQ(faults_of({{"[`C % 8 == 0`, `N < 100`]", "[`C %`]"}}).front().substr(0, 30), "/let/fits/0: bad expression 'C");
}

TEST(SharedLet, AndLetsOfVariantsMakeNoCircle) {
  EXPECT_EQ(faults_of({{"`half`: `steps / 2`", "`half`: `bytes / 2`"}}).front(),
            "/variants/1/let/half: 'half' is defined by way of itself");
  EXPECT_EQ(
      faults_of({{"`tiles`: `ceil_div(C, width)`", "`tiles`: `ceil_div(C, bytes)`"}}).front(),
      "/variants/0/let/steps: the let 'tiles' has no value in 'let': 'bytes' has no value in 'let': it is a let of the variant that is "
      "defined later; put it first");
}

TEST(SharedLet, IsNotEvaluatedUnlessItIsUsed) {
  const Spec spec = loaded({{"`many`: `N > 10`", "`many`: `N > 10`, `broken`: `N / 0`"}});
  const Walk walk(40);
  EXPECT_EQ(geometry_of(spec.variants[0], walk.arch, walk.binding, {{"width", Value(std::int64_t{8})}}).launches.size(), 2u);
}

// A variant that tells values apart, or refuses them, through lets of the kernel does so.
TEST(SharedLet, CountsAsUse) {
  const auto unused = [](const Edits& edits) {
    std::vector<Fault> faults;
    check_use(loaded(edits), faults);
    return faults.size();
  };
  const std::string argument = "`sums`, `order`, `steps`";
  EXPECT_EQ(unused({}), 0u);
  const Edits forgotten = {{argument, "`sums`, `steps`"}, {", `ordered`: `order > 0`", ""}, {"`specialize`: {`ordered`: null}, ", ""}};
  EXPECT_EQ(unused(forgotten), 3u);
  Edits told = forgotten, refused = forgotten;
  told.push_back({"`many`: `N > 10`", "`many`: `N > order`"});
  refused.push_back({"`N < 100`", "`order == 0`"});
  EXPECT_EQ(unused(told), 0u);
  EXPECT_EQ(unused(refused), 0u);
}

}  // namespace
}  // namespace like_test

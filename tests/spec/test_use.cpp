// The check that variants use or refuse what calls bring: what counts as use, as refusal, and as neither.
#include <gtest/gtest.h>

#include <algorithm>

#include "spec/check/check_names.hpp"
#include "spec/check/check_use.hpp"
#include "spec/read/loader.hpp"

namespace ejk::spec::use_test {
namespace {

// Every kind of option, and one variant that deals with all of them. (` stands for ")
const std::string walk = R"json({ `kernel`: `walk`, `doc`: `d`, `dims`: {`N`: `n`, `C`: `c`, `M`: `m`}, `types`: {`E`: [`f32`]},
  `forms`: [{`name`: `packed`, `when`: `given(offsets)`, `doc`: `d`}, {`name`: `batched`, `when`: `true`, `doc`: `d`}],
  `attributes`: [
    {`name`: `order`, `type`: `int`, `default`: -1, `doc`: `d`},
    {`name`: `drop`, `type`: `float`, `default`: 0, `doc`: `d`},
    {`name`: `seed`, `type`: `int`, `default`: 0, `varies`: true, `matters`: `drop > 0`, `doc`: `d`},
    {`name`: `hint`, `type`: `bool`, `default`: false, `matters`: false, `doc`: `d`},
    {`name`: `start`, `type`: `int`, `optional`: true, `doc`: `d`}],
  `inputs`: [
    {`name`: `x`, `type`: `E`, `shape`: [`N`, `C`], `doc`: `d`},
    {`name`: `mask`, `type`: `E`, `optional`: true, `shape`: {`batched`: [`N`]}, `doc`: `d`},
    {`name`: `left`, `type`: `E`, `optional`: true, `shape`: [`N`], `doc`: `d`},
    {`name`: `right`, `type`: `E`, `optional`: true, `matters`: true, `shape`: [`N`], `doc`: `d`},
    {`name`: `offsets`, `type`: `i32`, `optional`: true, `shape`: {`packed`: [`M`]}, `doc`: `d`}],
  `outputs`: [{`name`: `out`, `type`: `E`, `shape`: [`N`, `C`], `doc`: `d`},
    {`name`: `weights`, `type`: `E`, `optional`: true, `shape`: [`N`, `C`], `doc`: `d`}],
  `requires`: [{`that`: `order >= -1`, `else`: `e`}, {`that`: `drop >= 0 and drop < 1`, `else`: `e`},
               {`that`: `given(left) == given(right)`, `else`: `e`}],
  `cost`: {`flops`: `N`, `bytes`: `N`},
  `variants`: [{`name`: `v`, `archs`: [`cuda:sm_90a`], `template`: `t`, `supports`: [`C % 8 == 0`], `specialize`: {`E`: `E`},
    `let`: {`kept`: `1.0 - drop`, `twice`: `2.0 * kept`, `begin`: `given(start) ? start : 0`},
    `launches`: [{`entry`: `walk`, `if`: `true`, `grid`: [`N`], `block`: [`32`],
      `args`: [`x`, `view(mask)`, `left`, `right`, `offsets`, `out`, {`tensor_map`: `weights`, `box`: [`8`]}, `order`, `twice`, `seed`, `begin`, `given(start)`]}]}],
  `cases`: [], `tolerance`: {`f32`: 1e-5} })json";

using Edits = std::vector<std::pair<std::string, std::string>>;

Edits operator+(Edits edits, const Edits& more) {
  edits.insert(edits.end(), more.begin(), more.end());
  return edits;
}

Edits without(const std::string& argument) { return {{argument + ", ", ""}}; }
Edits supports(const std::string& clause) { return {{"C % 8 == 0", clause}}; }

std::string edited(const Edits& edits) {
  std::string text = walk;
  for (const auto& [from, to] : edits) {
    const auto at = text.rfind(from);  // arguments come after declarations
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  std::replace(text.begin(), text.end(), '`', '"');
  return text;
}

// What is found, each in short: the tensor and the calls that have it, or two calls that are alike.
std::string found(const Edits& edits) {
  std::vector<Fault> faults;
  const auto spec = load_spec("walk.json", edited(edits), faults);
  if (spec) check_contract(*spec, faults);
  if (spec && faults.empty()) check_use(*spec, faults);
  std::string all;
  for (const Fault& fault : faults) {
    const std::string& text = fault.sentence;
    const std::size_t tensor = text.find("takes calls with "), pair = text.find("computes the same for ");
    const std::size_t from = tensor != std::string::npos ? tensor + 17 : pair != std::string::npos ? pair + 22 : 0;
    const std::size_t to = std::min(text.find(", and passes"), text.find(": no argument"));
    all += (all.empty() ? "" : "; ") + text.substr(from, to - from);
  }
  return all;
}

TEST(Use, EverythingPassedIsFine) { EXPECT_EQ(found({}), ""); }

TEST(Use, ATensorMustBePassedOrRefused) {
  const std::string lost = "'mask' (mask, form 'batched')";
  EXPECT_EQ(found(without("`view(mask)`")), lost);
  EXPECT_EQ(found(without("`view(mask)`") + supports("not given(mask)")), "");
  EXPECT_EQ(found(without("`view(mask)`") + supports("C > 8 and not given(mask)")), "");
  EXPECT_EQ(found(without("`view(mask)`") + supports("C > 8 or not given(mask)")), lost);
  EXPECT_EQ(found(without("`view(mask)`") + supports("given(mask) ? C > 8 : true")), lost);
  EXPECT_EQ(found(without("`view(mask)`") + supports("contiguous(mask)")), lost);
}

TEST(Use, RequiredTensorsAndOutputsToo) {
  EXPECT_EQ(found(without("`x`")), "'x' (form 'batched')");
  EXPECT_EQ(found(without("`out`")), "'out' (form 'batched')");
  EXPECT_EQ(found(without("{`tensor_map`: `weights`, `box`: [`8`]}")), "'weights' (weights, form 'batched')");
}

TEST(Use, ARefusedFormRefusesItsTensors) {
  EXPECT_EQ(found(without("`offsets`")), "'offsets' (offsets, form 'packed')");
  EXPECT_EQ(found(without("`offsets`") + supports("form == 'batched'")), "");
  EXPECT_EQ(found(without("`view(mask)`") + supports("given(offsets)")), "");
}

TEST(Use, TensorsThatComeTogetherAreRefusedTogether) {
  EXPECT_EQ(found(without("`left`")), "'left' (left, right, form 'batched')");
  EXPECT_EQ(found(without("`left`") + supports("not given(right)")), "");
}

TEST(Use, ATensorIsPassedWhereItMatters) {
  const Edits matters = {{"`matters`: true", "`matters`: `given(weights)`"}};
  EXPECT_EQ(found(without("`right`") + matters), "'right' (left, right, weights, form 'batched')");
  EXPECT_EQ(found(without("`right`") + matters + supports("not given(weights)")), "");
}

TEST(Use, ALaunchThatIsLeftOutPassesNothing) {
  EXPECT_EQ(found({{"`if`: `true`", "`if`: `not given(mask)`"}}), "'mask' (mask, form 'batched')");
  EXPECT_EQ(found({{"`if`: `true`", "`if`: `C > 8`"}}), "");
}

TEST(Use, ValuesOfAnAttributeMustBeToldApart) {
  EXPECT_EQ(found(without("`order`")), "(order = -1, form 'batched') as for (order = 0, form 'batched')");
  EXPECT_EQ(found(without("`order`") + supports("order < 0")), "");
  EXPECT_EQ(found(without("`order`") + supports("order <= 0")), "(order = -1, form 'batched') as for (order = 0, form 'batched')");
  const auto specialised = [](const std::string& as) {
    return without("`order`") + Edits{{"`E`: `E`}", "`E`: `E`, `ordered`: `" + as + "`}"}};
  };
  EXPECT_EQ(found(specialised("order >= 0")), "(order = 0, form 'batched') as for (order = 1, form 'batched')");
  EXPECT_EQ(found(specialised("order")), "");
  EXPECT_EQ(found(specialised("min(order, C)")), "");
}

TEST(Use, AttributesReachLaunchesThroughLets) {
  EXPECT_EQ(found({{"2.0 * kept", "2.0"}}), "(drop = 0.0, form 'batched') as for (drop = 0.25, form 'batched')");
  EXPECT_EQ(found({{"given(start) ? start : 0", "0"}}), "(start = 0, form 'batched') as for (start = 1, form 'batched')");
  EXPECT_EQ(found({{", `given(start)`]", "]"}}), "(start not given, form 'batched') as for (start = 0, form 'batched')");
}

TEST(Use, AnAttributeIsToldWhereItMatters) {
  EXPECT_EQ(found(without("`seed`")), "(drop = 0.25, seed = 0, form 'batched') as for (drop = 0.25, seed = 1, form 'batched')");
  EXPECT_EQ(found(without("`seed`") + supports("drop == 0")), "");
  EXPECT_EQ(found({{"`matters`: false, ", ""}}), "(hint = false, form 'batched') as for (hint = true, form 'batched')");
  EXPECT_EQ(found({{"`matters`: false", "`matters`: `hints`"}}), "unknown name 'hints' in 'matters'; did you mean 'hint'?");
}

// 2^40 combinations are not tried: most of those tensors stay unknown.
TEST(Use, ManyTiedTensorsAreJudgedInTime) {
  std::string inputs, rule = "true";
  for (int i = 0; i < 40; ++i) {
    const std::string name = "t" + std::to_string(i);
    inputs += "{`name`: `" + name + "`, `type`: `E`, `optional`: true, `shape`: [`N`], `doc`: `d`}, ";
    rule += " and (given(" + name + ") or N > 1)";
  }
  const std::string lost = found({{"`inputs`: [", "`inputs`: [" + inputs}, {"order >= -1", rule}});
  EXPECT_EQ(std::count(lost.begin(), lost.end(), ';'), 39) << lost;
}

}  // namespace
}  // namespace ejk::spec::use_test

// Templates: substitution, directives, inlined headers, and faults with their exact place.
#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>

#include "spec/render/source_hash.hpp"
#include "spec/render/template.hpp"

namespace ejk::spec {
namespace {

class MapScope : public Scope {
 public:
  explicit MapScope(std::map<std::string, Value, std::less<>> values) : values_(std::move(values)) {}
  std::optional<Value> lookup(std::string_view name) const override {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional<Value>(found->second);
  }
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value>) const override {
    if (function == "ctype") return Value("type_of_" + std::string(name));
    return std::nullopt;
  }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

const MapScope scope({{"m", std::int64_t{64}}, {"causal", true}, {"masked", false}, {"scale", 0.5}, {"T", std::string("f32")}});

// A folder of vocabulary headers that goes with the test.
class TemplateTest : public testing::Test {
 protected:
  TemplateTest() {
    folder_ = std::filesystem::path(testing::TempDir()) / ("ejk_template_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "device");
    library_ = TemplateLibrary(folder_);
  }
  ~TemplateTest() override { std::filesystem::remove_all(folder_); }

  void header(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string render(const std::string& text) { return Template::parse("t.cpp", text).render(scope, library_); }
  std::string faults(const std::string& text) {
    try {
      render(text);
    } catch (const SpecError& e) {
      return e.what();
    }
    return "no fault";
  }

  std::filesystem::path folder_;
  TemplateLibrary library_;
};

TEST_F(TemplateTest, PutsTheValuesOfExpressionsIntoTheText) {
  EXPECT_EQ(render("int a = ${m * 2}; bool c = ${ causal }; float s = ${scale}f; // ${T}\n"),
            "int a = 128; bool c = true; float s = 0.5f; // f32\n");
}

TEST_F(TemplateTest, TakesABraceInsideAStringForText) { EXPECT_EQ(render("${causal ? '}' : '{'}"), "}"); }

TEST_F(TemplateTest, LetsPlainTextThroughUntouched) {
  const std::string text = "asm(\"mov $0, %0\");\n#include <cmath>\n#include \"mine.h\"\n\n$";
  EXPECT_EQ(render(text), text);
}

TEST_F(TemplateTest, WritesADollarForTwo) { EXPECT_EQ(render("$${m} costs $$5"), "${m} costs $5"); }

TEST_F(TemplateTest, DirectiveLinesVanishFromTheOutput) {
  EXPECT_EQ(render("a\n  $if causal  // why\nb\n  $end\nc\n"), "a\nb\nc\n");
  EXPECT_EQ(render("a\n$require m == 64\nb\n"), "a\nb\n");
  EXPECT_EQ(render("#pragma once\na\n"), "a\n");
}

TEST_F(TemplateTest, TakesTheFirstArmThatHolds) {
  const std::string text = "$if m == 1\none\n$elif m == 64\nmany\n$elif causal\nno\n$else\nelse\n$end\n";
  EXPECT_EQ(render(text), "many\n");
  EXPECT_EQ(render("$if masked\na\n$else\nb\n$end\n"), "b\n");
  EXPECT_EQ(render("$if masked\na\n$end\n"), "");
}

TEST_F(TemplateTest, DoesNotEvaluateArmsThatAreNotTaken) { EXPECT_EQ(render("$if masked\n${nobody}\n$end\nx"), "x"); }

TEST_F(TemplateTest, RepeatsALoopsBodyWithItsVariable) {
  EXPECT_EQ(render("$for i in 0..3\nx${i} ${i * m}\n$end\n"), "x0 0\nx1 64\nx2 128\n");
  EXPECT_EQ(render("$for i in 3..3\nx\n$end\n"), "");
  EXPECT_EQ(render("$for i in 0..2\n$for j in i..2\n${i}${j}\n$end\n$end\n"), "00\n01\n11\n");
}

TEST_F(TemplateTest, GivesTemplateFunctionsToTheScope) { EXPECT_EQ(render("using E = ${ctype(T)};"), "using E = type_of_T;"); }

TEST_F(TemplateTest, InlinesAVocabularyHeaderOnceARendering) {
  header("device/a.h", "// a of ${m}\n#include \"device/b.h\"\n");
  header("device/b.h", "// b");
  EXPECT_EQ(render("#include \"device/a.h\"\n#include \"device/b.h\"\n#include \"device/a.h\"\nend\n"), "// a of 64\n// b\nend\n");
}

TEST_F(TemplateTest, InlinesAHeaderOfAnyFolderOfTheTemplates) {
  std::filesystem::create_directories(folder_ / "scale");
  header("scale/part.h", "#pragma once\n$if causal\n// of ${m}\n$end\n");
  EXPECT_EQ(render("#include \"scale/part.h\"\n#include \"part.h\"\n#include <scale/part.h>\n"),
            "// of 64\n#include \"part.h\"\n#include <scale/part.h>\n");
}

TEST_F(TemplateTest, NamesTheLineOfEveryFaultOfForm) {
  EXPECT_EQ(faults("a\n$if causal\nb\n"), "t.cpp:2: $if has no $end");
  EXPECT_EQ(faults("$end\n"), "t.cpp:1: $end without an $if or $for before it");
  EXPECT_EQ(faults("a\n$switch x\n"),
            "t.cpp:2: unknown directive $switch; known are $if, $elif, $else, $end, $for, $require (write $$ for a dollar sign)");
  EXPECT_EQ(faults("x ${m\n"), "t.cpp:1: ${ has no } on its line");
  EXPECT_EQ(faults("x ${}\n"), "t.cpp:1: ${} is empty; it needs an expression");
  EXPECT_EQ(faults("$for i of 0..2\n$end\n"), "t.cpp:1: $for is written `$for i in first..past_last`; found `$for i of 0..2`");
  EXPECT_EQ(faults("$if causal\n$else\n$else\n$end\n"), "t.cpp:3: $else after $else; the $if is on line 1");
  EXPECT_EQ(faults("$if\n$end\n"), "t.cpp:1: $if needs an expression");
  EXPECT_EQ(faults("$if causal\n$end if\n"), "t.cpp:2: $end takes nothing after it; found `if`");
}

TEST_F(TemplateTest, NamesTheLineOfEveryFaultOfRendering) {
  EXPECT_EQ(faults("a\nb ${nobody}\n${n2}\n"), "t.cpp:2: `nobody`: unknown name 'nobody'\nt.cpp:3: `n2`: unknown name 'n2'");
  EXPECT_EQ(faults("$if m\n$end\n"), "t.cpp:1: `m`: 'm' must be true or false, found integer 64");
}

TEST_F(TemplateTest, SaysWhatARequirementFoundWhenItDoesNotHold) {
  EXPECT_EQ(faults("$require m % 48 == 0 and causal\n"), "t.cpp:1: $require m % 48 == 0 and causal does not hold: causal = true, m = 64");
}

TEST_F(TemplateTest, ReportsALoopsRepeatedFaultOnce) {
  EXPECT_EQ(faults("$for i in 0..9\n${nobody}\n$end\n"), "t.cpp:2: `nobody`: unknown name 'nobody'");
}

TEST_F(TemplateTest, RefusesALoopThatWouldNotEnd) {
  EXPECT_EQ(faults("$for i in 0..9000000000\n$end\n"), "t.cpp:1: $for runs from 0 to 9000000000, more than 100000 rounds");
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Blocks are read by recursion: without a limit 20,000 of them end the process.
TEST_F(TemplateTest, RefusesBlocksThatAreNestedTooDeep) {
  const auto nested = [](const std::string& block, int depth) { return repeated(block, depth) + "x\n" + repeated("$end\n", depth); };
  EXPECT_EQ(render(nested("$if causal\n", 32)), "x\n");
  const std::string sentence = " is nested more than 32 deep; put inner blocks into a header of their own";
  EXPECT_EQ(faults(nested("$if causal\n", 33)), "t.cpp:33: $if" + sentence);
  EXPECT_EQ(faults(nested("$if causal\n", 20'000)), "t.cpp:33: $if" + sentence);
  EXPECT_EQ(faults(nested("$for i in 0..1\n", 100'000)), "t.cpp:33: $for" + sentence);
  EXPECT_EQ(faults("\n" + repeated("$if causal\n$else\n", 100'000)), "t.cpp:66: $if" + sentence);
}

TEST_F(TemplateTest, ManyBlocksSideBySideAreNotNested) {
  EXPECT_EQ(render(repeated("$if masked\n$else\nx\n$end\n", 1000)), repeated("x\n", 1000));
}

class Seconds {
 public:
  double passed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Each ${ used to look through the rest of its line: a minute for these.
TEST_F(TemplateTest, ManyDollarsOnALineAreReadInOneGo) {
  const Seconds clock;
  EXPECT_EQ(faults(repeated("${", 200'000)), "t.cpp:1: ${ has no } on its line");
  EXPECT_EQ(faults(repeated("${", 200'000) + "\n${m\n"), "t.cpp:1: ${ has no } on its line\nt.cpp:2: ${ has no } on its line");
  EXPECT_EQ(render(repeated("${m}", 100'000)), repeated("64", 100'000));
  EXPECT_EQ(render(repeated("$", 200'001)), repeated("$", 100'001));
  EXPECT_LT(clock.passed(), 10);
}

TEST_F(TemplateTest, FaultsHaveALimit) {
  const std::string text = faults(repeated("$nothing\n", 100'000));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 49);
}

// Loops in loops: 10^10 rounds would never end, and their text would fill the memory.
TEST_F(TemplateTest, BoundsTheWholeRendering) {
  const Seconds clock;
  const auto nested = [](int loops, const std::string& inside) {
    std::string text;
    for (int i = 0; i < loops; ++i) text += "$for i" + std::to_string(i) + " in 0..100000\n";
    return text + inside + repeated("$end\n", loops);
  };
  const std::string steps = " the rendering takes more than 4000000 steps; are there $for in $for, or long ones?";
  EXPECT_EQ(faults(nested(2, "x\n")), "t.cpp:3:" + steps);
  EXPECT_EQ(faults(nested(4, "")), "t.cpp:4:" + steps);
  EXPECT_EQ(faults(nested(2, repeated("x", 1000) + "\n")),
            "t.cpp:2: the rendering gives more than 16777216 bytes; are there $for in $for, or long ones?");
  EXPECT_NE(faults(nested(2, "${nobody}\n")).find("unknown name 'nobody'"), std::string::npos);
  EXPECT_LT(clock.passed(), 60);
}

TEST_F(TemplateTest, AFileHasALimitOfSize) {
  header("device/large.h", std::string((1u << 20) + 1, ' '));
  EXPECT_NE(faults("#include \"device/large.h\"\n").find("the file has 1048577 bytes; the limit is 1048576"), std::string::npos);
}

// Every quote used to walk back through its word: hours for these.
TEST_F(TemplateTest, CommentsAreFoundInOneGo) {
  const Seconds clock;
  EXPECT_EQ(without_comments(repeated("1'", 500'000)), repeated("1'", 500'000) + "\n");
  EXPECT_EQ(without_comments("x" + repeated("R\"", 200'000)), "x" + repeated("R\"", 200'000) + "\n");
  EXPECT_LT(clock.passed(), 10);
}

TEST_F(TemplateTest, AFaultInAHeaderNamesTheHeaderAndWhoIncludedIt) {
  header("device/bad.h", "one\n${nobody}\n");
  const std::string path = (folder_ / "device/bad.h").string();
  EXPECT_EQ(faults("a\n#include \"device/bad.h\"\n"), path + ":2: `nobody`: unknown name 'nobody' (included from t.cpp:2)");
}

TEST_F(TemplateTest, NamesAHeaderThatDoesNotExist) {
  EXPECT_EQ(faults("a\n#include \"device/none.h\"\n"),
            "t.cpp:2: there is no vocabulary header \"device/none.h\" below " + folder_.string());
}

TEST_F(TemplateTest, TheLibraryStaysInItsFolder) {
  EXPECT_FALSE(library_.has("../secret"));
  EXPECT_FALSE(library_.has("/etc/passwd"));
  EXPECT_THROW(library_.get("../secret"), SpecError);
}

TEST_F(TemplateTest, InterpolatesAMessage) {
  EXPECT_EQ(interpolate("m must be even; found ${m + 1}", scope), "m must be even; found 65");
  EXPECT_THROW(interpolate("${nobody}", scope), ExpressionError);
}

}  // namespace
}  // namespace ejk::spec

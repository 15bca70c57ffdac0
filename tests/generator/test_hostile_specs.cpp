// Specs that are small and would take for ever, or more stack or memory than there is: each is read and checked, or refused, in moments.
#include <unistd.h>

#include "generator/scale_store.hpp"
#include "spec/fault.hpp"

namespace ejk::generator {
namespace {

class HostileSpecs : public Generator {
 protected:
  HostileSpecs() { alarm(60); }  // what hangs is over
  ~HostileSpecs() override { alarm(0); }
  void edit(const std::string& from, const std::string& to) { replace(options_.specs / "scale.json", from, to); }

  // All faults of the spec; "" if images were made of it.
  std::string faults() {
    try {
      return generate(options_).images > 0 ? "" : "no images";
    } catch (const spec::SpecError& error) {
      return error.what();
    }
  }
  void expect_fault(const std::string& part) {
    const auto told = faults();
    EXPECT_NE(told.find(part), std::string::npos) << told.substr(0, 2000);
  }

  // "<name>0": first, and each after it made of the two before it.
  static std::string chain(const std::string& name, const std::string& first, int count) {
    std::string text = "\"" + name + "0\": \"" + first + "\", \"" + name + "1\": \"" + name + "0 + 0\"";
    for (int i = 2; i < count; ++i)
      text += ", \"" + name + std::to_string(i) + "\": \"" + name + std::to_string(i - 1) + " + " + name + std::to_string(i - 2) + "\"";
    return text;
  }
  void kernel_lets(const std::string& lets) { edit("\"variants\"", "\"let\": {" + lets + "},\n  \"variants\""); }
  void variant_lets(const std::string& lets) { edit("\"let\": {", "\"let\": {" + lets + ", "); }
};

// ---- lets of two others each: 2^64 steps for who evaluates each anew ----

TEST_F(HostileSpecs, LetsOfTheVariantInAnArgument) {
  variant_lets(chain("v", "block > 16 ? R : 1", 64));
  edit("\"factor\", \"given", "\"factor\", \"v63\", \"given");
  EXPECT_EQ(faults(), "");
}

TEST_F(HostileSpecs, LetsOfTheKernelInAnArgument) {
  kernel_lets(chain("k", "negate ? 1 : 2", 64));
  edit("\"factor\", \"given", "\"factor\", \"k63\", \"given");
  EXPECT_EQ(faults(), "");
}

TEST_F(HostileSpecs, LetsOfTheKernelInASpecialisation) {
  kernel_lets(chain("k", "negate ? 1 : 2", 64));
  edit("\"specialize\": {", "\"specialize\": {\"deep\": \"k63 > 1000\", ");
  EXPECT_EQ(faults(), "");
}

TEST_F(HostileSpecs, LetsOfTheKernelInWhatAVariantSupports) {
  kernel_lets(chain("k", "negate ? 1 : 2", 64));
  edit("[\"contiguous(x)\"]", "[\"contiguous(x)\", \"k63 > 0 or R > 0\"]");
  EXPECT_EQ(faults(), "");
}

TEST_F(HostileSpecs, LetsWithoutAValueInTheirPlace) {
  kernel_lets(chain("k", "block", 64));
  edit("[\"contiguous(x)\"]", "[\"contiguous(x)\", \"k63 > 0\"]");
  expect_fault("the let 'k63' has no value in 'supports': ");
  expect_fault("it is a config parameter, and configs are chosen later");
}

TEST_F(HostileSpecs, LetsOfAVariantThatIsLikeAnother) {
  kernel_lets(chain("k", "items", 64));
  edit("\"launches\": [{\"entry\": \"scale\", ", "\"launches\": [{\"entry\": \"scale\", \"if\": \"k63 >= 0\", ");
  edit("]}],\n  \"cases\"",
       "]},\n    {\"name\": \"more\", \"like\": \"rows\", \"priority\": 2, \"let\": {\"again\": \"k63 + k62\"}}],\n  \"cases\"");
  EXPECT_EQ(faults(), "");
}

// ---- lets in each other ----

TEST_F(HostileSpecs, LetsThatAreNestedTooDeepAreRefused) {
  const auto nested = [](const std::string& name, int count) {
    std::string text = "\"" + name + "0\": \"1\"";
    for (int i = 1; i < count; ++i) text += ", \"" + name + std::to_string(i) + "\": \"" + name + std::to_string(i - 1) + " + 1\"";
    return text;
  };
  const std::string words = " and those that it is made of are nested more than 200 levels deep";
  const auto spec = text_of(options_.specs / "scale.json");
  kernel_lets(nested("k", 4000));
  expect_fault("/let/k100: the let 'k100'" + words);
  write(options_.specs / "scale.json", spec);
  variant_lets(nested("v", 4000));
  expect_fault("/variants/0/let/v100: the let 'v100'" + words);
  write(options_.specs / "scale.json", spec);
  variant_lets(nested("v", 100));
  EXPECT_EQ(faults(), "");
}

TEST_F(HostileSpecs, LetsOfKernelAndVariantInTurnCountTogether) {
  std::string own, shared = "\"k0\": \"1\"";
  for (int i = 0; i < 90; ++i) {
    own += "\"v" + std::to_string(i) + "\": \"k" + std::to_string(i) + " + 1\", ";
    shared += ", \"k" + std::to_string(i + 1) + "\": \"v" + std::to_string(i) + " + 1\"";
  }
  kernel_lets(shared);
  edit("\"let\": {\"lanes\"", "\"let\": {" + own + "\"lanes\"");
  expect_fault("are nested more than 200 levels deep");
}

// ---- what is like another ----

TEST_F(HostileSpecs, ListsThatDoubleAlongWhatIsLikeWhatAreBounded) {
  std::string more;
  for (int i = 0; i < 40; ++i)
    more += ",\n    {\"name\": \"v" + std::to_string(i) + "\", \"like\": \"" + (i ? "v" + std::to_string(i - 1) : "rows") +
            "\", \"supports\": {\"change\": {\"contiguous(x)\": [\"contiguous(x)\", \"contiguous(x)\"]}}}";
  edit("]}],\n  \"cases\"", "]}" + more + "],\n  \"cases\"");
  expect_fault("what is copied here and before is more than 1000000 values");
}

TEST_F(HostileSpecs, ChainsOfWhatIsLikeWhatAreBounded) {
  std::string more;
  for (int i = 0; i < 4000; ++i) more += ",\n    {\"name\": \"c" + std::to_string(i) + "\", \"like\": \"c" + std::to_string(i + 1) + "\"}";
  edit("\"C\": 64}]", "\"C\": 64}" + more + ",\n    {\"name\": \"c4000\", \"like\": \"small\"}]");
  expect_fault("more than 64 are each like the next; make this like a later one");
}

TEST_F(HostileSpecs, CasesThatBecomeManyAreBounded) {
  std::string given, each;
  for (int i = 0; i < 600; ++i) given += (i ? ", \"t" : "\"t") + std::to_string(i) + "\"";
  for (int i = 0; i < 4000; ++i) each += (i ? ", \"c" : "\"c") + std::to_string(i) + "\": {}";
  edit("\"C\": 64}]", "\"C\": 64, \"given\": [" + given + "], \"each\": {" + each + "}}]");
  expect_fault("what is copied here and before is more than 1000000 values");
}

TEST_F(HostileSpecs, ListsAndObjectsAreBounded) {
  std::string many = "{\"name\": \"c\", \"doc\": \"d\", \"T\": \"f32\", \"R\": 1, \"C\": 1}";
  for (int i = 0; i < 4096; ++i) many += ", {}";
  edit("\"cases\": [", "\"cases\": [" + many + ", ");
  expect_fault("/cases: a list of 4099 entries; in a spec it has at most 4096");
}

TEST_F(HostileSpecs, CombinationsOfCasesAreBoundedAllTogether) {
  std::string numbers = "1", many;
  for (int i = 2; i <= 30; ++i) numbers += ", " + std::to_string(i);
  for (int i = 0; i < 5; ++i)
    many +=
        "{\"name\": \"c" + std::to_string(i) + "\", \"doc\": \"d\", \"T\": \"f32\", \"R\": [" + numbers + "], \"C\": [" + numbers + "]}, ";
  edit("\"cases\": [", "\"cases\": [" + many);
  expect_fault("/cases/4: with the combinations of this case there are more than 4096 cases");
}

}  // namespace
}  // namespace ejk::generator

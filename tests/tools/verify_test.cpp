// What `ejk verify` makes beside the calls of the references: calls whose outputs are left to be allocated, and words about other copies.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "spec/read/loader.hpp"
#include "verify/allocated_outputs.hpp"
#include "verify/older_copy.hpp"
#include "verify/verify_check.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

spec::Spec spec_with_output(const std::string& shape) {
  std::vector<spec::Fault> faults;
  auto read = spec::load_spec("specs/copies.json",
                              R"json({ "kernel": "copies", "doc": "d",
    "dims": {"N": "rows", "C": "features", "K": "copies"}, "types": {"E": ["f32"]},
    "inputs": [{"name": "x", "type": "E", "shape": {"any": [["N", "C"], ["C"]]}, "doc": "d"}],
    "outputs": [{"name": "out", "type": "E", "shape": )json" +
                                  shape + R"json(, "doc": "d"}],
    "cost": {"flops": "1", "bytes": "1"}, "variants": [], "tolerance": {"f32": 1e-5},
    "cases": [{"name": "one", "doc": "d", "E": "f32", "N": 3, "C": 4, "K": 2}] })json",
                              faults);
  for (const auto& fault : faults) ADD_FAILURE() << fault.text();
  return read.value_or(spec::Spec{});
}

TEST(RandomCalls, OneOfTheFirstTwoHasStridesEverywhere) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    reference::Rng rng(seed);
    EXPECT_TRUE(arrangement_of_random_call(0, rng).layout.contiguous());
    const auto strided = arrangement_of_random_call(1, rng).layout;
    EXPECT_TRUE(strided.padded && strided.permuted && strided.outputs);
  }
}

TEST(AllocatedOutputs, HaveTheShapesThatTheInputsTell) {
  const auto spec = spec_with_output(R"({"any": [["N", "C"], ["C"]]})");
  reference::Layout layout;
  layout.padded = layout.outputs = true;
  auto call = reference::make_call(spec, spec.cases.at(0), 7, {layout, false});
  call.outputs[0].set(0, 1);
  allocate_outputs(call);
  EXPECT_EQ(call.outputs[0].shape(), (std::vector<std::int64_t>{3, 4}));
  EXPECT_TRUE(call.outputs[0].contiguous());
  EXPECT_EQ(call.outputs[0].unwritten(), 12);
  EXPECT_EQ(call.binding.dims.at("N"), 3);
}

TEST(AllocatedOutputs, WhoseShapeNothingTellsAreAFailure) {
  const auto spec = spec_with_output(R"(["K", "N", "C"])");
  auto call = reference::make_call(spec, spec.cases.at(0), 7);
  try {
    allocate_outputs(call);
    ADD_FAILURE();
  } catch (const spec::ExpressionError& error) {
    EXPECT_NE(std::string(error.what()).find("the shape of out, left to be allocated, cannot be told: dim K has no value"),
              std::string::npos)
        << error.what();
  }
}

class OtherCopies : public testing::Test {
 protected:
  OtherCopies() : root_(fs::path(testing::TempDir()) / ("ejk_copies_" + std::to_string(getpid()))) {
    for (const char* place : {"store", "here"}) {
      write(place, "specs/copies.json", "spec");
      write(place, "templates/copies/a.cpu.cpp", "template");
      write(place, "templates/device/cpu.h", "words");
    }
    spec_.kernel = "copies";
    spec_.file = (root_ / "store/specs/copies.json").string();
    spec::Variant variant;
    variant.template_file = "copies/a.cpu.cpp";
    spec_.variants = spec::Variants({variant});
  }
  ~OtherCopies() override { fs::remove_all(root_); }

  // A file whose time is so many seconds from now.
  void write(const std::string& place, const std::string& file, const std::string& text, int seconds = 0) const {
    const auto path = root_ / place / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::seconds(seconds));
  }
  std::vector<std::string> sentences(const std::string& place = "here") const {
    const KernelHandle kernel("copies", std::make_shared<const spec::Spec>(spec_));
    return other_copies({&kernel}, root_ / place);
  }

  fs::path root_;
  spec::Spec spec_;
};

TEST_F(OtherCopies, AreNotSpokenOfWhereTheyAreTheSameOrTheStoreItself) {
  EXPECT_EQ(sentences(), std::vector<std::string>());
  EXPECT_EQ(sentences("store"), std::vector<std::string>());
  EXPECT_EQ(sentences("nowhere"), std::vector<std::string>());
}

TEST_F(OtherCopies, ThatWereEditedAreSaidToBeNewerAndHowToUseThem) {
  write("here", "specs/copies.json", "edited", 10);
  write("here", "templates/device/cpu.h", "edited", 10);
  ASSERT_EQ(sentences().size(), 1u);
  const auto text = sentences()[0];
  EXPECT_TRUE(text.starts_with("copies: the store's " + (root_ / "store/specs/copies.json").string() +
                               " is used, which is OLDER than specs/copies.json here (and 1 more): run `ejk-gen specs --out generated`"))
      << text;
  EXPECT_NE(text.find("--store ."), std::string::npos) << text;
}

TEST_F(OtherCopies, ThatAreOlderAreNamedToo) {
  write("here", "templates/copies/a.cpu.cpp", "as it was", -10);
  ASSERT_EQ(sentences().size(), 1u);
  EXPECT_NE(sentences()[0].find("which is newer than templates/copies/a.cpu.cpp here"), std::string::npos) << sentences()[0];
}

}  // namespace
}  // namespace ejk::tools

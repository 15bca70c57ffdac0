// ejk-gen's runs: what is written, kept, removed and reported.
#include <algorithm>
#include <chrono>

#include "generator/differences.hpp"
#include "generator/glob.hpp"
#include "generator/scale_store.hpp"
#include "spec/fault.hpp"
#include "tests/paths.hpp"

namespace ejk::generator {
namespace {

TEST_F(Generator, WritesSourcesHeadersLockAndManifest) {
  const Report report = generate(options_);
  EXPECT_EQ(report.images, 6u);  // two types masked and one plain, on two archs
  const auto files = files_below(options_.out);
  for (const char* name : {"include/ejk/scale.hpp", "src/scale/scale.rows.cpu_avx2.bf16.masked.b16_unroll1.cpp", "kernels.lock",
                           "python/ejk/_functions/__init__.py", "python/ejk/_functions/scale.py", "python/ejk/_functions/scale.pyi",
                           "manifest.json", "compile_commands.json", "state.json"})
    EXPECT_EQ(files.count(name), 1u) << name;
  EXPECT_EQ(files.size(), 6u + 8u);
}

TEST_F(Generator, LeavesTheEmulatorOutUnlessAskedForIt) {
  fs::copy(test::source_dir() + "/specs/arch/warp32.json", options_.specs / "arch");
  replace(options_.specs / "arch/warp32.json", "\"warp\": 32", "\"warp\": 32, \"vector_bytes\": 16");
  replace(options_.specs / "scale.json", "[\"cpu:generic+\"]", "[\"simt\"]");
  replace(options_.specs / "scale.json", "\"grid\"", "\"block\": [\"1\"], \"grid\"");
  EXPECT_EQ(generate(options_).images, 0u);
  options_.archs = {"warp32"};
  EXPECT_EQ(generate(options_).images, 3u);
  EXPECT_EQ(files_below(options_.out).count("src/scale/scale.rows.simt_warp32.bf16.masked.b16_unroll1.cpp"), 1u);
}

TEST_F(Generator, TheRenderedSourceIsTheGoldenOne) {
  generate(options_);
  EXPECT_EQ(text_of(options_.out / "src/scale/scale.rows.cpu_avx2.bf16.masked.b16_unroll1.cpp"),
            text_of(test::source_dir() + "/tests/generator/data/golden/scale.rows.cpu_avx2.bf16.masked.b16_unroll1.cpp"));
}

TEST_F(Generator, TheTypedHeaderIsTheGoldenOne) {
  generate(options_);
  EXPECT_EQ(text_of(options_.out / "include/ejk/scale.hpp"), text_of(test::source_dir() + "/tests/generator/data/golden/scale.hpp"));
}

TEST_F(Generator, ThePythonFunctionAndItsStubAreTheGoldenOnes) {
  generate(options_);
  for (const std::string name : {"scale.py", "scale.pyi"})
    EXPECT_EQ(text_of(options_.out / "python/ejk/_functions" / name), text_of(test::source_dir() + "/tests/generator/data/golden/" + name));
}

TEST_F(Generator, TwoRunsWriteTheSameBytes) {
  generate(options_);
  const auto first = files_below(options_.out);
  fs::remove_all(options_.out);
  generate(options_);
  EXPECT_EQ(files_below(options_.out), first);
}

TEST_F(Generator, ASecondRunHasNothingToDo) {
  generate(options_);
  const Report again = generate(options_);
  EXPECT_TRUE(again.up_to_date);
  EXPECT_EQ(again.images, 6u);
}

TEST_F(Generator, KeepsTheTimesOfUnchangedFiles) {
  generate(options_);
  const fs::path source = options_.out / "src/scale/scale.rows.cpu_avx2.bf16.masked.b16_unroll1.cpp";
  const auto past = fs::last_write_time(source) - std::chrono::hours(1);
  fs::last_write_time(source, past);
  replace(options_.specs / "scale.json", "Largest magnitude", "The largest magnitude");  // changes the header and the Python function alone
  const Report report = generate(options_);
  EXPECT_FALSE(report.up_to_date);
  EXPECT_EQ(report.files.written, 2u);
  EXPECT_EQ(fs::last_write_time(source), past);
}

TEST_F(Generator, RepairsAFileThatWasChangedOrRemoved) {
  generate(options_);
  const auto before = files_below(options_.out);
  write(options_.out / "kernels.lock", "nonsense\n");
  fs::remove(options_.out / "include/ejk/scale.hpp");
  EXPECT_EQ(generate(options_).files.written, 2u);
  EXPECT_EQ(files_below(options_.out), before);
}

TEST_F(Generator, RemovesItsOwnStaleFilesAndNoOthers) {
  generate(options_);
  write(options_.out / "src/scale/mine.cpp", "// written by hand\n");
  write(options_.out / "README.md", "kept\n");
  options_.archs = {"avx2"};
  const Report report = generate(options_);
  EXPECT_EQ(report.images, 3u);
  EXPECT_EQ(report.files.removed, 3u);
  const auto files = files_below(options_.out);
  EXPECT_EQ(files.count("src/scale/mine.cpp"), 1u);
  EXPECT_EQ(files.count("README.md"), 1u);
  for (const auto& [name, text] : files) EXPECT_EQ(name.find("cpu_generic"), std::string::npos) << name;
}

TEST_F(Generator, AFaultLeavesNothingWritten) {
  write(options_.templates / "scale/rows.cpu.cpp", "#include \"device/cpu.h\"\n$require block > 100\n${R}\n");
  try {
    generate(options_);
    FAIL();
  } catch (const spec::SpecError& e) {
    const std::string file = (options_.templates / "scale/rows.cpu.cpp").string();
    EXPECT_NE(std::string(e.what()).find(file + ":2: $require block > 100 does not hold: block = 16\n"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find(file + ":3: `R`: R is a fact of the call"), std::string::npos) << e.what();
    EXPECT_EQ(e.faults().size(), 3u);  // block 16, block 64, and R once for all images
  }
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(Generator, OneIdForTwoSourcesIsAFault) {
  replace(options_.specs / "scale.json", "\"specialize\": {\"T\": \"T\", ", "\"specialize\": {");
  try {
    generate(options_);
    FAIL();
  } catch (const spec::SpecError& e) {
    EXPECT_NE(std::string(e.what()).find("scale.json:/variants/0"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(Generator, ManyDifferencesOfOneKernelAreToldInShort) {
  const auto missing = check(options_);
  ASSERT_EQ(missing.size(), 6u);
  EXPECT_EQ(shortened(missing),
            (std::vector<std::string>{missing[0], missing[1], missing[2], "kernels.lock: scale: and 3 more; --json has all"}));
  const std::vector<std::string> few = {
      missing[0], missing[1], missing[2], missing[3], "kernels.lock: other.rows is missing", "include/a.hpp: differs"};
  EXPECT_EQ(shortened(few), few);  // a line that says so would be no shorter
  const std::vector<std::string> sources(9, "src/scale/a.cpp: differs from what the specs make");
  EXPECT_EQ(shortened(sources).back(), "src/scale: and 6 more; --json has all");
}

TEST_F(Generator, CheckTellsEveryDifferenceAndWritesNothing) {
  const auto missing = check(options_);
  EXPECT_EQ(missing.size(), 6u);
  EXPECT_EQ(missing.at(0), "kernels.lock: scale.rows.cpu_avx2.bf16.masked.b16_unroll1 is missing");
  EXPECT_FALSE(fs::exists(options_.out));
  generate(options_);
  EXPECT_TRUE(check(options_).empty());
  fs::remove_all(options_.out / "src");  // not in git: only what is present is compared
  EXPECT_TRUE(check(options_).empty());
  replace(options_.templates / "scale/rows.cpu.cpp", "rows a work item", "lines a work item");
  EXPECT_TRUE(check(options_).empty()) << "comments are no part of a hash";
  replace(options_.templates / "scale/rows.cpu.cpp", "\n", "\nstatic_assert(true);\n");
  const auto before = files_below(options_.out);
  const auto changed = check(options_);
  EXPECT_EQ(changed.size(), 7u);  // six images and the manifest
  EXPECT_EQ(files_below(options_.out), before);
}

TEST_F(Generator, CheckNamesAnImageThatIsNotMadeAnyMore) {
  generate(options_);
  std::ofstream(options_.out / "kernels.lock", std::ios::app) << "scale.zzz 0123\n";
  EXPECT_EQ(check(options_), std::vector<std::string>{"kernels.lock: scale.zzz is not made any more"});
}

TEST_F(Generator, SelectsByGlobOverAllConfigs) {
  options_.select = "all";
  EXPECT_EQ(list(options_).size(), 24u);  // three specialisations × four valid configs × two archs
  options_.select = "*.cpu_avx2.*unroll4";
  EXPECT_EQ(list(options_).size(), 3u);
  options_.select = "scale.rows.cpu_avx2.f32.b64_unroll2";
  ASSERT_EQ(list(options_).size(), 1u);
  EXPECT_EQ(list(options_)[0].id, options_.select);
}

// A row of tuned/cpu-test/scale.jsonl for 64 rows of 8 columns.
std::string tuned_row(const std::string& block, const std::string& source, const std::string& arch = "cpu:avx2") {
  return R"({"config":{"arch":")" + arch + R"(","block":)" + block + R"(,"unroll":1,"variant":"rows"},)" +
         R"("key":{"attributes":{},"device":"cpu-test","kernel":"scale","tensors":{"out":["f32",[64,8]],"x":["f32",[64,8]]}},)" +
         R"("source":")" + source + "\"}\n";
}

TEST_F(Generator, SelectsWhatTheRecordsNameBesideTheHeuristic) {
  const auto heuristic = list(options_).size();
  options_.select = "all";
  std::string hash, id = "scale.rows.cpu_avx2.f32.b64_unroll1";
  const auto catalogue = spec::Catalogue::load(options_.specs, options_.templates);
  Renderer renderer(catalogue);
  for (const auto& plan : enumerate(catalogue, options_))
    if (const auto image = renderer.render(plan); image && image->id == id) hash = image->hash;
  ASSERT_FALSE(hash.empty());
  options_.select = "tuned";
  EXPECT_EQ(list(options_).size(), heuristic) << "no records, no more images";
  const auto file = options_.specs / "tuned/cpu-test/scale.jsonl";
  write(file,
        "torn\n" + tuned_row("64", hash) + tuned_row("64", "0123456789abcdef") + tuned_row("63", hash) + tuned_row("64", hash, "cpu:none"));
  const auto listed = list(options_);
  ASSERT_EQ(listed.size(), heuristic + 1) << "one row holds: the others are torn, of another source, invalid, of no arch";
  const auto found = std::find_if(listed.begin(), listed.end(), [&](const auto& each) { return each.id == id; });
  ASSERT_NE(found, listed.end());
  EXPECT_EQ(found->case_name, "tuned/cpu-test/scale.jsonl:2");
  options_.select = "heuristic";
  EXPECT_EQ(list(options_).size(), heuristic);
  options_.select = "tuned";
  replace(options_.templates / "scale/rows.cpu.cpp", "\n", "\nstatic_assert(true);\n");
  EXPECT_EQ(list(options_).size(), heuristic) << "the source is another one now";
}

TEST_F(Generator, WrongOptionsNameWhatIsKnown) {
  const auto message = [&]() -> std::string {
    try {
      list(options_);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  options_.archs = {"avx1024"};
  EXPECT_EQ(message(), "--arch: there is no arch 'avx1024'; known: cpu:avx2, cpu:generic");
  options_.archs = {"cpu:avx2"};
  options_.select = "nothing*";
  EXPECT_EQ(message(), "--select 'nothing*': no image id of the chosen archs matches; ejk-gen SPECS --select all --list shows them all");
}

TEST_F(Generator, RendersAThousandImagesQuickly) {
  std::string values, body = "#include \"device/cpu.h\"\nstatic void scale(${parameters('scale')}, const Group& group) {\n}\n";
  for (int i = 1; i <= 167; ++i) values += (i > 1 ? ", " : "") + std::to_string(i);
  for (int i = 0; i < 600; ++i) body += "static int line_" + std::to_string(i) + " = ${block} + 0;  // about\n";
  write(options_.templates / "scale/rows.cpu.cpp", body);
  replace(options_.specs / "scale.json", "\"values\": [16, 64]", "\"values\": [" + values + "]");
  replace(options_.specs / "scale.json", "\"values\": [1, 2, 4]", "\"values\": [1]");
  replace(options_.specs / "scale.json", "\"valid\": [\"unroll * 16 <= block\"],", "");
  replace(options_.specs / "scale.json", "\"use\": {\"block\": 64, \"unroll\": 4}", "\"use\": {\"block\": 64, \"unroll\": 1}");
  options_.select = "all";
  const auto start = std::chrono::steady_clock::now();
  const Report report = generate(options_);
  const auto done = std::chrono::steady_clock::now();
  EXPECT_TRUE(generate(options_).up_to_date);
  const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
  RecordProperty("render_seconds", std::to_string(seconds(done - start)));
  std::printf("%zu images: %.3f s, nothing to do: %.3f s\n", report.images, seconds(done - start),
              seconds(std::chrono::steady_clock::now() - done));
  EXPECT_EQ(report.images, 167u * 6u);
  EXPECT_LT(seconds(done - start), 20.0);  // a debug build with sanitizers on a busy machine; a release build takes well under one
}

TEST(Glob, MatchesWholeIds) {
  EXPECT_TRUE(glob_matches("*", "a.b"));
  EXPECT_TRUE(glob_matches("a*c?e", "abbcbcde"));
  EXPECT_FALSE(glob_matches("a*c", "abcd"));
  EXPECT_FALSE(glob_matches("a", "ab"));
  EXPECT_TRUE(glob_matches("a**", "a"));
}

}  // namespace
}  // namespace ejk::generator

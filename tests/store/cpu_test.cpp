// The CPU backend: what it finds, compiles and loads.
#include <algorithm>

#include "backends/cpu/cpu_compile.hpp"
#include "backends/cpu/cpu_features.hpp"
#include "backends/process/owner.hpp"
#include "backends/process/process.hpp"
#include "fixtures.hpp"

namespace ejk::store {
namespace {

spec::Arch arch_of(const std::string& name, const std::string& extends, std::vector<std::string> features,
                   const std::string& machine = {}) {
  spec::Arch arch;
  arch.name = name;
  arch.platform = "cpu";
  arch.extends = extends;
  arch.requires_features = std::move(features);
  arch.machine = machine;
  return arch;
}

std::vector<spec::Arch> test_archs() {
  return {arch_of("avx2", "generic", {"avx2", "fma"}, "x86_64"), arch_of("amx", "avx512", {"amx_tile"}, "x86_64"),
          arch_of("generic", "", {}), arch_of("avx512", "avx2", {"avx512f"}, "x86_64"), arch_of("neon", "generic", {}, "aarch64")};
}

std::vector<const spec::Arch*> pointers_to(const std::vector<spec::Arch>& archs) {
  std::vector<const spec::Arch*> pointers;
  for (const auto& arch : archs) pointers.push_back(&arch);
  return pointers;
}

using Names = std::vector<std::string>;

TEST(CpuArchs, AreThoseWhoseFeaturesAndParentsFitMostSpecificFirst) {
  const auto archs = test_archs();
  const auto all = pointers_to(archs);
  EXPECT_EQ(runnable_archs(all, "x86_64", {"avx2", "fma", "avx512f"}), (Names{"cpu:avx512", "cpu:avx2", "cpu:generic"}));
  EXPECT_EQ(runnable_archs(all, "x86_64", {"avx512f", "avx2"}), (Names{"cpu:generic"})) << "a parent's feature (fma) is missing";
  EXPECT_EQ(runnable_archs(all, "aarch64", {}), (Names{"cpu:neon", "cpu:generic"}));
  EXPECT_EQ(runnable_archs(all, "riscv64", {}), (Names{"cpu:generic"}));
}

TEST(CpuFeatures, OfCpuidAndOfTheSystemAgree) {
  if (cpu_machine() != "x86_64") GTEST_SKIP() << "CPUID is x86's";
  const auto system = cpu_features();
  ASSERT_FALSE(system.empty());
  for (const auto& name : cpuid_features()) {
    if (!system.contains(name) && name.starts_with("amx")) continue;  // a system may hide tiles it does not hand out
    EXPECT_TRUE(system.contains(name)) << name;
  }
  for (const char* name : {"fma", "avx2", "avx512f", "avx512_bf16", "movbe", "bmi2"})
    EXPECT_EQ(system.contains(name), cpuid_features().contains(name)) << name;
}

TEST(CpuCaches, AreReadInSysfsUnits) {
  EXPECT_EQ(parse_cache_size("48K"), 49152);
  EXPECT_EQ(parse_cache_size("2M"), 2097152);
  EXPECT_EQ(parse_cache_size("512"), 512);
  EXPECT_EQ(parse_cache_size(""), 0);
  EXPECT_EQ(parse_cache_size("large"), 0);
}

TEST(CpuProbe, NamesTheMachineAndItsThreads) {
  const auto archs = test_archs();
  const auto all = pointers_to(archs);
  const auto probe = cpu_backend().probe(all, 0);
  ASSERT_TRUE(probe.available);
  EXPECT_EQ(probe.archs.back(), "cpu:generic");
  EXPECT_EQ(probe.fingerprint, "cpu-" + probe.archs.front().substr(4) + "-" + std::to_string(cpu_threads()) + "t");
  EXPECT_NE(probe.description.find("thread"), std::string::npos);
  EXPECT_EQ(probe.properties.front().first, "threads");
}

TEST(CpuCompile, MakesTheSameBytesEachTime) {
  const auto image = answer_image("same", 3);
  const auto one = compile(image), two = compile(image);
  ASSERT_TRUE(one.ok) << one.log;
  EXPECT_EQ(one.binary, two.binary);
  EXPECT_EQ(one.command, two.command);
  EXPECT_EQ(one.command.front().find('/'), std::string::npos);
  EXPECT_GT(one.resources.front().second, 0);
  EXPECT_FALSE(one.compiler.empty());
}

TEST(CpuCompile, KeepsNanAndInfinity) {
  const auto image = make_test_image(
      "nan",
      "extern \"C\" __attribute__((visibility(\"default\"))) void ejk_answer(void* const* a, const void*) {\n"
      "  volatile double zero = 0; const double nan = zero / zero;\n  **static_cast<long* const*>(a[0]) = nan != nan ? 1 : 0;\n}\n");
  const auto result = compile(image);
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_EQ(answer_of(*cpu_backend().load_bytes(result.binary, image)), 1);
}

TEST(CpuCompile, ReportsTheCompilersWordsWithoutThisMachinesPaths) {
  const auto result = compile(make_test_image("broken", "int f() { return undeclared_thing; }\n"));
  EXPECT_FALSE(result.ok);
  EXPECT_FALSE(result.transient);
  EXPECT_NE(result.log.find("source.cpp:1:18: error:"), std::string::npos) << result.log;
  EXPECT_NE(result.log.find("undeclared_thing"), std::string::npos);
}

TEST(CpuCompile, LeavesNoFolderBehind) {
  Folder folder;
  const Variable place("TMPDIR", folder.path.string());
  (void)compile(answer_image("tidy", 1));
  (void)compile(make_test_image("untidy", "#error no\n"));
  EXPECT_TRUE(fs::is_empty(folder.path));
}

// As in a container whose TMPDIR was set for another machine.
TEST(CpuCompile, WithoutTheFolderOfTmpdirWorksInTmp) {
  Folder folder;
  for (const std::string place : {folder.path / "missing", fs::path("/dev/null")}) {
    const Variable missing("TMPDIR", place);
    const auto result = compile(answer_image("elsewhere", 1));
    EXPECT_TRUE(result.ok) << place << ": " << result.log;
  }
}

// Else they could exchange what is compiled for what they like: it is loaded.
TEST(CpuCompile, AFolderThatOthersCanWriteIsNotWorkedInUnlessItIsSticky) {
  Folder folder;
  const auto log = folder.path / "log", open_to_all = folder.path / "open", inner = open_to_all / "inner";
  spill(folder.path / "c++", "#!/bin/sh\npwd >> '" + log.string() + "'\nexec /usr/bin/c++ \"$@\"\n");
  fs::permissions(folder.path / "c++", fs::perms::owner_all);
  fs::create_directories(inner);
  const Variable chosen("CXX", (folder.path / "c++").string());
  const auto worked_in = [&](const fs::path& place) {
    const Variable work("TMPDIR", place.string());
    fs::remove(log);
    EXPECT_TRUE(compile(answer_image("placed", 1)).ok);
    return slurp(log).find(place.string() + "/ejk-compile-") != std::string::npos;
  };
  EXPECT_TRUE(worked_in(inner));
  fs::permissions(open_to_all, fs::perms::all);
  EXPECT_FALSE(worked_in(open_to_all));
  EXPECT_FALSE(worked_in(inner)) << "the folder above";
  fs::permissions(open_to_all, fs::perms::all | fs::perms::sticky_bit);
  EXPECT_TRUE(worked_in(open_to_all));
  EXPECT_TRUE(worked_in(inner));
  if (chown(inner.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can give folders away";
  EXPECT_FALSE(worked_in(inner));
}

// A disk without room is no missing compiler; and once there is room, the compiler is found.
TEST(CpuCompile, AFullDiskIsToldBeforeAnythingOfCompilers) {
  Folder folder;
  const auto compiler_that = [&](const std::string& does) {
    spill(folder.path / "c++", "#!/bin/sh\ncase \"$*\" in *--version*) echo cc 1; exit 0;; esac\n" + does + "\nexit 1\n");
    fs::permissions(folder.path / "c++", fs::perms::owner_all);
  };
  compiler_that("echo 'cannot write output: No space left on device' >&2");
  const Variable only("PATH", folder.path.string()), none("CXX", "");
  std::string why;
  EXPECT_FALSE(cpu_backend().can_compile(generic_arch(), why));
  EXPECT_EQ(why.find("no C++ compiler"), std::string::npos) << why;
  EXPECT_TRUE(why.starts_with("the C++ compiler " + (folder.path / "c++").string())) << why;
  EXPECT_NE(why.find("cannot work now: cannot write output: No space left on device"), std::string::npos) << why;
  compiler_that("echo no >&2");
  EXPECT_FALSE(cpu_backend().can_compile(generic_arch(), why));
  EXPECT_EQ(why.find("No space left"), std::string::npos) << "asked again: " << why;
}

TEST(CpuCompile, OfACrashingCompilerIsWorthAnotherTry) {
  Folder folder;
  write_compiler(folder.path / "cc", folder.path / "log", "kill -9 $$");
  const Variable chosen("CXX", (folder.path / "cc").string());
  const auto result = compile(answer_image("crash", 1));
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(result.transient);
  EXPECT_NE(result.log.find("was ended by signal 9"), std::string::npos) << result.log;
}

TEST(CpuCompile, WithoutACompilerSaysWhatWasLookedFor) {
  Folder folder;
  const Variable nowhere("PATH", folder.path.string()), none("CXX", "ccache g++");
  std::string why;
  EXPECT_FALSE(cpu_backend().can_compile(generic_arch(), why));
  EXPECT_EQ(why, "no C++ compiler: looked for c++, g++, clang++ on PATH");
  const auto result = compile(answer_image("none", 1));
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.log, why);
}

TEST(CpuCompile, PassesOverACompilerThatCannotBuildASmallKernel) {
  Folder folder;
  spill(folder.path / "c++",
        "#!/bin/sh\ncase \"$*\" in *--version*) echo ancient 1.0;; *) echo 'no such option: -std=c++20'; exit 1;; esac\n");
  fs::permissions(folder.path / "c++", fs::perms::owner_all);
  const std::string before = std::getenv("PATH");
  {
    const Variable only("PATH", folder.path.string());
    std::string why;
    EXPECT_FALSE(cpu_backend().can_compile(generic_arch(), why));
    EXPECT_NE(why.find("(ancient 1.0) does not build a small kernel: no such option: -std=c++20"), std::string::npos) << why;
  }
  const Variable first("PATH", folder.path.string() + ":" + before);
  EXPECT_NE(cpu_backend().compiler(generic_arch()).find("g++"), std::string::npos);
}

TEST(CpuCompile, ForAForeignMachineUsesACrossCompilerOrSaysWhichOneIsMissing) {
  const auto arch = arch_of("neon", "generic", {}, cpu_machine() == "aarch64" ? "x86_64" : "aarch64");
  auto image = answer_image("cross", 1);
  std::string why;
  if (!cpu_backend().can_compile(arch, why)) {
    EXPECT_NE(why.find("no C++ compiler for " + arch.machine), std::string::npos) << why;
    return;
  }
  const auto result = cpu_backend().compile(image, arch);
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_THROW((void)cpu_backend().load_bytes(result.binary, image), std::runtime_error);
}

TEST(SharedObject, LoadedFromMemoryTwiceIsTwoObjects) {
  const auto one = answer_image("first", 1), two = answer_image("second", 2);
  const auto first = cpu_backend().load_bytes(compile(one).binary, one), second = cpu_backend().load_bytes(compile(two).binary, two);
  EXPECT_EQ(answer_of(*first), 1);
  EXPECT_EQ(answer_of(*second), 2);
  EXPECT_EQ(first->entry("no_such_entry"), nullptr);
}

TEST(SharedObject, ThatIsNoneIsRefusedWithTheLoadersWords) {
  const auto image = answer_image("junk", 1);
  try {
    (void)cpu_backend().load_bytes("this is no ELF file", image);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot load " + image.id + " from memory"), std::string::npos) << error.what();
  }
}

TEST(Process, ThatHangsIsStoppedWithAllItStarted) {
  Folder folder;
  const auto result = run_process({{"/bin/sh", "-c", "sleep 60 & sleep 60"}, {}, {}, 1});
  EXPECT_TRUE(result.timed_out);
  EXPECT_FALSE(result.ok());
}

TEST(Process, ThatCannotStartSaysWhy) {
  const auto result = run_process({{"/nonexistent/compiler"}, {}, {}, 1});
  EXPECT_FALSE(result.started);
  EXPECT_EQ(result.output, "cannot start /nonexistent/compiler: No such file or directory");
}

TEST(Process, RunsInAFolderWithAndWithoutAShell) {
  Folder folder;
  const auto strange = folder.path / "it's a folder";
  std::filesystem::create_directory(strange);
  for (const bool shell : {false, true}) {
    ProcessRequest request{{"/bin/sh", "-c", "pwd; printf '%s;' \"$@\"", "sh", "a b", "$c"}, strange, {}, 10};
    request.shell_changes_folder = shell;
    const auto result = run_process(request);
    EXPECT_TRUE(result.ok()) << result.output;
    EXPECT_EQ(result.output, std::filesystem::canonical(strange).string() + "\na b;$c;");
    request.folder = folder.path / "absent";
    EXPECT_FALSE(run_process(request).ok());
  }
}

TEST(Owner, IsDeadOnceItsProcessIsGone) {
  EXPECT_FALSE(Owner::self().dead());
  const auto parsed = Owner::parse(Owner::self().text());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->text(), Owner::self().text());
  auto gone = Owner::self();
  gone.pid = start_child([] { return 0; });
  wait_for(static_cast<pid_t>(gone.pid));
  EXPECT_TRUE(gone.dead());
  auto reused = Owner::self();
  reused.start += 1;
  EXPECT_TRUE(reused.dead()) << "the pid lives, but as another process";
  auto elsewhere = Owner::self();
  elsewhere.host += "x";
  elsewhere.pid = 999999999;
  EXPECT_FALSE(elsewhere.dead()) << "other machines cannot be judged from here";
  EXPECT_FALSE(Owner::parse("nonsense"));
}

}  // namespace
}  // namespace ejk::store

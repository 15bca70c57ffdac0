// The grid's barrier in the emulator: all blocks alive at once, and mutants of a kernel that lives by it.
#include <gtest/gtest.h>

#include <fstream>

#include "ejk/ejk.hpp"
#include "emulator/program.hpp"
#include "launches/walk.hpp"
#include "tests/paths.hpp"

namespace ejk::grid_barrier_test {
namespace {

std::string complaint(const std::string& body, std::int64_t blocks, std::int64_t threads) {
  const Program program(
      "#include \"device/tile/grid_barrier.h\"\nKERNEL(1024, 1) kernel(void* a, void* b, void*, int64_t n) {\n"
      "const GridBarrier grid_barrier{nullptr, 0};\n" +
      body + "\n}\n");
  Dimensions dimensions{blocks, 1, 1, threads, 0};
  dimensions.cooperative = true;
  return program.complaint(dimensions);
}

constexpr char all_must[] = ": every thread of every block of a cooperative launch must come to it";

TEST(GridBarrier, ThatABlockDoesNotReach) {
  EXPECT_EQ(complaint("grid_barrier(); if (block_x() != 1) grid_barrier();", 6, 64),
            std::string("simt: a test's kernel: kernel: grid_barrier 2: threads 0-63 of block (0, 0, 0), threads 0-63 of block (2, 0, 0), "
                        "threads 0-63 of block (3, 0, 0) and 2 blocks more wait at it; threads 0-63 of block (1, 0, 0) have exited") +
                all_must);
}

TEST(GridBarrier, ThatSomeThreadsOfABlockDoNotReach) {
  EXPECT_EQ(complaint("if (block_x() == 1 && thread_x() > 60) return; grid_barrier();", 2, 64),
            std::string("simt: a test's kernel: kernel: grid_barrier 1: threads 0-63 of block (0, 0, 0), threads 0-60 of block (1, 0, 0) "
                        "wait at it; threads 61-63 of block (1, 0, 0) have exited") +
                all_must);
  EXPECT_EQ(complaint("if (thread_x() < 32) grid_barrier(); else sync_block();", 2, 64),
            "simt: a test's kernel: kernel: block (0, 0, 0) of 64 threads: threads 32-63 wait at sync_block; threads 0-31 wait at "
            "grid_barrier: every live thread of a block, or lane of a warp, must come to the same word");
}

TEST(GridBarrier, MoreThreadsThanStacksAreRefused) {
  EXPECT_EQ(complaint("grid_barrier();", 16, 1024), "");
  EXPECT_EQ(complaint("grid_barrier();", 17, 1024),
            "simt: a test's kernel: kernel: a cooperative grid of 17 blocks of 1024 threads: its 17408 threads are alive at once, at most "
            "16384 here; make the grid smaller");
}

TEST(GridBarrier, InALaunchThatIsNotCooperative) {
  const Program program(
      "#include \"device/tile/grid_barrier.h\"\nKERNEL(64, 1) kernel(void*, void*, void*, int64_t) { GridBarrier{nullptr, 0}(); }\n");
  EXPECT_NE(program.complaint({2, 1, 1, 64, 0}).find("grid_barrier in a launch that is not cooperative"), std::string::npos);
}

// The kernel of tests/launches with a word of its template changed: what a call of it says, or "wrong" where its result is.
class GridBarrierMutant : public StoreTest {
 protected:
  void SetUp() override { add_backend(simt_backend()); }

  std::string verdict(const std::string& word, const std::string& by) {
    const std::filesystem::path source = test::source_dir() + "/tests/launches/data", store = folder / "mutant";
    std::filesystem::create_directories(store / "templates");
    std::filesystem::create_directory_symlink(source / "specs", store / "specs");
    std::filesystem::copy(source / "templates/walk_at_once", store / "templates/walk_at_once");
    std::filesystem::create_directory_symlink(source / "templates/walk", store / "templates/walk");
    std::filesystem::create_directory_symlink(test::source_dir() + "/templates/device", store / "templates/device");
    const auto file = store / "templates/walk_at_once/walk_at_once.gpu.cu";
    std::ifstream stream(file);
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    stream.close();
    const auto at = text.find(word);
    EXPECT_NE(at, std::string::npos) << word;
    std::ofstream(file) << text.replace(at, word.size(), by);
    EXPECT_TRUE(add_store(store.string()));
    for (const auto order : {SimtOrder::forwards, SimtOrder::backwards}) {
      const Order set(order);
      Walk walk(6, 200);
      const auto status = call("walk_at_once", walk.tensors(warps), {{"items", std::int64_t{5}}});
      if (!status) return message_of(status);
      if (walk.out != walk.expected()) return "wrong";
    }
    return "right";
  }
};

TEST_F(GridBarrierMutant, NoneIsRight) { EXPECT_EQ(verdict("grid_barrier();", "grid_barrier();"), "right"); }
TEST_F(GridBarrierMutant, WithoutTheBarrierIsWrong) { EXPECT_EQ(verdict("grid_barrier();", ""), "wrong"); }
TEST_F(GridBarrierMutant, WithABarrierOfTheBlockIsWrong) { EXPECT_EQ(verdict("grid_barrier();", "sync_block();"), "wrong"); }
TEST_F(GridBarrierMutant, WithOneBufferIsWrong) { EXPECT_EQ(verdict("(t + 1) % 2", "t % 2"), "wrong"); }
TEST_F(GridBarrierMutant, WithoutTheBarrierInOneBlockIsRefused) {
  const auto words = verdict("grid_barrier();", "if (t != 3 || block_x() != 1) grid_barrier();");
  EXPECT_NE(words.find("walk: grid_barrier 6: "), std::string::npos) << words;
  EXPECT_NE(words.find("have exited"), std::string::npos) << words;
}

}  // namespace
}  // namespace ejk::grid_barrier_test

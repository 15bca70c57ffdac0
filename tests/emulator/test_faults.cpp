// What a GPU would hang on, or get wrong silently, is reported with its place.
#include <gtest/gtest.h>

#include <vector>

#include "emulator/program.hpp"
#include "emulator/sanitizer.hpp"

namespace ejk::faults_test {
namespace {

std::string kernel(const std::string& body) { return "KERNEL(1024, 1) kernel(void* a, void* b, void*, int64_t n) {\n" + body + "\n}\n"; }

std::string complaint(const std::string& body, const Dimensions& dimensions = {1, 1, 1, 64, 1024}) {
  alignas(256) static char memory[4096];
  return Program(kernel(body)).complaint(dimensions, memory, memory + 2048);
}

constexpr char one_word[] = ": every live thread of a block, or lane of a warp, must come to the same word";

TEST(SimtFaults, ABarrierThatSomeThreadsDoNotReach) {
  EXPECT_EQ(
      complaint("if (block_y() == 1 && thread_x() % 2) any_in_block(true); else sync_block();", {2, 2, 1, 40, 0}),
      std::string(
          "simt: a test's kernel: kernel: block (0, 1, 0) of 40 threads: threads 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, "
          "30, 32, 34, 36, 38 wait at sync_block; threads 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39 wait "
          "at "
          "any_in_block") +
          one_word);
}

TEST(SimtFaults, AWordOfTheWarpInsideABranch) {
  EXPECT_EQ(complaint("if (thread_x() == 5) return;\nif (lane() < 16) shuffle_xor(1, 1); else sync_warp();\nsync_block();"),
            std::string("simt: a test's kernel: kernel: block (0, 0, 0) of 64 threads: threads 16-31, 48-63 wait at sync_warp; threads "
                        "0-4, 6-15, 32-47 wait "
                        "at shuffle_xor; threads 5 have exited") +
                one_word);
  EXPECT_NE(complaint("if (lane() == 0) any_in_warp(true);\nsync_block();").find("threads 0, 32 wait at any_in_warp"), std::string::npos);
}

TEST(SimtFaults, ShufflesOfTwoKinds) {
  EXPECT_NE(
      complaint("lane() < 8 ? shuffle_down(1, 1) : shuffle(1, 0);").find("wait at shuffle_down; threads 8-31, 40-63 wait at shuffle:"),
      std::string::npos);
}

TEST(SimtFaults, MatrixWordsByPartOfAWarp) {
  const char* sentence = "thread 15: load_matrices by a warp of which only 16 of 32 lanes live: it needs all of them";
  EXPECT_NE(complaint("uint32_t r[4]; load_matrices(r, shared_pointer(dynamic_shared()));", {1, 1, 1, 16, 64}).find(sentence),
            std::string::npos);
  EXPECT_NE(complaint("float c[4] = {}; uint32_t r[4] = {}; if (lane() == 7) return; mma_16x8x16<half>(c, r, 0, 0);")
                .find("mma_16x8x16<half> by a warp of which only 31 of 32 lanes live"),
            std::string::npos);
}

TEST(SimtFaults, MisalignedAccesses) {
  const auto ends_with = [](const std::string& text, const std::string& end) { return text.ends_with(end); };
  for (const char* body :
       {"load_pack<4>(static_cast<const float*>(a) + 1);", "store_pack(static_cast<float*>(a) + 2, Pack<float, 4>{});",
        "load_once<8>(static_cast<const uint16_t*>(a) + 4);", "store_once(static_cast<uint32_t*>(a) + 3, Pack<uint32_t, 4>{});",
        "copy_async_16(shared_pointer(dynamic_shared()) + 8, a, true);",
        "copy_async_16(shared_pointer(dynamic_shared()), static_cast<char*>(a) + 4, true);",
        "uint32_t r[4]; load_matrices(r, shared_pointer(dynamic_shared() + 2));"})
    EXPECT_TRUE(ends_with(complaint(body), "which is no multiple of 16 bytes")) << body << complaint(body);
  EXPECT_TRUE(ends_with(complaint("load_pack<2>(static_cast<const float*>(a) + 1);"), "which is no multiple of 8 bytes"));
  EXPECT_EQ(complaint("load_pack<2>(static_cast<const float*>(a) + 2);"), "");
}

TEST(SimtFaults, CopiesBetweenTheWrongMemories) {
  const auto fails_with = [](const std::string& body, const char* words) { return complaint(body).find(words) != std::string::npos; };
  EXPECT_TRUE(fails_with("shared_pointer(a);", "which is not in the block's shared memory"));
  EXPECT_TRUE(fails_with("copy_async_16(shared_pointer(dynamic_shared()) + 1024, b, true);",
                         "copy_async_16 to shared memory at shared address 0x80000400: its 16 bytes are not in the block's shared memory"));
  EXPECT_TRUE(fails_with("copy_async_16(shared_pointer(dynamic_shared()), dynamic_shared() + 16, true);", "it reads global memory"));
  EXPECT_TRUE(fails_with("__shared__ char x[64]; uint32_t r[4]; load_matrices(r, (shared_pointer(x) + 0x100000) / 16 * 16);",
                         "its 16 bytes are not in the block's shared memory"));
}

TEST(SimtFaults, LaunchesThatADriverRefuses) {
  EXPECT_EQ(complaint("", {1, 1, 1, 1025, 0}), "simt: a test's kernel: kernel: a block of 1025 threads, expected 1 to 1024");
  EXPECT_EQ(complaint("", {1, 65536, 1, 32, 0}),
            "simt: a test's kernel: kernel: a grid of 1 x 65536 x 1 blocks, expected 1 to 2147483647 x 65535 x 65535");
  EXPECT_EQ(complaint("", {1, 1, 1, 32, 232449}), "simt: a test's kernel: kernel: 232449 bytes of shared memory, at most 232448");
  EXPECT_EQ(complaint("__shared__ char x[49153]; x[thread_x()] = 0;"),
            simt::sanitized ? "" : "simt: a test's kernel: kernel: 49153 bytes of __shared__ variables, at most 49152");
}

TEST(SimtFaults, LeaveTheEmulatorUsable) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(complaint("if (lane() < 16) sync_warp(); else sync_block();"), "");
    EXPECT_EQ(complaint("sync_warp(); sync_block(); shuffle_xor(1, 1);"), "");
  }
}

constexpr char behind_shared[] = "dynamic_shared()[1024 + thread_x()] = 0;";
constexpr char behind_tensor[] = "static_cast<volatile char*>(a)[4096 + 16 * thread_x()] = 0;";

TEST(SimtFaults, WritesBehindDynamicSharedMemory) {
  if (simt::sanitized)
    EXPECT_DEATH(complaint(behind_shared), "heap-buffer-overflow");
  else
    EXPECT_NE(complaint(behind_shared).find("it wrote behind its 1024 bytes of dynamic shared memory"), std::string::npos);
}

TEST(SimtFaults, WritesBehindATensorUnderTheSanitizer) {
  if (!simt::sanitized) GTEST_SKIP() << "only the address sanitizer sees them";
  EXPECT_DEATH(complaint(behind_tensor), "global-buffer-overflow");
  const Program reads(kernel("static_cast<volatile char*>(a)[n];"));
  void* memory = simt_backend().memory()->allocate(0, 100);
  EXPECT_EQ(reads.complaint({}, memory, nullptr, nullptr, 99), "");
  EXPECT_DEATH(reads.complaint({}, memory, nullptr, nullptr, 100), "heap-buffer-overflow");
  simt_backend().memory()->free(0, memory);
}

TEST(SimtFaults, WritesBehindASharedVariableUnderTheSanitizer) {
  if (!simt::sanitized) GTEST_SKIP() << "only the sanitizers see them";
  EXPECT_DEATH(complaint("__shared__ int x[64], y[64];\nx[2 * thread_x()] = y[thread_x()];"), "out of bounds|global-buffer-overflow");
}

}  // namespace
}  // namespace ejk::faults_test

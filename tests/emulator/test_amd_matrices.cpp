// Matrix products of AMD's waves on the emulator: single elements by register and lane, whole tiles by device/matrix/amd_matrix.h, faults.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "emulator/program.hpp"

namespace ejk {
namespace {

int wave_of(const std::string& arch) { return arch == "cdna" ? 64 : 32; }

std::string program_text(const std::string& before, const std::string& body) {
  return "#include \"device/matrix/amd_matrix.h\"\n" + before + "KERNEL(64, 1) kernel(void* a, void* b, void* c, int64_t n) {\n" + body +
         "\n}\n";
}

// Element `ja` of operand a of lane `la` is 1, and element `jb` of b of lane `lb`; all others are 0. By AMD's tables that is one sum, in
// register `i` of `lane`, if both have the same k.
struct Single {
  const char* arch;
  int la, ja, lb, jb;
  int lane, i;  // -1: their k differ
};

const Single singles[] = {
    {"cdna", 0, 0, 0, 0, 0, 0},                                        // A[0][0] B[0][0]: D[0][0] in v0 of lane 0
    {"cdna", 16, 1, 18, 1, 2, 0},                                      // A[0][5] B[5][2]: D[0][2]
    {"cdna", 37, 3, 47, 3, 31, 1},                                     // A[5][11] B[11][15]: D[5][15] in v1 of lane 16 + 15
    {"cdna", 63, 2, 48, 2, 48, 3},                                     // A[15][14] B[14][0]: D[15][0] in v3 of lane 48
    {"cdna", 16, 1, 18, 2, -1, -1},    {"rdna3", 3, 9, 4, 9, 20, 1},   // A[3][9] B[9][4]: D[3][4] in v1 of lane 16 + 4
    {"rdna3", 14, 15, 15, 15, 15, 7},                                  // D[14][15] in v7 of lane 15
    {"rdna3", 14, 15, 15, 14, -1, -1}, {"rdna4", 16, 0, 18, 0, 2, 0},  // A[0][4] B[4][2]: D[0][2]
    {"rdna4", 9, 4, 5, 4, 21, 1},                                      // A[9][8] B[8][5]: D[9][5] in v1 of lane 16 + 5
    {"rdna4", 31, 7, 31, 7, 31, 7},                                    // A[15][15] B[15][15]: D[15][15] in v7 of lane 31
    {"rdna4", 0, 4, 16, 0, -1, -1},                                    // k 8 and 4
};

TEST(AmdMatrices, SingleElementsAreWhereAmdsTablesSay) {
  for (const auto* type : {"half", "bfloat16"})
    for (const auto& single : singles) {
      const std::string one = std::string(type) == "half" ? "0x3c00u" : "0x3f80u";
      const auto text = [&](const char* operand, int lane, int j) {
        const std::string both = single.arch == std::string("rdna3") ? " % 16" : "";
        return "  if (wave_lane()" + both + " == " + std::to_string(lane) + ") " + operand + ".words[" + std::to_string(j / 2) +
               "] = " + one + " << " + std::to_string(16 * (j % 2)) + ";\n";
      };
      const Program program(
          program_text("", "  Operand x = {}, y = {};\n  Sums s = {};\n" + text("x", single.la, single.ja) +
                               text("y", single.lb, single.jb) + "  multiply<" + type + ">(s, x, y);\n" +
                               "  for (int i = 0; i < SUMS; ++i) static_cast<float*>(a)[SUMS * thread_x() + i] = s.at[i];"),
          {}, single.arch);
      std::vector<float> sums(256, -1), expected(256, 0);
      program.run({1, 1, 1, wave_of(single.arch), 0}, sums.data());
      if (single.lane >= 0) expected[static_cast<std::size_t>(256 / wave_of(single.arch) * single.lane + single.i)] = 1;
      EXPECT_EQ(sums, expected) << single.arch << " " << type << ", lanes " << single.la << " and " << single.lb;
    }
}

class AmdTiles : public ::testing::TestWithParam<const char*> {};

// Small integers: sums are exact.
TEST_P(AmdTiles, AreProductsAndCanBeTheNextOnesOperand) {
  const Program program(program_text("",
                                     "  char* memory = dynamic_shared();\n  auto* tiles = reinterpret_cast<bfloat16*>(memory);\n"
                                     "  for (int i = thread_x(); i < 3 * 16 * 20; i += WAVE) tiles[i] = i % 20 < 16 ? static_cast<const "
                                     "bfloat16*>(b)[i / 20 * 16 + i % 20] : bfloat16{0x7fff};\n"
                                     "  sync_block();\n  const SharedPointer at = shared_pointer(memory);\n  Sums s = {}, t = {};\n"
                                     "  multiply<bfloat16>(s, load_operand(at, 40), load_operand(at + 640, 40));\n"
                                     "  multiply<bfloat16>(t, load_operand(at + 1280, 40), operand_of<bfloat16>(s));\n"
                                     "  float* out = static_cast<float*>(a);\n"
                                     "  for (int i = 0; i < SUMS; ++i) out[16 * matrix_row(i) + matrix_column()] = s.at[i], out[256 + 16 * "
                                     "matrix_row(i) + matrix_column()] = t.at[i];\n"
                                     "  static_cast<float*>(c)[2 * thread_x()] = largest_of_column(s.at[0]);\n  static_cast<float*>(c)[2 * "
                                     "thread_x() + 1] = sum_of_column(1.0f);"),
                        {}, GetParam());
  std::vector<std::uint16_t> tiles(3 * 256);
  std::vector<float> values(3 * 256);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 7 % 5) - 2) * (i % 3 == 0 ? 1.0f : 0.0f);
    tiles[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
  }
  const auto wave = static_cast<std::size_t>(wave_of(GetParam()));
  std::vector<float> found(512, NAN), columns(2 * wave, NAN);
  program.run({1, 1, 1, static_cast<std::int64_t>(wave), 2048}, found.data(), tiles.data(), columns.data());
  // b's tile lies with its columns as rows, as a's does with its rows.
  std::vector<float> first(256), second(256);
  for (std::size_t r = 0; r < 16; ++r)
    for (std::size_t c = 0; c < 16; ++c)
      for (std::size_t k = 0; k < 16; ++k) first[16 * r + c] += values[16 * r + k] * values[256 + 16 * c + k];
  for (std::size_t r = 0; r < 16; ++r)
    for (std::size_t c = 0; c < 16; ++c)
      for (std::size_t k = 0; k < 16; ++k) second[16 * r + c] += values[512 + 16 * r + k] * first[16 * k + c];
  EXPECT_EQ(std::vector<float>(found.begin(), found.begin() + 256), first);
  EXPECT_EQ(std::vector<float>(found.begin() + 256, found.end()), second);
  for (std::size_t lane = 0; lane < wave; ++lane) {
    EXPECT_EQ(columns[2 * lane], columns[2 * (lane % 16)]);
    EXPECT_EQ(columns[2 * lane + 1], static_cast<float>(wave / 16));
  }
}

INSTANTIATE_TEST_SUITE_P(Archs, AmdTiles, ::testing::Values("cdna", "rdna3", "rdna4"),
                         [](const auto& info) { return std::string(info.param); });

// 2^-15 times 1, 16 times.
TEST(AmdMatrices, DenormalHalvesAreZeroOnCdna) {
  const auto sum_on = [](const char* arch) {
    const Program program(program_text("",
                                       "  Operand x = {}, y = {};\n  Sums s = {};\n"
                                       "  for (int i = 0; i < OPERAND_WORDS; ++i) x.words[i] = 0x02000200, y.words[i] = 0x3c003c00;\n"
                                       "  multiply<half>(s, x, y);\n  if (thread_x() == 0) static_cast<float*>(a)[0] = s.at[0];"),
                          {}, arch);
    float found = NAN;
    program.run({1, 1, 1, wave_of(arch), 0}, &found, nullptr, nullptr);
    return found;
  };
  EXPECT_EQ(sum_on("cdna"), 0);
  EXPECT_EQ(sum_on("rdna3"), 0x1p-11f);
  EXPECT_EQ(sum_on("rdna4"), 0x1p-11f);
}

TEST(AmdMatrices, MisuseIsReported) {
  const auto complaint = [](const char* arch, const std::string& body) {
    const Program program(program_text("", "  Operand x = {}, y = {};\n  Sums s = {};\n" + body), {}, arch);
    return program.complaint({1, 1, 1, wave_of(arch), 0});
  };
  EXPECT_NE(complaint("rdna3", "x.words[3] = wave_lane() / 16; multiply<half>(s, x, y);")
                .find("a matrix product whose operand a differs between lanes 0 and 16, which must have the same"),
            std::string::npos);
  EXPECT_NE(complaint("cdna", "if (lane() == 3) return; multiply<half>(s, x, y);")
                .find("multiply<half> by a wave of which only 62 of 64 lanes live: it needs all of them"),
            std::string::npos);
  EXPECT_NE(complaint("cdna", "if (warp() == 0) exchange_wave(1, 32);\n  else sync_block();").find("threads 0-31 wait at exchange_wave"),
            std::string::npos)
      << "a warp alone cannot exchange over the wave";
}

}  // namespace
}  // namespace ejk

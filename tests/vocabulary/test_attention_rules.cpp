// The CPU vocabulary of the attention kernels: random numbers, visible keys, and the AMX tiles' model.
#include <gtest/gtest.h>
#include <cstdint>
#include <limits>

#include "device/attention/visibility.h"
#include "device/cpu.h"
#include "device/matrix/amx.h"
#include "device/number/philox_vector.h"

namespace {

// Known answers of Random123's test vectors.
TEST(Philox, gives_the_published_numbers) {
  uint32_t zeros[4] = {0, 0, 0, 0};
  philox(zeros, 0);
  const uint32_t of_zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u};
  philox(ones, ~uint64_t{0});
  const uint32_t of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(zeros[i], of_zeros[i]);
    EXPECT_EQ(ones[i], of_ones[i]);
  }
}

TEST(Philox, gives_each_lane_what_its_own_counter_gives) {
  Words lanes[4];
  for (int word = 0; word < 4; ++word)
    for (int lane = 0; lane < LANES; ++lane)
      lanes[word][lane] = static_cast<uint32_t>(0x9e3779b9u * static_cast<uint32_t>(word + 7 * lane + 1));
  uint32_t alone[LANES][4];
  for (int lane = 0; lane < LANES; ++lane)
    for (int word = 0; word < 4; ++word) alone[lane][word] = lanes[word][lane];
  philox(lanes, 0x123456789abcdefull);
  for (int lane = 0; lane < LANES; ++lane) {
    philox(alone[lane], 0x123456789abcdefull);
    for (int word = 0; word < 4; ++word) EXPECT_EQ(lanes[word][lane], alone[lane][word]);
    for (int64_t j = 0; j < 8; ++j) EXPECT_EQ(dropout_lane(lanes, j)[lane], (alone[lane][j / 2] >> (16 * (j % 2))) & 0xffff);
  }
}

// The rule of each key by itself, as docs/semantics.md, "Visibility", words it.
bool sees(const Visibility& rule, int64_t i, int64_t offset, int64_t j) {
  const int64_t right = rule.causal ? 0 : rule.window_right;
  return (rule.window_left < 0 || j >= i + offset - rule.window_left) && (right < 0 || j <= i + offset + right);
}

TEST(Visibility, is_the_range_of_the_keys_that_the_rules_allow) {
  constexpr int64_t keys = 7;
  for (const bool causal : {false, true})
    for (int64_t left = -1; left < 4; ++left)
      for (int64_t right = -1; right < 4; ++right)
        for (int64_t offset = -9; offset < 10; ++offset)
          for (int64_t i = 0; i < 5; ++i) {
            const Visibility rule{causal, left, right};
            const KeyRange range = visible_keys(rule, i, offset, keys);
            for (int64_t j = 0; j < keys; ++j)
              EXPECT_EQ(j >= range.first && j < range.end, sees(rule, i, offset, j))
                  << causal << left << right << ' ' << offset << ' ' << i << ' ' << j;
            EXPECT_GE(range.first, 0);
            EXPECT_LE(range.first, range.end);
            EXPECT_LE(range.end, keys);
          }
}

TEST(Visibility, survives_the_largest_offsets_and_windows) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  const auto count = [](const Visibility& rule, int64_t offset) {
    const KeyRange range = visible_keys(rule, 3, offset, 10);
    return range.end - range.first;
  };
  EXPECT_EQ(count({false, most, most}, 0), 10);
  EXPECT_EQ(count({true, -1, -1}, most), 10);
  EXPECT_EQ(count({true, -1, -1}, least), 0);
  EXPECT_EQ(count({false, 5, 5}, most), 0);
}

// Without AMX in the compile flags this judges the model, with them the instructions.
TEST(Amx, multiplies_rows_by_pairs) {
  bfloat16 a[16][32], b[16][32];
  float c[16][16], truth[16][16];
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < 32; ++k) a[m][k] = from_float<bfloat16>(static_cast<float>((m * 7 + k * 3) % 11 - 5));
  for (int p = 0; p < 16; ++p)
    for (int n = 0; n < 32; ++n) b[p][n] = from_float<bfloat16>(static_cast<float>((p * 5 + n * 13) % 9 - 4));
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      c[m][n] = truth[m][n] = static_cast<float>(m - n);
      for (int k = 0; k < 32; ++k) truth[m][n] += to_float(a[m][k]) * to_float(b[k / 2][2 * n + k % 2]);
    }
  amx_configure();
  amx_load<0>(c, 64);
  amx_load<4>(a, 64);
  amx_load<6>(b, 64);
  amx_multiply<0, 4, 6>();
  amx_store<0>(c, 64);
  amx_release();
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) EXPECT_EQ(c[m][n], truth[m][n]);
}

}  // namespace

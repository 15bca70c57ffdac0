// The CPU vocabulary's blocked matrix product and its groups of rows, against plain loops.
#include <gtest/gtest.h>
#include <cmath>
#include <vector>

#include "device/cpu.h"
#include "device/matrix/matrix_groups.h"
#include "device/matrix/product.h"

namespace {

constexpr int64_t DEPTH = 24;
using Shape = ProductShape<4, 3, DEPTH>;

// A row-major matrix of small integers, with a gap after each row; sums of them are exact.
struct Matrix {
  Matrix(int64_t row_count, int64_t column_count, int64_t gap)
      : rows(row_count), columns(column_count), stride(column_count + gap), data(static_cast<size_t>(row_count * stride + 1), NAN) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) at(row, column) = static_cast<float>((row * 7 + column * 5) % 11 - 5);
  }
  float& at(int64_t row, int64_t column) { return data[static_cast<size_t>(row * stride + column)]; }
  float at(int64_t row, int64_t column) const { return data[static_cast<size_t>(row * stride + column)]; }

  int64_t rows, columns, stride;
  std::vector<float> data;
};

// Blocks of every size that a tile's edge may cut, by every layout of the operands; what is not written stays NaN.
template <class Left, class Right>
void check(int64_t rows, int64_t columns, int64_t steps, bool left_turned, bool right_turned) {
  const Matrix left = left_turned ? Matrix(steps, rows, 3) : Matrix(rows, steps, 3);
  const Matrix right = right_turned ? Matrix(columns, steps, 2) : Matrix(steps, columns, 2);
  std::vector<float> found(static_cast<size_t>(rows * columns), NAN);
  std::vector<float> scratch(static_cast<size_t>(Left::floats(rows) + DEPTH * Shape::WIDTH + (rows + 3) / 4 * 4 * (columns + Shape::WIDTH)),
                             NAN);
  const auto finish = [&](int64_t row, int64_t column, int64_t height, int64_t width, const float* c) {
    for (int64_t i = 0; i < height; ++i)
      for (int64_t j = 0; j < width; ++j) found[static_cast<size_t>((row + i) * columns + column + j)] = c[i * Shape::WIDTH + j];
  };
  multiply_block<Shape>(Left{left.data.data(), left.stride}, Right{right.data.data(), right.stride}, rows, columns, steps, scratch.data(),
                        finish);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t s = 0; s < steps; ++s)
        sum += (left_turned ? left.at(s, i) : left.at(i, s)) * (right_turned ? right.at(j, s) : right.at(s, j));
      ASSERT_EQ(found[static_cast<size_t>(i * columns + j)], sum) << rows << " x " << columns << " x " << steps << " at " << i << ", " << j;
    }
}

TEST(Product, blocks_of_any_size_and_layout_are_exact) {
  for (const int64_t rows : {1, 3, 4, 5, 9})
    for (const int64_t columns : {1, 4, 11, 12, 13, 27})
      for (const int64_t steps : {0, 1, 5, 24, 25, 49, 72}) {
        check<LeftRows<float, DEPTH>, RightRows<float, Shape::WIDTH>>(rows, columns, steps, false, false);
        check<LeftRows<float, DEPTH>, RightColumns<float, Shape::WIDTH>>(rows, columns, steps, false, true);
        check<LeftColumns<float, 4, DEPTH>, RightRows<float, Shape::WIDTH>>(rows, columns, steps, true, false);
        check<LeftColumns<float, 4, DEPTH>, RightColumns<float, Shape::WIDTH>>(rows, columns, steps, true, true);
      }
}

// Every row is in one block, blocks are of one group and not above the limit, and there are not more than the grid has.
TEST(RowGroups, blocks_cover_every_row_once) {
  const int32_t sizes[][4] = {{0, 0, 0, 0}, {5, 0, 17, 3}, {40, 0, 0, 0}, {0, 0, 0, 90}, {13, -4, 13, 1}, {1, 1, 1, 1}};
  for (const auto& each : sizes)
    for (const int64_t rows : {0, 1, 25, 40}) {
      const RowGroups groups{each, 4, rows};
      std::vector<int64_t> group_of(static_cast<size_t>(rows), -1);
      const int64_t most = 16, unit = 4, grid = (rows + most - 1) / most + 5;
      for (int64_t index = 0; index < grid + 3; ++index) {
        RowBlock block;
        if (!groups.find_block(index, most, unit, block)) continue;
        EXPECT_LT(index, grid);
        EXPECT_LE(block.end - block.begin, most);
        for (int64_t row = block.begin; row < block.end; ++row) {
          EXPECT_EQ(group_of[static_cast<size_t>(row)], -1) << "row " << row << " is in two blocks";
          group_of[static_cast<size_t>(row)] = block.group;
        }
      }
      int64_t row = 0;
      for (int64_t group = 0; group < 4; ++group)
        for (int64_t i = 0; i < each[group] && row < rows; ++i) EXPECT_EQ(group_of[static_cast<size_t>(row++)], group);
      while (row < rows) EXPECT_EQ(group_of[static_cast<size_t>(row++)], 4);
    }
}

}  // namespace

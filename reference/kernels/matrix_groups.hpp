// Which rows and matrices belong together in grouped_matmul and its weight gradient: docs/semantics.md, "grouped_matmul". And their cases.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/call.hpp"

namespace ejk::reference {

// Rows [begin, end), all rows of lhs counted in one row-major list, that are multiplied by matrix number `matrix` of rhs (tgmm: make it);
// groups that rhs does not hold are not listed.
struct MatrixGroup {
  std::int64_t begin, end, matrix;
};

// `held`: matrices that rhs holds, or out.
std::vector<MatrixGroup> matrix_groups(const Call& call, std::int64_t held);
std::int64_t rows_in_all(const Call& call);  // rows of lhs: M, or B * G * M

// Sizes of another case of the same types, form and options.
spec::Case vary_matrix_groups(const spec::Case& c, Rng& rng);
// Types, form and transposition of any legal call; without sizes.
spec::Case random_matrix_groups(Rng& rng);

}  // namespace ejk::reference

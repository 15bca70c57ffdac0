// grouped_matmul in float64: docs/semantics.md, "grouped_matmul".
#include <algorithm>
#include <limits>

#include "reference/kernels/matrix_groups.hpp"
#include "reference/reference.hpp"

namespace ejk::reference::grouped_matmul {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t matrices_held(const Call& call) { return call.given("group_sizes") ? call.dim("L") : call.dim("B") * call.dim("G"); }

class GroupedMatmul : public KernelReference {
 public:
  std::string kernel() const override { return "grouped_matmul"; }

  Values compute(const Call& call) const override {
    const std::vector<double> lhs = call.input("lhs").values();
    const std::int64_t depth = call.dim("K"), width = call.dim("N");
    std::vector<double> out(at(rows_in_all(call) * width), 0.0);
    if (call.given("existing_out")) out = call.input("existing_out").values();
    const std::vector<double> rhs = matrices(call);
    for (const MatrixGroup& group : matrix_groups(call, matrices_held(call)))
      for (std::int64_t row = group.begin; row < group.end; ++row)
        for (std::int64_t k = 0; k < depth; ++k) {
          const double factor = lhs[at(row * depth + k)];
          const double* matrix_row = rhs.data() + (group.matrix * depth + k) * width;
          for (std::int64_t n = 0; n < width; ++n) out[at(row * width + n)] += factor * matrix_row[n];
        }
    return {{"out", out}};
  }

  Samples sample(const Call& call, Rng& rng) const override {
    const HostTensor &lhs = call.input("lhs"), &rhs = call.input("rhs"), *before = call.find("existing_out");
    const std::int64_t depth = call.dim("K"), width = call.dim("N");
    const bool transposed = call.flag("transpose_rhs");
    const std::vector<MatrixGroup> groups = matrix_groups(call, matrices_held(call));
    Samples samples;
    for (const std::int64_t row : some_below(rows_in_all(call), 24, rng)) {
      const auto group = std::find_if(groups.begin(), groups.end(), [&](const MatrixGroup& g) { return g.begin <= row && row < g.end; });
      for (const std::int64_t n : some_below(width, 24, rng)) {
        double sum = before ? before->at(row * width + n) : 0;
        for (std::int64_t k = 0; group != groups.end() && k < depth; ++k)
          sum += lhs.at(row * depth + k) *
                 rhs.at(transposed ? (group->matrix * width + n) * depth + k : (group->matrix * depth + k) * width + n);
        samples["out"].add(row * width + n, &sum, 1);
      }
    }
    return samples;
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override;
  spec::Case random_case(Rng& rng) const override;
  std::vector<Property> properties() const override;

 private:
  // rhs as [matrix, K, N], whichever way it lies.
  static std::vector<double> matrices(const Call& call) {
    const std::vector<double> rhs = call.input("rhs").values();
    if (!call.flag("transpose_rhs")) return rhs;
    const std::int64_t depth = call.dim("K"), width = call.dim("N");
    std::vector<double> result(rhs.size());
    for (std::int64_t matrix = 0; matrix < matrices_held(call); ++matrix)
      for (std::int64_t k = 0; k < depth; ++k)
        for (std::int64_t n = 0; n < width; ++n) result[at((matrix * depth + k) * width + n)] = rhs[at((matrix * width + n) * depth + k)];
    return result;
  }
};

// ---- cases ----

spec::Case GroupedMatmul::vary(const spec::Case& c, Rng& rng) const {
  spec::Case varied = vary_matrix_groups(c, rng);
  if (std::find(c.given.begin(), c.given.end(), "group_sizes") == c.given.end()) return varied;
  const std::int64_t groups = std::get<std::int64_t>(varied.dims.at("G"));
  if (!c.attributes.contains("group_offset")) {
    varied.dims["L"] = groups;
    return varied;
  }
  const std::int64_t offset = rng.between(0, groups);
  varied.attributes["group_offset"] = offset;
  varied.dims["L"] = rng.between(0, groups - offset);
  return varied;
}

spec::Case GroupedMatmul::random_case(Rng& rng) const {
  spec::Case c = random_matrix_groups(rng);
  if (!c.given.empty() && rng.chance(0.4)) c.attributes["group_offset"] = std::int64_t{0};
  if (rng.chance(0.4)) c.given.push_back("existing_out");
  return vary(c, rng);
}

// ---- properties ----

// Rows of no group that rhs holds, and matrices of groups without rows, may hold anything.
std::string unused_rows_and_matrices(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  Call changed = call;
  HostTensor &lhs = changed.input("lhs"), &rhs = changed.input("rhs");
  const std::int64_t depth = call.dim("K"), matrix_size = depth * call.dim("N");
  std::vector<bool> rows(at(rows_in_all(call)), false), matrices(at(matrices_held(call)), false);
  for (const MatrixGroup& group : matrix_groups(call, matrices_held(call)))
    for (std::int64_t row = group.begin; row < group.end; ++row) rows[at(row)] = matrices[at(group.matrix)] = true;
  for (std::int64_t i = 0; i < lhs.elements(); ++i)
    if (!rows[at(i / depth)]) lhs.set(i, nan);
  for (std::int64_t i = 0; i < rhs.elements(); ++i)
    if (!matrices[at(i / matrix_size)]) rhs.set(i, nan);
  return disagreement(call, run_copy(changed, execute), expected);
}

std::string one_nan(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& tensor = changed.input(rng.chance(0.5) ? "lhs" : "rhs");
  if (tensor.elements() == 0) return "";
  tensor.set(rng.between(0, tensor.elements() - 1), nan);
  return first_failure(verify_call(GroupedMatmul(), changed, execute));
}

std::string doubling(const Call& call, const Execute& execute, Rng&) {
  Values expected = run_copy(call, execute);
  for (double& value : expected["out"]) value *= 2;
  Call changed = call;
  for (const char* name : {"lhs", "existing_out"})
    if (HostTensor* tensor = changed.find(name))
      for (std::int64_t i = 0; i < tensor->elements(); ++i) tensor->set(i, 2 * tensor->at(i));
  return disagreement(call, run_copy(changed, execute), expected);
}

std::vector<Property> GroupedMatmul::properties() const {
  return {repeats_bit_for_bit([](const Call&) { return true; }),
          {"rows of no group and matrices of no rows do not matter, even NaN", writable, unused_rows_and_matrices},
          {"a NaN reaches what it is a factor of and nothing else", writable, one_nan},
          {"twice lhs and existing_out give twice the result", writable, doubling}};
}

const Registration registration{std::make_unique<GroupedMatmul>()};

}  // namespace
}  // namespace ejk::reference::grouped_matmul

// tgmm in float64: the weight gradient of docs/semantics.md, "grouped_matmul".
#include <limits>

#include "reference/kernels/matrix_groups.hpp"
#include "reference/reference.hpp"

namespace ejk::reference::tgmm {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t matrices_made(const Call& call) { return call.given("group_sizes") ? call.dim("L") : call.dim("B") * call.dim("G"); }

class WeightGradient : public KernelReference {
 public:
  std::string kernel() const override { return "tgmm"; }

  Values compute(const Call& call) const override {
    const std::vector<double> lhs = call.input("lhs").values(), dout = call.input("dout").values();
    const std::int64_t depth = call.dim("K"), width = call.dim("N");
    const bool transposed = call.flag("transpose_rhs");
    std::vector<double> out(at(matrices_made(call) * depth * width), 0.0);
    for (const MatrixGroup& group : matrix_groups(call, matrices_made(call)))
      for (std::int64_t row = group.begin; row < group.end; ++row)
        for (std::int64_t k = 0; k < depth; ++k)
          for (std::int64_t n = 0; n < width; ++n) {
            const std::int64_t element = transposed ? (group.matrix * width + n) * depth + k : (group.matrix * depth + k) * width + n;
            out[at(element)] += lhs[at(row * depth + k)] * dout[at(row * width + n)];
          }
    return {{"out", out}};
  }

  Samples sample(const Call& call, Rng& rng) const override {
    const HostTensor &lhs = call.input("lhs"), &dout = call.input("dout");
    const std::int64_t depth = call.dim("K"), width = call.dim("N");
    const bool transposed = call.flag("transpose_rhs");
    const std::vector<MatrixGroup> groups = matrix_groups(call, matrices_made(call));
    Samples samples;
    for (const std::int64_t number : some_below(static_cast<std::int64_t>(groups.size()), 8, rng)) {
      const MatrixGroup& group = groups[at(number)];
      for (const std::int64_t k : some_below(depth, 8, rng))
        for (const std::int64_t n : some_below(width, 8, rng)) {
          double sum = 0;
          for (std::int64_t row = group.begin; row < group.end; ++row) sum += lhs.at(row * depth + k) * dout.at(row * width + n);
          samples["out"].add(transposed ? (group.matrix * width + n) * depth + k : (group.matrix * depth + k) * width + n, &sum, 1);
        }
    }
    return samples;
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    spec::Case varied = vary_matrix_groups(c, rng);
    const std::int64_t groups = std::get<std::int64_t>(varied.dims.at("G"));
    const std::int64_t offset = c.attributes.contains("group_offset") ? rng.between(0, groups) : 0;
    if (c.attributes.contains("group_offset")) varied.attributes["group_offset"] = offset;
    if (c.attributes.contains("groups")) varied.attributes["groups"] = rng.between(0, groups - offset);
    return varied;
  }

  spec::Case random_case(Rng& rng) const override {
    spec::Case c = random_matrix_groups(rng);
    if (!c.given.empty() && rng.chance(0.4)) c.attributes["group_offset"] = std::int64_t{0};
    if (!c.given.empty() && rng.chance(0.4)) c.attributes["groups"] = std::int64_t{0};
    return vary(c, rng);
  }

  std::vector<Property> properties() const override;
};

bool matrices_are_writable(const Call& call) { return !call.input("lhs").broadcast() && !call.input("dout").broadcast(); }

std::string doubling(const Call& call, const Execute& execute, Rng&) {
  Values expected = run_copy(call, execute);
  for (double& value : expected["out"]) value *= 2;
  Call changed = call;
  HostTensor& dout = changed.input("dout");
  for (std::int64_t i = 0; i < dout.elements(); ++i) dout.set(i, 2 * dout.at(i));
  return disagreement(call, run_copy(changed, execute), expected);
}

std::string rows_of_no_group(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  std::vector<bool> used(at(rows_in_all(call)), false);
  for (const MatrixGroup& group : matrix_groups(call, matrices_made(call)))
    for (std::int64_t row = group.begin; row < group.end; ++row) used[at(row)] = true;
  Call changed = call;
  for (const char* name : {"lhs", "dout"}) {
    HostTensor& tensor = changed.input(name);
    const std::int64_t features = tensor.shape().back();
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (!used[at(i / features)]) tensor.set(i, std::numeric_limits<double>::quiet_NaN());
  }
  return disagreement(call, run_copy(changed, execute), expected);
}

std::string one_nan(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& tensor = changed.input(rng.chance(0.5) ? "lhs" : "dout");
  if (tensor.elements() == 0) return "";
  tensor.set(rng.between(0, tensor.elements() - 1), std::numeric_limits<double>::quiet_NaN());
  return first_failure(verify_call(WeightGradient(), changed, execute));
}

std::vector<Property> WeightGradient::properties() const {
  return {repeats_bit_for_bit([](const Call&) { return true; }),
          {"rows of no group that out holds do not matter, even NaN", matrices_are_writable, rows_of_no_group},
          {"a NaN reaches what it is a factor of and nothing else", matrices_are_writable, one_nan},
          {"twice dout gives twice the gradient", matrices_are_writable, doubling}};
}

const Registration registration{std::make_unique<WeightGradient>()};

}  // namespace
}  // namespace ejk::reference::tgmm

// The truth about the tests' own kernel: two loops and a sum.
#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

class Gemm : public KernelReference {
 public:
  std::string kernel() const override { return "gemm"; }

  Values compute(const Call& call) const override {
    const auto a = call.input("a").values(), b = call.input("b").values();
    const auto rows = call.dim("M"), columns = call.dim("N"), depth = call.dim("K");
    std::vector<double> c;
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (std::int64_t k = 0; k < depth; ++k)
          sum += a[static_cast<std::size_t>(m * depth + k)] * b[static_cast<std::size_t>(k * columns + n)];
        c.push_back(sum);
      }
    return {{"c", c}};
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    auto other = c;
    other.dims["M"] = rng.between(1, 130);
    other.dims["N"] = 8 * rng.between(1, 13);
    other.dims["K"] = 8 * rng.between(1, 30);
    return other;
  }
  spec::Case random_case(Rng& rng) const override {
    spec::Case c;
    c.types["E"] = rng.chance(0.5) ? "f16" : "bf16";
    return vary(c, rng);
  }
  std::vector<Property> properties() const override { return {}; }
};

const Registration registration{std::make_unique<Gemm>()};

}  // namespace
}  // namespace ejk::reference

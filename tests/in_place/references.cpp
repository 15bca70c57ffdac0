// The truth about the tests' own kernels.
#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

// Sizes of any kind; properties of nothing but the result.
class Own : public KernelReference {
 public:
  spec::Case random_case(Rng& rng) const override {
    spec::Case c;
    c.types["E"] = rng.chance(0.5) ? "f32" : "bf16";
    return vary(c, rng);
  }
  std::vector<Property> properties() const override { return {}; }
};

class StoreRows : public Own {
 public:
  std::string kernel() const override { return "store_rows"; }

  Values compute(const Call& call) const override {
    auto pages = call.input("pages").values();
    const auto rows = call.input("rows").values();
    const auto from = call.integer("start") * call.dim("D");
    for (std::size_t i = 0; i < rows.size(); ++i) pages[static_cast<std::size_t>(from) + i] = rows[i];
    return {{"pages", pages}};
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    auto other = c;
    const auto rows = rng.between(0, 9), first = rng.between(0, 5);
    other.dims = {{"N", rows}, {"P", first + rows + rng.between(0, 3)}, {"D", rng.between(1, 70)}};
    other.attributes["start"] = first;
    return other;
  }
};

class LeakySum : public Own {
 public:
  std::string kernel() const override { return "leaky_sum"; }

  Values compute(const Call& call) const override {
    auto state = call.input("state").values(), out = call.input("x").values();
    const auto steps = call.dim("T"), channels = call.dim("C");
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.size()); ++i) {
      auto& sum = state[static_cast<std::size_t>(i / (steps * channels) * channels + i % channels)];
      sum = call.floating("decay") * sum + out[static_cast<std::size_t>(i)];
      out[static_cast<std::size_t>(i)] = sum;
    }
    return {{"out", out}, {"final_state", state}};
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    auto other = c;
    other.dims = {{"B", rng.between(0, 4)}, {"T", rng.between(0, 7)}, {"C", rng.between(1, 70)}};
    return other;
  }
};

const Registration store_rows{std::make_unique<StoreRows>()}, leaky_sum{std::make_unique<LeakySum>()};

}  // namespace
}  // namespace ejk::reference

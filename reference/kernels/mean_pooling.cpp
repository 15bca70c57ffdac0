// mean_pooling in float64: docs/semantics.md, "mean_pooling".
#include <algorithm>
#include <limits>

#include "reference/kernels/pooling_chunks.hpp"
#include "reference/reference.hpp"

namespace ejk::reference::mean_pooling {
namespace {

class MeanPooling : public KernelReference {
 public:
  std::string kernel() const override { return "mean_pooling"; }

  Values compute(const Call& call) const override {
    const std::vector<double> x = call.input("x").values();
    const std::vector<bool> visible = pooling_visible(call);
    const std::int64_t features = call.dim("C");
    std::vector<double> out;
    for (const PoolingChunk& chunk : pooling_chunks(call)) {
      std::vector<double> sum(static_cast<std::size_t>(features), 0.0);
      std::int64_t count = 0;
      for (std::int64_t row = chunk.begin; row < chunk.end; ++row) {
        if (!visible[static_cast<std::size_t>(row)]) continue;
        ++count;
        for (std::int64_t c = 0; c < features; ++c) sum[static_cast<std::size_t>(c)] += x[static_cast<std::size_t>(row * features + c)];
      }
      for (const double total : sum) out.push_back(total / static_cast<double>(std::max<std::int64_t>(count, 1)));
    }
    const std::int64_t rows = call.integer("chunk_count");  // at least so many as there are
    if (rows >= 0) out.resize(static_cast<std::size_t>(rows * features), 0.0);
    return {{"out", out}};
  }

  Samples sample(const Call& call, Rng& rng) const override {
    const HostTensor& x = call.input("x");
    const std::vector<bool> visible = pooling_visible(call);
    const std::vector<PoolingChunk> chunks = pooling_chunks(call);
    const std::int64_t features = call.dim("C");
    Samples samples;
    for (const std::int64_t mean : some_below(static_cast<std::int64_t>(chunks.size()), 16, rng)) {
      const auto [begin, end] = chunks[static_cast<std::size_t>(mean)];
      const auto count = std::count(visible.begin() + begin, visible.begin() + end, true);
      for (const std::int64_t c : some_below(features, 16, rng)) {
        double sum = 0;
        for (std::int64_t row = begin; row < end; ++row)
          if (visible[static_cast<std::size_t>(row)]) sum += x.at(row * features + c);
        sum /= static_cast<double>(std::max<std::int64_t>(count, 1));
        samples["out"].add(mean * features + c, &sum, 1);
      }
    }
    return samples;
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override { return vary_pooling(c, rng); }
  spec::Case random_case(Rng& rng) const override { return random_pooling_case(rng); }
  std::vector<Property> properties() const override;
};

bool x_is_writable(const Call& call) { return !call.input("x").broadcast(); }

// Writes `value` over every token that no mean is over.
void overwrite_unseen(Call& call, double value) {
  std::vector<bool> seen(static_cast<std::size_t>(pooling_tokens(call)), false);
  const std::vector<bool> visible = pooling_visible(call);
  for (const PoolingChunk& chunk : pooling_chunks(call))
    for (std::int64_t row = chunk.begin; row < chunk.end; ++row)
      seen[static_cast<std::size_t>(row)] = visible[static_cast<std::size_t>(row)];
  HostTensor& x = call.input("x");
  const std::int64_t features = call.dim("C");
  for (std::int64_t i = 0; i < x.elements(); ++i)
    if (!seen[static_cast<std::size_t>(i / features)]) x.set(i, value);
}

std::string unseen_tokens(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  Call changed = call;
  overwrite_unseen(changed, nan);
  return disagreement(call, run_copy(changed, execute), expected);
}

std::string doubling(const Call& call, const Execute& execute, Rng&) {
  Values expected = run_copy(call, execute);
  for (double& value : expected["out"]) value *= 2;
  Call changed = call;
  HostTensor& x = changed.input("x");
  for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, 2 * x.at(i));
  return disagreement(call, run_copy(changed, execute), expected);
}

std::string visible_nan(const Call& call, const Execute& execute, Rng& rng) {
  Call changed = call;
  HostTensor& x = changed.input("x");
  x.set(rng.between(0, x.elements() - 1), nan);
  return first_failure(verify_call(MeanPooling(), changed, execute));
}

std::vector<Property> MeanPooling::properties() const {
  return {repeats_bit_for_bit([](const Call&) { return true; }),
          {"a token behind a false mask or past the last sequence does not matter, even NaN", x_is_writable, unseen_tokens},
          {"twice the tokens give twice the means", x_is_writable, doubling},
          {"a NaN reaches the mean it belongs to and no other",
           [](const Call& call) { return x_is_writable(call) && call.input("x").elements() > 0; }, visible_nan}};
}

const Registration registration{std::make_unique<MeanPooling>()};

}  // namespace
}  // namespace ejk::reference::mean_pooling

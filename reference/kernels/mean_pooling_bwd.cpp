// mean_pooling_bwd in float64: the gradient of docs/semantics.md, "mean_pooling", to x. Each visible token of a mean gets dout / count.
#include <algorithm>

#include "reference/kernels/pooling_chunks.hpp"
#include "reference/reference.hpp"

namespace ejk::reference::mean_pooling_bwd {
namespace {

// dout does not tell how many tokens x has: the attribute does. Of packed chunks it may have more rows than there are chunks.
spec::Case with_sizes(spec::Case c, Rng& rng) {
  const bool packed = c.dims.count("T") > 0;
  c.attributes["tokens"] = c.dims.at(packed ? "T" : "S");
  const auto integer = [](const spec::Value& value) { return std::get<std::int64_t>(value); };
  const auto chunk_size = c.attributes.find("chunk_size");
  if (packed && chunk_size != c.attributes.end() && integer(chunk_size->second) > 0)
    c.dims["R"] = integer(c.dims.at("T")) / integer(chunk_size->second) + integer(c.dims.at("N")) + rng.between(0, 5);
  return c;
}

class MeanPoolingBackward : public KernelReference {
 public:
  std::string kernel() const override { return "mean_pooling_bwd"; }

  Values compute(const Call& call) const override {
    const std::vector<double> dout = call.input("dout").values();
    const std::vector<bool> visible = pooling_visible(call);
    const std::int64_t features = call.dim("C");
    std::vector<double> dx(static_cast<std::size_t>(pooling_tokens(call) * features), 0.0);
    std::int64_t mean = 0;
    for (const PoolingChunk& chunk : pooling_chunks(call)) {
      const auto count = std::count(visible.begin() + chunk.begin, visible.begin() + chunk.end, true);
      for (std::int64_t row = chunk.begin; row < chunk.end; ++row)
        for (std::int64_t c = 0; c < features && visible[static_cast<std::size_t>(row)]; ++c)
          dx[static_cast<std::size_t>(row * features + c)] =
              dout[static_cast<std::size_t>(mean * features + c)] / static_cast<double>(count);
      ++mean;
    }
    return {{"dx", dx}};
  }

  Samples sample(const Call& call, Rng& rng) const override {
    const HostTensor& dout = call.input("dout");
    const std::vector<bool> visible = pooling_visible(call);
    const std::vector<PoolingChunk> chunks = pooling_chunks(call);
    const std::int64_t features = call.dim("C");
    Samples samples;
    for (const std::int64_t row : some_below(pooling_tokens(call), 64, rng)) {
      const auto chunk = std::find_if(chunks.begin(), chunks.end(), [&](const PoolingChunk& c) { return c.begin <= row && row < c.end; });
      std::vector<double> dx(static_cast<std::size_t>(features), 0.0);
      if (chunk != chunks.end() && visible[static_cast<std::size_t>(row)]) {
        const auto count = std::count(visible.begin() + chunk->begin, visible.begin() + chunk->end, true);
        for (std::int64_t c = 0; c < features; ++c)
          dx[static_cast<std::size_t>(c)] = dout.at((chunk - chunks.begin()) * features + c) / static_cast<double>(count);
      }
      samples["dx"].add(row * features, dx.data(), features);
    }
    return samples;
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override { return with_sizes(vary_pooling(c, rng), rng); }
  spec::Case random_case(Rng& rng) const override { return with_sizes(random_pooling_case(rng), rng); }

  std::vector<Property> properties() const override {
    const auto writable = [](const Call& call) { return !call.input("dout").broadcast(); };
    const auto doubling = [](const Call& call, const Execute& execute, Rng&) {
      Values expected = run_copy(call, execute);
      for (double& value : expected["dx"]) value *= 2;
      Call changed = call;
      HostTensor& dout = changed.input("dout");
      for (std::int64_t i = 0; i < dout.elements(); ++i) dout.set(i, 2 * dout.at(i));
      return disagreement(call, run_copy(changed, execute), expected);
    };
    return {repeats_bit_for_bit([](const Call&) { return true; }), {"twice the cotangent gives twice the gradient", writable, doubling}};
  }
};

const Registration registration{std::make_unique<MeanPoolingBackward>()};

}  // namespace
}  // namespace ejk::reference::mean_pooling_bwd

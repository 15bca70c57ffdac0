// Chunks and cases of mean pooling.
#include "reference/kernels/pooling_chunks.hpp"

#include <algorithm>

namespace ejk::reference {
namespace {

struct TokenRange {
  std::int64_t begin, end;
};

std::vector<TokenRange> token_ranges(const Call& call) {
  std::vector<TokenRange> sequences;
  if (call.given("cum_seqlens")) {
    const std::vector<double> offsets = call.input("cum_seqlens").values();
    for (std::size_t n = 0; n + 1 < offsets.size(); ++n)
      sequences.push_back({static_cast<std::int64_t>(offsets[n]), static_cast<std::int64_t>(offsets[n + 1])});
    return sequences;
  }
  const std::int64_t length = call.dim("S");
  for (std::int64_t b = 0; b < call.dim("B"); ++b) sequences.push_back({b * length, (b + 1) * length});
  return sequences;
}

}  // namespace

std::vector<PoolingChunk> pooling_chunks(const Call& call) {
  const std::int64_t size = call.integer("chunk_size");
  std::vector<PoolingChunk> chunks;
  for (const auto& [begin, end] : token_ranges(call)) {
    if (size == 0) {
      chunks.push_back({begin, end});
      continue;
    }
    for (std::int64_t first = begin; first < end; first += std::min(size, end - first))
      chunks.push_back({first, first + std::min(size, end - first)});
  }
  return chunks;
}

std::int64_t pooling_tokens(const Call& call) { return call.given("cum_seqlens") ? call.dim("T") : call.dim("B") * call.dim("S"); }

std::vector<bool> pooling_visible(const Call& call) {
  std::vector<bool> visible(static_cast<std::size_t>(pooling_tokens(call)), true);
  if (!call.given("mask")) return visible;
  const std::vector<double> mask = call.input("mask").values();
  for (std::size_t row = 0; row < visible.size(); ++row) visible[row] = mask[row] != 0;
  return visible;
}

spec::Case vary_pooling(const spec::Case& c, Rng& rng) {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  const bool packed = std::find(c.given.begin(), c.given.end(), "cum_seqlens") != c.given.end();
  varied.dims.clear();
  const bool is_long = rng.chance(0.5);  // rows that several work items share
  const std::int64_t tokens = is_long ? rng.between(200, 2000) : rng.nasty_size(0, 200);
  if (packed) {
    varied.dims["T"] = tokens;
    varied.dims["N"] = rng.nasty_size(0, 9);
  } else {
    varied.dims["B"] = is_long ? rng.between(1, 3) : rng.nasty_size(0, 5);
    varied.dims["S"] = tokens;
  }
  varied.dims["C"] = is_long ? rng.between(1, 130) : rng.nasty_size(0, 300);
  const auto chunk_size = varied.attributes.find("chunk_size");
  if (chunk_size != varied.attributes.end() && chunk_size->second != spec::Value{std::int64_t{0}})
    chunk_size->second = rng.nasty_size(1, 300);
  if (const auto count = varied.attributes.find("chunk_count"); count != varied.attributes.end())
    count->second = tokens / std::get<std::int64_t>(chunk_size->second) + std::get<std::int64_t>(varied.dims.at("N")) + rng.between(0, 5);
  return varied;
}

spec::Case random_pooling_case(Rng& rng) {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  if (rng.chance(0.5)) c.attributes["chunk_size"] = std::int64_t{1};
  if (rng.chance(0.5))
    c.given.push_back("cum_seqlens");
  else if (rng.chance(0.6))
    c.given.push_back("mask");
  return vary_pooling(c, rng);
}

}  // namespace ejk::reference

// Cases of native sparse attention.
#include "reference/kernels/native_sparse.hpp"

namespace ejk::reference {

namespace {

// Of blocks of whole tiles of 64 keys, which some variants ask for; 64 if none is given.
bool has_tiles(const spec::Case& c) {
  const auto size = c.attributes.find("block_size");
  return size == c.attributes.end() || std::get<std::int64_t>(size->second) % 64 == 0;
}

}  // namespace

spec::Case vary_sparse(const spec::Case& c, Rng& rng) {
  static constexpr std::int64_t groups[] = {1, 1, 2, 3, 4, 5, 16, 17};
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.fill.clear();
  varied.dims = {{"D", c.dims.at("D")}, {"Dv", c.dims.at("Dv")}};
  const std::int64_t kv_heads = rng.chance(0.03) ? 0 : rng.between(1, 2), group = rng.pick(groups);
  const bool packed = names(c, "cum_seqlens");
  varied.dims["Hkv"] = kv_heads;
  varied.dims["Hq"] = kv_heads * group;
  varied.dims["B"] = packed ? 1 : rng.chance(0.03) ? 0 : rng.between(1, 2);
  if (packed) varied.dims["N"] = rng.chance(0.1) ? std::int64_t{0} : rng.between(1, 6);
  const std::int64_t most = group > 4 ? 50 : 110;
  varied.dims["T"] = rng.chance(0.03) ? 0 : rng.chance(0.3) ? rng.between(most / 2, most) : rng.nasty_size(1, most);
  varied.attributes["block_size"] = rng.chance(0.2) ? rng.between(1, 9) : 8 * rng.between(1, 5);
  const std::int64_t count = rng.between(1, rng.chance(0.2) ? 20 : 7);
  if (c.dims.contains("S"))
    varied.dims["S"] = rng.chance(0.05) ? std::int64_t{0} : count;
  else
    varied.attributes["block_count"] = count;
  if (has_tiles(c) && rng.chance(0.5)) {
    static constexpr std::int64_t tile_groups[] = {1, 5, 16, 16, 32};
    varied.attributes["block_size"] = 64 * rng.between(1, 2);
    varied.dims["Hq"] = kv_heads * rng.pick(tile_groups);
    if (rng.chance(0.8)) varied.dims["T"] = rng.between(60, 260);
  }
  for (auto& [name, value] : varied.attributes) {
    if (name == "window_left") value = rng.chance(0.1) ? far_away(rng) : rng.chance(0.1) ? std::int64_t{-1} : rng.nasty_size(0, 100);
    if (name == "softmax_scale") value = rng.chance(0.1) ? 0.0 : 0.02 + 0.3 * rng.uniform();
  }
  return varied;
}

spec::Case random_sparse(Rng& rng, bool gated) {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  c.dims["D"] = rng.chance(0.3) ? rng.nasty_size(1, 100) : 8 * rng.between(2, 12);
  c.dims["Dv"] = rng.chance(0.7) ? c.dims["D"] : spec::Value{rng.nasty_size(1, 100)};
  if (rng.chance(0.3)) c.attributes["softmax_scale"] = 0.1;
  c.attributes["block_size"] = std::int64_t{rng.chance(0.3) ? 64 : 1};
  if (rng.chance(0.3)) c.given.push_back("cum_seqlens");
  if (!gated) {
    c.dims["S"] = std::int64_t{4};
    if (rng.chance(0.5)) c.given.push_back("block_counts");
    if (rng.chance(0.7)) c.given.push_back("lse");
    return vary_sparse(c, rng);
  }
  for (const char* gate : branch_gates)
    if (rng.chance(0.7)) c.given.push_back(gate);
  if (names(c, "g_slc") && rng.chance(0.2)) {
    c.given.push_back("block_indices");
    if (rng.chance(0.5)) c.given.push_back("block_counts");
  }
  for (const char* output : {"branch_lse", "selected"})
    if (rng.chance(0.7)) c.given.push_back(output);
  if (rng.chance(0.7)) c.attributes["window_left"] = std::int64_t{0};
  return vary_sparse(c, rng);
}

}  // namespace ejk::reference

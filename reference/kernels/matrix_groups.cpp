// Groups of rows and cases of grouped_matmul and tgmm.
#include "reference/kernels/matrix_groups.hpp"

#include <algorithm>

namespace ejk::reference {

std::vector<MatrixGroup> matrix_groups(const Call& call, std::int64_t held) {
  std::vector<MatrixGroup> groups;
  const std::int64_t rows = call.dim("M");
  if (!call.given("group_sizes")) {
    for (std::int64_t matrix = 0; matrix < call.dim("B") * call.dim("G"); ++matrix)
      groups.push_back({matrix * rows, (matrix + 1) * rows, matrix});
    return groups;
  }
  std::int64_t begin = 0, matrix = -call.integer("group_offset");
  for (const double size : call.input("group_sizes").values()) {
    const std::int64_t end = std::min(begin + static_cast<std::int64_t>(size), rows);
    if (matrix >= 0 && matrix < held) groups.push_back({begin, end, matrix});
    begin = end;
    ++matrix;
  }
  return groups;
}

std::int64_t rows_in_all(const Call& call) {
  return call.given("group_sizes") ? call.dim("M") : call.dim("B") * call.dim("G") * call.dim("M");
}

namespace {

// Most often a multiple of 8 where it was one: variants that copy 16 bytes at a time ask for that.
std::int64_t features(const spec::Value& before, Rng& rng) {
  if (std::get<std::int64_t>(before) % 8 == 0 && rng.chance(0.75)) return 8 * rng.between(0, 25);
  return rng.nasty_size(0, 200);
}

}  // namespace

spec::Case vary_matrix_groups(const spec::Case& c, Rng& rng) {
  spec::Case varied = c;
  varied.name = c.name + " varied";
  varied.fill.clear();
  varied.dims.clear();
  varied.dims["K"] = features(c.dims.at("K"), rng);
  varied.dims["N"] = features(c.dims.at("N"), rng);
  const bool ragged = std::find(c.given.begin(), c.given.end(), "group_sizes") != c.given.end();
  varied.dims["M"] = ragged && rng.chance(0.4) ? rng.between(100, 600) : rng.nasty_size(0, 257);
  varied.dims["G"] = ragged ? rng.nasty_size(0, 17) : rng.between(0, 4);
  if (!ragged) varied.dims["B"] = rng.chance(0.05) ? 0 : rng.between(1, 3);
  return varied;
}

spec::Case random_matrix_groups(Rng& rng) {
  static constexpr const char* types[] = {"f32", "f16", "bf16"};
  spec::Case c;
  c.name = "random";
  c.types["E"] = rng.pick(types);
  c.types["F"] = rng.chance(0.7) ? c.types["E"] : rng.pick(types);
  c.types["O"] = rng.chance(0.7) ? c.types["E"] : rng.pick(types);
  c.dims["K"] = c.dims["N"] = std::int64_t{rng.chance(0.5) ? 8 : 1};
  if (rng.chance(0.75)) c.given.push_back("group_sizes");
  if (rng.chance(0.5)) c.attributes["transpose_rhs"] = true;
  return c;
}

}  // namespace ejk::reference

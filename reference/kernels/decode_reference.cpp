// Rows, samples and cases of decoding kernels.
#include "reference/kernels/decode_reference.hpp"

#include <cmath>

namespace ejk::reference {

double capped_score(double score, double cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }

Values all_rows(const DecodeRows& rows) {
  std::vector<double> out(at(rows.count * rows.features), 0.0), lse(at(rows.count), -infinity);
  for (std::int64_t row = 0; row < rows.count; ++row) lse[at(row)] = rows.attend(row, out.data() + row * rows.features);
  return {{"out", out}, {"lse", lse}};
}

Samples some_rows(const DecodeRows& rows, Rng& rng) {
  constexpr std::int64_t keys_to_read = 1 << 18;
  Samples samples;
  std::int64_t read = 0;
  for (const std::int64_t row : some_below(rows.count, 64, rng)) {
    if (read > keys_to_read) break;
    read += rows.keys(row);
    std::vector<double> out(at(rows.features), 0.0);
    const double lse = rows.attend(row, out.data());
    samples["out"].add(row * rows.features, out.data(), rows.features);
    samples["lse"].add(row, &lse, 1);
  }
  return samples;
}

void vary_decode_attributes(spec::Case& c, Rng& rng, double scale_divisor) {
  for (auto& [name, value] : c.attributes) {
    if (name == "window_left" || name == "window_right") {
      if (value != spec::Value{std::int64_t{-1}}) value = rng.chance(0.1) ? far_away(rng) : rng.nasty_size(0, 150);
    } else if (name == "softmax_scale") {
      value = rng.chance(0.1) ? 0.0 : (0.02 + 0.3 * rng.uniform()) / scale_divisor;
    } else if (name == "logits_soft_cap") {
      if (std::get<double>(value) > 0) value = rng.chance(0.1) ? 1e6 : 0.5 + 30 * rng.uniform();
    }
  }
}

std::int64_t random_group(const spec::Case& c, Rng& rng) {
  static constexpr std::int64_t groups[] = {1, 1, 2, 3, 4, 5, 8, 16};
  const auto query_heads = c.dims.find("Hq"), kv_heads = c.dims.find("Hkv");
  const bool named = query_heads != c.dims.end() && kv_heads != c.dims.end();
  const std::int64_t kv = named ? std::get<std::int64_t>(kv_heads->second) : 0;
  if (kv > 0 && rng.chance(0.3)) return std::get<std::int64_t>(query_heads->second) / kv;
  return rng.pick(groups);
}

}  // namespace ejk::reference

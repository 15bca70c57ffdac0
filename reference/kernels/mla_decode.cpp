// mla_decode in float64: docs/semantics.md, "mla_decode", every form.
#include "reference/kernels/mla_decode.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "reference/element.hpp"

namespace ejk::reference::mla_decode {
namespace {

// One call's numbers, read once; of the cache only what somebody sees, since it may be large.
struct Problem {
  explicit Problem(const Call& call)
      : call(call),
        sight(call),
        queries(call.dim("Sq")),
        heads(call.dim("H")),
        latent(call.dim("R")),
        rope(call.dim("Dr")),
        scale(call.floating("softmax_scale")),
        cap(call.floating("logits_soft_cap")) {}

  std::uint8_t byte(std::int64_t index) const { return static_cast<std::uint8_t>(call.input("cache").at(index)); }

  // Latent, then rope, of a row.
  void read(std::int64_t row, double* key) const {
    if (!call.given("cache")) {
      const HostTensor &latents = call.input("kv_latent"), &ropes = call.input("k_rope");
      for (std::int64_t d = 0; d < latent; ++d) key[d] = latents.at(row * latent + d);
      for (std::int64_t d = 0; d < rope; ++d) key[latent + d] = ropes.at(row * rope + d);
      return;
    }
    const HostTensor& cache = call.input("cache");
    const std::int64_t first = row * width_of(call);
    if (!is_bytes(call)) {
      for (std::int64_t d = 0; d < latent + rope; ++d) key[d] = cache.at(first + d);
      return;
    }
    for (std::int64_t d = 0; d < latent; ++d) {
      std::uint32_t bits = 0;
      for (std::int64_t i = 0; i < 4; ++i) bits |= std::uint32_t{byte(first + latent + d / block * 4 + i)} << (8 * i);
      key[d] = decode_e4m3(byte(first + d)) * static_cast<double>(std::bit_cast<float>(bits));
    }
    for (std::int64_t d = 0; d < rope; ++d) {
      const std::int64_t at = first + latent + latent / block * 4 + 2 * d;
      key[latent + d] = decode16(static_cast<std::uint16_t>(byte(at) | byte(at + 1) << 8), 8, 7);
    }
  }

  // The keys that query i of sequence n sees, one after another.
  std::vector<double> keys(std::int64_t n, std::int64_t i) const {
    const std::vector<std::int64_t> rows = sight.rows(n, i);
    std::vector<double> all(rows.size() * at(latent + rope));
    for (std::size_t j = 0; j < rows.size(); ++j) read(rows[j], all.data() + j * at(latent + rope));
    return all;
  }

  // Writes the row of out of a query head, which is 0 before; returns its LSE.
  double attend(std::int64_t n, std::int64_t i, std::int64_t h, const std::vector<double>& keys, double* out) const {
    const HostTensor &q = call.input("q_latent"), &q_rope = call.input("q_rope");
    const std::int64_t width = latent + rope, query = (n * queries + i) * heads + h;
    std::vector<double> one(at(width));
    for (std::int64_t d = 0; d < latent; ++d) one[at(d)] = q.at(query * latent + d);
    for (std::int64_t d = 0; d < rope; ++d) one[at(latent + d)] = q_rope.at(query * rope + d);
    std::vector<double> scores;
    for (std::size_t j = 0; width > 0 && j < keys.size(); j += at(width)) {
      const double* key = keys.data() + j;
      double dot = 0;
      for (std::int64_t d = 0; d < width; ++d) dot += one[at(d)] * key[d];
      scores.push_back(capped_score(scale * dot, cap));
    }
    const double lse = log_sum_exp(scores);
    if (lse == -infinity) return lse;
    for (std::size_t j = 0; j < scores.size(); ++j)
      if (const double weight = std::exp(scores[j] - lse); weight != 0)
        for (std::int64_t d = 0; d < latent; ++d) out[d] += weight * keys[j * at(width) + at(d)];
    return lse;
  }

  const Call& call;
  Sight sight;
  std::int64_t queries, heads, latent, rope;
  double scale, cap;
};

// Different slots in no order, -1 between them, at the end, or nowhere.
void fill_indices(HostTensor& indices, std::int64_t slots, Rng& rng) {
  const std::int64_t listed = indices.shape().back();
  if (listed == 0) return;
  for (std::int64_t query = 0; query < indices.elements() / listed; ++query) {
    std::int64_t step = rng.between(1, std::max<std::int64_t>(1, slots - 1));
    while (std::gcd(step, slots) != 1 && slots > 0) ++step;
    const std::int64_t start = rng.between(0, slots - 1), kind = listed >= 1024 ? 0 : rng.between(0, 3);
    const double missing = kind == 0 ? 0 : kind == 1 ? 0.3 : kind == 2 ? 0.9 : 0.02;
    for (std::int64_t m = 0; m < listed; ++m) {
      const bool none = m >= slots || rng.chance(missing);
      indices.set(query * listed + m, none ? -1 : static_cast<double>((start + m % std::max<std::int64_t>(slots, 1) * step) % slots));
    }
  }
}

std::vector<bool> seen_rows(const Call& call, std::int64_t rows) {
  std::vector<bool> seen(at(rows), false);
  const Sight sight(call);
  for (std::int64_t n = 0; n < call.dim("N"); ++n)
    for (std::int64_t i = call.binding.form == "sparse" ? 0 : std::max<std::int64_t>(call.dim("Sq") - 1, 0); i < call.dim("Sq"); ++i)
      for (const std::int64_t row : sight.rows(n, i)) seen[at(row)] = true;
  return seen;
}

void fill_row(HostTensor& tensor, std::int64_t row, std::int64_t width, double value) {
  for (std::int64_t d = 0; d < width; ++d) tensor.set(row * width + d, value);
}

}  // namespace

Values MlaDecode::compute(const Call& call) const {
  const Problem p(call);
  const std::int64_t sequences = call.dim("N");
  std::vector<double> out(at(sequences * p.queries * p.heads * p.latent), 0.0), lse(at(sequences * p.queries * p.heads), -infinity);
  for (std::int64_t n = 0; n < sequences; ++n)
    for (std::int64_t i = 0; i < p.queries; ++i) {
      const std::vector<double> keys = p.keys(n, i);
      for (std::int64_t h = 0; h < p.heads; ++h)
        lse[at((n * p.heads + h) * p.queries + i)] = p.attend(n, i, h, keys, out.data() + ((n * p.queries + i) * p.heads + h) * p.latent);
    }
  return {{"out", out}, {"lse", lse}};
}

// Some heads of a few queries, whose keys are read once.
Samples MlaDecode::sample(const Call& call, Rng& rng) const {
  const Problem p(call);
  Samples samples;
  for (const std::int64_t query : some_below(call.dim("N") * p.queries, 7, rng)) {
    const std::int64_t n = query / p.queries, i = query % p.queries;
    const std::vector<double> keys = p.keys(n, i);
    for (const std::int64_t h : some_below(p.heads, 7, rng)) {
      std::vector<double> out(at(p.latent), 0.0);
      const double lse = p.attend(n, i, h, keys, out.data());
      samples["out"].add((query * p.heads + h) * p.latent, out.data(), p.latent);
      samples["lse"].add((n * p.heads + h) * p.queries + i, &lse, 1);
    }
  }
  return samples;
}

// Most are alike; some are far below, negative or 0. Those of every third page's worth of rows are all far below.
float some_scale(std::int64_t row, Rng& rng) {
  const double usual = (row / 64 % 3 == 1 ? 0x1p-16 : 1.0) * (1 + 2 * rng.uniform()) / 48, kind = rng.uniform();
  return static_cast<float>(kind < 0.85 ? usual : kind < 0.95 ? usual * std::exp2(-24 * rng.uniform()) : kind < 0.98 ? -usual : 0);
}

void fill_bytes(HostTensor& cache, std::int64_t row, std::int64_t width, std::int64_t latent, std::int64_t rope, Rng& rng) {
  std::int64_t place = row * width;
  const auto put = [&](std::uint32_t bits, int bytes) {
    for (int i = 0; i < bytes; ++i) cache.set(place++, static_cast<double>(bits >> (8 * i) & 255));
  };
  for (std::int64_t d = 0; d < latent; ++d) put(encode_e4m3(24 * rng.normal()), 1);
  for (std::int64_t d = 0; d < latent; d += block) put(std::bit_cast<std::uint32_t>(some_scale(row, rng)), 4);
  for (std::int64_t d = 0; d < rope; ++d) put(encode16(rng.normal(), 8, 7), 2);
}

void spoil_unseen(Call& call) {
  for (const char* name : {"cache", "kv_latent", "k_rope"}) {
    if (!call.given(name) || call.input(name).broadcast() || call.input(name).elements() == 0) continue;
    HostTensor& tensor = call.input(name);
    const std::int64_t width = tensor.shape().back(), rows = tensor.elements() / width;
    const std::vector<bool> seen = seen_rows(call, rows);
    for (std::int64_t row = 0; row < rows; ++row)
      if (!seen[at(row)]) fill_row(tensor, row, width, is_floating(tensor.type()) ? nan : 255);
  }
}

void MlaDecode::complete(Call& call) const {
  std::uint64_t seed = 1;
  const HostTensor& queries = call.input("q_latent");
  for (std::int64_t i = 0; i < std::min<std::int64_t>(queries.elements(), 8); ++i)
    seed = seed * 31 + std::bit_cast<std::uint64_t>(queries.at(i));
  Rng rng = Rng::stream(seed, "mla_decode");
  if (call.given("indices")) fill_indices(call.input("indices"), call.dim("P") * call.dim("ps"), rng);
  if (is_bytes(call)) {
    constexpr std::int64_t own_rows = 4096;  // after these the first ones again: a large cache would take long
    HostTensor& cache = call.input("cache");
    const std::int64_t width = width_of(call), rows = call.dim("P") * call.dim("ps");
    const bool copied = rows > own_rows && cache.contiguous();
    for (std::int64_t row = 0; row < (copied ? own_rows : rows); ++row) fill_bytes(cache, row, width, call.dim("R"), call.dim("Dr"), rng);
    auto* bytes = static_cast<std::byte*>(cache.data());
    for (std::int64_t row = own_rows; copied && row < rows; ++row) std::copy_n(bytes + row % own_rows * width, width, bytes + row * width);
  }
  spoil_unseen(call);
}

namespace {
const Registration registration{std::make_unique<MlaDecode>()};
}  // namespace

}  // namespace ejk::reference::mla_decode

// The choice of rows, and the forward pass of those chosen.
#include "reference/kernels/attention_samples.hpp"

#include <algorithm>

#include "reference/kernels/attention_scores.hpp"

namespace ejk::reference {
namespace {

// Reading the rows of a head takes about a microsecond each.
constexpr std::int64_t tokens_to_read = 1 << 17, least_heads = 2, most_heads = 32;

}  // namespace

std::vector<Chosen> choose_heads(const Call& call, Rng& rng) {
  if (call.dim("Hkv") == 0) return {};
  std::vector<Sequence> sequences = sequences_of(call);
  std::erase_if(sequences, [](const Sequence& s) { return s.q_length <= 0; });
  std::vector<Chosen> chosen;
  std::int64_t read = 0;
  for (std::int64_t n = 0; n < most_heads && (n < least_heads || read < tokens_to_read) && !sequences.empty(); ++n) {
    const Sequence& s = rng.pick(std::span<const Sequence>(sequences));
    chosen.push_back({s, rng.between(0, call.dim("Hkv") - 1)});
    read += s.q_length + s.k_length;
  }
  return chosen;
}

Samples attention_samples(const Call& call, Rng& rng) {
  Samples samples;
  for (const auto& [s, kv_head] : choose_heads(call, rng)) {
    const AttentionProblem p(call, s, kv_head);
    const std::int64_t heads = p.heads, group = heads / p.kv_heads;
    const std::vector<double> keys = transposed_keys(p, s, kv_head);
    for (const std::int64_t i : some_below(s.q_length, rows_of_a_head, rng)) {
      const std::int64_t h = kv_head * group + rng.between(0, group - 1);
      std::vector<double> out(at(p.value_dim), 0.0);
      const double lse = attend(p, s, visible_scores(p, s, keys, h, i), sinks_of(call, h), h, i, out.data(), nullptr);
      samples["out"].add(((s.q_begin + i) * heads + h) * p.value_dim, out.data(), p.value_dim);
      samples["lse"].add(lse_place(call, s, h, i), &lse, 1);
    }
  }
  return samples;
}

}  // namespace ejk::reference

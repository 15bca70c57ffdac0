// The mathematics of ragged_page_attention in plain loops.
#include "reference/kernels/ragged_pages.hpp"

#include <algorithm>

#include "reference/element.hpp"

namespace ejk::reference {
namespace {

std::vector<std::int64_t> ragged_integers(const HostTensor& tensor, std::int64_t count) {
  std::vector<std::int64_t> values(at(count));
  for (std::int64_t i = 0; i < count; ++i) values[at(i)] = static_cast<std::int64_t>(tensor.at(i));
  return values;
}

}  // namespace

RaggedBatch::RaggedBatch(const Call& call, const char* count)
    : columns_(call.dim("max_pages")),
      page_(call.dim("ps")),
      rows_(call.dim("Hkv2")),
      dim_(call.dim("D")),
      slots_(call.dim("P") * call.dim("ps")),
      left_(call.integer("window_left")),
      tree_columns_(call.given("tree_mask") ? call.dim("L") : 0),
      table_(&call.input("block_tables")),
      tree_(call.find("tree_mask")) {
  const HostTensor& counts = call.input(count);
  count_ = static_cast<std::int64_t>(counts.at(counts.elements() - 1));
  starts_ = ragged_integers(call.input("query_start_loc"), count_ + 1);
  contexts_ = ragged_integers(call.input("context_lens"), count_);
}

std::int64_t RaggedBatch::sequence_of(std::int64_t token) const {
  for (std::int64_t n = 0; n < count_; ++n)
    if (token >= first(n) && token < first(n + 1)) return n;
  return -1;
}

std::int64_t RaggedBatch::slot(std::int64_t n, std::int64_t key) const {
  return static_cast<std::int64_t>(table_->at(n * columns_ + key / page_)) * page_ + key % page_;
}

bool RaggedBatch::sees(std::int64_t n, std::int64_t query, std::int64_t key) const {
  const std::int64_t position = old_keys(n) + query, fresh = key - old_keys(n);
  if (key < 0 || key >= keys(n)) return false;
  if (tree_) return fresh < 0 || (fresh < tree_columns_ && tree_->at((first(n) + query) * tree_columns_ + fresh) != 0);
  return key <= position && (left_ < 0 || position - key <= left_);
}

double scale_of_head(const Call& call, const char* name, std::int64_t kv_head) {
  const HostTensor* scales = call.find(name);
  return scales ? scales->at(scales->elements() == 1 ? 0 : kv_head) : 1;
}

double stored(DType type, double x, double scale) {
  std::byte bytes[8];
  store_element(type, bytes, static_cast<float>(x) / static_cast<float>(scale));
  return load_element(type, bytes);
}

std::int64_t RaggedBatch::first_seen(std::int64_t n) const {
  return tree_ || left_ < 0 || left_ >= keys(n) ? 0 : std::max<std::int64_t>(0, old_keys(n) - left_);
}

void RaggedAttention::gather(Gathered& cached, std::int64_t n, std::int64_t kv_head) const {
  if (cached.sequence == n && cached.kv_head == kv_head) return;
  const std::int64_t dim = call.dim("D");
  const double k_scale = scale_of_head(call, "k_scale", kv_head), v_scale = scale_of_head(call, "v_scale", kv_head);
  cached = {n, kv_head, batch.first_seen(n), {}, {}};
  for (std::int64_t key = cached.first; key < batch.keys(n); ++key) {
    const std::int64_t slot = batch.slot(n, key);
    for (std::int64_t d = 0; d < dim; ++d) {
      cached.keys.push_back(k_scale * cache.at(batch.key_at(slot, kv_head) + d));
      cached.values.push_back(v_scale * cache.at(batch.value_at(slot, kv_head) + d));
    }
  }
}

double RaggedAttention::attend(std::int64_t token, std::int64_t head, Gathered& cached, double* out) const {
  const std::int64_t n = batch.sequence_of(token);
  if (n < 0) return -infinity;
  const std::int64_t heads = call.dim("Hq"), dim = call.dim("D"), kv_head = head / (heads / call.dim("Hkv"));
  const double scale = call.floating("softmax_scale"), cap = call.floating("logits_soft_cap");
  gather(cached, n, kv_head);
  std::vector<double> q(at(dim)), exponents = sinks_of(call, head);
  for (std::int64_t d = 0; d < dim; ++d) q[at(d)] = query((token * heads + head) * dim + d, kv_head);
  std::vector<std::int64_t> rows;
  std::vector<double> scores;
  for (std::int64_t key = cached.first; key < batch.keys(n); ++key) {
    if (!batch.sees(n, token - batch.first(n), key)) continue;
    rows.push_back((key - cached.first) * dim);
    double dot = 0;
    for (std::int64_t d = 0; d < dim; ++d) dot += q[at(d)] * cached.keys[at(rows.back() + d)];
    dot *= scale;
    scores.push_back(cap > 0 ? cap * std::tanh(dot / cap) : dot);
  }
  exponents.insert(exponents.end(), scores.begin(), scores.end());
  const double lse = log_sum_exp(exponents);
  if (lse == -infinity) return lse;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - lse);
    if (weight == 0) continue;  // what a value holds behind a weight of 0 is of no account
    for (std::int64_t d = 0; d < dim; ++d) out[d] += weight * cached.values[at(rows[i] + d)];
  }
  return lse;
}

Values RaggedAttention::all() const {
  const std::int64_t heads = call.dim("Hq"), dim = call.dim("D"), tokens = call.dim("T");
  std::vector<double> out(at(tokens * heads * dim), 0.0), lse(at(tokens * heads), -infinity);
  Gathered cached;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t token = 0; token < tokens; ++token)
      lse[at(token * heads + head)] = attend(token, head, cached, out.data() + (token * heads + head) * dim);
  return {{"out", out}, {"lse", lse}};
}

Samples RaggedAttention::sample(Rng& rng) const {
  constexpr std::int64_t keys_to_read = 1 << 18;
  const std::int64_t heads = call.dim("Hq"), dim = call.dim("D");
  Samples samples;
  Gathered cached;
  std::int64_t read = 0;
  for (const std::int64_t row : some_below(call.dim("T") * heads, 64, rng)) {
    if (read > keys_to_read) break;
    const std::int64_t n = batch.sequence_of(row / heads);
    read += n < 0 ? 0 : batch.keys(n);
    std::vector<double> out(at(dim), 0.0);
    const double lse = attend(row / heads, row % heads, cached, out.data());
    samples["out"].add(row * dim, out.data(), dim);
    samples["lse"].add(row, &lse, 1);
  }
  return samples;
}

}  // namespace ejk::reference

// mla_attention in float64: docs/semantics.md, "mla_attention", both forms. Outputs by expanded keys, or by absorbed queries where those
// are few; samples of large calls by absorbed queries.
#include "reference/kernels/mla_attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/kernels/cancelling.hpp"

namespace ejk::reference::mla_attention {

Sight::Sight(const Call& call)
    : sequences_(call.dim(is_paged(call) ? "N" : "B")), queries_(is_paged(call) ? 1 : call.dim("Sq")), left_(call.integer("window_left")) {
  if (is_paged(call)) {
    columns_ = call.dim("max_pages"), page_ = call.dim("ps");
    lengths_ = call.input("context_lens").values(), table_ = call.input("block_tables").values();
    return;
  }
  tokens_ = call.dim("Sk");
  dense_.emplace(call);
  bounds_ = sequences_of(call);
}

std::vector<std::int64_t> Sight::keys(std::int64_t n, std::int64_t i) const {
  std::vector<std::int64_t> seen;
  if (!dense_) {
    const auto length = static_cast<std::int64_t>(lengths_[at(n)]);
    for (std::int64_t j = 0; j < length; ++j)
      if (left_ < 0 || length - 1 - j <= left_) seen.push_back(j);
    return seen;
  }
  const Sequence& s = bounds_[at(n)];
  for (std::int64_t j = dense_->first(s, i); j < dense_->last(s, i); ++j)
    if (dense_->sees(s, 0, i, j)) seen.push_back(j);
  return seen;
}

std::vector<std::int64_t> Sight::keys_of_any(std::int64_t n) const {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < queries_; ++i) {
    const std::vector<std::int64_t> some = keys(n, i), before = std::move(all);
    all.clear();
    std::set_union(before.begin(), before.end(), some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

std::int64_t Sight::row(std::int64_t n, std::int64_t key) const {
  if (dense_) return n * tokens_ + key;
  return static_cast<std::int64_t>(table_[at(n * columns_ + key / page_)]) * page_ + key % page_;
}

Problem::Problem(const Call& call)
    : call(call),
      sight(call),
      heads(call.dim("H")),
      latent(call.dim("R")),
      rope(call.dim("Dr")),
      own(call.dim("Dn")),
      value_dim(call.dim("Dv")),
      scale(call.floating("softmax_scale")),
      cap(call.floating("logits_soft_cap")),
      q_nope(call.input("q_nope").values()),
      q_rope(call.input("q_rope").values()),
      w_kc(call.input("w_kc").values()),
      w_vc(call.input("w_vc").values()) {}

Token Problem::token(std::int64_t n, std::int64_t key) const {
  const std::int64_t row = sight.row(n, key);
  Token token;
  const auto read = [&](std::vector<double>& to, const char* name, std::int64_t first, std::int64_t count) {
    const HostTensor& tensor = call.input(name);
    for (std::int64_t d = 0; d < count; ++d) to.push_back(tensor.at(first + d));
  };
  const bool paged = is_paged(call);
  read(token.latent, paged ? "cache" : "kv_latent", row * (paged ? latent + rope : latent), latent);
  read(token.rope, paged ? "cache" : "k_rope", paged ? row * (latent + rope) + latent : row * rope, rope);
  return token;
}

Expanded Problem::expand(const Token& token, std::int64_t h) const {
  Expanded one{std::vector<double>(at(own), 0.0), std::vector<double>(at(value_dim), 0.0)};
  for (std::int64_t r = 0; r < latent; ++r) {
    const double x = token.latent[at(r)];
    for (std::int64_t d = 0; d < own; ++d) one.key[at(d)] += x * kc(r, h, d);
    for (std::int64_t d = 0; d < value_dim; ++d) one.value[at(d)] += x * vc(r, h, d);
  }
  return one;
}

namespace {

double product(const double* a, const std::vector<double>& b) { return std::inner_product(b.begin(), b.end(), a, 0.0); }

// The root of the sum of squares of a product's terms.
double spread(const double* a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += a[i] * b[i] * a[i] * b[i];
  return std::sqrt(sum);
}

// A row's LSE, and what rounding leaves of it where keys that are made for a head, or queries that take w_kc in, are of the inputs' type
// before they meet: each number is off by up to a unit of itself, independently of the others. Scores follow their terms, LSE the scores by
// their weights. As for flash_attention's gradients, twice a unit of the root of the squares: often there are few rows.
struct RowSum {
  double lse, spread;
};

// The root mean square of it over rows, of which those that see nothing, or what is not finite, have none.
class Rounding {
 public:
  explicit Rounding(const Call& call) : unit_(2 * unit_of(call.input("q_nope").type())) {}
  void add(const RowSum& row) {
    if (!std::isfinite(row.lse) || !std::isfinite(row.spread)) return;
    squares_ += unit_ * row.spread * unit_ * row.spread, ++rows_;
  }
  double root() const { return rows_ == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(rows_)); }

 private:
  double unit_, squares_ = 0;
  std::int64_t rows_ = 0;
};

// Row (n, i, h) of out, which is 0 before, from keys made for the head.
RowSum attend_expanded(const Problem& p, std::int64_t n, std::int64_t i, std::int64_t h, const std::vector<Token>& tokens,
                       const std::vector<Expanded>& expanded, double* out) {
  const std::int64_t row = p.query_row(n, i, h);
  const std::vector<std::int64_t> keys = p.sight.keys(n, i);
  std::vector<double> scores;
  RowSum sum{0, 0};
  for (const std::int64_t j : keys)
    scores.push_back(capped_score(p.scale * (product(p.q_nope.data() + row * p.own, expanded[at(j)].key) +
                                             product(p.q_rope.data() + row * p.rope, tokens[at(j)].rope)),
                                  p.cap));
  sum.lse = log_sum_exp(scores);
  if (sum.lse == -infinity) return sum;
  for (std::size_t k = 0; k < keys.size(); ++k)
    if (const double weight = std::exp(scores[k] - sum.lse); weight != 0) {
      sum.spread += weight * p.scale * spread(p.q_nope.data() + row * p.own, expanded[at(keys[k])].key);
      for (std::int64_t d = 0; d < p.value_dim; ++d) out[d] += weight * expanded[at(keys[k])].value[at(d)];
    }
  return sum;
}

// The same by a query that takes w_kc in, and an output that is latent until the end: its cost does not hang on how many keys are expanded.
RowSum attend_absorbed(const Problem& p, std::int64_t n, std::int64_t i, std::int64_t h, double* out) {
  const std::int64_t row = p.query_row(n, i, h);
  std::vector<double> query(at(p.latent), 0.0), scores, seen(at(p.latent), 0.0);
  RowSum sum{0, 0};
  for (std::int64_t r = 0; r < p.latent; ++r)
    for (std::int64_t d = 0; d < p.own; ++d) query[at(r)] += p.q_nope[at(row * p.own + d)] * p.kc(r, h, d);
  std::vector<Token> tokens;
  for (const std::int64_t j : p.sight.keys(n, i)) tokens.push_back(p.token(n, j));
  for (const Token& token : tokens)
    scores.push_back(
        capped_score(p.scale * (product(query.data(), token.latent) + product(p.q_rope.data() + row * p.rope, token.rope)), p.cap));
  sum.lse = log_sum_exp(scores);
  if (sum.lse == -infinity) return sum;
  for (std::size_t k = 0; k < tokens.size(); ++k)
    if (const double weight = std::exp(scores[k] - sum.lse); weight != 0) {
      sum.spread += weight * p.scale * spread(query.data(), tokens[k].latent);
      for (std::int64_t r = 0; r < p.latent; ++r) seen[at(r)] += weight * tokens[k].latent[at(r)];
    }
  for (std::int64_t r = 0; r < p.latent; ++r)
    for (std::int64_t d = 0; d < p.value_dim; ++d) out[d] += seen[at(r)] * p.vc(r, h, d);
  return sum;
}

}  // namespace

namespace {

// Whether absorbed queries are less work than keys made for each head.
bool few_queries(const Problem& p, std::int64_t keys) {
  const std::int64_t weights = p.latent * (p.own + p.value_dim), queries = p.sight.queries();
  return queries * (weights + keys * (2 * p.latent + p.rope)) < keys * weights;
}

}  // namespace

Values MlaAttention::compute(const Call& call) const {
  const Problem p(call);
  const std::int64_t rows = p.sight.sequences() * p.sight.queries() * p.heads;
  std::vector<double> out(at(rows * p.value_dim), 0.0), lse(at(rows), -infinity);
  Rounding rounding(call);
  for (std::int64_t n = 0; n < p.sight.sequences(); ++n) {
    const std::vector<std::int64_t> keys = p.sight.keys_of_any(n);
    const std::size_t end = keys.empty() ? 0 : at(keys.back() + 1);
    const bool absorbs = few_queries(p, static_cast<std::int64_t>(keys.size()));
    std::vector<Token> tokens(end);
    for (const std::int64_t j : keys) tokens[at(j)] = p.token(n, j);
    for (std::int64_t h = 0; h < p.heads; ++h) {
      std::vector<Expanded> expanded(end);
      for (const std::int64_t j : keys)
        if (!absorbs) expanded[at(j)] = p.expand(tokens[at(j)], h);
      for (std::int64_t i = 0; i < p.sight.queries(); ++i) {
        double* const row = out.data() + p.query_row(n, i, h) * p.value_dim;
        const RowSum sum = absorbs ? attend_absorbed(p, n, i, h, row) : attend_expanded(p, n, i, h, tokens, expanded, row);
        lse[at(p.lse_place(n, i, h))] = sum.lse;
        rounding.add(sum);
      }
    }
  }
  return {{"out", out}, {"lse", lse}, {"lse rounding", {rounding.root()}}};
}

Samples MlaAttention::sample(const Call& call, Rng& rng) const {
  const Problem p(call);
  Samples samples;
  Rounding rounding(call);
  for (const std::int64_t query : some_below(p.sight.sequences() * p.sight.queries(), 7, rng))
    for (const std::int64_t h : some_below(p.heads, 3, rng)) {
      const std::int64_t n = query / p.sight.queries(), i = query % p.sight.queries();
      std::vector<double> out(at(p.value_dim), 0.0);
      const RowSum sum = attend_absorbed(p, n, i, h, out.data());
      samples["out"].add(p.query_row(n, i, h) * p.value_dim, out.data(), p.value_dim);
      samples["lse"].add(p.lse_place(n, i, h), &sum.lse, 1);
      rounding.add(sum);
    }
  samples["lse"].rounding = rounding.root();
  return samples;
}

void scale_weights(Call& call) {
  const double scale = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(call.dim("R"), 1)));
  for (const char* name : {"w_kc", "w_vc"}) {
    const std::vector<double> values = call.input(name).values();
    for (std::size_t i = 0; i < values.size(); ++i) call.input(name).set(static_cast<std::int64_t>(i), scale * values[i]);
  }
}

void MlaAttention::complete(Call& call) const {
  scale_weights(call);
  spoil_unseen(call);
}

void spoil_unseen(Call& call) {
  const Sight sight(call);
  for (const char* name : {"cache", "kv_latent", "k_rope"}) {
    if (!call.given(name) || call.input(name).broadcast() || call.input(name).elements() == 0) continue;
    HostTensor& tensor = call.input(name);
    const std::int64_t width = tensor.shape().back();
    std::vector<bool> seen(at(tensor.elements() / width), false);
    for (std::int64_t n = 0; n < sight.sequences(); ++n)
      for (const std::int64_t j : sight.keys_of_any(n)) seen[at(sight.row(n, j))] = true;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (!seen[at(i / width)]) tensor.set(i, nan);
  }
}

namespace {
const Registration registration{std::make_unique<MlaAttention>()};
}  // namespace

}  // namespace ejk::reference::mla_attention

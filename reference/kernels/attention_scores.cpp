// Scores of an attention call in float64.
#include "reference/kernels/attention_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/reference.hpp"

namespace ejk::reference {

std::vector<double> transposed_keys(const AttentionProblem& p, const Sequence& s, std::int64_t kv_head) {
  std::vector<double> keys(at(p.dim * s.k_length));
  for (std::int64_t j = 0; j < s.k_length; ++j)
    for (std::int64_t d = 0; d < p.dim; ++d) keys[at(d * s.k_length + j)] = p.k.row(s.k_begin + j, kv_head)[d];
  return keys;
}

namespace {

// A bias this low, if it is no infinity, is all of the score: docs/semantics.md, "Scores".
constexpr double least_bias = -0x1p40;

double biased(double score, double bias) {
  const bool alone = bias <= least_bias && std::isfinite(bias) && std::isfinite(score);
  return alone ? least_bias : score + bias;
}

// Of a query and a key, from the product of the two.
Term term_of(const AttentionProblem& p, const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j, double product) {
  Term term{j, p.scale * product, 1};
  if (p.cap > 0) {
    const double bent = std::tanh(term.score / p.cap);
    term = {j, p.cap * bent, 1 - bent * bent};
  }
  if (p.bias.given()) term.score = biased(term.score, p.bias.value(s.number, h, i, j));
  return term;
}

}  // namespace

Term term_of(const AttentionProblem& p, const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) {
  const double *query = p.q.row(s.q_begin + i, h), *key = p.k.row(s.k_begin + j, h / (p.heads / p.kv_heads));
  return term_of(p, s, h, i, j, std::inner_product(query, query + p.dim, key, 0.0));
}

std::vector<Term> visible_scores(const AttentionProblem& p, const Sequence& s, const std::vector<double>& keys, std::int64_t h,
                                 std::int64_t i) {
  const std::int64_t first = p.visibility.first(s, i), last = p.visibility.last(s, i);
  std::vector<double> dots(at(s.k_length), 0.0);
  for (std::int64_t d = 0; d < p.dim; ++d) {
    const double q = p.q.row(s.q_begin + i, h)[d];
    const double* key = keys.data() + d * s.k_length;
    for (std::int64_t j = first; j < last; ++j) dots[at(j)] += q * key[j];
  }
  std::vector<Term> terms;
  for (std::int64_t j = first; j < last; ++j)
    if (p.visibility.sees(s, h, i, j)) terms.push_back(term_of(p, s, h, i, j, dots[at(j)]));
  return terms;
}

double attend(const AttentionProblem& p, const Sequence& s, const std::vector<Term>& terms, const std::vector<double>& sinks,
              std::int64_t h, std::int64_t i, double* out, double* weights) {
  std::vector<double> exponents = sinks;
  for (const Term& term : terms) exponents.push_back(term.score);
  const LogSum sum = parts_of_log_sum(exponents);
  const double lse = sum.largest + sum.rest;
  if (lse == -infinity) return lse;
  const std::int64_t group = p.heads / p.kv_heads;
  for (const Term& term : terms) {
    const double weight = std::exp(sum.weight_exponent(term.score)) * p.dropout.factor(s.number * p.heads + h, i, term.j);
    if (weights) weights[term.j] = weight;
    if (weight == 0) continue;  // what v holds behind a weight of 0 is of no account
    const double* value = p.v.row(s.k_begin + term.j, h / group);
    for (std::int64_t e = 0; e < p.value_dim; ++e) out[e] += weight * value[e];
  }
  return lse;
}

namespace {

// Scores of more keys than this are as expected, near enough: fewer may all lie far from it.
constexpr std::int64_t few_keys = 256;

// The scores of a query that sees few keys, after `exponents`.
void add_scores(std::vector<double>& exponents, const AttentionProblem& p, const Sequence& s, std::int64_t h, std::int64_t i) {
  for (std::int64_t j = p.visibility.first(s, i); j < p.visibility.last(s, i); ++j)
    if (p.visibility.sees(s, h, i, j)) exponents.push_back(term_of(p, s, h, i, j).score);
}

// Of the first elements.
double mean_square(const HostTensor& tensor) {
  const std::int64_t count = std::min<std::int64_t>(tensor.elements(), 4096);
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::pow(tensor.at(i), 2);
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

}  // namespace

std::int64_t lse_place(const Call& call, const Sequence& s, std::int64_t h, std::int64_t i) {
  if (call.given("cum_seqlens_q")) return h * call.dim("Tq") + s.q_begin + i;
  return (s.number * call.dim("Hq") + h) * s.q_length + i;
}

Values attention_outputs(const Call& call) {
  const AttentionProblem p(call);
  const std::int64_t tokens = call.given("cum_seqlens_q") ? call.dim("Tq") : call.dim("B") * call.dim("Sq");
  std::vector<double> out(at(tokens * p.heads * p.value_dim), 0.0), lse(at(tokens * p.heads), -infinity), weights;
  if (const HostTensor* wanted = call.find("weights")) weights.assign(at(wanted->elements()), 0.0);
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const std::vector<double> keys = transposed_keys(p, s, h / (p.heads / p.kv_heads)), sinks = sinks_of(call, h);
      for (std::int64_t i = 0; i < s.q_length; ++i) {
        const std::int64_t row = lse_place(call, s, h, i);
        double* out_row = out.data() + ((s.q_begin + i) * p.heads + h) * p.value_dim;
        double* weights_row = weights.empty() ? nullptr : weights.data() + row * call.dim("Sk");
        lse[at(row)] = attend(p, s, visible_scores(p, s, keys, h, i), sinks, h, i, out_row, weights_row);
      }
    }
  return {{"out", out}, {"lse", lse}, {"weights", weights}};
}

std::vector<double> expected_lse(const Call& call) {
  const AttentionProblem p(call);
  const std::int64_t tokens = call.given("cum_seqlens_q") ? call.dim("Tq") : call.dim("B") * call.dim("Sq");
  const double reach = std::pow(p.scale, 2) * mean_square(call.input("k"));
  const double bias_variance = p.bias.given() ? mean_square(call.input("bias")) : 0;
  std::vector<double> lse(at(tokens * p.heads), -infinity);
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const std::vector<double> sinks = sinks_of(call, h);
      for (std::int64_t i = 0; i < s.q_length; ++i) {
        const double* query = p.q.row(s.q_begin + i, h);
        const double variance = reach * std::inner_product(query, query + p.dim, query, 0.0);
        const std::int64_t keys = p.visibility.last(s, i) - p.visibility.first(s, i);
        std::vector<double> exponents = sinks;
        if (keys <= few_keys)
          add_scores(exponents, p, s, h, i);
        else  // the mean of exp(x), x normal with mean 0, is exp(variance / 2)
          exponents.push_back(std::log(keys) + std::min(variance / 2, p.cap > 0 ? p.cap : infinity) + bias_variance / 2);
        lse[at(lse_place(call, s, h, i))] = log_sum_exp(exponents);
      }
    }
  return lse;
}

}  // namespace ejk::reference

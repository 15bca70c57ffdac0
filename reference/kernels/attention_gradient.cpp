// Gradients of attention in float64.
#include "reference/kernels/attention_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/kernels/attention_samples.hpp"
#include "reference/kernels/cancelling.hpp"
#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

std::size_t elements_of(const Call& call, const char* tensor) {
  const HostTensor* given = call.find(tensor);
  return given ? at(given->elements()) : 0;
}

// Of what the problem holds.
struct Gradients {
  Gradients(const Call& call, const AttentionProblem& p)
      : dq(p.q.elements(), 0.0),
        dk(p.k.elements(), 0.0),
        dv(p.v.elements(), 0.0),
        dbias(elements_of(call, "bias"), 0.0),
        dsinks(elements_of(call, "softmax_aux"), 0.0),
        in_dq(dq.size()),
        in_dk(dk.size()),
        in_dbias(dbias.size()),
        in_dsinks(dsinks.size()) {}
  std::vector<double> dq, dk, dv, dbias, dsinks;
  Cancelling in_dq, in_dk, in_dbias, in_dsinks;

  Values values(double unit) const {
    const auto rounding = [&](const Cancelling& in, double of, const std::vector<double>& gradient) {
      return std::vector<double>{in.rounding(of, gradient, gradient.size())};
    };
    return {{"dq", dq},
            {"dk", dk},
            {"dv", dv},
            {"dbias", dbias},
            {"dsoftmax_aux", dsinks},
            {"dq rounding", rounding(in_dq, unit, dq)},
            {"dk rounding", rounding(in_dk, unit, dk)},
            {"dbias rounding", rounding(in_dbias, 0, dbias)},
            {"dsoftmax_aux rounding", rounding(in_dsinks, 0, dsinks)}};
  }
};

// Element of softmax_aux that holds sink `number` of head h.
std::size_t sink_index(const Call& call, std::int64_t h, std::int64_t number) {
  const auto& shape = call.input("softmax_aux").shape();
  if (shape.size() == 2) return at(h * shape[1] + number);
  return at(shape[0] == call.dim("Hq") ? h : number);
}

// One query of one head.
struct Query {
  const AttentionProblem& p;
  const Sequence& s;
  std::int64_t h, i;
  LogSum lse;
  const double* dout;      // [value_dim]
  double delta;            // dout * out, and dweights * weights, summed: what every weight's gradient is relative to
  const double* dweights;  // [Sk]; null: none

  void differentiate(const Term& term, Gradients& g) const {
    const double weight = std::exp(lse.weight_exponent(term.score));
    if (weight == 0) return;  // what lies behind a weight of 0 is of no account
    const double kept = p.dropout.factor(s.number * p.heads + h, i, term.j);
    const std::int64_t key_token = s.k_begin + term.j, kv_head = h / (p.heads / p.kv_heads);
    const double *value = p.v.row(key_token, kv_head), *key = p.k.row(key_token, kv_head), *query = p.q.row(s.q_begin + i, h);
    double* dv = g.dv.data() + p.v.place(key_token, kv_head);
    double by_weight = 0;
    for (std::int64_t e = 0; e < p.value_dim && kept != 0; ++e) {
      by_weight += kept * dout[e] * value[e];
      dv[e] += weight * kept * dout[e];
    }
    if (dweights && kept != 0) by_weight += kept * dweights[term.j];
    const double by_score = weight * (by_weight - delta);
    const double from = weight * weight * (by_weight * by_weight + delta * delta), left = by_score * by_score;
    const double reach = term.slope * p.scale, minuend = weight * by_weight;
    if (p.bias.given()) {
      const std::size_t place = at(p.bias.index(s.number, h, i, term.j));
      g.dbias[place] += by_score;
      g.in_dbias.minuend[place] += minuend;
      g.in_dbias.add(from, left, 1);
    }
    const std::size_t query_place = p.q.place(s.q_begin + i, h), key_place = p.k.place(key_token, kv_head);
    double of_key = 0, of_query = 0;  // squares
    for (std::size_t d = 0; d < at(p.dim); ++d) {
      g.dq[query_place + d] += by_score * reach * key[d];
      g.dk[key_place + d] += by_score * reach * query[d];
      g.in_dq.minuend[query_place + d] += minuend * reach * key[d];
      g.in_dk.minuend[key_place + d] += minuend * reach * query[d];
      of_key += key[d] * key[d], of_query += query[d] * query[d];
    }
    g.in_dq.add(from, left, reach * reach * of_key);
    g.in_dk.add(from, left, reach * reach * of_query);
  }

  void differentiate_sinks(const Call& call, const std::vector<double>& sinks, Gradients& g) const {
    for (std::size_t n = 0; n < sinks.size(); ++n) {
      if (sinks[n] == -infinity) continue;
      const double flow = std::exp(lse.weight_exponent(sinks[n])) * delta;
      g.dsinks[sink_index(call, h, static_cast<std::int64_t>(n))] -= flow;
      g.in_dsinks.add(flow * flow, 0, 1);
    }
  }
};

// What the gradients are made of beside the problem.
struct Cotangents {
  explicit Cotangents(const Call& call, const std::optional<Block>& queries = {})
      : out(call.input("out"), queries), dout(call.input("dout"), queries) {
    if (call.given("dweights")) weights = call.input("weights").values(), dweights = call.input("dweights").values();
  }
  Rows out, dout;
  std::vector<double> weights, dweights;
};

// Below this f32 does not hold how many keys are in a log-sum-exp: docs/semantics.md, "Gradients".
constexpr double faint = -0x1p25;

// The log-sum-exp of a query's own scores.
LogSum lse_of_scores(const Call& call, const AttentionProblem& p, const Sequence& s, std::int64_t h, std::int64_t i) {
  std::vector<double> exponents = sinks_of(call, h);
  for (std::int64_t j = p.visibility.first(s, i); j < p.visibility.last(s, i); ++j)
    if (p.visibility.sees(s, h, i, j)) exponents.push_back(term_of(p, s, h, i, j).score);
  return parts_of_log_sum(exponents);
}

// nullopt: the query sees nothing, not even sinks.
std::optional<Query> query_of(const Call& call, const AttentionProblem& p, const Cotangents& c, const Sequence& s, std::int64_t h,
                              std::int64_t i) {
  const std::int64_t place = lse_place(call, s, h, i);
  Query query{p, s, h, i, {call.input("lse").at(place), 0}, c.dout.row(s.q_begin + i, h), 0, nullptr};
  if (query.lse.largest == -infinity) return {};
  if (p.bias.given() && query.lse.largest < faint) query.lse = lse_of_scores(call, p, s, h, i);
  const double* out = c.out.row(s.q_begin + i, h);
  for (std::int64_t e = 0; e < p.value_dim; ++e) query.delta += query.dout[e] * out[e];
  if (c.dweights.empty()) return query;
  const std::int64_t keys = call.dim("Sk");
  query.dweights = c.dweights.data() + place * keys;
  for (std::int64_t j = 0; j < keys; ++j)
    if (const double weight = c.weights[at(place * keys + j)]; weight != 0) query.delta += weight * query.dweights[j];
  return query;
}

// Rows of one gradient; of what rounding may leave, the squares are added up until finish().
void add_rows(Sample& sample, const std::vector<std::pair<std::int64_t, const double*>>& rows, std::int64_t width, double rounding) {
  for (const auto& [first, values] : rows) sample.add(first, values, width);
  sample.rounding += rounding * rounding * static_cast<double>(rows.size()) * static_cast<double>(width);
}

void finish(Samples& samples) {
  for (auto& [name, sample] : samples)
    if (!sample.places.empty()) sample.rounding = std::sqrt(sample.rounding / static_cast<double>(sample.places.size()));
}

void sample_queries(const Call& call, const AttentionProblem& p, const Cotangents& c, const Chosen& chosen, Rng& rng, Samples& samples) {
  const auto& [s, kv_head] = chosen;
  const std::int64_t group = p.heads / p.kv_heads;
  const std::vector<double> keys = transposed_keys(p, s, kv_head);
  Gradients g(call, p);
  std::vector<std::pair<std::int64_t, const double*>> rows;
  for (const std::int64_t i : some_below(s.q_length, rows_of_a_head, rng)) {
    const std::int64_t h = kv_head * group + rng.between(0, group - 1), token = s.q_begin + i;
    if (const auto query = query_of(call, p, c, s, h, i))
      for (const Term& term : visible_scores(p, s, keys, h, i)) query->differentiate(term, g);
    rows.emplace_back((token * p.heads + h) * p.dim, g.dq.data() + p.q.place(token, h));
  }
  add_rows(samples["dq"], rows, p.dim, g.in_dq.rounding(unit_of(call.input("q").type()), g.dq, rows.size() * at(p.dim)));
}

void sample_keys(const Call& call, const AttentionProblem& p, const Cotangents& c, const Chosen& chosen, Rng& rng, Samples& samples) {
  const auto& [s, kv_head] = chosen;
  const std::int64_t group = p.heads / p.kv_heads;
  const std::set<std::int64_t> keys = some_below(s.k_length, rows_of_a_head, rng);
  Gradients g(call, p);
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
    for (std::int64_t i = 0; i < s.q_length; ++i)
      if (const auto query = query_of(call, p, c, s, h, i))
        for (const std::int64_t j : keys)
          if (p.visibility.sees(s, h, i, j)) query->differentiate(term_of(p, s, h, i, j), g);
  std::vector<std::pair<std::int64_t, const double*>> dk, dv;
  for (const std::int64_t j : keys) {
    const std::int64_t token = s.k_begin + j, row = token * p.kv_heads + kv_head;
    dk.emplace_back(row * p.dim, g.dk.data() + p.k.place(token, kv_head));
    dv.emplace_back(row * p.value_dim, g.dv.data() + p.v.place(token, kv_head));
  }
  add_rows(samples["dk"], dk, p.dim, g.in_dk.rounding(unit_of(call.input("q").type()), g.dk, dk.size() * at(p.dim)));
  add_rows(samples["dv"], dv, p.value_dim, 0);
}

}  // namespace

Values attention_gradients(const Call& call) {
  const AttentionProblem p(call);
  const Cotangents c(call);
  Gradients g(call, p);
  for (const Sequence& s : sequences_of(call))
    for (std::int64_t h = 0; h < p.heads; ++h) {
      const std::vector<double> keys = transposed_keys(p, s, h / (p.heads / p.kv_heads)), sinks = sinks_of(call, h);
      for (std::int64_t i = 0; i < s.q_length; ++i) {
        const auto query = query_of(call, p, c, s, h, i);
        if (!query) continue;
        for (const Term& term : visible_scores(p, s, keys, h, i)) query->differentiate(term, g);
        query->differentiate_sinks(call, sinks, g);
      }
    }
  return g.values(unit_of(call.input("q").type()));
}

Samples attention_gradient_samples(const Call& call, Rng& rng) {
  Samples samples;
  if (call.given("dweights")) return samples;
  for (const Chosen& chosen : choose_heads(call, rng)) {
    const AttentionProblem p(call, chosen.s, chosen.kv_head);
    const Cotangents c(call, query_block(call, chosen.s, chosen.kv_head));
    sample_queries(call, p, c, chosen, rng, samples);
    sample_keys(call, p, c, chosen, rng, samples);
  }
  finish(samples);
  return samples;
}

}  // namespace ejk::reference

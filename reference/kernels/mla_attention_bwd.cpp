// mla_attention_bwd in float64: the gradients of docs/semantics.md, "mla_attention", by way of expanded keys and values.
#include <cmath>
#include <numeric>

#include "reference/kernels/cancelling.hpp"
#include "reference/kernels/mla_attention.hpp"

namespace ejk::reference::mla_attention_bwd {
namespace {

using mla_attention::Expanded;
using mla_attention::Problem;
using mla_attention::Token;
using Row = std::vector<double>;

double product(const double* a, const Row& b) { return std::inner_product(b.begin(), b.end(), a, 0.0); }

void add(double* to, double factor, const Row& from) {
  for (std::size_t d = 0; d < from.size(); ++d) to[d] += factor * from[d];
}
void add(Row& to, double factor, const double* from) {
  for (std::size_t d = 0; d < to.size(); ++d) to[d] += factor * from[d];
}

// What a query and head make of a key that they see: the softmax weight, and the gradient of the product of query and key, which is a
// difference: `minuend` less `subtrahend`.
struct Pair {
  std::int64_t key;
  double weight, minuend, subtrahend;
  double slope() const { return minuend - subtrahend; }
  void add_to(Cancelling& gradient, double factors) const {
    gradient.add(minuend * minuend + subtrahend * subtrahend, slope() * slope(), factors);
  }
};

double squares(const Row& row) { return std::inner_product(row.begin(), row.end(), row.begin(), 0.0); }
double squares(const double* row, std::int64_t count) { return std::inner_product(row, row + count, row, 0.0); }

// What the forward pass left, and the gradient of its out.
struct Results {
  explicit Results(const Call& call)
      : out(call.input("out").values()), lse(call.input("lse").values()), dout(call.input("dout").values()) {}
  Row out, lse, dout;
};

// Of one query and head, whose keys have been made; none if the query sees no key.
std::vector<Pair> pairs_of(const Problem& p, const Results& results, std::int64_t n, std::int64_t i, std::int64_t h,
                           const std::vector<Token>& tokens, const std::vector<Expanded>& made) {
  const std::int64_t row = p.query_row(n, i, h);
  const double *nope = p.q_nope.data() + row * p.own, *rope = p.q_rope.data() + row * p.rope,
               *slope = results.dout.data() + row * p.value_dim;
  const double lse = results.lse[at(p.lse_place(n, i, h))];
  if (lse == -infinity) return {};
  const double mean = std::inner_product(slope, slope + p.value_dim, results.out.data() + row * p.value_dim, 0.0);
  const std::vector<std::int64_t> keys = p.sight.keys(n, i);
  Row scores, bends, dweights;
  for (const std::int64_t j : keys) {
    const double score = p.scale * (product(nope, made[at(j)].key) + product(rope, tokens[at(j)].rope));
    const double bent = p.cap > 0 ? std::tanh(score / p.cap) : 0;
    scores.push_back(p.cap > 0 ? p.cap * bent : score);
    bends.push_back(1 - bent * bent);
    dweights.push_back(product(slope, made[at(j)].value));
  }
  std::vector<Pair> pairs;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const double weight = std::exp(scores[k] - lse), reach = weight * bends[k] * p.scale;
    pairs.push_back({keys[k], weight, reach * dweights[k], reach * mean});
  }
  return pairs;
}

// One head's keys of one sequence, the gradients of what they were expanded to, and those of the key without what is subtracted.
struct Head {
  std::vector<Expanded> made, slopes;
  std::vector<Row> minuends;
};

struct Gradients {
  explicit Gradients(const Call& call)
      : p(call),
        results(call),
        dq_nope(zeros_like(call, "q_nope")),
        dq_rope(zeros_like(call, "q_rope")),
        dkv_latent(zeros_like(call, "kv_latent")),
        dk_rope(zeros_like(call, "k_rope")),
        dw_kc(zeros_like(call, "w_kc")),
        dw_vc(zeros_like(call, "w_vc")),
        in_dq_nope(dq_nope.size()),
        in_dq_rope(dq_rope.size()),
        in_dkv_latent(dkv_latent.size()),
        in_dk_rope(dk_rope.size()),
        in_dw_kc(dw_kc.size()) {}
  static Row zeros_like(const Call& call, const char* input) { return Row(at(call.input(input).elements()), 0.0); }

  // The rows of w_kc times the query: what a latent row meets. Its squares.
  double reach_of_latent(std::int64_t h, const double* nope) const {
    double sum = 0;
    for (std::int64_t r = 0; r < p.latent; ++r)
      sum += std::pow(std::inner_product(nope, nope + p.own, p.w_kc.data() + (r * p.heads + h) * p.own, 0.0), 2);
    return sum;
  }

  void of_query(std::int64_t n, std::int64_t i, std::int64_t h, const std::vector<Token>& tokens, Head& head) {
    const std::int64_t row = p.query_row(n, i, h);
    const double *nope = p.q_nope.data() + row * p.own, *rope = p.q_rope.data() + row * p.rope,
                 *slope = results.dout.data() + row * p.value_dim;
    const double of_nope = squares(nope, p.own), of_rope = squares(rope, p.rope), of_latent = reach_of_latent(h, nope);
    for (const Pair& pair : pairs_of(p, results, n, i, h, tokens, head.made)) {
      const std::size_t j = at(pair.key);
      const double dproduct = pair.slope();
      const std::int64_t own = row * p.own, turned = row * p.rope, key = p.sight.row(n, pair.key) * p.rope;
      add(dq_nope.data() + own, dproduct, head.made[j].key);
      add(in_dq_nope.minuend.data() + own, pair.minuend, head.made[j].key);
      add(dq_rope.data() + turned, dproduct, tokens[j].rope);
      add(in_dq_rope.minuend.data() + turned, pair.minuend, tokens[j].rope);
      add(head.slopes[j].key, dproduct, nope);
      add(head.minuends[j], pair.minuend, nope);
      add(head.slopes[j].value, pair.weight, slope);
      for (std::int64_t d = 0; d < p.rope; ++d) {
        dk_rope[at(key + d)] += dproduct * rope[d];
        in_dk_rope.minuend[at(key + d)] += pair.minuend * rope[d];
      }
      pair.add_to(in_dq_nope, squares(head.made[j].key));
      pair.add_to(in_dq_rope, squares(tokens[j].rope));
      pair.add_to(in_dk_rope, of_rope);
      pair.add_to(in_dw_kc, of_nope * squares(tokens[j].latent));
      pair.add_to(in_dkv_latent, of_latent);
    }
  }

  // From the gradients of a head's keys to those of the latent row and the weights that made them.
  void of_key(std::int64_t n, std::int64_t j, std::int64_t h, const Token& token, const Expanded& slopes, const Row& minuend) {
    const std::int64_t row = p.sight.row(n, j) * p.latent;
    for (std::int64_t r = 0; r < p.latent; ++r) {
      const double x = token.latent[at(r)];
      const std::int64_t key = (r * p.heads + h) * p.own, value = (r * p.heads + h) * p.value_dim;
      const double by_value = product(p.w_vc.data() + value, slopes.value);
      dkv_latent[at(row + r)] += product(p.w_kc.data() + key, slopes.key) + by_value;
      in_dkv_latent.minuend[at(row + r)] += product(p.w_kc.data() + key, minuend) + by_value;
      add(dw_kc.data() + key, x, slopes.key);
      add(in_dw_kc.minuend.data() + key, x, minuend);
      add(dw_vc.data() + value, x, slopes.value);
    }
  }

  Problem p;
  Results results;
  Row dq_nope, dq_rope, dkv_latent, dk_rope, dw_kc, dw_vc;
  // Of those that have differences in them.
  Cancelling in_dq_nope, in_dq_rope, in_dkv_latent, in_dk_rope, in_dw_kc;
};

class MlaAttentionBackward : public KernelReference {
 public:
  std::string kernel() const override { return "mla_attention_bwd"; }

  Values compute(const Call& call) const override {
    Gradients g(call);
    const Problem& p = g.p;
    for (std::int64_t n = 0; n < p.sight.sequences(); ++n) {
      const std::vector<std::int64_t> keys = p.sight.keys_of_any(n);
      const std::size_t end = keys.empty() ? 0 : at(keys.back() + 1);
      std::vector<Token> tokens(end);
      for (const std::int64_t j : keys) tokens[at(j)] = p.token(n, j);
      for (std::int64_t h = 0; h < p.heads; ++h) {
        const Row zeros(at(p.own), 0.0);
        Head head{std::vector<Expanded>(end), std::vector<Expanded>(end, Expanded{zeros, Row(at(p.value_dim), 0.0)}),
                  std::vector<Row>(end, zeros)};
        for (const std::int64_t j : keys) head.made[at(j)] = p.expand(tokens[at(j)], h);
        for (std::int64_t i = 0; i < p.sight.queries(); ++i) g.of_query(n, i, h, tokens, head);
        for (const std::int64_t j : keys) g.of_key(n, j, h, tokens[at(j)], head.slopes[at(j)], head.minuends[at(j)]);
      }
    }
    const double unit = unit_of(call.input("q_nope").type());
    const auto rounding = [&](const Cancelling& in, const Row& gradient) { return Row{in.rounding(unit, gradient, gradient.size())}; };
    return {{"dq_nope", g.dq_nope},
            {"dq_rope", g.dq_rope},
            {"dkv_latent", g.dkv_latent},
            {"dk_rope", g.dk_rope},
            {"dw_kc", g.dw_kc},
            {"dw_vc", g.dw_vc},
            {"dq_nope rounding", rounding(g.in_dq_nope, g.dq_nope)},
            {"dq_rope rounding", rounding(g.in_dq_rope, g.dq_rope)},
            {"dkv_latent rounding", rounding(g.in_dkv_latent, g.dkv_latent)},
            {"dk_rope rounding", rounding(g.in_dk_rope, g.dk_rope)},
            {"dw_kc rounding", rounding(g.in_dw_kc, g.dw_kc)}};
  }

  // The other gradients are sums over all queries.
  Samples sample(const Call& call, Rng& rng) const override {
    const Problem p(call);
    const Results results(call);
    Samples samples;
    for (const std::int64_t query : some_below(p.sight.sequences() * p.sight.queries(), 2, rng))
      for (const std::int64_t h : some_below(p.heads, 2, rng)) {
        const std::int64_t n = query / p.sight.queries(), i = query % p.sight.queries(), row = p.query_row(n, i, h);
        const std::vector<std::int64_t> keys = p.sight.keys(n, i);
        const std::size_t end = keys.empty() ? 0 : at(keys.back() + 1);
        std::vector<Token> tokens(end);
        std::vector<Expanded> made(end);
        for (const std::int64_t j : keys) made[at(j)] = p.expand(tokens[at(j)] = p.token(n, j), h);
        Row nope(at(p.own), 0.0), rope(at(p.rope), 0.0);
        for (const Pair& pair : pairs_of(p, results, n, i, h, tokens, made)) {
          add(nope.data(), pair.slope(), made[at(pair.key)].key);
          add(rope.data(), pair.slope(), tokens[at(pair.key)].rope);
        }
        samples["dq_nope"].add(row * p.own, nope.data(), p.own);
        samples["dq_rope"].add(row * p.rope, rope.data(), p.rope);
      }
    return samples;
  }

  void complete(Call& call) const override {
    mla_attention::scale_weights(call);
    mla_attention::spoil_unseen(call);
    run_forward(call);
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    spec::Case varied = mla_attention::MlaAttention().vary(c, rng);
    for (const char* name : {"Sq", "Sk"}) varied.dims[name] = std::min<std::int64_t>(std::get<std::int64_t>(varied.dims[name]), 70);
    return varied;
  }

  spec::Case random_case(Rng& rng) const override {
    spec::Case c = mla_attention::random_call(rng, true);
    for (const char* name : {"kv_latent", "k_rope"}) std::erase(c.given, name);
    return vary(c, rng);
  }

  std::vector<OptionCase> option_cases() const override {
    std::vector<OptionCase> cases = mla_attention::option_cases_of(true);
    for (OptionCase& one : cases)
      for (const char* name : {"kv_latent", "k_rope"}) std::erase(one.c.given, name);
    return cases;
  }

  std::vector<Property> properties() const override {
    return {repeats_bit_for_bit([](const Call&) { return true; }),
            grows_with_cotangents({"dout"}),
            {"a key that no query sees does not matter, even NaN", writable, unseen}};
  }

 private:
  // What the forward pass leaves; out only in f32: in 16 bits, to which variants round values, too, its difference from few or equal keys'
  // values would be nothing but rounding errors, where gradients come of random ones. Above this many multiplications lse is what may be
  // expected, so that a benchmark's data is soon made.
  static void run_forward(Call& call) {
    constexpr double affordable = 1e9;
    const auto size = [&](const char* dim) { return static_cast<double>(call.dim(dim)); };
    const double multiplications =
        size("B") * size("H") * size("Sk") * (size("Sq") * (size("Dn") + size("Dr") + size("Dv")) + size("R") * (size("Dn") + size("Dv")));
    Values values;
    if (multiplications > affordable) {
      values["lse"] = expected_lse(call);
    } else {
      values = mla_attention::MlaAttention().compute(call);
      if (call.input("out").type() == DType::f32) call.input("out").assign(values.at("out"));
    }
    // Where rows share memory, the largest: no weight is above 1.
    HostTensor& lse = call.input("lse");
    lse.assign(Row(at(lse.elements()), -infinity));
    for (std::int64_t i = 0; i < lse.elements(); ++i)
      if (!(values.at("lse")[at(i)] <= lse.at(i))) lse.set(i, values.at("lse")[at(i)]);
  }
  // Of scores of deviation 1.
  static Row expected_lse(const Call& call) {
    const mla_attention::Sight sight(call);
    const std::int64_t heads = call.dim("H"), queries = sight.queries();
    Row lse(at(sight.sequences() * heads * queries), -infinity);
    for (std::int64_t n = 0; n < sight.sequences(); ++n)
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::size_t keys = sight.keys(n, i).size();
        for (std::int64_t h = 0; h < heads && keys > 0; ++h)
          lse[at((n * heads + h) * queries + i)] = std::log(static_cast<double>(keys)) + 0.5;
      }
    return lse;
  }

  // The call has NaN there: other numbers give the same.
  static std::string unseen(const Call& call, const Execute& execute, Rng& rng) {
    Call changed = call;
    for (const char* name : {"kv_latent", "k_rope"}) {
      HostTensor& tensor = changed.input(name);
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        if (std::isnan(tensor.at(i))) tensor.set(i, rng.normal());
    }
    return disagreement(call, run_copy(changed, execute), run_copy(call, execute));
  }
};

const Registration registration{std::make_unique<MlaAttentionBackward>()};

}  // namespace
}  // namespace ejk::reference::mla_attention_bwd

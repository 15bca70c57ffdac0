// flash_attention_bwd in float64: the gradients of SEMANTICS sections 0 and 1, every option, from the inputs, out, lse and dout.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/attention_cases.hpp"
#include "kernels/attention_dropout.hpp"
#include "kernels/attention_options.hpp"
#include "kernels/attention_scores.hpp"
#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// Above this many multiplications a made-up call's out stays random, and its lse is what may be expected, so that a benchmark's data is
// soon made.
constexpr double affordable_multiplications = 1e10;

// What rounding alone may leave of a gradient that cancels. dq, dk and dbias are sums of dS = p (dP - delta), times k or q, and lose what
// they are made of in two places:
//   dP - delta   where a row's values are alike. f32 is good to some 16 units in the last place, 2^-24, of p dP and p delta, and of their
//                sums, the minuend and the subtrahend: a row has one delta, and where keys and values are alike one dP.
//   the sum      dS adds up to 0 along a row, so that nothing is left of dq where the row's keys are alike. Matrix instructions take dS in
//                the type of q and k: each term is off by up to u of itself, 2^-11 in f16 and 2^-8 in bf16.
// An error is anywhere in half a unit to either side: its deviation is at most u / sqrt(3), and 0.42 u over all numbers of a binade. One
// rounding does not know of another, so that a sum's deviation is that of its terms as if they were independent, and twice u of sqrt(sum
// of squares of the terms) is 3.5 to 4.8 deviations; 2.5 and more where halves hold p, too. (Roundings that know of each other are those
// of equal rows: then the terms are equal, and do not cancel.) A term left out of n that cancel leaves 1 / sqrt(n) of that size: it is
// found up to n = 16384 in bf16.
struct Cancelling {
  explicit Cancelling(std::size_t elements) : minuend(elements, 0.0) {}
  std::vector<double> minuend;        // the gradient without delta
  double subtracted = 0, summed = 0;  // sums of squares: of p dP and p delta, and of dS; times what they are multiplied by

  // Squares of one term before and after the subtraction, and of its factors.
  void add(double from, double left, double factors) {
    if (!std::isfinite(from * factors)) return;
    subtracted += from * factors;
    summed += left * factors;
  }
  // Root mean square over the gradient's elements. unit: u.
  std::vector<double> rounding(double unit, const std::vector<double>& gradient) const {
    constexpr double of_f32 = 0x1p-20;
    double from = subtracted;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double squares = std::pow(minuend[i], 2) + std::pow(minuend[i] - gradient[i], 2);
      if (std::isfinite(squares)) from += squares;
    }
    const auto elements = static_cast<double>(std::max<std::size_t>(gradient.size(), 1));
    return {of_f32 * std::sqrt(from / elements) + 2 * unit * std::sqrt(summed / elements)};
  }
};

// Of rounding to nearest, relative.
double unit_of(DType type) { return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24; }

std::size_t elements_of(const Call& call, const char* tensor) {
  const HostTensor* given = call.find(tensor);
  return given ? at(given->elements()) : 0;
}

struct Gradients {
  explicit Gradients(const Call& call)
      : dq(elements_of(call, "q"), 0.0),
        dk(elements_of(call, "k"), 0.0),
        dv(elements_of(call, "v"), 0.0),
        dbias(elements_of(call, "bias"), 0.0),
        dsinks(elements_of(call, "softmax_aux"), 0.0),
        in_dq(dq.size()),
        in_dk(dk.size()),
        in_dbias(dbias.size()),
        in_dsinks(dsinks.size()) {}
  std::vector<double> dq, dk, dv, dbias, dsinks;
  Cancelling in_dq, in_dk, in_dbias, in_dsinks;

  Values values(double unit) const {
    return {{"dq", dq},
            {"dk", dk},
            {"dv", dv},
            {"dbias", dbias},
            {"dsoftmax_aux", dsinks},
            {"dq rounding", in_dq.rounding(unit, dq)},
            {"dk rounding", in_dk.rounding(unit, dk)},
            {"dbias rounding", in_dbias.rounding(0, dbias)},
            {"dsoftmax_aux rounding", in_dsinks.rounding(0, dsinks)}};
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
  double lse;
  const double* dout;      // [value_dim]
  double delta;            // dout * out, and dweights * weights, summed: what every weight's gradient is relative to
  const double* dweights;  // [Sk]; null: none

  std::int64_t key_row(std::int64_t j) const { return (s.k_begin + j) * p.kv_heads + h / (p.heads / p.kv_heads); }

  void differentiate(const Term& term, Gradients& g) const {
    const double weight = std::exp(term.score - lse);
    if (weight == 0) return;  // what lies behind a weight of 0 is of no account
    const double kept = p.dropout.factor(s.number * p.heads + h, i, term.j);
    const std::int64_t row = key_row(term.j);
    double by_weight = 0;
    for (std::int64_t e = 0; e < p.value_dim && kept != 0; ++e) {
      by_weight += kept * dout[e] * p.v[at(row * p.value_dim + e)];
      g.dv[at(row * p.value_dim + e)] += weight * kept * dout[e];
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
    const std::int64_t query_row = (s.q_begin + i) * p.heads + h;
    double of_key = 0, of_query = 0;  // squares
    for (std::int64_t d = 0; d < p.dim; ++d) {
      const double key = p.k[at(row * p.dim + d)], query = p.q[at(query_row * p.dim + d)];
      g.dq[at(query_row * p.dim + d)] += by_score * reach * key;
      g.dk[at(row * p.dim + d)] += by_score * reach * query;
      g.in_dq.minuend[at(query_row * p.dim + d)] += minuend * reach * key;
      g.in_dk.minuend[at(row * p.dim + d)] += minuend * reach * query;
      of_key += key * key, of_query += query * query;
    }
    g.in_dq.add(from, left, reach * reach * of_key);
    g.in_dk.add(from, left, reach * reach * of_query);
  }

  void differentiate_sinks(const Call& call, const std::vector<double>& sinks, Gradients& g) const {
    for (std::size_t n = 0; n < sinks.size(); ++n) {
      if (sinks[n] == -infinity) continue;
      const double flow = std::exp(sinks[n] - lse) * delta;
      g.dsinks[sink_index(call, h, static_cast<std::int64_t>(n))] -= flow;
      g.in_dsinks.add(flow * flow, 0, 1);
    }
  }
};

class FlashAttentionBackward : public KernelReference {
 public:
  std::string kernel() const override { return "flash_attention_bwd"; }

  Values compute(const Call& call) const override {
    const AttentionProblem p(call);
    const bool packed = call.given("cum_seqlens_q");
    const std::vector<double> out = call.input("out").values(), lse = call.input("lse").values(), dout = call.input("dout").values();
    std::vector<double> weights, dweights;
    if (call.given("dweights")) weights = call.input("weights").values(), dweights = call.input("dweights").values();
    Gradients g(call);
    for (const Sequence& s : sequences_of(call))
      for (std::int64_t h = 0; h < p.heads; ++h) {
        const std::vector<double> keys = transposed_keys(p, s, h / (p.heads / p.kv_heads)), sinks = sinks_of(call, h);
        for (std::int64_t i = 0; i < s.q_length; ++i) {
          const std::int64_t row = packed ? h * call.dim("Tq") + s.q_begin + i : (s.number * p.heads + h) * s.q_length + i;
          if (lse[at(row)] == -infinity) continue;  // sees nothing, not even sinks
          const std::int64_t begin = ((s.q_begin + i) * p.heads + h) * p.value_dim;
          Query query{p, s, h, i, lse[at(row)], dout.data() + begin, 0, nullptr};
          for (std::int64_t e = 0; e < p.value_dim; ++e) query.delta += query.dout[e] * out[at(begin + e)];
          if (!dweights.empty()) query.dweights = dweights.data() + row * call.dim("Sk");
          for (std::int64_t j = 0; query.dweights && j < call.dim("Sk"); ++j)
            if (const double weight = weights[at(row * call.dim("Sk") + j)]; weight != 0) query.delta += weight * query.dweights[j];
          for (const Term& term : visible_scores(p, s, keys, h, i)) query.differentiate(term, g);
          query.differentiate_sinks(call, sinks, g);
        }
      }
    return g.values(unit_of(call.input("q").type()));
  }

  // out and lse are the forward pass's.
  void complete(Call& call) const override {
    const bool packed = call.given("cum_seqlens_q");
    const std::int64_t queries = packed ? call.dim("Tq") : call.dim("B") * call.dim("Sq");
    const std::int64_t keys = packed ? call.dim("Tk") / std::max<std::int64_t>(call.dim("N"), 1) : call.dim("Sk");
    const double multiplications =
        static_cast<double>(queries * call.dim("Hq")) * static_cast<double>(keys * (call.dim("D") + call.dim("Dv")));
    Values values;
    if (multiplications > affordable_multiplications) {
      values["lse"] = expected_lse(call);
    } else {
      values = attention_outputs(call);
      call.input("out").assign(values.at("out"));
      if (call.given("weights")) call.input("weights").assign(values.at("weights"));
    }
    // Where rows share memory, the largest: no weight is above 1.
    HostTensor& lse = call.input("lse");
    lse.assign(std::vector<double>(at(lse.elements()), -infinity));
    for (std::int64_t i = 0; i < lse.elements(); ++i)
      if (!(values.at("lse")[at(i)] <= lse.at(i))) lse.set(i, values.at("lse")[at(i)]);
  }

  spec::Case vary(const spec::Case& c, Rng& rng) const override {
    spec::Case varied = vary_attention(c, rng);
    if (names(c, "bias")) {
      varied.dims["Bb"] = rng.chance(0.4) ? spec::Value{std::int64_t{1}} : varied.dims["B"];
      varied.dims["Hb"] = rng.chance(0.4) ? spec::Value{std::int64_t{1}} : varied.dims["Hq"];
    }
    return varied;
  }

  spec::Case random_case(Rng& rng) const override {
    spec::Case c = random_attention(rng);
    std::erase(c.given, "lse");
    if (names(c, "weights")) c.given.push_back("dweights");
    if (names(c, "bias") && rng.chance(0.8)) c.given.push_back("dbias");
    if (names(c, "softmax_aux") && rng.chance(0.8)) c.given.push_back("dsoftmax_aux");
    if (rng.chance(0.2)) c.attributes["deterministic"] = true;
    return vary(c, rng);
  }

  std::vector<OptionCase> option_cases() const override { return attention_option_cases(true); }

  std::vector<Property> properties() const override;
};

// ---- properties ----

// Every call here is a copy whose inputs were changed: the forward pass is made anew.
Values run_changed(Call& changed, const Execute& execute) {
  FlashAttentionBackward().complete(changed);
  return run_copy(changed, execute);
}

std::string unseen_keys(const Call& call, const Execute& execute, Rng&) {
  const Values expected = run_copy(call, execute);
  Call changed = call;
  overwrite_unseen(changed);
  return disagreement(call, run_copy(changed, execute), expected);
}

// One element of the input becomes NaN: exactly the gradients that it reaches may know (the reference tells which).
std::string one_nan(const Call& call, const Execute& execute, Rng& rng, const char* input) {
  Call changed = call;
  HostTensor& tensor = changed.input(input);
  tensor.set(rng.between(0, tensor.elements() - 1), nan);
  FlashAttentionBackward().complete(changed);
  return first_failure(verify_call(FlashAttentionBackward(), changed, execute));
}

// Where all keys are one key, or all values one value, what a gradient is made of cancels.
std::string all_alike(const Call& call, const Execute& execute, const char* input) {
  Call changed = call;
  HostTensor& tensor = changed.input(input);
  const std::int64_t row = tensor.shape().back();
  for (std::int64_t i = row; i < tensor.elements(); ++i) tensor.set(i, tensor.at(i % row));
  FlashAttentionBackward().complete(changed);
  return first_failure(verify_call(FlashAttentionBackward(), changed, execute));
}

// New queries and gradients before a cut: keys that only later queries see keep their gradients, to the bit.
std::string earlier_queries(const Call& call, const Execute& execute, Rng& rng) {
  const std::int64_t sq = call.dim("Sq"), cut = rng.between(0, sq - 1);
  Call changed = call;
  for (const char* name : {"q", "dout"}) {
    HostTensor& tensor = changed.input(name);
    const std::int64_t row = tensor.shape()[2] * tensor.shape()[3];
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (i / row % sq < cut) tensor.set(i, 3 * rng.normal());
  }
  const Values before = run_copy(call, execute), after = run_changed(changed, execute);
  const Visibility visibility(call);
  const std::int64_t sk = call.dim("Sk"), first = cut == 0 ? 0 : visibility.last({0, 0, sq, 0, sk, sq}, cut - 1);
  for (const char* name : {"dk", "dv"}) {
    const HostTensor& tensor = call.input(name);
    const std::int64_t row = tensor.shape()[2] * tensor.shape()[3];
    for (std::int64_t e = 0; e < tensor.elements(); ++e)
      if (e / row % sk >= first && before.at(name)[at(e)] != after.at(name)[at(e)])
        return name + index_text(tensor.shape(), e) + " changed with the queries before " + std::to_string(cut);
  }
  return "";
}

// Keys, and all that belongs to them, in another order: their gradients follow.
std::string shuffled_keys(const Call& call, const Execute& execute, Rng& rng) {
  std::vector<std::int64_t> order(at(call.dim("Sk")));
  std::iota(order.begin(), order.end(), 0);
  rng.shuffle(order);
  const std::int64_t key = call.dim("Hkv") * call.dim("D"), value = call.dim("Hkv") * call.dim("Dv");
  Call changed = call, expected = call;
  reorder_keys(call, changed, "k", key, order);
  reorder_keys(call, changed, "v", value, order);
  for (const char* name : {"bias", "attention_mask", "kv_segment_ids", "weights", "dweights"}) reorder_keys(call, changed, name, 1, order);
  Values found = run_copy(call, execute);
  for (HostTensor& output : expected.outputs) output.assign(found.at(output.name()));
  const Call original = expected;
  reorder_keys(original, expected, "dk", key, order);
  reorder_keys(original, expected, "dv", value, order);
  reorder_keys(original, expected, "dbias", 1, order);
  for (const HostTensor& output : expected.outputs) found[output.name()] = output.values();
  return disagreement(call, run_copy(changed, execute), found);
}

// A softmax does not feel what is added to all scores of a row.
std::string bias_rows(const Call& call, const Execute& execute, Rng&) {
  const std::vector<double> dbias = run_copy(call, execute).at("dbias");
  const std::int64_t keys = call.dim("Sk");
  for (std::size_t row = 0; row * at(keys) < dbias.size(); ++row) {
    double sum = 0, size = 0;
    for (std::size_t j = row * at(keys); j < (row + 1) * at(keys); ++j) sum += dbias[j], size += std::fabs(dbias[j]);
    if (std::fabs(sum) > 2e-5 * (1 + size))
      return "row " + std::to_string(row) + " of dbias sums to " + std::to_string(sum) + ", its magnitudes to " + std::to_string(size);
  }
  return "";
}

std::string doubled(const Call& call, const Execute& execute, Rng&) {
  Values expected = run_copy(call, execute);
  for (auto& [name, values] : expected)
    for (double& value : values) value *= 2;
  Call changed = call;
  for (const char* name : {"dout", "dweights"})
    if (HostTensor* tensor = changed.find(name))
      for (std::int64_t i = 0; i < tensor->elements(); ++i) tensor->set(i, 2 * tensor->at(i));
  return disagreement(call, run_copy(changed, execute), expected);
}

std::vector<Property> FlashAttentionBackward::properties() const {
  const auto has_keys = [](const Call& call) { return writable(call) && call.input("k").elements() > 0 && call.input("q").elements() > 0; };
  const auto batched = [=](const Call& call) { return has_keys(call) && !call.given("cum_seqlens_q"); };
  const auto keeps_all = [](const Call& call) { return call.floating("dropout_prob") == 0; };
  const auto unordered = [=](const Call& call) {
    return batched(call) && has_full_rows(call) && keeps_all(call) && !call.flag("causal") && call.integer("window_left") < 0 &&
           call.integer("window_right") < 0;
  };
  const auto nan_in = [](const char* input) {
    return [=](const Call& call, const Execute& execute, Rng& rng) { return one_nan(call, execute, rng, input); };
  };
  const auto alike = [](const char* input) {
    return [=](const Call& call, const Execute& execute, Rng&) { return all_alike(call, execute, input); };
  };
  return {
      repeats_bit_for_bit([](const Call&) { return true; }),
      {"keys may all be alike", has_keys, alike("k")},
      {"values may all be alike", has_keys, alike("v")},
      {"a key and a bias that no query sees do not matter, even NaN and infinity", writable, unseen_keys},
      {"a NaN in a key reaches the gradients of what sees it and no other", [=](const Call& c) { return has_keys(c) && keeps_all(c); },
       nan_in("k")},
      {"a NaN in a query reaches the gradients of what it sees and no other", [=](const Call& c) { return has_keys(c) && keeps_all(c); },
       nan_in("q")},
      {"a NaN in dout reaches the gradients of what its query sees and no other",
       [=](const Call& c) { return has_keys(c) && keeps_all(c); }, nan_in("dout")},
      {"earlier queries do not change the gradients of later keys",
       [=](const Call& c) { return batched(c) && has_full_rows(c) && c.flag("causal") && !c.given("softmax_aux"); }, earlier_queries},
      {"the order of the keys does not matter", unordered, shuffled_keys},
      {"the gradient of a bias sums to 0 along the keys",
       [](const Call& c) {
         const HostTensor* dbias = c.find("dbias");
         return writable(c) && dbias && dbias->type() == DType::f32 && c.input("q").type() == DType::f32 && !c.given("softmax_aux");
       },
       bias_rows},
      drops_what_the_forward_pass_dropped([](Call& changed) { FlashAttentionBackward().complete(changed); }),
      {"twice the cotangent gives twice the gradients", writable, doubled},
  };
}

const Registration registration{std::make_unique<FlashAttentionBackward>()};

}  // namespace
}  // namespace ejk::reference

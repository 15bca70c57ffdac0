// Gradients of native sparse attention. Of a branch with gate g, weights p and output o = sum p v: dg = dout . o, ds = g p (dout . v - dg)
// for each key; a mean's gradients are shared out to the tokens of its block. What is selected is not differentiated.
#include <algorithm>
#include <cmath>

#include "reference/kernels/cancelling.hpp"
#include "reference/kernels/native_sparse.hpp"
#include "reference/spot.hpp"

namespace ejk::reference {
namespace {

constexpr double affordable_weights = 5e7;

double square(double x) { return x * x; }

// Zeros for each gradient that the call has.
Values empty_sums(const Call& call) {
  Values values;
  for (const char* name : {"dq", "dk", "dv", "dg_cmp", "dg_slc", "dg_swa"})
    if (call.given(name)) values[name].assign(spot(call.input(name).elements()), 0.0);
  return values;
}

class GradientSums {
 public:
  explicit GradientSums(const Call& call)
      : call_(call),
        p_(call),
        values_(empty_sums(call)),
        in_dq_(spot(call.input("dq").elements())),
        in_dk_(spot(call.input("dk").elements())) {
    for (std::int64_t i = 0; i < call.input("dout").elements(); ++i) dout_.push_back(call.input("dout").at(i));
  }

  void add_row(const SparseQuery& at, SparseBranch branch) {
    SparseSoftmax row = p_.softmax(branch, at);
    const std::int64_t kv_head = at.head / p_.group, place = p_.row(at);
    for (double& weight : row.weights) weight *= std::exp(row.lse - lse(at, branch));  // weights are made from LSE as it is given
    const double gate = p_.gate(branch, at);
    std::vector<double> products;
    double of_gate = 0, sum = 0;
    for (std::size_t i = 0; i < row.keys.size(); ++i) {
      products.push_back(0);
      for (std::int64_t d = 0; d < p_.value_dim; ++d)
        products[i] += dout_[spot(place * p_.value_dim + d)] * p_.value(branch, at.batch, kv_head, row.keys[i], d);
      of_gate += row.weights[i] * products[i];
      sum += row.weights[i];
    }
    if (sum != 0) of_gate /= sum;  // o is the forward pass's, whatever LSE is
    static constexpr const char* names[] = {"dg_cmp", "dg_slc", "dg_swa"};
    if (const auto found = values_.find(names[branch]); found != values_.end()) found->second[spot(place)] = of_gate;
    for (std::size_t i = 0; i < row.keys.size(); ++i) add_key(at, branch, row.keys[i], gate * row.weights[i], products[i], of_gate);
  }

  const NativeSparse& problem() const { return p_; }
  Values values() const {
    Values values = values_;
    const double unit = unit_of(call_.input("q").type());
    values["dq rounding"] = {in_dq_.rounding(unit, values_.at("dq"), values_.at("dq").size())};
    values["dk rounding"] = {in_dk_.rounding(unit, values_.at("dk"), values_.at("dk").size())};
    return values;
  }

 private:
  double lse(const SparseQuery& at, SparseBranch branch) const {
    const std::int64_t row = at.batch * p_.heads + at.head;
    if (const HostTensor* given = call_.find("branch_lse")) return given->at((row * 3 + branch) * p_.tokens + at.token);
    return call_.input("lse").at(row * p_.tokens + at.token);
  }

  // `product`: dout . v.
  void add_key(const SparseQuery& at, SparseBranch branch, std::int64_t key, double weight, double product, double of_gate) {
    const std::int64_t kv_head = at.head / p_.group, place = p_.row(at);
    const double minuend = weight * product * p_.scale(), slope = weight * (product - of_gate) * p_.scale();
    const double from = minuend * minuend + square(weight * of_gate * p_.scale()), left = slope * slope;
    double of_key = 0, of_query = 0;  // squares
    for (std::int64_t d = 0; d < p_.dim; ++d) {
      const double k = p_.key(branch, at.batch, kv_head, key, d);
      query_[spot(d)] = p_.query(at, d);
      dq_[spot(place * p_.dim + d)] += slope * k;
      in_dq_.minuend[spot(place * p_.dim + d)] += minuend * k;
      of_key += k * k, of_query += square(query_[spot(d)]);
    }
    in_dq_.add(from, left, of_key);
    const std::int64_t count = branch == mean_branch ? p_.block_size : 1, first = key;
    const double share = 1 / static_cast<double>(count);
    for (std::int64_t t = first; t < first + count; ++t) {
      const std::int64_t to = (at.batch * p_.tokens + t) * p_.kv_heads + kv_head;
      for (std::int64_t d = 0; d < p_.dim; ++d) {
        dk_[spot(to * p_.dim + d)] += slope * share * query_[spot(d)];
        in_dk_.minuend[spot(to * p_.dim + d)] += minuend * share * query_[spot(d)];
      }
      in_dk_.add(from * share * share, left * share * share, of_query);
      for (std::int64_t d = 0; d < p_.value_dim; ++d)
        dv_[spot(to * p_.value_dim + d)] += weight * share * dout_[spot(place * p_.value_dim + d)];
    }
  }

  const Call& call_;
  NativeSparse p_;
  Values values_;
  std::vector<double>&dq_ = values_.at("dq"), &dk_ = values_.at("dk"), &dv_ = values_.at("dv");
  Cancelling in_dq_, in_dk_;
  std::vector<double> dout_, query_ = std::vector<double>(spot(p_.dim));
};

double weights_of(const NativeSparse& p) {
  return p.row_work() / static_cast<double>(std::max<std::int64_t>(p.dim + p.value_dim, 1)) *
         static_cast<double>(p.batch * p.tokens * p.heads);
}

}  // namespace

Values sparse_gradients(const Call& call) {
  GradientSums sums(call);
  const NativeSparse& p = sums.problem();
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t t = 0; t < p.tokens; ++t)
      for (std::int64_t h = 0; h < p.heads; ++h)
        for (const SparseBranch branch : {mean_branch, block_branch, window_branch})
          if (p.has_branch(branch)) sums.add_row({b, t, h}, branch);
  return sums.values();
}

void select_any_blocks(Call& call) {
  HostTensor& selected = call.input("selected");
  const std::int64_t count = selected.shape()[3], rows = count > 0 ? selected.elements() / count : 0;
  const NativeSparse p(call);
  Rng rng = Rng::stream(static_cast<std::uint64_t>(selected.elements()), "selected");
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t token = row / call.dim("Hkv") % call.dim("T");
    const auto [begin, end] = p.sequence(token);
    const std::int64_t own = (token - begin) / call.integer("block_size");
    const std::set<std::int64_t> blocks = some_below(call.given("g_slc") && begin < end ? own + 1 : 0, static_cast<int>(count) - 1, rng);
    std::int64_t i = row * count;
    for (const std::int64_t block : blocks) selected.set(i++, static_cast<double>(block));
    for (; i < (row + 1) * count; ++i) selected.set(i, -1);
  }
}

void complete_gradient(Call& call, const char* lse_name, bool branches) {
  HostTensor& lse = call.input(lse_name);
  const NativeSparse p(call);
  const bool affordable = weights_of(p) < affordable_weights;
  std::vector<double> values(spot(lse.elements()), -infinity);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t t = 0; t < p.tokens; ++t)
      for (std::int64_t h = 0; h < p.heads; ++h)
        for (const SparseBranch branch : {mean_branch, block_branch, window_branch}) {
          if (!p.has_branch(branch)) continue;
          const std::int64_t at = branches ? ((b * p.heads + h) * 3 + branch) * p.tokens + t : (b * p.heads + h) * p.tokens + t;
          values[spot(at)] = affordable ? p.softmax(branch, {b, t, h}).lse : std::log(static_cast<double>(t + 1)) + 1;
        }
  // Where rows share memory, the largest: no weight is above 1.
  lse.assign(std::vector<double>(spot(lse.elements()), -infinity));
  for (std::int64_t i = 0; i < lse.elements(); ++i)
    if (!(values[spot(i)] <= lse.at(i))) lse.set(i, values[spot(i)]);
}

Samples sparse_gradient_samples(const Call& call) {
  Samples samples;
  const NativeSparse p(call);
  if (weights_of(p) > affordable_weights) return samples;
  const Values gradients = sparse_gradients(call);
  for (const auto& [name, values] : gradients) {
    if (!call.given(name)) continue;  // what rounding may leave
    samples[name].add(0, values.data(), static_cast<std::int64_t>(values.size()));
    samples[name].rounding = rounding_of(gradients, name);
  }
  return samples;
}

// ---- laws ----

namespace {

// The token of an element of [1, T, ...], or of log-sum-exps, whose tokens are last.
std::int64_t token_of(const Call& call, const HostTensor& tensor, std::int64_t element) {
  if (tensor.name().ends_with("lse")) return element % call.dim("T");
  std::int64_t size = 1;
  for (std::size_t i = 2; i < tensor.shape().size(); ++i) size *= tensor.shape()[i];
  return element / size;
}

std::string without_other_sequences(const Call& call, const Execute& execute, Rng& rng) {
  const NativeSparse p(call);
  const auto [begin, end] = p.sequence(rng.between(0, p.tokens - 1));
  const auto in = [&, first = begin, last = end](const HostTensor& tensor, std::int64_t e) {
    const std::int64_t token = token_of(call, tensor, e);
    return token >= first && token < last;
  };
  Call changed = call;
  for (HostTensor& input : changed.inputs)
    for (std::int64_t e = 0; input.type() != DType::i32 && e < input.elements(); ++e)
      if (!in(input, e)) input.set(e, nan);
  const Values before = run_copy(call, execute), after = run_copy(changed, execute);
  for (const HostTensor& output : call.outputs)
    for (std::int64_t e = 0; e < output.elements(); ++e)
      if (in(output, e) && before.at(output.name())[spot(e)] != after.at(output.name())[spot(e)])
        return output.name() + index_text(output.shape(), e) + " depends on another sequence";
  return "";
}

}  // namespace

Property other_sequences_do_not_matter() {
  return {"packed, tokens of other sequences and of none do not matter, even NaN",
          [](const Call& call) { return writable(call) && call.given("cum_seqlens") && call.dim("T") > 0; }, without_other_sequences};
}

std::string twice_the_cotangent(const Call& call, const Execute& execute) {
  Call changed = call;
  HostTensor& dout = changed.input("dout");
  for (std::int64_t e = 0; e < dout.elements(); ++e) dout.set(e, 2 * dout.at(e));
  Values expected = run_copy(call, execute);
  for (auto& [name, values] : expected)
    for (double& x : values) x *= 2;
  return disagreement(call, run_copy(changed, execute), expected);
}

}  // namespace ejk::reference

// Rows of native sparse attention: means, selection, weights, outputs.
#include "reference/kernels/native_sparse.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace ejk::reference {
namespace {

constexpr std::int64_t elements_to_keep = 1 << 24;

const HostTensor* named_blocks(const Call& call) {
  const HostTensor* named = call.find("block_indices");
  return named ? named : call.spec->tensor("selected") && !call.spec->tensor("selected")->output ? call.find("selected") : nullptr;
}

}  // namespace

TokenRows::TokenRows(const HostTensor& tensor) : tensor_(tensor), features_(tensor.shape().size() == 4 ? tensor.shape()[3] : 1) {
  if (tensor.elements() <= elements_to_keep) values_ = tensor.values();
}

double TokenRows::at(std::int64_t row, std::int64_t feature) const {
  const std::int64_t index = row * features_ + feature;
  return values_.empty() ? tensor_.at(index) : values_[static_cast<std::size_t>(index)];
}

NativeSparse::NativeSparse(const Call& call)
    : batch(call.dim("B")),
      tokens(call.dim("T")),
      heads(call.dim("Hq")),
      kv_heads(call.dim("Hkv")),
      group(kv_heads > 0 ? heads / kv_heads : 1),
      dim(call.dim("D")),
      value_dim(call.dim("Dv")),
      block_size(call.integer("block_size")),
      blocks((tokens + block_size - 1) / block_size),
      call_(call),
      q_(call.input("q")),
      k_(call.input("k")),
      v_(call.input("v")),
      named_(named_blocks(call)),
      counts_(call.find("block_counts")),
      offsets_(call.find("cum_seqlens")),
      count_(named_                              ? named_->shape()[3]
             : call.has_attribute("block_count") ? call.integer("block_count")
                                                 : 0),
      left_(call.has_attribute("window_left") ? call.integer("window_left") : -1),
      scale_(call.floating("softmax_scale")),
      gated_(call.spec->tensor("g_slc") != nullptr) {
  for (const SparseBranch branch : {mean_branch, block_branch, window_branch})
    if (const HostTensor* gate = call.find(branch_gates[branch])) gates_[branch].emplace(*gate);
}

bool NativeSparse::has_branch(SparseBranch branch) const { return gated_ ? gates_[branch].has_value() : branch == block_branch; }

double NativeSparse::gate(SparseBranch branch, const SparseQuery& at) const { return gated_ ? gates_[branch]->at(row(at), 0) : 1; }

SparseSequence NativeSparse::sequence(std::int64_t t) const {
  if (!offsets_) return {0, tokens};
  for (std::int64_t n = 0; n + 1 < offsets_->elements(); ++n)
    if (t < static_cast<std::int64_t>(offsets_->at(n + 1)))
      return {static_cast<std::int64_t>(offsets_->at(n)), static_cast<std::int64_t>(offsets_->at(n + 1))};
  return {t, t};
}

const std::vector<double>& NativeSparse::mean(std::int64_t b, std::int64_t kv_head, std::int64_t first, bool of_values) const {
  const TokenRows& rows = of_values ? v_ : k_;
  std::vector<double>& sum = means_[of_values ? 1 : 0][(b * tokens + first) * kv_heads + kv_head];
  if (!sum.empty()) return sum;
  sum.assign(static_cast<std::size_t>(rows.features()), 0.0);
  for (std::int64_t t = first; t < first + block_size; ++t)
    for (std::int64_t d = 0; d < rows.features(); ++d)
      sum[static_cast<std::size_t>(d)] += rows.at((b * tokens + t) * kv_heads + kv_head, d) / static_cast<double>(block_size);
  return sum;
}

double NativeSparse::key(SparseBranch branch, std::int64_t b, std::int64_t kv_head, std::int64_t at, std::int64_t d) const {
  if (branch == mean_branch) return mean(b, kv_head, at, false)[static_cast<std::size_t>(d)];
  return k_.at((b * tokens + at) * kv_heads + kv_head, d);
}

double NativeSparse::value(SparseBranch branch, std::int64_t b, std::int64_t kv_head, std::int64_t at, std::int64_t d) const {
  if (branch == mean_branch) return mean(b, kv_head, at, true)[static_cast<std::size_t>(d)];
  return v_.at((b * tokens + at) * kv_heads + kv_head, d);
}

SparseSoftmax NativeSparse::softmax(SparseBranch branch, const SparseQuery& at) const {
  SparseSoftmax row;
  const std::int64_t kv_head = at.head / group;
  const auto [begin, end] = sequence(at.token);
  if (begin == end) return row;
  if (branch == mean_branch) {
    for (std::int64_t first = begin; first + block_size <= at.token + 1; first += block_size) row.keys.push_back(first);
  } else if (branch == block_branch) {
    for (const std::int64_t block : selection(at.batch, at.token, kv_head))
      for (std::int64_t j = begin + block * block_size; j < std::min(begin + (block + 1) * block_size, at.token + 1); ++j)
        row.keys.push_back(j);
  } else {
    for (std::int64_t j = left_ < 0 || left_ > at.token - begin ? begin : at.token - left_; j <= at.token; ++j) row.keys.push_back(j);
  }
  for (const std::int64_t j : row.keys) {
    double dot = 0;
    for (std::int64_t d = 0; d < dim; ++d) dot += query(at, d) * key(branch, at.batch, kv_head, j, d);
    row.weights.push_back(scale_ * dot);
  }
  row.lse = log_sum_exp(row.weights);
  for (double& weight : row.weights) weight = std::exp(weight - row.lse);
  return row;
}

std::vector<double> NativeSparse::importance(std::int64_t b, std::int64_t t, std::int64_t kv_head) const {
  std::vector<double> sum(static_cast<std::size_t>(std::max<std::int64_t>((t - sequence(t).first) / block_size - 1, 0)), 0.0);
  for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const SparseSoftmax row = softmax(mean_branch, {b, t, h});
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += row.weights[c + 1];
  }
  return sum;
}

const std::vector<std::int64_t>& NativeSparse::selection(std::int64_t b, std::int64_t t, std::int64_t kv_head) const {
  const std::int64_t row = (b * tokens + t) * kv_heads + kv_head;
  const auto found = selections_.find(row);
  return found != selections_.end() ? found->second : selections_.emplace(row, select(b, t, kv_head)).first->second;
}

std::vector<std::int64_t> NativeSparse::select(std::int64_t b, std::int64_t t, std::int64_t kv_head) const {
  std::set<std::int64_t> chosen;
  const auto [begin, end] = sequence(t);
  if (begin == end) return {};
  const std::int64_t own = (t - begin) / block_size;
  if (named_) {
    const std::int64_t at = (b * tokens + t) * kv_heads + kv_head;
    const std::int64_t named = counts_ ? std::clamp(static_cast<std::int64_t>(counts_->at(at)), std::int64_t{0}, count_) : count_;
    for (std::int64_t i = 0; i < named; ++i)
      if (const auto block = static_cast<std::int64_t>(named_->at(at * count_ + i)); block >= 0 && block <= own) chosen.insert(block);
    return {chosen.begin(), chosen.end()};
  }
  chosen.insert(0);
  if (count_ > 1) chosen.insert(own);
  const auto room = static_cast<std::size_t>(count_) - chosen.size();
  std::vector<double> sum(static_cast<std::size_t>(std::max<std::int64_t>(own - 1, 0)), 0.0);
  if (room > 0 && room < sum.size()) sum = importance(b, t, kv_head);
  std::vector<std::int64_t> order;
  for (std::size_t c = 0; c < sum.size(); ++c) order.push_back(static_cast<std::int64_t>(c) + 1);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t x, std::int64_t y) {
    return sum[static_cast<std::size_t>(x - 1)] > sum[static_cast<std::size_t>(y - 1)];
  });
  if (order.size() > room) order.resize(room);
  chosen.insert(order.begin(), order.end());
  return {chosen.begin(), chosen.end()};
}

bool NativeSparse::is_close(std::int64_t b, std::int64_t t, std::int64_t kv_head) const {
  if (!chooses() || count_ < 3) return false;
  const std::size_t room = static_cast<std::size_t>(count_) - 2;
  if (static_cast<std::int64_t>(room) >= (t - sequence(t).first) / block_size - 1) return false;
  std::vector<double> sum = importance(b, t, kv_head);
  std::sort(sum.rbegin(), sum.rend());
  const double least = sum[room - 1], next = sum[room];
  return least != next && !(least - next > 1e-4 * least && least > 1e-30);
}

double NativeSparse::add_branch(SparseBranch branch, const SparseQuery& at, double* out) const {
  const SparseSoftmax row = softmax(branch, at);
  const double factor = gate(branch, at);
  for (std::size_t i = 0; i < row.keys.size(); ++i)
    for (std::int64_t d = 0; d < value_dim && row.weights[i] != 0; ++d)
      out[d] += factor * row.weights[i] * value(branch, at.batch, at.head / group, row.keys[i], d);
  return row.lse;
}

double NativeSparse::row_work() const {
  const auto tokens_seen = static_cast<double>(has_branch(window_branch) ? (left_ < 0 ? tokens : std::min(left_, tokens - 1) + 1) : 0) +
                           static_cast<double>(has_branch(block_branch) ? std::min(count_ * block_size, tokens) : 0);
  const double blocks_seen = static_cast<double>(blocks) * static_cast<double>(has_branch(block_branch) && chooses() ? group + 1 : 1);
  return (tokens_seen + blocks_seen) * static_cast<double>(dim + value_dim);
}

Values sparse_outputs(const Call& call) {
  const NativeSparse p(call);
  std::vector<double> out(static_cast<std::size_t>(p.batch * p.tokens * p.heads * p.value_dim), 0.0);
  std::vector<double> branch_lse(static_cast<std::size_t>(p.batch * p.heads * 3 * p.tokens), -infinity);
  std::vector<double> lse(static_cast<std::size_t>(p.batch * p.heads * p.tokens), -infinity);
  std::vector<double> blocks(static_cast<std::size_t>(p.batch * p.tokens * p.kv_heads * p.count()), -1.0);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      for (std::int64_t h = 0; h < p.heads; ++h) {
        const SparseQuery at{b, t, h};
        for (const SparseBranch branch : {mean_branch, block_branch, window_branch}) {
          if (!p.has_branch(branch)) continue;
          const double sum = p.add_branch(branch, at, out.data() + p.row(at) * p.value_dim);
          branch_lse[static_cast<std::size_t>(((b * p.heads + h) * 3 + branch) * p.tokens + t)] = sum;
          if (branch == block_branch) lse[static_cast<std::size_t>((b * p.heads + h) * p.tokens + t)] = sum;
        }
      }
      for (std::int64_t h = 0; h < p.kv_heads && p.has_branch(block_branch); ++h) {
        std::int64_t i = ((b * p.tokens + t) * p.kv_heads + h) * p.count();
        for (const std::int64_t block : p.selection(b, t, h)) blocks[static_cast<std::size_t>(i++)] = static_cast<double>(block);
      }
    }
  return {{"out", out}, {"lse", lse}, {"branch_lse", branch_lse}, {"selected", blocks}};
}

Samples sparse_samples(const Call& call, Rng& rng) {
  constexpr double affordable = 3e7;
  const NativeSparse p(call);
  Samples samples;
  double work = 0;
  for (const std::int64_t row : some_below(p.batch * p.tokens * p.heads, 64, rng)) {
    const SparseQuery at{row / p.heads / p.tokens, row / p.heads % p.tokens, row % p.heads};
    work += p.row_work();
    if (work > affordable && !samples.empty()) break;
    if (p.has_branch(block_branch) && p.is_close(at.batch, at.token, at.head / p.group)) continue;
    std::vector<double> out(static_cast<std::size_t>(p.value_dim), 0.0);
    for (const SparseBranch branch : {mean_branch, block_branch, window_branch})
      if (p.has_branch(branch)) p.add_branch(branch, at, out.data());
    samples["out"].add(row * p.value_dim, out.data(), p.value_dim);
  }
  return samples;
}

void settle_selection(Call& call) {
  constexpr double affordable = 3e8;
  if (!call.given("g_slc") || call.given("block_indices")) return;
  const NativeSparse sizes(call);
  if (static_cast<double>(sizes.batch * sizes.tokens * sizes.heads) * static_cast<double>(sizes.blocks * sizes.dim) > affordable) return;
  for (bool changed = true; changed;) {  // again where queries share memory
    changed = false;
    const NativeSparse p(call);
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t t = 0; t < p.tokens; ++t)
        for (std::int64_t h = 0; h < p.kv_heads; ++h) {
          if (!p.is_close(b, t, h)) continue;
          const std::int64_t first = p.row({b, t, h * p.group}) * p.dim;
          for (std::int64_t i = 0; i < p.group * p.dim; ++i) call.input("q").set(first + i, 0);
          changed = true;
        }
  }
}

void name_blocks(Call& call) {
  HostTensor* named = call.find("block_indices");
  if (!named) return;
  const std::int64_t size = call.integer("block_size"), tokens = call.dim("T"), kv_heads = call.dim("Hkv");
  const std::int64_t count = named->shape()[3], blocks = (tokens + size - 1) / size;
  const NativeSparse p(call);
  Rng rng = Rng::stream(static_cast<std::uint64_t>(named->elements()), "named blocks");
  for (std::int64_t e = 0; e < named->elements(); ++e) {
    const std::int64_t token = e / std::max<std::int64_t>(count * kv_heads, 1) % std::max<std::int64_t>(tokens, 1);
    const std::int64_t own = (token - p.sequence(token).first) / size;
    const double block = rng.chance(0.1)                    ? -1.0
                         : rng.chance(0.2)                  ? static_cast<double>(rng.between(0, blocks - 1))
                         : rng.chance(0.2) && e % count > 0 ? named->at(e - 1)
                                                            : static_cast<double>(rng.between(0, own));
    named->set(e, block);
  }
  if (HostTensor* counts = call.find("block_counts"))
    for (std::int64_t e = 0; e < counts->elements(); ++e) counts->set(e, static_cast<double>(rng.between(0, count)));
}

}  // namespace ejk::reference

// Rules shared by attention kernels.
#include "reference/kernels/attention_rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/reference.hpp"

namespace ejk::reference {
namespace {

// Positions are below 2^40: an offset or window beyond that sees the same keys, and sums do not overflow.
constexpr std::int64_t far = std::int64_t{1} << 40;

std::int64_t attribute_or(const Call& call, const char* name, std::int64_t otherwise) {
  return call.has_attribute(name) ? call.integer(name) : otherwise;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }  // b > 0

// Tokens of row b of the batch that are no padding.
std::int64_t length_of(const Call& call, const char* lengths, std::int64_t b, std::int64_t tokens) {
  const HostTensor* tensor = call.find(lengths);
  return tensor ? std::clamp<std::int64_t>(static_cast<std::int64_t>(tensor->at(b)), 0, tokens) : tokens;
}

}  // namespace

std::vector<Sequence> sequences_of(const Call& call) {
  std::vector<Sequence> sequences;
  if (call.given("cum_seqlens_q")) {
    const std::vector<double> q = call.input("cum_seqlens_q").values(), k = call.input("cum_seqlens_k").values();
    for (std::size_t n = 0; n + 1 < q.size(); ++n)
      sequences.push_back({static_cast<std::int64_t>(n), static_cast<std::int64_t>(q[n]), static_cast<std::int64_t>(q[n + 1] - q[n]),
                           static_cast<std::int64_t>(k[n]), static_cast<std::int64_t>(k[n + 1] - k[n]),
                           static_cast<std::int64_t>(q[n + 1] - q[n])});
    return sequences;
  }
  const std::int64_t sq = call.dim("Sq"), sk = call.dim("Sk");
  for (std::int64_t b = 0; b < call.dim("B"); ++b)
    sequences.push_back(
        {b, b * sq, sq, b * sk, length_of(call, "key_value_seq_lengths", b, sk), length_of(call, "query_seq_lengths", b, sq)});
  return sequences;
}

Broadcast::Broadcast(const Call& call, const char* name) {
  if (const HostTensor* tensor = call.find(name)) {
    values_ = tensor->values();
    shape_ = tensor->shape();
  }
}

std::int64_t Broadcast::index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  return (((shape_[0] == 1 ? 0 : b) * shape_[1] + (shape_[1] == 1 ? 0 : h)) * shape_[2] + i) * shape_[3] + j;
}

Visibility::Visibility(const Call& call)
    : mask_(call, "attention_mask"),
      blocks_(call, "block_mask"),
      block_q_(attribute_or(call, "block_q", 1)),
      block_k_(attribute_or(call, "block_k", 1)),
      chunk_(attribute_or(call, "chunk_size", 0)),
      left_(std::min(call.integer("window_left"), 4 * far)),
      right_(call.flag("causal") || chunk_ > 0 ? 0 : std::min(call.integer("window_right"), 4 * far)),
      has_offset_(call.has_attribute("causal_offset")) {
  if (has_offset_) offset_ = std::clamp(call.integer("causal_offset"), -far, far);
  if (call.given("q_segment_ids")) {
    q_segments_ = call.input("q_segment_ids").values();
    kv_segments_ = call.input("kv_segment_ids").values();
  }
}

std::int64_t Visibility::first(const Sequence& s, std::int64_t i) const {
  if (i >= s.q_seeing) return s.k_length;
  const std::int64_t position = i + offset(s), in_window = left_ < 0 ? -far : position - left_;
  const std::int64_t in_chunk = chunk_ > 0 ? floor_div(position, chunk_) * chunk_ : -far;
  return std::clamp<std::int64_t>(std::max(in_window, in_chunk), 0, s.k_length);
}

std::int64_t Visibility::last(const Sequence& s, std::int64_t i) const {
  if (i >= s.q_seeing) return s.k_length;
  return right_ < 0 ? s.k_length : std::clamp<std::int64_t>(i + offset(s) + right_ + 1, 0, s.k_length);
}

// Of packed calls the mask may have fewer blocks than a sequence: those it lacks are off.
bool Visibility::block_is_on(const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) const {
  return blocks_.has(i / block_q_, j / block_k_) && blocks_.value(s.number, h, i / block_q_, j / block_k_) != 0;
}

bool Visibility::sees(const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) const {
  if (j < first(s, i) || j >= last(s, i)) return false;
  if (mask_.given() && mask_.value(s.number, h, i, j) == 0) return false;
  if (blocks_.given() && !block_is_on(s, h, i, j)) return false;
  if (q_segments_.empty()) return true;
  const double q = q_segments_[at(s.q_begin + i)], k = kv_segments_[at(s.k_begin + j)];
  return q == k && q >= 0;
}

std::vector<double> sinks_of(const Call& call, std::int64_t h) {
  const HostTensor* aux = call.find("softmax_aux");
  if (!aux) return {};
  const std::vector<double> values = aux->values();
  if (aux->shape().size() == 2) {
    const std::int64_t count = aux->shape()[1];
    return {values.begin() + h * count, values.begin() + (h + 1) * count};
  }
  if (aux->shape()[0] == call.dim("Hq")) return {values[at(h)]};
  return values;
}

LogSum parts_of_log_sum(const std::vector<double>& terms) {
  double largest = -infinity;
  for (const double term : terms)
    if (std::isnan(term) || term > largest) largest = std::isnan(largest) ? largest : term;
  if (largest == -infinity || std::isnan(largest)) return {largest, 0};
  double sum = 0;
  for (const double term : terms) sum += std::exp(term - largest);
  return {largest, std::log(sum)};
}

double log_sum_exp(const std::vector<double>& terms) {
  const auto [largest, rest] = parts_of_log_sum(terms);
  return largest + rest;
}

}  // namespace ejk::reference

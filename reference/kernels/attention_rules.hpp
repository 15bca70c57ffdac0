// The rules of docs/semantics.md that attention kernels share: sequences, broadcast inputs, visibility, sinks.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/call.hpp"

namespace ejk::reference {

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Tokens of one sequence in q and in k and v, all counted in one row-major list (batched: token i of row b is b * Sq + i).
struct Sequence {
  std::int64_t number, q_begin, q_length, k_begin, k_length;
  std::int64_t q_seeing;  // queries from this one on are padding: they see no key
};

std::vector<Sequence> sequences_of(const Call& call);

// A [B|1, Hq|1, Sq, Sk] input, or nothing.
class Broadcast {
 public:
  Broadcast(const Call& call, const char* name);
  bool given() const { return !shape_.empty(); }
  std::int64_t index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  double value(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const { return values_[at(index(b, h, i, j))]; }
  bool has(std::int64_t i, std::int64_t j) const { return i < shape_[2] && j < shape_[3]; }

 private:
  std::vector<double> values_;
  std::vector<std::int64_t> shape_;
};

// Which keys a query sees. i and j are local to the sequence.
class Visibility {
 public:
  explicit Visibility(const Call& call);
  // Keys [first, last) are what causal, window and chunk leave of the sequence for query i.
  std::int64_t first(const Sequence& s, std::int64_t i) const;
  std::int64_t last(const Sequence& s, std::int64_t i) const;
  bool sees(const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) const;

 private:
  bool block_is_on(const Sequence& s, std::int64_t h, std::int64_t i, std::int64_t j) const;
  std::int64_t offset(const Sequence& s) const { return has_offset_ ? offset_ : s.k_length - s.q_seeing; }

  Broadcast mask_, blocks_;
  std::int64_t block_q_ = 1, block_k_ = 1, chunk_ = 0;  // chunk_: 0, none
  std::int64_t left_ = -1, right_ = -1, offset_ = 0;
  bool has_offset_ = false;
  std::vector<double> q_segments_, kv_segments_;
};

// The sinks of one head.
std::vector<double> sinks_of(const Call& call, std::int64_t h);

// log(sum exp), -inf for no terms or only terms of -inf, NaN if a term is.
double log_sum_exp(const std::vector<double>& terms);

// The same as the largest term and what is to be added to it: beside a term of -2^40 f64, too, holds little of the rest.
struct LogSum {
  double largest, rest;
  double weight_exponent(double term) const { return term - largest - rest; }
};
LogSum parts_of_log_sum(const std::vector<double>& terms);

}  // namespace ejk::reference

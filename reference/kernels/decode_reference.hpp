// What the references of decoding kernels have alike: one query token a sequence, rows of query heads, each with the keys that it sees.
#pragma once
#include <cmath>
#include <functional>

#include "reference/kernels/attention_cases.hpp"

namespace ejk::reference {

double capped_score(double score, double cap);

// The row's LSE, of its keys' scores and the sinks of query head h. use(i, weight): for each key whose weight is not 0, since what a value
// holds behind a weight of 0 is of no account.
template <class Use>
double attend_row(const Call& call, std::int64_t h, const std::vector<double>& scores, Use use) {
  std::vector<double> exponents = sinks_of(call, h);
  exponents.insert(exponents.end(), scores.begin(), scores.end());
  const double lse = log_sum_exp(exponents);
  if (lse == -infinity) return lse;
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (const double weight = std::exp(scores[i] - lse); weight != 0) use(static_cast<std::int64_t>(i), weight);
  return lse;
}

// Rows of a call by their number; each writes `features` of out, which are 0 before, and returns its LSE.
struct DecodeRows {
  std::int64_t count, features;
  std::function<double(std::int64_t row, double* out)> attend;
  std::function<std::int64_t(std::int64_t row)> keys;  // that it reads
};
Values all_rows(const DecodeRows& rows);
// At most 64 of them, fewer where they read many keys.
Samples some_rows(const DecodeRows& rows, Rng& rng);

// Other values of attributes that are not specialised on; a large cache's numbers are divided by `scale_divisor`.
void vary_decode_attributes(spec::Case& c, Rng& rng, double scale_divisor = 1);

// Query heads a kv head: often the case's own, since large groups have images of their own.
std::int64_t random_group(const spec::Case& c, Rng& rng);

}  // namespace ejk::reference

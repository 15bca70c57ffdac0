// Sign-test intervals and verdicts.
#include "tune/paired.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tune/stopwatch.hpp"

namespace ejk {

Interval median_interval(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const auto n = ratios.size();
  // The largest k with P(Binomial(n, 1/2) < k) <= 2.5%: the k-th smallest and k-th largest bound the median.
  double term = std::pow(0.5, static_cast<double>(n)), below = 0;
  std::size_t k = 0;
  while (k < n / 2 && below + term <= 0.025) {
    below += term;
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    ++k;
  }
  if (k == 0) return {0, std::numeric_limits<double>::infinity()};
  return {ratios[k - 1], ratios[n - k]};
}

Verdict judge_challenger(const std::vector<double>& ratios) {
  Verdict verdict;
  if (ratios.empty()) return verdict;
  verdict.ratio = median(ratios);
  verdict.noise = spread(ratios);
  verdict.wins = 1 - verdict.ratio > verdict.noise && median_interval(ratios).high < 1;
  return verdict;
}

std::vector<double> paired_ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (b[i] > 0) ratios.push_back(a[i] / b[i]);
  return ratios;
}

}  // namespace ejk

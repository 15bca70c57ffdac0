// Statistics of paired samples: two configs measured in the same rounds, so that what changes on the machine cancels out.
#pragma once
#include <vector>

namespace ejk {

// An interval that holds the median of what `ratios` are drawn from in at least 95 of 100 cases, whatever their distribution: order
// statistics by the sign test. With fewer than six no interval is sure enough: (0, infinity).
struct Interval {
  double low, high;
};
Interval median_interval(std::vector<double> ratios);

// The verdict on a challenger from ratios challenger / default of the same rounds. It wins only if both hold:
//   - its median ratio is below 1 by more than `noise`, half the distance between the quartiles of the ratios over their median: how
//     much one round's ratio strays from the others;
//   - the whole interval of the median is below 1.
struct Verdict {
  double ratio = 1, noise = 0;
  bool wins = false;
};
Verdict judge_challenger(const std::vector<double>& ratios);

// a[i] / b[i] of the rounds both have.
std::vector<double> paired_ratios(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace ejk

// What rounding may leave of gradients of attention that cancel.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "ejk/tensor.hpp"

namespace ejk::reference {

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
  // Root mean square over so many elements of the gradient, the others being 0. unit: u.
  double rounding(double unit, const std::vector<double>& gradient, std::size_t count) const {
    constexpr double of_f32 = 0x1p-20;
    double from = subtracted;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double squares = std::pow(minuend[i], 2) + std::pow(minuend[i] - gradient[i], 2);
      if (std::isfinite(squares)) from += squares;
    }
    const auto elements = static_cast<double>(std::max<std::size_t>(count, 1));
    return of_f32 * std::sqrt(from / elements) + 2 * unit * std::sqrt(summed / elements);
  }
};

// What rounding to nearest leaves at most, relative.
inline double unit_of(DType type) { return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24; }

}  // namespace ejk::reference

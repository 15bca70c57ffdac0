// Is an output right? Closeness to the float64 reference, special values, and memory that was or was not written.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reference/call.hpp"
#include "reference/host_tensor.hpp"

namespace ejk::reference {

// By tensor name, in row-major order.
using Values = std::map<std::string, std::vector<double>>;

struct Comparison {
  std::string tensor;
  double error = 0;  // root mean square of the difference over `scale`: max(root mean square of the reference, 1e-2, rounding / tolerance)
  double tolerance = 0;  // of `error`
  double worst = 0;      // largest difference of one element, over max(its reference, scale)
  std::int64_t worst_index = -1;
  std::string message;  // empty: right. Else what is wrong and where
  bool ok() const { return message.empty(); }
};

// One element may be off by this many tolerances: a relative error over all elements would hide a single wrong one in a large tensor.
inline constexpr double element_factor = 64;

// found against expected, both row-major; shape is for messages. rounding: root mean square of what rounding alone may leave of a sum
// that cancels, if the reference knows. Where the reference is NaN the output must be NaN, where it is infinite the same infinity; the
// rest must be finite and enters the error.
Comparison compare(const std::string& tensor, std::span<const std::int64_t> shape, std::span<const double> found,
                   std::span<const double> expected, double tolerance, double rounding = 0);

// The same for an output after a call; unwritten elements and writes beside the elements are errors, too.
Comparison compare(const HostTensor& output, std::span<const double> expected, double tolerance, double rounding = 0);

// Some elements of an output that is too large to compute whole: their row-major indices, what they must be, and what rounding may leave.
struct Sample {
  std::vector<std::int64_t> places;
  std::vector<double> expected;
  double rounding = 0;

  void add(std::int64_t first, const double* values, std::int64_t count);  // a run of elements
};
using Samples = std::map<std::string, Sample>;  // by output

// The elements of the sample against it; every element of the output must have been written, and nothing beside them.
Comparison compare(const HostTensor& output, const Sample& sample, double tolerance);

// What rounding may leave in an output, where the reference tells it: the value named "<output> rounding"; else 0.
double rounding_of(const Values& reference, const std::string& output);

// What the spec says of the output's element type, or of its "precision" in this call, whichever is larger; throws std::out_of_range naming
// the type if the spec has none.
double tolerance_of(const Call& call, const HostTensor& output);

std::string index_text(std::span<const std::int64_t> shape, std::int64_t index);  // "[1, 0, 37]"

}  // namespace ejk::reference

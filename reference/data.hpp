// Random inputs: what each tensor's `fill` in the spec or the case, or its type, means.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/host_tensor.hpp"
#include "spec/model.hpp"

namespace ejk::reference {

// Fills `tensor` from the seed:
//   floats         normal, mean 0, deviation 1; past 4,194,301 elements the first ones again
//   bool           true with probability 0.8; now and then a whole innermost row is false
//   "hidden"       normal, a fifth and now and then a whole innermost row -inf
//   "lowest"       normal, a fifth the lowest finite number of f32 or bf16 (as model code masks), and now and then a whole innermost row,
//   but
//                  for a fifth of it, which is -inf. f16, whose lowest number leaves f32 few digits for what is added, has normal numbers
//   "gates"        logs of a recurrence's gates: 0, -1e-3, 0 to -1, -30, -80 and -inf, mixed
//   "mild gates"   0 and -0.02 of a normal number's size: something is left after hundreds of steps
//   "strong gates" 0 to -1.6, each as likely: much is left after one step, nothing after a hundred
//   "betas"        0, 1, 2 and between
//   "rows X Y"     normal numbers times X or, each innermost row as likely, times Y
//   "segments"     runs of ids 0, 1, 2, ... along the last dim, now and then a run of -1 or less (padding). All tensors with this fill draw
//                  their run bounds alike, as fractions of their length, so that queries and keys share ids
//   "offsets T"    0, ..., nondecreasing, at most dim T: lengths vary, some are 0, and now and then tokens are left over
//   "sizes M"      of groups that share dim M: in small calls any of the following, and sizes whose sum is less or more than M, with
//                  empty groups among them; in large ones as "sizes M random"
//   "blocks P"     of a bool [..., rows, columns], a mask of blocks: each true with probability P; now and then all of a row, or none, and
//                  now and then a column none
//   "blocks P causal"   those up to the diagonal with probability P, those on it always, those after it never
//   "sizes M equal", "sizes M random", "sizes M one"   as equal as can be; in proportion to 0.1 + a number in [0, 1) drawn for each;
//                  one group has all. Their sum is M
//   other integers 0, 1, 2, ... in row-major order, within the type
// Throws std::invalid_argument on an unknown fill, naming the tensor.
void fill_input(HostTensor& tensor, const std::string& fill, const std::map<std::string, spec::Value>& dims, std::uint64_t seed);

// Those of paged_data.hpp come besides. One that depends on other inputs (is_related) is no fill of this function.
bool is_related(const std::string& fill);

// The lowest finite number of a type: f32's or bf16's.
double lowest_of(DType type);

// Normal numbers of mean 0; past 4,194,301 elements the first ones again. Integers: rounded, within the type.
void fill_normal(HostTensor& tensor, double deviation, Rng& rng);

// Integers that the host reads to bind or judge a call.
bool is_host_data(const std::string& fill);

}  // namespace ejk::reference

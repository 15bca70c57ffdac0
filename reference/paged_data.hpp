// Random data of paged caches: lengths, tables and pages, which must fit each other.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "reference/call.hpp"

namespace ejk::reference {

// Fills that need no other tensor; X, LOW and HIGH are expressions over dims. False: it is none of them.
//   "all X"               X in every element
//   "lengths LOW to HIGH" between LOW and HIGH; where HIGH is at most 1024, both are frequent
//   "each 2*4096 1*7"     4096, 4096, 7
//   "starts 2*4096 1*7"   0, 4096, 8192, 8199: where each of these begins, and the end of the last
//   "scales"              between 1/48 and 1/16: numbers of deviation 24 times that are about 1
bool fill_lengths(HostTensor& tensor, const std::string& fill, const std::map<std::string, spec::Value>& dims, Rng& rng);

// Fills that depend on inputs filled before; LENGTHS and TABLE are inputs, PER and POOL dims. Others are left alone.
//   "contexts STARTS MOST"       lengths up to MOST, an expression over dims without spaces, of sequences whose new tokens lie from
//   STARTS[n] to STARTS[n + 1];
//                                most are no shorter than these
//   "pages LENGTHS PER POOL"     a table [rows, columns]: row n stands for LENGTHS[n] items, PER a column. Its used entries are drawn from
//                                0 to POOL - 1, no entry twice if POOL is large enough; all others are far out of range
//   "paged TABLE LENGTHS PER"    normal numbers, of deviation 1, or 24 for i8 and f8_e4m3, in a cache [POOL, ...] one of whose later dims
//   is
//                                PER; what lies in no item is NaN (i8: -128)
//   "between STARTS ENDS"        normal numbers in a cache [rows, tokens, ...]; the tokens of row n outside [STARTS[n], ENDS[n]) are NaN
void fill_related(Call& call, const std::function<std::string(const spec::TensorSpec&)>& fill_of, std::uint64_t seed);

}  // namespace ejk::reference

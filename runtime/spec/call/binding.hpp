// A call against its contract: shapes bind dims, attributes get their defaults, requirements are judged.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "spec/fault.hpp"
#include "spec/model.hpp"

namespace ejk::spec {

// What a call says of one tensor, without its data.
struct TensorFacts {
  DType type = DType::f32;
  std::vector<std::int64_t> shape, strides;  // elements
  std::int64_t alignment = 64;               // largest power of two <= 64 that divides the address
  const void* host_data = nullptr;           // for first/last/nondecreasing/smallest/chunks; null: not readable here
  std::uintptr_t address = 0;                // of element 0, for the overlap check; 0: unknown
};

struct CallFacts {
  std::map<std::string, TensorFacts> tensors;  // those given, inputs and outputs
  std::map<std::string, Value> attributes;     // those given
};

// The facts of a spec's case: contiguous, 64-byte aligned tensors without data. Outputs are given unless optional and not in `given`, or
// unless their shape needs a derived dim that only data tells and the case does not name. Throws SpecError with the case's pointer.
CallFacts facts_of(const Spec& spec, const Case& c);

// A bound call, and the scope in which the spec's expressions are evaluated: dims, attributes (default applied), type variables
// (as strings), `form`, and the name-taking functions
//   given(x)          tensor or attribute x was given
//   contiguous(x)     x is row-major without gaps (dims of size 1 do not count)
//   aligned(x, n)     address and every stride but the last are multiples of n bytes
//   mappable(x)       a tensor map reaches x: aligned(x, 16), and all dims step forward (dims of size 1 do not count)
//   rank(x), extent(x, i), stride(x, i)   of the tensor as given; i may be negative (from the end); a dim of size 1 has stride 0
//   first(x), last(x), nondecreasing(x), smallest(x)   of a host integer tensor's data
//   chunks(x, c)      of host offsets: sum over n of ceil_div(x[n+1] - x[n], c)
//   sum(x, most, otherwise)   of a host integer tensor's data, an element above `most` counted as `most`; `otherwise` if the data cannot
//                     be read here or x is not given, so that a cost may use it
//   outside(x, low, high[, count])   the first element not in [low, high] in words ("x[3] is -1"), or ''; without count x has any rank
//   outside_rows(t, x, per, last, low, high[, count])   the same of a table t [rows, columns]: row n stands for x[n] items, `per` a column,
//                     and only those columns count that hold one of the last `last` of them (-1: all)
//                     count, of these two and of nondecreasing(x[, count]): only so many first elements, or rows, are looked at
//   foldable(x)       the dimensions of x's rest extent ("C...") step as one: each by as much as the next one spans
//   folded_stride(x)  that step; 0 where the rest has one element or none. An error if x is not foldable
// Of a tensor that is not given, contiguous, aligned, mappable, foldable and nondecreasing hold; the others are errors.
class Binding : public Scope {
 public:
  std::optional<Value> lookup(std::string_view name) const override;
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override;
  Value call_rows(std::string_view name, const TensorFacts& table, std::span<const Value> rest) const;

  const Spec* spec = nullptr;
  std::string form;  // empty if the spec has none
  std::map<std::string, std::int64_t, std::less<>> dims;
  std::map<std::string, std::string, std::less<>> types;
  std::map<std::string, Value, std::less<>> attributes;                 // given or default; absent optional ones are missing
  std::map<std::string, std::vector<std::int64_t>, std::less<>> rests;  // the dims that a rest extent ("C...") stands for
  CallFacts facts;
};

// The name-taking functions that look at data (first, last, nondecreasing, smallest, chunks, sum, outside, outside_rows); and their value
// for data at `host_data`, laid out as `facts` says (outside_rows reads two tensors: host_integers.hpp). Throws ExpressionError.
bool reads_data(std::string_view function);
Value read_data(std::string_view function, std::string_view name, const TensorFacts& facts, const void* host_data,
                std::span<const Value> rest);

// The alternative of the tensor's shapes that this form and rank take: nullptr if there is none.
const Shape* shape_for(const TensorSpec& tensor, std::string_view form, std::size_t rank);

// Binds and judges every rule of legal input except those that need data. Throws CallError (bad_input) whose message names the kernel,
// the argument, what was found and what was expected. Outputs missing from facts are not an error here (see output_shape).
Binding bind(const Spec& spec, CallFacts facts);

// Requirements that read data or varying attributes: judged on every call.
void check_live_requirements(const Binding& binding);

// Shape and type of an output that the call allocates; of alternatives ("any") the one of most dimensions whose dims are all bound. Throws
// ExpressionError on a dim that is not bound.
TensorFacts output_facts(const Binding& binding, const TensorSpec& output);

}  // namespace ejk::spec

// One call with its data: the tensors given, poisoned outputs and the binding. What references, tests and tools hand about.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/host_tensor.hpp"
#include "spec/call/binding.hpp"
#include "spec/model.hpp"

namespace ejk::reference {

struct Call {
  const spec::Spec* spec = nullptr;               // outlives the call
  std::string label;                              // case, seed and layout, for messages
  std::map<std::string, spec::Value> attributes;  // those given
  // Those given, in the spec's order. An output that updates an input is a copy of it, which the call runs on: the input stays what it was,
  // so that the reference can be asked afterwards and the call made again.
  std::vector<HostTensor> inputs, outputs;
  spec::Binding binding;

  const HostTensor* find(std::string_view name) const;  // input or output; nullptr: not given
  HostTensor* find(std::string_view name);
  const HostTensor& input(std::string_view name) const;  // throws std::out_of_range naming kernel and tensor
  HostTensor& input(std::string_view name);
  bool given(std::string_view name) const { return find(name) != nullptr; }
  // Bound dims and attributes (defaults applied). Throw std::out_of_range naming kernel and name if it is missing or of another kind.
  std::int64_t dim(std::string_view name) const;
  std::int64_t integer(std::string_view attribute) const;
  double floating(std::string_view attribute) const;
  bool flag(std::string_view attribute) const;
  bool has_attribute(std::string_view name) const;  // given, or has a default
  spec::CallFacts facts() const;                    // of the tensors where they lie now; of an updated input, of the copy
  // The tensors that a launch takes: all, but for an updated input the copy, under the input's name. Inputs come first.
  std::vector<std::pair<std::string, const HostTensor*>> launched() const;
  // After a tensor was replaced or offsets were rewritten: binds again. Throws spec::CallError.
  void rebind();
  void poison_outputs();  // and makes updated inputs anew
};

// Executes a call: reads inputs, writes outputs. Throws std::exception when it cannot.
using Execute = std::function<void(Call&)>;

// How a case becomes tensors, beyond its dims.
struct Arrangement {
  Layout layout;
  // Free choices of the contract that a case leaves open: "B|1" as 1, "C..." as several dims, another legal rank ({"any": ...}).
  bool other_shapes = false;
};

// The case with fresh inputs from the seed, and outputs. Throws spec::CallError or spec::ExpressionError if the case is not legal.
Call make_call(const spec::Spec& spec, const spec::Case& c, std::uint64_t seed, const Arrangement& arrangement = {});

// The case's tensors and attributes as make_call(spec, c, seed) lays them out, without data.
spec::CallFacts facts_of_case(const spec::Spec& spec, const spec::Case& c, std::uint64_t seed);

// A call of these tensors (types, shapes, strides) and attributes on fresh inputs from the seed. Where the shapes hang on data (offsets),
// other data is made until they fit. Throws spec::CallError if the call is not legal.
Call make_call(const spec::Spec& spec, const spec::CallFacts& facts, std::uint64_t seed);

// "E=f32, B=2, Sq=17, causal=true, given bias": all that a case says, for messages.
std::string describe(const spec::Case& c);

// A call on given inputs (a user's own): `outputs` names the optional outputs wanted.
Call make_call(const spec::Spec& spec, std::map<std::string, spec::Value> attributes, std::vector<HostTensor> inputs,
               const std::vector<std::string>& outputs);

}  // namespace ejk::reference

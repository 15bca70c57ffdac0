// The reference of a kernel: its outputs in float64, other calls worth trying, and properties it must have beyond closeness.
// One object a kernel, in reference/kernels/<kernel>.cpp, which registers itself:
//     const Registration registration{std::make_unique<MeanPooling>()};
#pragma once
#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reference/call.hpp"
#include "reference/compare.hpp"
#include "reference/random.hpp"

namespace ejk::reference {

inline constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

// Inputs may be changed element by element: no stride is 0.
inline bool writable(const Call& call) {
  return std::none_of(call.inputs.begin(), call.inputs.end(), [](const HostTensor& input) { return input.broadcast(); });
}

// A named law of a kernel. The first argument is a call that has been bound and filled; the check may copy and change it.
struct Property {
  std::string name;  // a sentence: "a token behind a false mask does not matter"
  std::function<bool(const Call&)> applies;
  // Runs the kernel through Execute. Empty: holds. Else what was found. May throw what Execute throws.
  std::function<std::string(const Call&, const Execute&, Rng&)> check;
};

// A call of one option, whose laws are judged, too, or of two.
struct OptionCase {
  spec::Case c;
  bool alone;
};

class KernelReference {
 public:
  virtual ~KernelReference() = default;
  virtual std::string kernel() const = 0;

  // All outputs, optional ones included, written from docs/semantics.md with plain loops.
  virtual Values compute(const Call& call) const = 0;

  // Elements spread over the outputs of a call of any size, in a second or so: for calls that are too large for compute(). An output that
  // is not among them cannot be sampled. By default none can.
  virtual Samples sample(const Call& call, Rng& rng) const;

  // Random inputs that cannot be just any numbers, such as a forward pass's outputs, are made from the others. By default there are none.
  virtual void complete(Call& call) const;

  // Another case of the same specialisation (types, head dims, which inputs and features) with other, nasty sizes: odd, one, zero,
  // more queries than keys. Small enough for compute() to take milliseconds.
  virtual spec::Case vary(const spec::Case& c, Rng& rng) const = 0;

  // Any legal call, of every option.
  virtual spec::Case random_case(Rng& rng) const = 0;

  // Every option alone and every two together, for kernels whose options meet in one loop. By default there are none.
  virtual std::vector<OptionCase> option_cases() const { return {}; }

  virtual std::vector<Property> properties() const = 0;
};

// nullptr: no reference of that kernel is linked in.
const KernelReference* find_reference(const std::string& kernel);
std::vector<std::string> reference_names();  // sorted

struct Registration {
  explicit Registration(std::unique_ptr<KernelReference> reference);
};

// Poisons the outputs, executes, and compares every output given with the reference. Changed inputs are an error of the first entry.
std::vector<Comparison> verify_call(const KernelReference& reference, Call& call, const Execute& execute);

struct PropertyResult {
  std::string name, message;  // message empty: holds
};

// Every property that applies to the call.
std::vector<PropertyResult> verify_properties(const KernelReference& reference, const Call& call, const Execute& execute, Rng& rng);

// Executes a copy of the call; its outputs, for properties. Throws std::runtime_error if an element was not written.
Values run_copy(const Call& call, const Execute& execute);

// Two runs of one call give the same bits: for kernels that guarantee it. repeats: of which outputs (none given: of all).
Property repeats_bit_for_bit(std::function<bool(const Call&)> applies, std::function<bool(const Call&, const std::string&)> repeats = {});

// Gradients are linear in the cotangents, the inputs of these names as far as they are given. Applies to calls whose inputs can be written.
Property grows_with_cotangents(std::vector<std::string> cotangents);

// Empty if the outputs of two runs agree within the spec's tolerance; else the first disagreement.
std::string disagreement(const Call& call, const Values& found, const Values& expected);

// The first comparison that failed, or empty.
std::string first_failure(const std::vector<Comparison>& comparisons);

}  // namespace ejk::reference

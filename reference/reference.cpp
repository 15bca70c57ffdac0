// The registry of references, and the checks that use one.
#include "reference/reference.hpp"

#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

namespace ejk::reference {
namespace {

using Registry = std::map<std::string, std::unique_ptr<KernelReference>>;

// A function's static: registrations run before main, in no set order.
Registry& registry() {
  static Registry references;
  return references;
}

// Bits, not numbers: NaN inputs are equal to themselves.
bool same_values(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

const std::vector<double>& reference_of(const Values& values, const std::string& kernel, const std::string& output) {
  const auto found = values.find(output);
  if (found == values.end()) throw std::logic_error(fmt::format("the reference of {} gives no {}", kernel, output));
  return found->second;
}

}  // namespace

Registration::Registration(std::unique_ptr<KernelReference> reference) {
  const std::string name = reference->kernel();
  registry()[name] = std::move(reference);
}

const KernelReference* find_reference(const std::string& kernel) {
  const auto found = registry().find(kernel);
  return found == registry().end() ? nullptr : found->second.get();
}

std::vector<std::string> reference_names() {
  std::vector<std::string> names;
  for (const auto& [name, reference] : registry()) names.push_back(name);
  return names;
}

Samples KernelReference::sample(const Call&, Rng&) const { return {}; }

void KernelReference::complete(Call&) const {}

std::vector<Comparison> verify_call(const KernelReference& reference, Call& call, const Execute& execute) {
  call.rebind();  // a copied call's tensors lie elsewhere
  const Values expected = reference.compute(call);
  std::vector<std::vector<double>> before;
  for (const HostTensor& input : call.inputs) before.push_back(input.values());
  call.poison_outputs();
  execute(call);
  std::vector<Comparison> results;
  for (const HostTensor& output : call.outputs)
    results.push_back(compare(output, reference_of(expected, reference.kernel(), output.name()), tolerance_of(call, output),
                              rounding_of(expected, output.name())));
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    if (!results.empty() && (!same_values(before[i], call.inputs[i].values()) || !call.inputs[i].surroundings_intact()))
      results.front().message = fmt::format("the input {} was changed", call.inputs[i].name());
  return results;
}

std::vector<PropertyResult> verify_properties(const KernelReference& reference, const Call& call, const Execute& execute, Rng& rng) {
  std::vector<PropertyResult> results;
  for (const Property& property : reference.properties())
    if (property.applies(call)) results.push_back({property.name, property.check(call, execute, rng)});
  return results;
}

Values run_copy(const Call& call, const Execute& execute) {
  Call copy = call;
  copy.rebind();
  copy.poison_outputs();
  execute(copy);
  Values values;
  for (const HostTensor& output : copy.outputs) {
    if (output.unwritten() > 0)
      throw std::runtime_error(fmt::format("{}{} was not written", output.name(), index_text(output.shape(), output.first_unwritten())));
    values[output.name()] = output.values();
  }
  return values;
}

Property repeats_bit_for_bit(std::function<bool(const Call&)> applies, std::function<bool(const Call&, const std::string&)> repeats) {
  const auto check = [repeats = std::move(repeats)](const Call& call, const Execute& execute, Rng&) -> std::string {
    const Values first = run_copy(call, execute), second = run_copy(call, execute);
    for (const auto& [name, values] : first)
      if ((!repeats || repeats(call, name)) && !same_values(values, second.at(name)))
        return name + " differs between two runs of the same call";
    return "";
  };
  return {"two runs of one call give the same bits", std::move(applies), check};
}

Property grows_with_cotangents(std::vector<std::string> cotangents) {
  const auto check = [cotangents = std::move(cotangents)](const Call& call, const Execute& execute, Rng&) {
    Values expected = run_copy(call, execute);
    Call doubled = call;
    doubled.rebind();
    for (HostTensor& output : doubled.outputs) {  // which makes what is too large for the type infinite
      auto& values = expected.at(output.name());
      for (double& value : values) value *= 2;
      output.assign(values);
      values = output.values();
    }
    Call changed = call;
    for (const std::string& name : cotangents) {
      if (!call.given(name)) continue;
      HostTensor& tensor = changed.input(name);
      for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, 2 * tensor.at(i));
    }
    return disagreement(call, run_copy(changed, execute), expected);
  };
  return {"twice the cotangents give twice the gradients", writable, check};
}

std::string disagreement(const Call& call, const Values& found, const Values& expected) {
  for (const HostTensor& output : call.outputs) {
    const Comparison result = compare(output.name(), output.shape(), reference_of(found, call.spec->kernel, output.name()),
                                      reference_of(expected, call.spec->kernel, output.name()), tolerance_of(call, output));
    if (!result.ok()) return result.message;
  }
  return "";
}

std::string first_failure(const std::vector<Comparison>& comparisons) {
  for (const Comparison& comparison : comparisons)
    if (!comparison.ok()) return comparison.message;
  return "";
}

}  // namespace ejk::reference

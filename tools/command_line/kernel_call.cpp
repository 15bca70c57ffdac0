// Calls from the command line, and their launch.
#include "command_line/kernel_call.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command_line/device_option.hpp"
#include "command_line/library_options.hpp"
#include "command_line/safetensors.hpp"
#include "common/guard.hpp"
#include "execute/explain.hpp"
#include "spec/check/suggest.hpp"

namespace ejk::tools {
namespace {

using reference::Call;
using reference::HostTensor;

// Single-threaded double loops with strided access; measured on attention and pooling, rounded down.
constexpr double reference_flops_a_second = 2e8;
constexpr double reference_bytes_a_second = 5e7;

std::vector<std::string> tensor_names(const spec::Spec& spec, bool outputs) {
  std::vector<std::string> names;
  for (const auto& tensor : spec.tensors)
    if (tensor.output == outputs) names.push_back(tensor.name);
  return names;
}

// A file the user named that cannot be read or is malformed is bad input.
std::vector<HostTensor> read_file(const std::string& file) {
  try {
    return read_safetensors(file);
  } catch (const std::runtime_error& e) {
    throw spec::CallError(spec::CallError::Kind::bad_input, e.what());
  }
}

// Tensors of the file in the spec's order.
std::vector<HostTensor> read_inputs(const spec::Spec& spec, const std::string& file) {
  auto tensors = read_file(file);
  for (const auto& tensor : tensors) {
    const auto* known = spec.tensor(tensor.name());
    if (!known || known->output)
      throw UsageError(fmt::format("{}: {} has no input '{}'{}", file, spec.kernel, tensor.name(),
                                   spec::suggestion(tensor.name(), tensor_names(spec, false))));
  }
  std::vector<HostTensor> ordered;
  for (const auto& wanted : spec.tensors) {
    if (wanted.output) continue;
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name() == wanted.name; });
    if (found != tensors.end())
      ordered.push_back(std::move(*found));
    else if (!wanted.optional)
      throw UsageError(fmt::format("{}: the input '{}' is missing ({})", file, wanted.name, wanted.doc));
  }
  return ordered;
}

std::vector<std::string> wanted_outputs(const spec::Spec& spec, const std::string& list) {
  const auto known = tensor_names(spec, true);
  auto words = words_of_list(list);
  for (const auto& word : words)
    if (std::find(known.begin(), known.end(), word) == known.end())
      throw UsageError(fmt::format("--want: {} has no output '{}'{}", spec.kernel, word, spec::suggestion(word, known)));
  return words;
}

}  // namespace

void add_call_options(Arguments& arguments) {
  arguments.option("case", "NAME", "a case of the spec, on random data");
  arguments.option("inputs", "FILE", "your own inputs: a safetensors file, tensors by name");
  arguments.option("attributes", "JSON", "attributes by name, e.g. '{\"causal\": true}'; with --case they replace the case's");
  arguments.option("want", "NAMES", "optional outputs wanted, separated by ','");
  arguments.option("seed", "S", "seed of the random data (default 1)");
}

Call call_from(const Arguments& arguments, const KernelHandle& kernel) {
  const auto& spec = *kernel.spec;
  if (arguments.has("case") == arguments.has("inputs")) throw UsageError("give either --case NAME or --inputs FILE");
  const auto attributes = attributes_from_json(spec, arguments.text("attributes", "{}"));
  const auto wanted = wanted_outputs(spec, arguments.text("want"));
  if (arguments.has("inputs")) {
    const auto file = arguments.text("inputs");
    auto inputs = read_inputs(spec, file);
    try {
      return reference::make_call(spec, attributes, std::move(inputs), wanted);
    } catch (const spec::CallError& e) {
      throw spec::CallError(e.kind(), file + ": " + e.what());
    }
  }
  auto chosen = case_named(spec, arguments.text("case"));
  for (const auto& [name, value] : attributes) chosen.attributes[name] = value;
  for (const auto& name : wanted)
    if (std::find(chosen.given.begin(), chosen.given.end(), name) == chosen.given.end()) chosen.given.push_back(name);
  return reference::make_call(spec, chosen, static_cast<std::uint64_t>(arguments.integer("seed", 1, 0, INT64_MAX)));
}

PackedCall::PackedCall(const KernelHandle& kernel, Call& call, const Machine& machine)
    : kernel_(&kernel), machine_(&machine), call_(&call) {
  auto& backend = *machine.backend;
  std::map<std::string, TensorView> views;
  std::map<const HostTensor*, TensorView> all;
  for (auto* list : {&call.inputs, &call.outputs})
    for (const auto& tensor : *list) {
      if (!on_host(machine)) on_device_.emplace_back(backend, machine.device, tensor);
      auto& view = all.emplace(&tensor, on_host(machine) ? tensor.view() : on_device_.back().view()).first->second;
      view.device = {backend.device_type(), machine.device};
    }
  for (const auto& [name, tensor] : call.launched()) views.emplace(name, all.at(tensor));
  arguments_ = positional(kernel, views, call.attributes);
}

void PackedCall::launch(const std::string& config, Stream stream) const {
  throw_if_error(ejk::call(kernel_, arguments_.tensors, arguments_.attributes, stream, config.empty() ? nullptr : config.c_str()));
}

void PackedCall::wait() const {
  if (!on_host(*machine_)) machine_->backend->memory()->synchronize(machine_->device);
}

void PackedCall::copy_outputs_back() {
  wait();
  if (on_device_.empty()) return;
  auto copy = on_device_.begin() + static_cast<std::ptrdiff_t>(call_->inputs.size());
  for (auto& output : call_->outputs) (copy++)->copy_to(output);
}

void PackedCall::copy_back() {
  wait();
  auto copy = on_device_.begin();
  for (auto* list : {&call_->inputs, &call_->outputs})
    for (auto& tensor : *list)
      if (copy != on_device_.end()) (copy++)->copy_to(tensor);
}

std::byte* PackedCall::block_of(const HostTensor& tensor) const {
  std::size_t index = 0;
  for (auto* list : {&call_->inputs, &call_->outputs})
    for (auto& one : *list) {
      if (&one == &tensor) return on_device_.empty() ? one.block().data() : on_device_[index].block();
      ++index;
    }
  throw std::logic_error(tensor.name() + " is no tensor of this call");
}

nlohmann::ordered_json PackedCall::explain(const std::string& config) const {
  if (config.empty()) return ejk::explain(*kernel_, arguments_.tensors, arguments_.attributes, nullptr);
  const auto parsed = config_from_json(config);
  if (!parsed) throw CodedError(parsed.error().code, kernel_->name + ": " + parsed.error().message);
  return ejk::explain(*kernel_, arguments_.tensors, arguments_.attributes, &*parsed);
}

reference::Execute execution(const KernelHandle& kernel, const std::string& config, const Machine& machine) {
  return [&kernel, &machine, config](Call& call) {
    PackedCall packed(kernel, call, machine);
    packed.launch(config);
    packed.copy_back();
  };
}

Cost cost_of(const spec::Spec& spec, const spec::Scope& binding) {
  const auto value = [&](const spec::Expression& expression) {
    try {
      return expression ? expression.floating(binding) : 0;
    } catch (const spec::ExpressionError&) {
      return 0.0;  // a form without that cost
    }
  };
  return {value(spec.flops), value(spec.bytes)};
}

double tensor_bytes(const spec::CallFacts& facts) {
  double bytes = 0;
  for (const auto& [name, tensor] : facts.tensors) {
    double size = static_cast<double>(size_of(tensor.type));
    for (const auto extent : tensor.shape) size *= static_cast<double>(extent);
    bytes += size;
  }
  return bytes;
}

bool affordable(const Cost& cost, double bytes, double seconds) {
  return cost.flops / reference_flops_a_second + bytes / reference_bytes_a_second <= seconds;
}

}  // namespace ejk::tools

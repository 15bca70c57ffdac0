// Outputs small enough are compared as a whole; of larger ones, windows spread over them, the first and the last byte included.
#include "tune/worker_outputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "command_line/device_option.hpp"
#include "reference/element.hpp"

namespace ejk::tools {
namespace {

using reference::HostTensor;

constexpr std::size_t whole_bytes = 16 << 20;  // of an output that is compared as a whole: about a tenth of a second
constexpr std::size_t windows = 33, window_bytes = 256 << 10;
constexpr std::size_t most_input_bytes = 64 << 20;  // that are looked at for changes

std::uint64_t hash_of(std::span<const std::byte> bytes, std::uint64_t hash) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {  // blocks are multiples of 64 bytes
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

// Integers have none: they must be equal.
double tolerance_for(const reference::Call& call, const HostTensor& output) {
  return is_floating(output.type()) ? reference::tolerance_of(call, output) : 0;
}

double residual_of(const reference::Comparison& result) {
  if (result.tolerance <= 0) return 0;
  return std::max(result.error, result.worst / reference::element_factor) / result.tolerance;
}

}  // namespace

// One output, in memory of the host or of a device.
class WorkerOutputs::Output {
 public:
  // updates: the input that this output is a copy of, as it was before the call; null: an output that is only written.
  Output(HostTensor& tensor, const HostTensor* updates, std::byte* block, const Machine& machine)
      : tensor_(tensor), updates_(updates), block_(block), machine_(machine) {
    const auto size = tensor.block().size();
    if (size <= whole_bytes || !tensor.contiguous()) {
      parts_.push_back({0, size});
    } else {
      for (std::size_t i = 0; i < windows; ++i) parts_.push_back({(size - window_bytes) / (windows - 1) * i / 64 * 64, window_bytes});
      parts_.back().offset = size - window_bytes;
    }
  }

  bool whole() const { return parts_.front().bytes == tensor_.block().size(); }
  HostTensor& tensor() { return tensor_; }

  void poison() {
    if (updates_) {
      std::memcpy(tensor_.block().data(), updates_->block().data(), tensor_.block().size());
      return put({0, tensor_.block().size()});
    }
    if (whole()) return tensor_.poison(), put(parts_.front());
    const HostTensor pattern(tensor_.name(), tensor_.type(), {static_cast<std::int64_t>(window_bytes) / size_of(tensor_.type())});
    for (const auto& part : parts_) {
      std::memcpy(tensor_.block().data() + part.offset, pattern.block().data(), part.bytes);
      put(part);
    }
  }

  // What was written, on the host.
  void fetch() {
    for (const auto& part : parts_)
      if (!on_host(machine_))
        machine_.backend->memory()->copy_to_host(machine_.device, tensor_.block().data() + part.offset, block_ + part.offset,
                                                 static_cast<std::int64_t>(part.bytes));
  }

  void keep() {
    kept_.clear();
    for (const auto& part : parts_) {
      const auto bytes = tensor_.block().subspan(part.offset, part.bytes);
      kept_.emplace_back(bytes.begin(), bytes.end());
    }
  }

  bool same_as_kept() const {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (std::memcmp(kept_[i].data(), tensor_.block().data() + parts_[i].offset, parts_[i].bytes) != 0) return false;
    return true;
  }

  // Of a large output: the elements of each window, and the guard zones in the first and last one.
  void compare_windows(double tolerance, OutputVerdict& verdict) const {
    const auto size = static_cast<std::size_t>(size_of(tensor_.type()));
    const auto first =
        static_cast<std::size_t>(static_cast<const std::byte*>(std::as_const(tensor_).data()) - std::as_const(tensor_).block().data());
    const auto end = first + static_cast<std::size_t>(tensor_.elements()) * size;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto *now = tensor_.block().data() + parts_[i].offset, *then = kept_[i].data();
      std::vector<double> found, expected;
      for (std::size_t at = 0; at < parts_[i].bytes; at += size) {
        const auto place = parts_[i].offset + at;
        if (place < first || place >= end) {
          verdict.spoiled = verdict.spoiled || std::memcmp(now + at, then + at, size) != 0;
          continue;
        }
        found.push_back(reference::load_element(tensor_.type(), now + at));
        expected.push_back(reference::load_element(tensor_.type(), then + at));
      }
      const auto n = static_cast<std::int64_t>(found.size());
      const auto result = reference::compare(tensor_.name(), std::vector<std::int64_t>{n}, found, expected, tolerance);
      verdict.residual = std::max(verdict.residual, residual_of(result));
      if (!result.ok() && verdict.wrong.empty()) verdict.wrong = fmt::format("{} (counted from byte {})", result.message, parts_[i].offset);
    }
    if (verdict.spoiled && verdict.wrong.empty()) verdict.wrong = tensor_.name() + ": memory beside it was written";
  }

  std::vector<double> expected;  // of a whole output

 private:
  struct Part {
    std::size_t offset, bytes;
  };

  void put(const Part& part) {
    if (!on_host(machine_))
      machine_.backend->memory()->copy_to_device(machine_.device, block_ + part.offset, tensor_.block().data() + part.offset,
                                                 static_cast<std::int64_t>(part.bytes));
  }

  HostTensor& tensor_;
  const HostTensor* updates_;
  std::byte* block_;  // where the kernel writes: the host's or the device's
  const Machine& machine_;
  std::vector<Part> parts_;
  std::vector<std::vector<std::byte>> kept_;
};

WorkerOutputs::WorkerOutputs(const KernelHandle& kernel, reference::Call& call, const PackedCall& packed, const Machine& machine)
    : kernel_(kernel), call_(call), packed_(packed), machine_(machine) {
  for (auto& output : call.outputs) {
    const auto* told = kernel.spec->output(output.name());
    const auto* updates = told && !told->updates.empty() ? &std::as_const(call).input(told->updates) : nullptr;
    outputs_.push_back(std::make_unique<Output>(output, updates, packed.block_of(output), machine));
  }
  inputs_ = hash_of_inputs();
}

WorkerOutputs::~WorkerOutputs() = default;

std::uint64_t WorkerOutputs::hash_of_inputs() {
  std::size_t bytes = 0;
  for (const auto& input : call_.inputs) bytes += input.block().size();
  if (bytes > most_input_bytes) return 0;
  std::uint64_t hash = 1;
  std::vector<std::byte> copy;
  for (auto& input : call_.inputs) {
    if (on_host(machine_)) {
      hash = hash_of(input.block(), hash);
      continue;
    }
    copy.resize(input.block().size());
    machine_.backend->memory()->copy_to_host(machine_.device, copy.data(), packed_.block_of(input), static_cast<std::int64_t>(copy.size()));
    hash = hash_of(copy, hash);
  }
  return hash | 1;
}

void WorkerOutputs::poison() {
  for (auto& output : outputs_) output->poison();
}

std::string WorkerOutputs::set_truth(double seconds) {
  const auto* truth = reference::find_reference(kernel_.name);
  const bool whole = std::all_of(outputs_.begin(), outputs_.end(), [](const auto& output) { return output->whole(); });
  if (truth && whole && affordable(cost_of(*kernel_.spec, call_.binding), tensor_bytes(call_.facts()), seconds)) {
    auto values = truth->compute(call_);
    for (auto& output : outputs_) output->expected = std::move(values.at(output->tensor().name()));
    return "float64 reference";
  }
  for (auto& output : outputs_) {
    output->fetch();
    output->keep();
    if (output->whole()) output->expected = output->tensor().values();
  }
  return whole ? "the default config's result" : fmt::format("the default config's result, {} windows of each large output", windows);
}

OutputVerdict WorkerOutputs::judge() {
  OutputVerdict verdict;
  for (auto& output : outputs_) {
    const double tolerance = tolerance_for(call_, output->tensor());
    output->fetch();
    if (!output->whole()) {
      if (!output->same_as_kept()) output->compare_windows(tolerance, verdict);
      continue;
    }
    const auto result = reference::compare(output->tensor(), output->expected, tolerance);
    verdict.residual = std::max(verdict.residual, residual_of(result));
    if (!result.ok() && verdict.wrong.empty()) verdict.wrong = result.message;
    if (!result.ok()) verdict.spoiled = verdict.spoiled || !output->tensor().surroundings_intact();
  }
  if (inputs_ != hash_of_inputs()) {
    verdict.spoiled = true;
    if (verdict.wrong.empty()) verdict.wrong = "it changed an input";
  }
  return verdict;
}

}  // namespace ejk::tools

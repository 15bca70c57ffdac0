// Data, copies and clocks of the worker's call.
#include "tune/worker_subject.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/machine_peaks.hpp"
#include "command_line/device_option.hpp"
#include "command_line/library_options.hpp"
#include "tune/recorded_call.hpp"

namespace ejk::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double reference_seconds = 0.5;  // most time for the float64 reference
constexpr double most_bytes_of_copies = 1e9;
constexpr double memory_bound_flops = 8;      // a byte: CPUs do more than that in the time a byte takes to come from memory
constexpr double least_sample = 500e-6;       // shorter runs on cold copies are timed several in a row, each on its own copy
constexpr double short_on_a_device = 100e-6;  // a sample is then the median of three, each after a flush

// The tensors' facts: types, shapes and strides; the data comes later.
spec::CallFacts facts_of_key(const RecordedCall& recorded) {
  const auto& invocation = recorded.invocation();
  const auto arguments = positional(recorded.kernel(), invocation.tensors, invocation.attributes);
  return facts_of(recorded.kernel(), arguments.tensors, arguments.attributes);
}

// "AMD EPYC, 2 threads; g++ 12.2". A probe's description names a device's driver.
std::string words_of(const Machine& machine) {
  const auto compiler = machine.archs.empty() ? "" : machine.backend->compiler(machine.archs.front());
  return machine.probe.description + (compiler.empty() ? "" : "; " + compiler);
}

}  // namespace

WorkerSubject::WorkerSubject(const nlohmann::json& key, const Machine& machine, std::uint64_t seed)
    : kernel_(kernel_named(key.at("kernel").get<std::string>())), machine_(machine) {
  auto call = reference::make_call(*kernel_.spec, facts_of_key(RecordedCall(key, &machine)), seed);
  copies_.push_back(std::make_unique<Copy>(Copy{std::move(call), nullptr}));
  auto& first = *copies_.front();
  first.call.rebind();  // its tensors lie here now
  first.packed = std::make_unique<PackedCall>(kernel_, first.call, machine_);
  outputs_ = std::make_unique<WorkerOutputs>(kernel_, first.call, *first.packed, machine_);
  if (!on_host(machine_)) stopwatch_ = std::make_unique<DeviceStopwatch>(machine_);
}

LabCall WorkerSubject::open(const std::string& baseline, bool peaks) {
  LabCall told;
  const auto cost = cost_of(*kernel_.spec, copies_.front()->call.binding);
  told.flops = cost.flops;
  told.bytes = cost.bytes > 0 ? cost.bytes : tensor_bytes(copies_.front()->call.facts());
  outputs_->poison();
  run_us(baseline);
  told.checked_against = outputs_->set_truth(reference_seconds);
  told.baseline_us = run_us(baseline);
  cold_ = stopwatch_ ? stopwatch_->has_timer() : told.flops < memory_bound_flops * told.bytes;
  if (cold_ && !stopwatch_) add_copies();
  told.memory = cold_ ? "cold" : "warm";
  told.machine = words_of(machine_);
  if (peaks && on_host(machine_)) {
    const auto found = measure_peaks(cpu_threads());
    told.peak_flops = found.flops;
    told.peak_bytes = found.read;
  } else if (peaks) {
    told.peak_bytes = stopwatch_->copy_bandwidth();
  }
  return told;
}

// What is larger than the caches needs no copies: its own end puts its beginning out.
void WorkerSubject::add_copies() {
  const auto& first = copies_.front()->call;
  const double bytes = std::max(tensor_bytes(first.facts()), 1.0);
  const double total = std::min(2 * last_cache_bytes(), most_bytes_of_copies);
  const auto count = bytes >= total ? 1 : static_cast<std::size_t>(std::clamp(std::ceil(total / bytes), 1.0, 4096.0)) + 1;
  for (std::size_t i = 1; i < count; ++i) {
    copies_.push_back(std::make_unique<Copy>(Copy{first, nullptr}));
    auto& copy = *copies_.back();
    copy.call.rebind();
    copy.packed = std::make_unique<PackedCall>(kernel_, copy.call, machine_);
  }
}

// One run on the first copy, until it is done; waiting included.
double WorkerSubject::run_us(const std::string& config) {
  const auto& packed = *copies_.front()->packed;
  const auto start = Clock::now();
  packed.launch(config);
  packed.wait();
  return std::chrono::duration<double>(Clock::now() - start).count() * 1e6;
}

OutputVerdict WorkerSubject::check(const std::string& config, double& once_us) {
  outputs_->poison();
  run_us(config);
  auto verdict = outputs_->judge();
  if (verdict.wrong.empty()) once_us = std::min(run_us(config), run_us(config));
  return verdict;
}

Timed WorkerSubject::make_timed(const std::string& config) {
  Timed timed;
  if (stopwatch_) {
    timed.warm_up = !cold_;
    timed.clock = [this, config](int count) { return stopwatch_->seconds([&] { copies_.front()->packed->launch(config); }, count, cold_); };
    calibrate(timed);
    return timed;
  }
  timed.warm_up = !cold_;
  timed.run = [this, config] {
    turn_ = (turn_ + 1) % copies_.size();
    copies_[turn_]->packed->launch(config);
  };
  const double round = calibrate(timed);
  if (copies_.size() > 1)
    timed.batch = static_cast<int>(std::clamp(std::ceil(least_sample / round), 1.0, static_cast<double>(copies_.size())));
  return timed;
}

double WorkerSubject::sample_us(const std::string& config) {
  auto& timed = timed_.try_emplace(config).first->second;
  if (!timed.run && !timed.clock) timed = make_timed(config);
  double seconds = sample(timed);
  if (stopwatch_ && stopwatch_->has_timer() && seconds < short_on_a_device) seconds = median({seconds, sample(timed), sample(timed)});
  return seconds * 1e6;
}

}  // namespace ejk::tools

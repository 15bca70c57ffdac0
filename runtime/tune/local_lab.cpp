// Runs a user's kernel on copies, and compares what it leaves in them with what the default config left.
#include "tune/local_lab.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "common/guard.hpp"
#include "execute/facts.hpp"

namespace ejk {

using Clock = std::chrono::steady_clock;

// A tensor's memory from its lowest to its highest element.
struct LocalLab::Copy {
  std::string name;
  DType type;
  double tolerance = 0;
  std::vector<std::byte> original;
  std::byte* memory = nullptr;     // the copy
  std::vector<std::byte> on_host;  // where it lies, if not on a device
};

namespace {

double half_to_double(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                      : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                     : std::ldexp(mantissa, -24);
  return bits >> 15 ? -size : size;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double element(DType type, const std::byte* at) {
  if (type == DType::f64) return load<double>(at);
  if (type == DType::f32) return static_cast<double>(load<float>(at));
  if (type == DType::f16) return half_to_double(load<std::uint16_t>(at));
  const std::uint32_t bits = static_cast<std::uint32_t>(load<std::uint16_t>(at)) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<double>(value);
}

// Error in tolerances.
double error_of(DType type, double tolerance, const std::vector<std::byte>& found, const std::vector<std::byte>& expected) {
  if (found == expected) return 0;
  if (tolerance == 0) return INFINITY;
  double difference = 0, scale = 0;
  for (std::size_t i = 0; i + static_cast<std::size_t>(size_of(type)) <= found.size(); i += static_cast<std::size_t>(size_of(type))) {
    const double a = element(type, found.data() + i), b = element(type, expected.data() + i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) return INFINITY;
    difference += (a - b) * (a - b);
  }
  for (std::size_t i = 0; i + static_cast<std::size_t>(size_of(type)) <= expected.size(); i += static_cast<std::size_t>(size_of(type)))
    if (const double b = element(type, expected.data() + i); std::isfinite(b)) scale += b * b;
  const double n = static_cast<double>(expected.size()) / static_cast<double>(size_of(type));
  return std::sqrt(difference / n) / std::max(std::sqrt(scale / n), 1e-2) / tolerance;
}

}  // namespace

LocalLab::LocalLab(const Kernel& kernel, const Invocation& invocation) : kernel_(kernel), invocation_(invocation) {
  const Device device = invocation.tensors.empty() ? Device{} : invocation.tensors.begin()->second.device;
  if (device.type != DeviceType::cpu) {
    machine_ = Library::instance().machine(device);
    if (!machine_ || !machine_->probe.available || !machine_->backend->memory())
      throw CodedError(ErrorCode::unsupported,
                       fmt::format("{}: its tensors are on {}, whose memory ejk cannot copy", kernel.name(), name_of(device)));
  }
  copy_tensors(invocation);
  if (machine_) stopwatch_ = std::make_unique<DeviceStopwatch>(*machine_);
}

LocalLab::~LocalLab() {
  for (auto& copy : copies_)
    if (machine_ && copy.memory) machine_->backend->memory()->free(machine_->device, copy.memory);
}

void LocalLab::copy_tensors(const Invocation& invocation) {
  copies_.reserve(invocation.tensors.size());  // their memory must stay where it is
  for (const auto& [name, view] : invocation.tensors) {
    if (!view.given() || view.elements() == 0) continue;
    std::int64_t low = 0, high = size_of(view.type);
    for (int i = 0; i < view.rank; ++i) {
      const auto reach = (view.shape[i] - 1) * view.strides[i] * size_of(view.type);
      (reach < 0 ? low : high) += reach;
    }
    auto& copy = copies_.emplace_back();
    copy.name = name;
    copy.type = view.type;
    copy.tolerance = kernel_.tolerance(invocation, name, view.type);
    copy.original.resize(static_cast<std::size_t>(high - low));
    const auto* from = view.data ? static_cast<const std::byte*>(view.data) + low : nullptr;  // no data: zeros
    if (machine_) {
      auto& memory = *machine_->backend->memory();
      if (from) memory.copy_to_host(machine_->device, copy.original.data(), from, high - low);
      copy.memory = static_cast<std::byte*>(memory.allocate(machine_->device, high - low));
    } else {
      if (from) std::memcpy(copy.original.data(), from, copy.original.size());
      copy.on_host.resize(copy.original.size() + 64);
      void* start = copy.on_host.data();
      std::size_t room = copy.on_host.size();
      copy.memory = static_cast<std::byte*>(std::align(64, copy.original.size(), start, room));
    }
    invocation_.tensors.at(name).data = copy.memory - low;
  }
}

void LocalLab::reset() {
  for (auto& copy : copies_) {
    if (machine_)
      machine_->backend->memory()->copy_to_device(machine_->device, copy.memory, copy.original.data(),
                                                  static_cast<std::int64_t>(copy.original.size()));
    else
      std::memcpy(copy.memory, copy.original.data(), copy.original.size());
  }
}

std::vector<std::vector<std::byte>> LocalLab::read() {
  std::vector<std::vector<std::byte>> all;
  for (auto& copy : copies_) {
    auto& bytes = all.emplace_back(copy.original.size());
    if (machine_)
      machine_->backend->memory()->copy_to_host(machine_->device, bytes.data(), copy.memory, static_cast<std::int64_t>(bytes.size()));
    else
      std::memcpy(bytes.data(), copy.memory, bytes.size());
  }
  return all;
}

void LocalLab::run(const Config& config) {
  const auto status = kernel_.run(invocation_, config);
  if (!status) throw CodedError(status.error().code, status.error().message);
  if (machine_) machine_->backend->memory()->synchronize(machine_->device);
}

LabCall LocalLab::open(const Config& baseline, double) {
  LabCall call;
  reset();
  run(baseline);
  truth_ = read();
  const auto start = Clock::now();
  run(baseline);
  call.baseline_us = std::chrono::duration<double>(Clock::now() - start).count() * 1e6;
  call.checked_against = copies_.empty() ? "nothing: the call has no tensors" : "the default config's result";
  call.memory = stopwatch_ && stopwatch_->has_timer() ? "cold" : "warm";
  call.machine = machine_ ? machine_->probe.description : invocation_.device;
  return call;
}

Checked LocalLab::check(const Config& config, double) {
  Checked checked;
  try {
    reset();
    run(config);
    const auto found = read();
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      checked.residual = std::max(checked.residual, error_of(copies_[i].type, copies_[i].tolerance, found[i], truth_[i]));
      if (checked.residual > 1 && checked.reason.empty())
        checked.reason = fmt::format("{} differs from the default config's by {:.3g} tolerances", copies_[i].name, checked.residual);
    }
    const auto start = Clock::now();
    run(config);
    checked.once_us = std::chrono::duration<double>(Clock::now() - start).count() * 1e6;
  } catch (...) {
    checked.reason = current_error().message;
  }
  return checked;
}

Sampled LocalLab::sample(const Config& config, double) {
  try {
    auto [place, is_new] = timed_.try_emplace(to_json(config));
    auto& timed = place->second;
    if (is_new) {
      timed.run = [this, config] { run(config); };
      if (stopwatch_ && stopwatch_->has_timer()) {
        timed.warm_up = false;
        timed.clock = [this, config](int count) {
          return stopwatch_->seconds(
              [&] {
                if (const auto status = kernel_.run(invocation_, config); !status)
                  throw CodedError(status.error().code, status.error().message);
              },
              count, true);
        };
      }
      calibrate(timed);
    }
    return {"", ejk::sample(timed) * 1e6};
  } catch (...) {
    return {current_error().message};
  }
}

}  // namespace ejk

// Rounds over a group of cases and their peers.
#include "bench_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tune/device_stopwatch.hpp"
#include "tune/stopwatch.hpp"

namespace ejk::tools {
namespace {

// A case with its tensors on the device, and its peers.
struct Subject {
  reference::Call call;
  std::unique_ptr<PackedCall> packed;
  DeviceBenchRow row;
  Timed timed;
  std::vector<TorchKernel> kernels;
  std::vector<Timed> peers;  // of those that can do the call
};

double bytes_of_case(const spec::Spec& spec, const spec::Case& c) { return tensor_bytes(spec::facts_of(spec, c)); }

class DeviceBench {
 public:
  DeviceBench(const BenchRequest& request, const Machine& machine, TorchPeer* torch)
      : request_(request), machine_(machine), torch_(torch), stopwatch_(machine) {}

  DeviceBenchReport run() {
    DeviceBenchReport report;
    report.kernel = request_.kernel->name;
    report.device = machine_.probe.description;
    report.device_clock = stopwatch_.has_timer();
    if (torch_) report.torch = torch_->versions();
    report.copy = stopwatch_.copy_bandwidth();
    report.empty_launch = stopwatch_.empty_launch_seconds();
    for (const auto& group : groups_of(request_, bytes_of_case)) measure_group(group, report);
    report.copy = std::max(report.copy, stopwatch_.copy_bandwidth());
    show_progress("");
    return report;
  }

 private:
  bool cold() const { return stopwatch_.has_timer() && request_.memory != Memory::warm; }

  void measure_group(const BenchGroup& group, DeviceBenchReport& report) {
    std::vector<std::unique_ptr<Subject>> subjects;
    std::vector<Timed*> timed;
    for (const auto* c : group) {
      show_progress("data for " + c->name);
      subjects.push_back(make_subject(*c));
      timed.push_back(&subjects.back()->timed);
      for (auto& peer : subjects.back()->peers) timed.push_back(&peer);
    }
    measure(timed, request_.seconds,
            [&](int round) { show_progress(fmt::format("{} and {} more, round {}", group.front()->name, group.size() - 1, round + 1)); });
    for (auto& subject : subjects) report.rows.push_back(finish(*subject));
    if (torch_) torch_->drop();
  }

  std::unique_ptr<Subject> make_subject(const spec::Case& c) {
    const auto& spec = *request_.kernel->spec;
    auto subject = std::make_unique<Subject>();
    subject->call = reference::make_call(spec, c, request_.seed);
    subject->packed = std::make_unique<PackedCall>(*request_.kernel, subject->call, machine_);
    auto& row = subject->row;
    row.name = c.name;
    row.memory = cold() ? "cold" : "warm";
    row.told = subject->packed->explain(request_.config);
    row.tier = tier_of(row.told);
    row.compiler = compiler_of(row.told);
    row.cost = cost_of(spec, subject->call.binding);
    row.bytes = row.cost.bytes > 0 ? row.cost.bytes : tensor_bytes(subject->call.facts());
    subject->timed.warm_up = !cold();
    subject->timed.clock = [this, packed = subject->packed.get()](int count) {
      return stopwatch_.seconds([&] { packed->launch(request_.config); }, count, cold());
    };
    if (torch_) add_peers(*subject);
    return subject;
  }

  void add_peers(Subject& subject) {
    for (auto& kernel : torch_->prepare(subject.call)) {
      subject.row.peers.push_back({kernel.name, kernel.why_not, {}});
      if (!kernel.why_not.empty()) continue;
      auto& timed = subject.peers.emplace_back();
      timed.warm_up = !cold();
      timed.clock = [this, id = kernel.id](int count) { return torch_->seconds(id, count, cold()); };
    }
  }

  DeviceBenchRow finish(Subject& subject) {
    auto& row = subject.row;
    row.samples = subject.timed.samples;
    // Few enough to be queued without waiting, a few milliseconds of work at most.
    const int in_flight = static_cast<int>(std::clamp(5e-3 / std::max(median(row.samples), 1e-9), 4.0, 256.0));
    if (stopwatch_.has_timer()) row.host = stopwatch_.host_seconds([&] { subject.packed->launch(request_.config); }, in_flight);
    auto timed = subject.peers.begin();
    for (auto& peer : row.peers)
      if (peer.why_not.empty()) peer.samples = (timed++)->samples;
    return std::move(row);
  }

  const BenchRequest& request_;
  const Machine& machine_;
  TorchPeer* torch_;
  DeviceStopwatch stopwatch_;
};

}  // namespace

DeviceBenchReport bench_device(const BenchRequest& request, const Machine& machine, TorchPeer* torch) {
  return DeviceBench(request, machine, torch).run();
}

}  // namespace ejk::tools

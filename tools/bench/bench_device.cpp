// Rounds over a group of cases and their peers.
#include "bench/bench_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tune/device_stopwatch.hpp"
#include "tune/stopwatch.hpp"
#include "verify/side_work.hpp"

namespace ejk::tools {
namespace {

// A case with its tensors on the device, and its peers.
struct Subject {
  reference::Call call;
  std::unique_ptr<PackedCall> packed;
  std::string config;
  DeviceBenchRow row;
  Timed timed;
  std::vector<Timed> peers;  // of those that can do the call
};

double bytes_of_case(const spec::Spec& spec, const spec::Case& c) { return tensor_bytes(spec::facts_of(spec, c)); }

class DeviceBench {
 public:
  DeviceBench(const BenchRequest& request, const Machine& machine, const std::vector<std::unique_ptr<Peer>>& peers)
      : request_(request), machine_(machine), peers_(peers), stopwatch_(machine) {}

  void run(DeviceBenchReport& report, const std::function<void()>& progressed) {
    report.kernel = request_.kernel->name;
    report.device = machine_.probe.description;
    report.device_clock = stopwatch_.has_timer();
    for (const auto& peer : peers_) report.peers.push_back(peer->versions());
    report.copy = stopwatch_.copy_bandwidth();
    report.empty_launch = stopwatch_.empty_launch_seconds();
    for (const auto& group : groups_of(request_, bytes_of_case)) {
      measure_group(group, report);
      report.copy = std::max(report.copy, stopwatch_.copy_bandwidth());
      show_progress("");
      progressed();
    }
  }

 private:
  bool cold() const { return stopwatch_.has_timer() && request_.memory != Memory::warm; }

  void measure_group(const BenchGroup& group, DeviceBenchReport& report) {
    std::vector<std::future<reference::Call>> calls;
    for (const auto& c : group)
      calls.push_back(side_work_.start([this, &c] { return reference::make_call(*c.kernel->spec, *c.values, request_.seed); }));
    std::vector<std::unique_ptr<Subject>> subjects;
    for (std::size_t i = 0; i < group.size(); ++i) {
      show_progress("data for " + group[i].name);
      subjects.push_back(make_subject(group[i], calls[i].get()));
    }
    std::vector<Timed*> timed;
    for (auto& subject : subjects) {
      show_progress("other libraries' " + subject->row.name);
      for (const auto& peer : peers_) add_kernels(*peer, *subject);
      timed.push_back(&subject->timed);
      for (auto& peer : subject->peers) timed.push_back(&peer);
    }
    measure(timed, request_.seconds,
            [&](int round) { show_progress(fmt::format("{} and {} more, round {}", group.front().name, group.size() - 1, round + 1)); });
    for (auto& subject : subjects) finish(*subject);
    if (request_.check) check(subjects);
    for (auto& subject : subjects) report.rows.push_back(std::move(subject->row));
    for (const auto& peer : peers_) peer->drop();
  }

  std::unique_ptr<Subject> make_subject(const BenchCase& c, reference::Call call) {
    auto subject = std::make_unique<Subject>();
    subject->config = c.config;
    subject->call = std::move(call);
    for (const auto& peer : peers_) peer->start_preparing(subject->call);  // while the data of the next case is made
    subject->packed = std::make_unique<PackedCall>(*c.kernel, subject->call, machine_);
    auto& row = subject->row;
    row.name = c.name;
    row.memory = cold() ? "cold" : "warm";
    row.told = subject->packed->explain(c.config);
    row.tier = tier_of(row.told);
    row.compiler = compiler_of(row.told);
    row.cost = cost_of(*c.kernel->spec, subject->call.binding);
    row.bytes = row.cost.bytes > 0 ? row.cost.bytes : tensor_bytes(subject->call.facts());
    subject->timed.warm_up = !cold();
    subject->timed.clock = [this, subject = subject.get()](int count) {
      return stopwatch_.seconds([&] { subject->packed->launch(subject->config); }, count, cold());
    };
    return subject;
  }

  void add_kernels(Peer& peer, Subject& subject) {
    for (auto& kernel : peer.prepared()) {
      subject.row.peers.push_back({kernel.name, kernel.why_not, {}});
      if (!kernel.why_not.empty()) continue;
      auto& timed = subject.peers.emplace_back();
      timed.warm_up = !cold();
      timed.clock = [this, &peer, id = kernel.id](int count) { return peer.seconds(id, count, cold()); };
    }
  }

  void finish(Subject& subject) {
    auto& row = subject.row;
    row.samples = subject.timed.samples;
    // Few enough to be queued without waiting, a few milliseconds of work at most.
    const int in_flight = static_cast<int>(std::clamp(5e-3 / std::max(median(row.samples), 1e-9), 4.0, 256.0));
    if (stopwatch_.has_timer()) row.host = stopwatch_.host_seconds([&] { subject.packed->launch(subject.config); }, in_flight);
    auto timed = subject.peers.begin();
    for (auto& peer : row.peers)
      if (peer.why_not.empty()) peer.samples = (timed++)->samples;
  }

  // Once no clock runs any more: it takes all processors.
  void check(std::vector<std::unique_ptr<Subject>>& subjects) {
    show_progress("checks");
    std::vector<std::future<BenchCheck>> checks;
    for (auto& subject : subjects) {
      subject->packed->copy_outputs_back();
      checks.push_back(side_work_.start([&call = subject->call, seed = request_.seed] { return check_outputs(call, seed); }));
    }
    for (std::size_t i = 0; i < checks.size(); ++i) subjects[i]->row.check = checks[i].get();
  }

  const BenchRequest& request_;
  const Machine& machine_;
  const std::vector<std::unique_ptr<Peer>>& peers_;
  DeviceStopwatch stopwatch_;
  SideWork side_work_;
};

}  // namespace

void bench_device(const BenchRequest& request, const Machine& machine, const std::vector<std::unique_ptr<Peer>>& peers,
                  DeviceBenchReport& report, const std::function<void()>& progressed) {
  DeviceBench(request, machine, peers).run(report, progressed);
}

}  // namespace ejk::tools

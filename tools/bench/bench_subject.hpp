// One case of a bench: its call (and copies of it, for cold inputs), what explain says of it, its times.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_request.hpp"
#include "bench/machine_peaks.hpp"
#include "command_line/kernel_call.hpp"
#include "tune/stopwatch.hpp"

namespace ejk::tools {

class BenchSubject {
 public:
  // Makes the data and the plan. cold inputs: enough copies that each is out of the caches when its turn comes again.
  BenchSubject(const BenchRequest& request, const BenchCase& c, int alignment, const Peaks& peaks);
  BenchSubject(const BenchSubject&) = delete;
  BenchSubject& operator=(const BenchSubject&) = delete;

  const std::string& name() const { return name_; }
  int alignment() const { return alignment_; }  // of every tensor, in bytes
  bool cold() const { return copies_.size() > 1; }
  std::size_t copies() const { return copies_.size(); }
  const reference::Call& last_call() const { return copies_[turn_]->call; }  // what was run last
  const Cost& cost() const { return cost_; }
  double bytes() const { return bytes_; }  // the spec's cost, or all tensors once where it gives none
  const nlohmann::ordered_json& told() const { return told_; }
  Timed& timed() { return timed_; }
  const Timed& timed() const { return timed_; }

 private:
  struct Copy {
    reference::Call call;
    std::unique_ptr<PackedCall> packed;
  };
  void add_copies(const KernelHandle& kernel, Memory memory, const Peaks& peaks);
  const Machine& cpu_;
  std::string name_, config_;
  int alignment_;
  std::vector<std::unique_ptr<Copy>> copies_;
  std::size_t turn_ = 0;
  Cost cost_;
  double bytes_ = 0;
  nlohmann::ordered_json told_;
  Timed timed_;
};

// What the samples say.
struct BenchResult {
  double median = 0, least = 0, spread = 0;  // seconds
  double flops = 0, bytes = 0;               // a second
  double roofline = 0;                       // least seconds by the machine's peaks: max(flops / peak, bytes / read bandwidth)
  double of_roofline() const { return median > 0 ? roofline / median : 0; }
};
BenchResult result_of(const std::vector<double>& samples, double flops, double bytes, const Peaks& peaks);

// Most memory that the case's tensors and their copies may take, in the alignments that are timed in turn.
double memory_of(const spec::Spec& spec, const spec::Case& c);

}  // namespace ejk::tools

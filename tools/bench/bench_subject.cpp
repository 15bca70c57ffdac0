// Data, copies and results of a benchmarked case.
#include "bench/bench_subject.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "command_line/device_option.hpp"

namespace ejk::tools {
namespace {

constexpr double most_bytes_of_copies = 2e9;

// Time is spent waiting for memory: what lies in a cache would flatter it.
bool memory_bound(const Cost& cost, double bytes, const Peaks& peaks) { return bytes / peaks.read > cost.flops / peaks.flops; }

}  // namespace

BenchSubject::BenchSubject(const BenchRequest& request, const BenchCase& c, int alignment, const Peaks& peaks)
    : cpu_(find_device({"cpu", 0})), name_(c.name), config_(c.config), alignment_(alignment) {
  const auto& kernel = *c.kernel;
  reference::Layout layout;
  layout.alignment = alignment;
  layout.outputs = true;
  copies_.push_back(std::make_unique<Copy>(Copy{reference::make_call(*kernel.spec, *c.values, request.seed, {layout, false}), nullptr}));
  auto& first = *copies_.front();
  first.packed = std::make_unique<PackedCall>(kernel, first.call, cpu_);
  told_ = first.packed->explain(config_);
  cost_ = cost_of(*kernel.spec, first.call.binding);
  bytes_ = cost_.bytes > 0 ? cost_.bytes : tensor_bytes(first.call.facts());
  add_copies(kernel, request.memory, peaks);
  timed_.run = [this] { copies_[turn_]->packed->launch(config_); };
  if (cold()) timed_.prepare = [this] { turn_ = (turn_ + 1) % copies_.size(); };
  timed_.warm_up = !cold();
}

void BenchSubject::add_copies(const KernelHandle& kernel, Memory memory, const Peaks& peaks) {
  const auto& first = copies_.front()->call;
  const double bytes = std::max(tensor_bytes(first.facts()), 1.0);
  const bool wanted = memory == Memory::cold || (memory == Memory::automatic && memory_bound(cost_, bytes_, peaks));
  if (!wanted) return;
  const double total = std::min(2 * last_cache_bytes(), most_bytes_of_copies);
  const auto count = static_cast<std::size_t>(std::clamp(std::ceil(total / bytes), 1.0, 4096.0)) + 1;
  for (std::size_t i = 1; i < count; ++i) {
    copies_.push_back(std::make_unique<Copy>(Copy{first, nullptr}));
    auto& copy = *copies_.back();
    copy.call.rebind();
    copy.packed = std::make_unique<PackedCall>(kernel, copy.call, cpu_);
  }
}

BenchResult result_of(const std::vector<double>& samples, double flops, double bytes, const Peaks& peaks) {
  BenchResult result{median(samples), least(samples), spread(samples)};
  if (result.median <= 0) return result;
  result.flops = flops / result.median;
  result.bytes = bytes / result.median;
  result.roofline = std::max(flops / peaks.flops, bytes / peaks.read);
  return result;
}

double memory_of(const spec::Spec& spec, const spec::Case& c) {
  return 2 * (std::min(2 * last_cache_bytes(), most_bytes_of_copies) + 2 * tensor_bytes(spec::facts_of(spec, c)));
}

}  // namespace ejk::tools

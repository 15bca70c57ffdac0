// pmap_with_config: one config for the shards of several devices.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "backends/cpu/grid_pool.hpp"
#include "batch/shared_config.hpp"
#include "common/guard.hpp"
#include "describe/values.hpp"
#include "record/placed_call.hpp"
#include "record/recorder.hpp"

namespace ejk {
namespace {

std::string shape_of(const TensorView& view) {
  return fmt::format("{} [{}] of strides [{}]", name_of(view.type), fmt::join(view.shape, view.shape + view.rank, ", "),
                     fmt::join(view.strides, view.strides + view.rank, ", "));
}

// Throws CodedError if shard `index` is no call like the first.
void check_like_first(const Shard& first, const Shard& shard, std::size_t index) {
  for (const auto& [name, view] : shard.tensors)
    if (!first.tensors.contains(name)) refuse(fmt::format("shard {} has {}, which shard 0 has not", index, name));
  for (const auto& [name, view] : first.tensors) {
    const auto found = shard.tensors.find(name);
    if (found == shard.tensors.end()) refuse(fmt::format("shard {} lacks {}, which shard 0 has", index, name));
    if (shape_of(found->second) != shape_of(view))
      refuse(fmt::format("shard {}: {} is {}, but {} in shard 0; all shards must be alike", index, name, shape_of(found->second),
                         shape_of(view)));
  }
}

class Shards {
 public:
  Shards(const KernelHandle& kernel, std::span<const Shard> shards, const Values& attributes) : kernel_(kernel), shards_(shards) {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      if (i > 0) check_like_first(shards[0], shards[i], i);
      calls_.push_back(std::make_unique<NamedCall>(kernel, shards[i].tensors, attributes));
      const auto& machine = machine_of(kernel, calls_.back()->arguments.tensors);
      if (i == 0) machine_ = &machine;
      if (machine.probe.fingerprint != machine_->probe.fingerprint)
        refuse(fmt::format("{}: shard {} is on a {}, but shard 0 on a {}; one config serves devices of one kind", kernel.name, i,
                           machine.probe.fingerprint, machine_->probe.fingerprint));
    }
    check_outputs();
  }

  const Machine& machine() const { return *machine_; }

  // Of one shard, with the least alignment that any of them has.
  std::shared_ptr<const spec::Binding> binding() const {
    auto facts = facts_of(kernel_, calls_[0]->arguments.tensors, calls_[0]->arguments.attributes);
    for (const auto& call : calls_)
      for (auto& [name, tensor] : facts_of(kernel_, call->arguments.tensors, call->arguments.attributes).tensors)
        facts.tensors.at(name).alignment = std::min(facts.tensors.at(name).alignment, tensor.alignment);
    return std::make_shared<spec::Binding>(spec::bind(*kernel_.spec, std::move(facts)));
  }

  // What each shard said.
  std::vector<Status> run(const std::string& config) const {
    std::vector<Status> results(calls_.size());
    if (machine_->backend->device_type() == DeviceType::cpu && calls_.size() > 1 && static_cast<int>(calls_.size()) >= cpu_threads())
      run_on_pool(config, results);
    else
      for (std::size_t i = 0; i < calls_.size(); ++i) results[i] = calls_[i]->run(shards_[i].stream, config);
    return results;
  }

 private:
  struct Work {
    const Shards* shards;
    const std::string* config;
    std::vector<Status>* results;
  };

  static void run_cell(void* const* arguments, const Group* group) {
    const auto& work = *static_cast<const Work*>(arguments[0]);
    const auto index = static_cast<std::size_t>(group->x);
    (*work.results)[index] = work.shards->calls_[index]->run(work.shards->shards_[index].stream, *work.config);
  }

  // A cell a shard; what a shard launches runs within its cell. Scopes are of the calling thread, so recording is done here.
  void run_on_pool(const std::string& config, std::vector<Status>& results) const {
    auto* const scope = std::exchange(open_recording, nullptr);
    Work work{this, &config, &results};
    void* arguments[] = {&work};
    LaunchRequest request;
    request.entry = reinterpret_cast<void*>(&run_cell);
    request.grid[0] = static_cast<std::int64_t>(calls_.size());
    request.arguments = arguments;
    try {
      run_grid(request);
    } catch (...) {
      open_recording = scope;
      throw;
    }
    open_recording = scope;
    for (std::size_t i = 0; open_recording && i < calls_.size(); ++i)
      if (results[i]) record_call(kernel_, calls_[i]->arguments.tensors, calls_[i]->arguments.attributes, shards_[i].stream);
  }

  // Shards run at the same time: none may write what another writes.
  void check_outputs() const {
    std::map<const void*, std::size_t> writers;
    for (std::size_t i = 0; i < shards_.size(); ++i)
      for (const auto& [name, view] : shards_[i].tensors) {
        const auto* tensor = kernel_.spec->tensor(name);  // none: another name of an input that is updated
        if (!tensor || !tensor->written() || !view.given() || view.elements() == 0) continue;
        const auto [writer, fresh] = writers.emplace(view.data, i);
        if (!fresh && writer->second != i)
          refuse(fmt::format("{}: {} {} of shard {} is memory that shard {} writes too", kernel_.name,
                             tensor->output ? "output" : "updated input", name, i, writer->second));
      }
  }

  const KernelHandle& kernel_;
  std::span<const Shard> shards_;
  std::vector<std::unique_ptr<NamedCall>> calls_;
  const Machine* machine_ = nullptr;
};

bool all_lack_an_image(const std::vector<Status>& results) {
  return std::all_of(results.begin(), results.end(), [](const auto& r) { return !r && r.error().code == ErrorCode::missing_image; });
}

Status gathered(const std::vector<Status>& results) {
  std::size_t failed = 0;
  Error error{ErrorCode::ok, {}};
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i]) continue;
    if (failed++ == 0) error.code = results[i].error().code;
    error.message += fmt::format("\n  shard {}: {}", i, results[i].error().message);
  }
  if (failed) error.message = fmt::format("{} of {} shards failed:{}", failed, results.size(), error.message);
  return error;
}

}  // namespace

Result<BatchReport> pmap_with_config(const std::string& kernel, std::span<const Shard> shards, const Values& attributes,
                                     const Config* config) {
  return guarded([&]() -> Result<BatchReport> {
    const auto& handle = require_kernel(kernel);
    BatchReport report;
    report.calls = report.made = static_cast<std::int64_t>(shards.size());
    if (shards.empty()) return report;
    const Shards all(handle, shards, attributes);
    report.config = choose_config(handle, all.machine(), shards[0].tensors, all.binding(), config);
    auto results = all.run(to_json(report.config));
    if (!config && all_lack_an_image(results)) results = all.run({});  // each falls back as it does alone, all to the same
    if (auto status = gathered(results); !status) return status.error();
    return report;
  });
}

}  // namespace ejk

// The public functions: a lab that fits the kernel, then the search.
#include "ejk/autotune.hpp"

#include <fmt/format.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "common/guard.hpp"
#include "execute/facts.hpp"
#include "store/files.hpp"
#include "tune/local_lab.hpp"
#include "tune/recorded_call.hpp"
#include "tune/search.hpp"
#include "tune/worker_lab.hpp"
#include "tune/worker_program.hpp"

namespace ejk {
namespace {

// The spec's kernel behind the interface; nullptr: a user's own.
const KernelHandle* handle_of(const Kernel& kernel) {
  try {
    const auto* handle = Library::instance().kernel(kernel.name());
    return handle && handle->kernel_interface() == &kernel ? handle : nullptr;
  } catch (const std::exception&) {
    return nullptr;  // no store: then no kernel has a spec
  }
}

Device device_of(const Invocation& invocation) {
  for (const auto& [name, view] : invocation.tensors)
    if (view.given()) return view.device;
  return {};
}

TuningRecord tuned(const Kernel& kernel, const Invocation& given, const AutotuneOptions& options) {
  const auto invocation = kernel.canonical(given);
  const SearchOptions search_options{options.budget_seconds, options.step_seconds, options.jobs, options.cost_model};
  const auto* handle = handle_of(kernel);
  if (!handle) {
    LocalLab lab(kernel, invocation);
    const auto images = no_images();
    return search(kernel, invocation, lab, *images, search_options).record;
  }
  const auto program = find_worker(options.worker);
  if (program.path.empty()) throw CodedError(ErrorCode::internal, program.why_not());
  const auto images = images_of(*handle, invocation);
  WorkerLab lab(program.path, {invocation.key(), device_of(invocation), options.seed});
  return search(kernel, invocation, lab, *images, search_options).record;
}

class WorkerTuner : public Tuner {
 public:
  explicit WorkerTuner(AutotuneOptions options) : options_(std::move(options)) {}
  std::string unavailable(const Kernel& kernel, const Invocation&) const override {
    return handle_of(kernel) ? find_worker(options_.worker).why_not() : "";
  }
  Result<TuningRecord> tune(const Kernel& kernel, const Invocation& invocation) override {
    const std::lock_guard one_at_a_time(mutex_);  // two would disturb each other's times
    return autotune(kernel, invocation, options_);
  }

 private:
  const AutotuneOptions options_;
  std::mutex mutex_;
};

}  // namespace

Result<TuningRecord> autotune(const Kernel& kernel, const Invocation& invocation, const AutotuneOptions& options) {
  return guarded([&]() -> Result<TuningRecord> { return tuned(kernel, invocation, options); });
}

Result<TuningRecord> autotune(const std::string& kernel, const std::map<std::string, TensorView>& tensors,
                              const std::map<std::string, Value>& attributes, const AutotuneOptions& options) {
  return guarded([&]() -> Result<TuningRecord> {
    Invocation invocation;
    invocation.kernel = kernel;
    invocation.tensors = tensors;
    invocation.attributes = attributes;
    return tuned(*require_kernel(kernel).kernel_interface(), invocation, options);
  });
}

Result<std::vector<TuningRecord>> autotune_recorded(const std::string& file, const AutotuneOptions& options) {
  return guarded([&]() -> Result<std::vector<TuningRecord>> {
    std::string why_not;
    auto text = store::read_file(file, store::lines_limit, why_not);
    if (!text) return Error{ErrorCode::bad_input, "the recorded calls cannot be read: " + why_not};
    std::istringstream stream(std::move(*text));
    std::set<std::string> fingerprints, seen;
    for (const auto& machine : Library::instance().parts().machines)
      if (machine.probe.available) fingerprints.insert(machine.probe.fingerprint);
    std::vector<TuningRecord> records;
    std::string line;
    for (int number = 1; std::getline(stream, line); ++number) {
      if (line.empty()) continue;
      const auto node = nlohmann::json::parse(line, nullptr, false);
      if (!node.is_object()) return Error{ErrorCode::bad_input, fmt::format("{}:{}: not a JSON object", file, number)};
      if (node.contains("device") && node["device"].is_string() && !fingerprints.contains(node["device"].get<std::string>())) continue;
      auto record = guarded([&]() -> Result<TuningRecord> {
        const RecordedCall call(node);
        if (!seen.insert(call.invocation().key()).second) return TuningRecord{};
        return tuned(*call.kernel().kernel_interface(), call.invocation(), options);
      });
      if (!record) return Error{record.error().code, fmt::format("{}:{}: {}", file, number, record.error().message)};
      if (!record->key.empty()) records.push_back(std::move(*record));
    }
    return records;
  });
}

std::shared_ptr<Tuner> make_tuner(const AutotuneOptions& options) { return std::make_shared<WorkerTuner>(options); }

}  // namespace ejk

// Shares the budget out, and keeps one worker for all calls.
#include "tune/tune_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <sstream>

#include "command_line/arguments.hpp"
#include "command_line/device_option.hpp"
#include "command_line/kernel_call.hpp"
#include "common/guard.hpp"
#include "execute/facts.hpp"
#include "reference/call.hpp"
#include "store/files.hpp"
#include "tune/search.hpp"
#include "tune/worker_lab.hpp"
#include "tune/worker_program.hpp"

namespace ejk::tools {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr double least_share = 0.02;  // of the budget: with less left, calls are not begun
constexpr double of_opening = 3;      // a call's share at least, in times of what a call before took only to be begun

json key_of(const KernelHandle& kernel, const spec::CallFacts& facts, const Machine& machine) {
  json tensors = json::object(), attributes = json::object();
  for (const auto& [name, tensor] : facts.tensors) tensors[name] = {std::string(name_of(tensor.type)), tensor.shape};
  for (const auto& [name, value] : facts.attributes) attributes[name] = std::visit([](const auto& v) { return json(v); }, value);
  return {{"kernel", kernel.name}, {"device", machine.probe.fingerprint}, {"tensors", tensors}, {"attributes", attributes}};
}

// How large a call is, in bytes to move; of what it computes, as much as takes a CPU the time of a byte.
double size_of_call(const CallToTune& call, const Machine& machine) {
  constexpr double flops_a_byte = 10;
  try {
    const RecordedCall recorded(call.key, &machine);
    const auto& invocation = recorded.invocation();
    const auto arguments = positional(recorded.kernel(), invocation.tensors, invocation.attributes);
    const auto binding = spec::bind(*recorded.kernel().spec, facts_of(recorded.kernel(), arguments.tensors, arguments.attributes));
    return tensor_bytes(binding.facts) + cost_of(*recorded.kernel().spec, binding).flops / flops_a_byte;
  } catch (const std::exception&) {
    return 0;  // it will say what is wrong when it is its turn
  }
}

// What small calls leave of their share helps the large ones, whose every step takes long.
std::vector<std::size_t> small_ones_first(const std::vector<CallToTune>& calls, const Machine& machine) {
  std::vector<double> sizes;
  for (const auto& call : calls) sizes.push_back(size_of_call(call, machine));
  std::vector<std::size_t> order(calls.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return sizes[a] < sizes[b]; });
  return order;
}

// One run of tune_calls.
class Run {
 public:
  Run(const TuneRequest& request, TuneState& state, TuneProgress& progress, const std::function<void(const TuningRecord&)>& recorded,
      TuneReport& report)
      : request_(request), state_(state), progress_(progress), recorded_(recorded), report_(report) {
    const auto program = find_worker();
    if (program.path.empty()) throw CodedError(ErrorCode::internal, program.why_not());
    lab_ = std::make_unique<WorkerLab>(program.path, WorkerLab::Call{});
  }

  void all() {
    for (const auto& call : request_.calls) report_.cases.push_back({call.name, {}});
    std::size_t calls_left = request_.calls.size();
    for (const auto i : small_ones_first(request_.calls, *request_.machine)) {
      auto& one = report_.cases[i];
      progress_.begin(one.name);
      const double begun = elapsed();
      try {
        tune(request_.calls[i], calls_left--, one);
      } catch (const CodedError& e) {
        one.error = e.what();
      } catch (const spec::CallError& e) {
        one.error = e.what();
      }
      // Rather a few large calls tuned than none of all.
      if (!one.error.empty()) least_seconds_ = std::max(least_seconds_, of_opening * (elapsed() - begun));
      if (one.error.empty()) recorded_(one.outcome.record);
      progress_.end(one.error.empty() ? verdict(one) : one.error);
    }
    report_.seconds = elapsed();
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  static std::string verdict(const TunedCase& one) {
    const auto& record = one.outcome.record;
    const auto what = record.config == record.baseline ? "the heuristic's config stays"
                                                       : fmt::format("{} is {:.3f} times as fast as the heuristic's",
                                                                     config_words(record.config, record.baseline), speed_up(one));
    return fmt::format("{} ({}; {})", what, counted(one), one.outcome.stopped);
  }

  void tune(const CallToTune& call, std::size_t calls_left, TunedCase& one) {
    const RecordedCall recorded(call.key, request_.machine);
    const auto& invocation = recorded.invocation();
    const auto key = invocation.key();
    if (const auto* before = state_.finished(key)) {
      one.outcome = *before;
      return note_peaks(one.outcome.call);
    }
    const auto& kernel = *recorded.kernel().kernel_interface();
    if (kernel.config_space(invocation).size() == 1) {
      one.no_choice = true;
      throw CodedError(ErrorCode::unsupported, "only one config is valid: there is nothing to choose");
    }
    const double left = request_.budget - elapsed();
    if (left < least_share * request_.budget) throw CodedError(ErrorCode::unsupported, "not begun: the budget was spent");
    const auto images = images_of(recorded.kernel(), invocation);
    lab_->set_call({key, {request_.machine->backend->device_type(), request_.machine->device}, request_.seed, report_.peak_bytes <= 0});
    SearchHooks hooks;
    hooks.progress = [&](const SearchProgress& step) { progress_.step(step); };
    hooks.known = [&](Trial& trial) {
      const auto source = kernel.source_hash(invocation, trial.config);
      return source && state_.known(key, *source, trial);
    };
    hooks.finished = [&](const Trial& trial) {
      state_.add(key, trial);
      progress_.config(trial);
    };
    const double share = std::min(left, std::max(left / static_cast<double>(calls_left), least_seconds_));
    const SearchOptions options{share, request_.step_seconds, request_.jobs, request_.cost_model};
    one.outcome = search(kernel, invocation, *lab_, *images, options, hooks);
    note_peaks(one.outcome.call);
    state_.add(key, one.outcome);
  }

  void note_peaks(const LabCall& call) {
    if (report_.peak_bytes > 0) return;
    report_.peak_bytes = call.peak_bytes;
    report_.peak_flops = call.peak_flops;
  }

  const TuneRequest& request_;
  TuneState& state_;
  TuneProgress& progress_;
  const std::function<void(const TuningRecord&)>& recorded_;
  TuneReport& report_;
  std::unique_ptr<WorkerLab> lab_;
  double least_seconds_ = 0;  // of a call's share
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

std::vector<CallToTune> calls_of_cases(const KernelHandle& kernel, const std::vector<const spec::Case*>& cases, const Machine& machine,
                                       std::uint64_t seed) {
  std::vector<CallToTune> calls;
  for (const auto* c : cases) calls.push_back({c->name, key_of(kernel, reference::facts_of_case(*kernel.spec, *c, seed), machine)});
  return calls;
}

std::vector<CallToTune> calls_of_recording(const std::string& file, const std::string& kernel, const Machine& machine) {
  std::string why;
  auto text = store::read_file(file, store::lines_limit, why);
  if (!text) throw UsageError("--recorded: cannot be read: " + why);
  std::istringstream stream(std::move(*text));
  std::vector<CallToTune> calls;
  std::set<std::string> seen;
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (line.empty()) continue;
    const auto node = json::parse(line, nullptr, false);
    if (!node.is_object()) throw UsageError(fmt::format("{}:{}: not a JSON object", file, number));
    try {
      if (node.value("device", "") != machine.probe.fingerprint || (!kernel.empty() && node.value("kernel", "") != kernel)) continue;
      if (!seen.insert(RecordedCall(node, &machine).invocation().key()).second) continue;
    } catch (const std::exception& e) {
      throw UsageError(fmt::format("{}:{}: {}", file, number, e.what()));
    }
    calls.push_back({fmt::format("{} (line {})", node.value("kernel", ""), number), node});
  }
  return calls;
}

void tune_calls(const TuneRequest& request, TuneState& state, TuneProgress& progress,
                const std::function<void(const TuningRecord&)>& recorded, TuneReport& report) {
  Run(request, state, progress, recorded, report).all();
}

}  // namespace ejk::tools

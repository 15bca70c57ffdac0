// JSON of trials, outcomes and reports; what the faces share.
#include "tune/tune_report.hpp"

#include <fmt/format.h>

#include <cmath>

#include "common/guard.hpp"
#include "tune/stopwatch.hpp"

namespace ejk::tools {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <class T>
T taken(Result<T> result) {
  if (!result) throw CodedError(result.error().code, result.error().message);
  return std::move(*result);
}

Trial::State state_named(const std::string& name) {
  for (const auto state : {Trial::State::waiting, Trial::State::rejected, Trial::State::slow, Trial::State::pruned})
    if (name == name_of(state)) return state;
  return Trial::State::measured;
}

json call_json(const LabCall& call) {
  return {{"checked_against", call.checked_against},
          {"memory", call.memory},
          {"machine", call.machine},
          {"flops", call.flops},
          {"bytes", call.bytes},
          {"baseline_us", call.baseline_us},
          {"peak_flops", call.peak_flops},
          {"peak_bytes", call.peak_bytes}};
}

LabCall call_from(const json& node) {
  return {node.at("checked_against"), node.at("memory"),      node.at("machine"),    node.at("flops"),
          node.at("bytes"),           node.at("baseline_us"), node.at("peak_flops"), node.at("peak_bytes")};
}

}  // namespace

json to_json(const Trial& trial) {
  return {{"config", json::parse(ejk::to_json(trial.config))},
          {"image", trial.image},
          {"source", trial.source},
          {"state", std::string(name_of(trial.state))},
          {"reason", trial.reason},
          {"residual", trial.residual},
          {"samples_us", trial.samples_us},
          {"ratios", trial.ratios},
          {"found_at", trial.found_at},
          {"predicted", trial.predicted}};
}

Trial trial_from_json(const json& node) {
  return {taken(config_from_json(node.at("config").dump())),
          node.at("image"),
          node.at("source"),
          state_named(node.at("state")),
          node.at("reason"),
          node.at("residual"),
          node.at("samples_us"),
          node.at("ratios"),
          node.at("found_at"),
          node.value("predicted", 0.0)};
}

json to_json(const TuningOutcome& outcome) {
  json trials = json::array(), progress = json::array();
  for (const auto& trial : outcome.trials) trials.push_back(to_json(trial));
  for (const auto& [seconds, ratio] : outcome.progress) progress.push_back({seconds, ratio});
  return {{"record", json::parse(ejk::to_json(outcome.record))},
          {"call", call_json(outcome.call)},
          {"space", outcome.space},
          {"trials", trials},
          {"progress", progress},
          {"ratio", outcome.ratio},
          {"seconds", outcome.seconds},
          {"stopped", outcome.stopped}};
}

TuningOutcome outcome_from_json(const json& node) {
  TuningOutcome outcome;
  outcome.record = taken(record_from_json(node.at("record").dump()));
  outcome.call = call_from(node.at("call"));
  outcome.space = node.at("space");
  for (const auto& trial : node.at("trials")) outcome.trials.push_back(trial_from_json(trial));
  for (const auto& step : node.at("progress")) outcome.progress.push_back({step.at(0), step.at(1)});
  outcome.ratio = node.at("ratio");
  outcome.seconds = node.at("seconds");
  outcome.stopped = node.at("stopped");
  return outcome;
}

ordered_json to_json(const TuneReport& report) {
  ordered_json object{{"kernel", report.kernel},
                      {"command", report.command},
                      {"date", report.date},
                      {"device", report.device},
                      {"ejk", EJK_VERSION},
                      {"budget_seconds", report.budget},
                      {"seconds", report.seconds},
                      {"peak_flops", report.peak_flops},
                      {"peak_bytes", report.peak_bytes},
                      {"mean_speed_up", mean_speed_up(report)}};
  object["cases"] = ordered_json::array();
  for (const auto& one : report.cases) {
    ordered_json entry{{"case", one.name}};
    if (!one.error.empty())
      entry["error"] = one.error;
    else
      entry["speed_up"] = speed_up(one), entry["outcome"] = to_json(one.outcome);
    object["cases"].push_back(std::move(entry));
  }
  return object;
}

double speed_up(const TunedCase& one) { return one.error.empty() && one.outcome.ratio > 0 ? 1 / one.outcome.ratio : 0; }

double mean_speed_up(const TuneReport& report) {
  double sum = 0;
  int count = 0;
  for (const auto& one : report.cases)
    if (const double factor = speed_up(one); factor > 0) sum += std::log(factor), ++count;
  return count ? std::exp(sum / count) : 0;
}

std::string config_words(const Config& config, const Config& beside) {
  std::string words;
  if (config.variant != beside.variant || config.arch != beside.arch)
    words = fmt::format("{} on {}", config.variant, config.arch.substr(config.arch.find(':') + 1));
  for (const auto& [name, value] : config.values)
    words += fmt::format("{}{}={}", words.empty() ? "" : " ", name,
                         nlohmann::json::parse(ejk::to_json(Config{"", "", {{name, value}}}))[name].dump());
  return words.empty() ? "-" : words;
}

std::string counted(const TunedCase& one) {
  const auto& record = one.outcome.record;
  const auto pruned = pruned_of(one.outcome.trials);
  return fmt::format("{} of {} configs timed, {} rejected{}", record.measured, one.outcome.space, record.rejected,
                     pruned ? fmt::format(", {} pruned by the cost model", pruned) : "");
}

}  // namespace ejk::tools

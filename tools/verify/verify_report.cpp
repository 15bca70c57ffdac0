// Verdicts, and how to see a failure again.
#include "verify/verify_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command_line/table.hpp"
#include "ejk/library.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;

const char* verdict(const VerifyOutcome& outcome) {
  if (outcome.missing) return "NO BINARY";
  if (!outcome.failures.empty()) return "FAILED";
  return outcome.calls == 0 ? "UNCHECKED" : "ok";
}

bool bad(const VerifyOutcome& outcome) { return outcome.failed() || outcome.calls == 0; }

Table table_of(const std::vector<VerifyOutcome>& outcomes) {
  Table table({{"image"}, {"calls", Align::right}, {"laws", Align::right}, {"error/tolerance", Align::right}, {"verdict"}});
  for (const auto& outcome : outcomes)
    table.row(
        {outcome.id, fmt::format("{}", outcome.calls), fmt::format("{}", outcome.properties), digits(outcome.worst), verdict(outcome)});
  return table;
}

// How to see it again: the same seed does the same calls.
std::string reproduce(const VerifyOutcome& outcome, const VerifyEffort& effort, const std::string& device) {
  return fmt::format("ejk verify {}{} --image '{}' --seed {} --random {}", outcome.id.substr(0, outcome.id.find('.')), device, outcome.id,
                     effort.seed, effort.random);
}

void print_failures(const std::vector<VerifyOutcome>& outcomes, const VerifyEffort& effort, const std::string& device, bool random_calls) {
  for (const auto& outcome : outcomes) {
    if (!bad(outcome)) continue;
    fmt::print("\n{} {}\n", verdict(outcome), outcome.id);
    for (const auto& failure : outcome.failures) fmt::print("  {}\n", failure);
    if (outcome.failures.empty()) fmt::print("  no call that the reference made is served by it\n");
    if (random_calls)
      fmt::print("  again: ejk verify {}{} --random-only --seed {} --random {}\n", outcome.id.substr(0, outcome.id.find_first_of(". ")),
                 device, effort.seed, effort.random);
    else
      fmt::print("  again: {}\n", reproduce(outcome, effort, device));
  }
}

ordered_json outcomes_json(const std::vector<VerifyOutcome>& outcomes) {
  auto list = ordered_json::array();
  for (const auto& outcome : outcomes)
    list.push_back({{"image", outcome.id},
                    {"calls", outcome.calls},
                    {"properties", outcome.properties},
                    {"error_over_tolerance", outcome.worst},
                    {"verdict", verdict(outcome)},
                    {"failures", outcome.failures}});
  return list;
}

}  // namespace

std::size_t count_bad(const Verified& verified) {
  return static_cast<std::size_t>(std::count_if(verified.images.begin(), verified.images.end(), bad) +
                                  std::count_if(verified.random_calls.begin(), verified.random_calls.end(), bad) +
                                  std::count_if(verified.option_calls.begin(), verified.option_calls.end(), bad));
}

void print_report(const Verified& verified, const VerifyEffort& effort) {
  if (!verified.images.empty()) fmt::print("{}", table_of(verified.images).text());
  if (!verified.random_calls.empty()) fmt::print("\nrandom calls\n{}", table_of(verified.random_calls).text());
  if (!verified.option_calls.empty()) fmt::print("\noptions alone and in pairs\n{}", table_of(verified.option_calls).text());
  print_failures(verified.images, effort, verified.device, false);
  print_failures(verified.random_calls, effort, verified.device, true);
  print_failures(verified.option_calls, effort, verified.device, true);
  for (const auto& name : verified.without_reference) fmt::print("\n{} has no reference here: not verified\n", name);
  for (const auto& name : verified.without_variant) fmt::print("\n{} has no variant for this device: not verified\n", name);
  if (verified.refused) fmt::print("\n{} random calls were left out: no variant for this device takes them\n", verified.refused);
  if (!verified.lost.empty()) fmt::print("\nstopped, the device is lost: {}\n", verified.lost);
  int calls = 0;
  for (const auto* list : {&verified.images, &verified.random_calls, &verified.option_calls})
    for (const auto& outcome : *list) calls += outcome.calls;
  fmt::print("\n{} images, {} calls compared, {} failed, seed {}, in {}\n", verified.images.size(), calls, count_bad(verified), effort.seed,
             seconds_text(verified.seconds));
  for (const auto& sentence : verified.other_copies) fmt::print("{}\n", sentence);
  if (effort.cover)
    fmt::print("a covering sample, {} of {} images (--cover {})\n", verified.images.size(), verified.images.size() + verified.left_out,
               *effort.cover);
  if (const auto compiled = counters().compiles)
    fmt::print("{} images were compiled just now: no store had them (`ejk cache why-miss ID` says why)\n", compiled);
}

nlohmann::ordered_json to_json(const Verified& verified, const VerifyEffort& effort) {
  return {{"seed", effort.seed},
          {"cover", effort.cover ? ordered_json(*effort.cover) : ordered_json()},
          {"left_out", verified.left_out},
          {"seconds", verified.seconds},
          {"failed", count_bad(verified)},
          {"compiled", counters().compiles},
          {"without_reference", verified.without_reference},
          {"without_variant", verified.without_variant},
          {"refused", verified.refused},
          {"lost", verified.lost},
          {"other_copies", verified.other_copies},
          {"images", outcomes_json(verified.images)},
          {"random_calls", outcomes_json(verified.random_calls)},
          {"option_calls", outcomes_json(verified.option_calls)}};
}

}  // namespace ejk::tools

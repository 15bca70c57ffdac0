// ejk pack: the images that recorded calls use, as a store of a given size; says what leaving the others out costs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/device_option.hpp"
#include "command_line/library_options.hpp"
#include "command_line/table.hpp"
#include "store/build_progress.hpp"
#include "store/cache_actions.hpp"
#include "store/pack_write.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;

// An image that could not be built has no size yet: it gets one that does not fit.
spec::Portfolio selected(const PackPlan& plan, std::vector<std::int64_t> bytes, std::optional<std::int64_t> limit) {
  const auto most = limit.value_or(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (plan.images[i].found->verdict != store::Verdict::hit) bytes[i] = most + 1;
  std::vector<spec::Demand> demands;
  for (const auto& call : plan.calls) demands.push_back(call.demand);
  return spec::least_regret(bytes, demands, most);
}

ordered_json number_or_unknown(const std::optional<double>& value) { return value ? ordered_json(*value) : ordered_json("unknown"); }

ordered_json json_of(const PackPlan& plan, const PackedInvocation& call, const spec::Served& served) {
  const auto id = [&](std::size_t choice) { return plan.images[call.demand.choices[choice].image].item.image.id; };
  ordered_json told = {{"call", call.demand.name},
                       {"count", static_cast<std::uint64_t>(call.demand.weight)},
                       {"tier", call.tier},
                       {"evidence", call.evidence}};
  told["image"] = id(0);
  told["served_by"] = served.choice ? ordered_json(id(*served.choice)) : ordered_json(nullptr);
  told["us"] = number_or_unknown(call.demand.choices.front().cost);
  told["regret_us"] = served.choice ? number_or_unknown(served.regret) : ordered_json(nullptr);
  return told;
}

// Sums over the calls, each as often as it was recorded.
ordered_json totals_of(const PackPlan& plan, const spec::Portfolio& portfolio) {
  double known_us = 0, regret_us = 0;
  std::size_t whole = 0, slower = 0, unknown = 0, unserved = 0;
  for (std::size_t i = 0; i < plan.calls.size(); ++i) {
    const auto& demand = plan.calls[i].demand;
    const auto& served = portfolio.served[i];
    if (!served.choice) {
      ++unserved;
    } else if (*served.choice == 0) {
      ++whole;
    } else if (!served.regret) {
      ++unknown;
    } else {
      ++slower;
      regret_us += demand.weight * *served.regret;
    }
    known_us += demand.weight * demand.choices.front().cost.value_or(0);
  }
  return {{"calls", plan.calls.size()}, {"with_their_image", whole}, {"with_another", slower}, {"with_another_unmeasured", unknown},
          {"without_any", unserved},    {"measured_us", known_us},   {"regret_us", regret_us}};
}

ordered_json summary_of(const PackPlan& plan, const spec::Portfolio& portfolio, std::int64_t texts, std::optional<std::int64_t> limit) {
  ordered_json summary = {
      {"schema", 1}, {"bytes", texts + portfolio.bytes}, {"limit", limit ? ordered_json(*limit) : ordered_json(nullptr)}};
  summary["bytes_of_specs_and_templates"] = texts;
  summary["selection"] = portfolio.exact ? "exact" : "greedy with exchanges";
  summary["total"] = totals_of(plan, portfolio);
  summary["images"] = ordered_json::array();
  summary["left_out"] = ordered_json::array();
  for (std::size_t i = 0; i < plan.images.size(); ++i)
    summary[portfolio.kept[i] ? "images" : "left_out"].push_back(plan.images[i].item.image.id);
  summary["calls"] = ordered_json::array();
  for (std::size_t i = 0; i < plan.calls.size(); ++i) summary["calls"].push_back(json_of(plan, plan.calls[i], portfolio.served[i]));
  return summary;
}

std::string text_of(const ordered_json& summary) { return summary.dump(2) + "\n"; }

// The summary is a part of the pack: where it does not fit beside the selection, less is selected.
std::pair<spec::Portfolio, ordered_json> selected_with_summary(const PackPlan& plan, const std::vector<std::int64_t>& bytes,
                                                               std::int64_t texts, std::optional<std::int64_t> limit) {
  for (std::int64_t reserved = 0;;) {
    auto portfolio = selected(plan, bytes, limit ? std::optional(std::max<std::int64_t>(*limit - texts - reserved, 0)) : std::nullopt);
    auto summary = summary_of(plan, portfolio, texts, limit);
    const auto own = static_cast<std::int64_t>(text_of(summary).size());
    if (!limit || portfolio.bytes == 0 || texts + portfolio.bytes + own <= *limit) return {std::move(portfolio), std::move(summary)};
    reserved = std::max(own, reserved + 1);
  }
}

std::string slowdown(const ordered_json& call) {
  if (call["served_by"].is_null()) return "no image";
  if (call["served_by"] == call["image"]) return "none";
  if (call["regret_us"].is_string()) return "unknown";
  const auto us = call["us"].get<double>(), regret = call["regret_us"].get<double>();
  return fmt::format("{:+.2f} us ({:+.1f}%)", regret, 100 * regret / us);
}

void print_summary(const ordered_json& summary, const PackPlan& plan, const std::string& out) {
  for (const auto& fault : plan.faults) fmt::print("not read: {}\n", fault);
  for (const auto& [call, why] : plan.skipped) fmt::print("skipped {}: {}\n", call, why);
  Table table({{"call"}, {"times", Align::right}, {"image"}, {"served by"}, {"regret of one", Align::right}});
  for (const auto& call : summary["calls"])
    table.row({call["call"], call["count"].dump(), call["image"].get<std::string>(),
               call["served_by"].is_null()          ? "nothing"
               : call["served_by"] == call["image"] ? "itself"
                                                    : call["served_by"].get<std::string>(),
               slowdown(call)});
  if (table.rows()) fmt::print("{}", table.text());
  const auto& total = summary["total"];
  const auto measured = total["measured_us"].get<double>(), regret = total["regret_us"].get<double>();
  fmt::print(
      "regret: {} of {} calls have their own image; {} another, in all {:.2f} us slower{}; {} another whose cost is unknown; {} none\n",
      total["with_their_image"].dump(), total["calls"].dump(), total["with_another"].dump(), regret,
      measured > 0 ? fmt::format(" of {:.2f} ({:+.2f}%)", measured, 100 * regret / measured) : "", total["with_another_unmeasured"].dump(),
      total["without_any"].dump());
  fmt::print("{}: {} images and the specs and templates, {} ({} images left out; selection: {})\n", out, summary["images"].size(),
             bytes_text(summary["bytes"].get<double>()), summary["left_out"].size(), summary["selection"].get<std::string>());
}

}  // namespace

int pack(std::span<const std::string> words) {
  Arguments arguments(
      "pack", "--used-by TRACE [--limit SIZE] [--out DIR] [options]",
      "Makes a pack (a store with specs and templates) of the images that the calls of a file use which EJKERNEL_OPS_RECORD wrote, each "
      "with\n"
      "the config that the call chooses. If they are larger than the limit, it keeps the set with the least regret: a call whose image is\n"
      "left out is served by the nearest one that is kept, and costs what tuning records measured for that, or an unknown amount.\n"
      "Exit code 1: some call is left without any image, cannot be placed, or its image could not be built.",
      "ejk pack --used-by calls.jsonl --out image/share/ejk/store\nejk pack --used-by calls.jsonl --limit 20MB --out pack --json");
  arguments.option("used-by", "TRACE", "recorded calls, JSON lines");
  arguments.option("limit", "SIZE", "of the whole pack, e.g. 20MB (default: none)");
  arguments.option("out", "DIR", "the pack (default: pack); one that ejk pack made before is replaced in one step");
  arguments.option("device", "DEVICE", "take every call as one of this device: cpu, cuda, cuda:1 (default: the device each was made on)");
  arguments.list("store", "DIR", "a store to look in first; may be given several times");
  arguments.option("jobs", "N", "compilers at a time (default: one a core)");
  arguments.flag("json", "the summary as JSON; it is also in DIR/pack.json");
  if (!arguments.parse(words)) return exit_done;
  if (!arguments.has("used-by")) throw UsageError("expected --used-by TRACE: a file that EJKERNEL_OPS_RECORD wrote");
  const auto limit = size_option(arguments, "limit");
  const auto jobs = static_cast<int>(arguments.integer("jobs", 0, 1, 4096));
  for (const auto& store : arguments.texts("store")) throw_if_error(add_store(store));
  const auto* machine = arguments.has("device") ? &device_of(arguments) : nullptr;

  auto plan = plan_pack(arguments.text("used-by"), machine);
  PackWriter writer(arguments.text("out", "pack"));
  const auto texts = writer.add_texts();
  if (limit && *limit < texts)
    throw UsageError(fmt::format("--limit: the specs and templates alone take {}, the limit is {}", bytes_text(static_cast<double>(texts)),
                                 bytes_text(static_cast<double>(*limit))));
  BuildProgress progress(stderr);
  store::BuildReport report;
  const auto bytes = writer.obtain(
      plan.images, jobs, [&](const store::BuildEvent& event) { progress(event); }, report);
  progress.finish();
  auto [portfolio, summary] = selected_with_summary(plan, bytes, texts, limit);
  for (std::size_t i = 0; i < plan.images.size(); ++i)
    if (portfolio.kept[i]) writer.add(plan.images[i]);
  writer.finish(text_of(summary));

  for (const auto& failure : report.failures)
    fmt::print(stderr, "failed {}\n", failure.substr(0, failure.find(':')));  // the progress showed the words
  if (arguments.has("json")) {
    summary["not_read"] = plan.faults;
    summary["skipped"] = ordered_json::array();
    for (const auto& [call, why] : plan.skipped) summary["skipped"].push_back({{"call", call}, {"why", why}});
    fmt::print("{}\n", summary.dump(2));
  } else {
    print_summary(summary, plan, arguments.text("out", "pack"));
  }
  const bool whole = plan.skipped.empty() && plan.faults.empty() && report.failed == 0 && summary["total"]["without_any"] == 0;
  return whole ? exit_done : exit_failed;
}

}  // namespace ejk::tools

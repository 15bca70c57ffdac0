// ejk warm: builds exactly the images that recorded calls, or the labels of a compiled program, will ask for.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/device_option.hpp"
#include "command_line/table.hpp"
#include "common/guard.hpp"
#include "store/build_progress.hpp"
#include "store/mirror.hpp"
#include "store/warm_plan.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

// The store to fill: the user's cache, or a folder that becomes a whole store, with the specs and templates in use.
store::Store destination(const Arguments& arguments) {
  const auto& places = Library::instance().parts().places;
  if (!arguments.has("store")) {
    if (!places.user)
      throw CodedError(ErrorCode::io, fmt::format("there is no user cache: {}; name a folder with --store", places.why_no_user));
    return *places.user;
  }
  const fs::path root = arguments.text("store");
  const auto& source = places.packs.front().root();
  std::error_code error;
  if (!fs::equivalent(source, root, error)) {
    mirror(source / "specs", root / "specs", {".json", ".jsonl"});
    mirror(source / "templates", root / "templates", {".cpp", ".cu", ".hip", ".h"});
  }
  return store::Store(root, true);
}

// Takes out what a call would find in a pack without looking in the user's cache for more.
std::size_t take_out_packed(std::vector<store::BuildItem>& items) {
  const auto& packs = Library::instance().parts().places.packs;
  return std::erase_if(items, [&](const auto& item) {
    const auto* backend = backend_of(item.arch->platform);
    return std::any_of(packs.begin(), packs.end(), [&](const auto& pack) {
      return pack.find(item.image, backend->source_extension(), backend->binary_extension()).verdict == store::Verdict::hit;
    });
  });
}

void print_summary(const WarmPlan& plan, const store::BuildReport& report, const fs::path& root) {
  for (const auto& fault : plan.faults) fmt::print("not read: {}\n", fault);
  for (const auto& [call, why] : plan.skipped) fmt::print("skipped {}: {}\n", call, why);
  for (const auto& failure : report.failures)
    fmt::print("failed {}\n", failure.substr(0, failure.find(':')));  // the progress showed the words
  fmt::print("{}: {} calls need {} images: {} built, {} already there, {} failed, in {}\n", root.string(), plan.calls,
             report.built + report.present + report.failed + report.skipped, report.built, report.present, report.failed,
             seconds_text(report.seconds));
}

ordered_json summary_json(const WarmPlan& plan, const store::BuildReport& report, const fs::path& root) {
  auto skipped = ordered_json::array();
  for (const auto& [call, why] : plan.skipped) skipped.push_back({{"call", call}, {"why", why}});
  return {{"store", root.string()},    {"calls", plan.calls},       {"built", report.built},
          {"present", report.present}, {"failed", report.failed},   {"skipped", skipped},
          {"not_read", plan.faults},   {"seconds", report.seconds}, {"failures", report.failures}};
}

// One line a call, in the order of the file, so that calls can be told apart that differ in sizes alone.
int list(const WarmPlan& plan) {
  for (const auto& found : plan.found)
    fmt::print("{}\n",
               ordered_json{{"kernel", found.kernel}, {"device", found.device}, {"image", found.image}, {"hash", found.hash}}.dump());
  for (const auto& fault : plan.faults) fmt::print(stderr, "not read: {}\n", fault);
  for (const auto& [call, why] : plan.skipped) fmt::print(stderr, "skipped {}: {}\n", call, why);
  return plan.faults.empty() && plan.skipped.empty() ? exit_done : exit_failed;
}

}  // namespace

int warm(std::span<const std::string> words) {
  Arguments arguments(
      "warm", "--trace FILE | --hlo FILE [--trace FILE] [--store DIR] [--device DEVICE] [options]",
      "Builds exactly the images that calls will ask for, in parallel: the calls of a file that EJKERNEL_OPS_RECORD wrote, or those whose\n"
      "labels stand in the HLO or StableHLO text of a compiled program. Configs are chosen as the calls choose them. A call of a device\n"
      "that is not here is built for the archs that were recorded with it, if there is a compiler for them.",
      "EJKERNEL_OPS_RECORD=calls.jsonl ./serve --one-step   # once, anywhere\n"
      "ejk warm --trace calls.jsonl                         # on every machine, before the first request\n"
      "ejk warm --trace calls.jsonl --store image/share/ejk/store\n"
      "ejk warm --hlo step.hlo.txt --trace calls.jsonl      # hashes of labels are looked up in the trace");
  arguments.option("trace", "FILE", "recorded calls; with --hlo: where the hashes of its labels are looked up");
  arguments.option("hlo", "FILE", "text of a compiled program with labels in it");
  arguments.option("store", "DIR", "the store to fill (default: the user's cache)");
  arguments.option("device", "DEVICE", "take every call as one of this device: cpu, cuda, cuda:1 (default: the device each was made on)");
  arguments.option("jobs", "N", "compilers at a time (default: one a core)");
  arguments.flag("list", "build nothing; print a JSON line for each call: its kernel, its device, its image and that one's hash");
  arguments.flag("json", "the summary as JSON");
  if (!arguments.parse(words)) return exit_done;
  if (!arguments.has("trace") && !arguments.has("hlo")) throw UsageError("expected --trace FILE or --hlo FILE");
  const auto jobs = static_cast<int>(arguments.integer("jobs", 0, 1, 4096));
  const auto* machine = arguments.has("device") ? &device_of(arguments) : nullptr;

  auto plan = plan_to_warm(arguments.text("trace"), arguments.text("hlo"), machine, !arguments.has("list"));
  if (arguments.has("list")) return list(plan);
  const auto store = destination(arguments);
  const auto packed = arguments.has("store") ? 0 : take_out_packed(plan.items);
  BuildProgress progress(stderr);
  auto report = store::build(store, plan.items, jobs, [&](const store::BuildEvent& event) { progress(event); });
  progress.finish();
  report.present += packed;
  if (arguments.has("json"))
    fmt::print("{}\n", summary_json(plan, report, store.root()).dump(2));
  else
    print_summary(plan, report, store.root());
  const bool nothing = plan.calls == 0 && !(plan.skipped.empty() && plan.faults.empty());  // a script must not take that for done
  return report.failed || nothing ? exit_failed : exit_done;
}

}  // namespace ejk::tools

// ejk build: compiles the rendered sources into a store and puts the specs and templates beside them.
#include "store/build.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/table.hpp"
#include "sample/cover.hpp"
#include "store/build_fatbins.hpp"
#include "store/build_progress.hpp"
#include "store/manifest.hpp"
#include "store/mirror.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

fs::path default_store() { return fs::canonical("/proc/self/exe").parent_path().parent_path() / "store"; }

// What no compiler here can do, by arch: count and reason.
struct Skipped {
  std::size_t images = 0;
  std::string why;
};
using SkippedArchs = std::map<std::string, Skipped>;

// Takes the items out that cannot be compiled here; one question an arch.
SkippedArchs take_out_impossible(std::vector<store::BuildItem>& items) {
  SkippedArchs skipped;
  std::set<std::string> possible;
  for (const auto& item : items) {
    const auto name = item.arch->full_name();
    if (possible.contains(name)) continue;
    std::string why;
    auto* backend = backend_of(item.arch->platform);
    if (!backend) why = fmt::format("this build of ejk has no {} backend", item.arch->platform);
    if (backend && backend->can_compile(*item.arch, why))
      possible.insert(name);
    else
      skipped[name] = {skipped[name].images + 1, why};
  }
  std::erase_if(items, [&](const auto& item) { return !possible.contains(item.arch->full_name()); });
  return skipped;
}

// For tools that name lines of a source (compute-sanitizer, profilers): the code stays as it is, so do id and hash.
void ask_for_lines(std::vector<store::BuildItem>& items) {
  static const std::map<std::string, std::string> flags = {{"cuda", "--generate-line-info"}, {"hip", "-gline-tables-only"}, {"cpu", "-g1"}};
  for (auto& item : items)
    if (const auto flag = flags.find(item.arch->platform); flag != flags.end()) item.image.flags.push_back(flag->second);
}

// Takes out what another arch serves better: images of an arch that another one, of an image of the same variant, extends.
void keep_best_archs(std::vector<store::BuildItem>& items) {
  std::map<std::string, std::set<std::string>> extended;  // by kernel and variant: names of archs
  const auto variant = [](const store::BuildItem& item) {
    return item.image.kernel + '.' + item.image.variant + ' ' + item.arch->platform;
  };
  for (const auto& item : items) extended[variant(item)].insert(item.arch->ancestors.begin(), item.arch->ancestors.end());
  std::erase_if(items, [&](const auto& item) { return extended[variant(item)].contains(item.arch->name); });
}

// Keeps a covering sample of what can be compiled here, or for a first look one image of every variant, of its best archs; says so before
// the long part.
void keep_sample(std::vector<store::BuildItem>& items, std::optional<std::uint64_t> cover, bool quiet) {
  std::vector<CoverItem> covered;
  const auto all = items.size();
  if (!cover) keep_best_archs(items);
  for (const auto& [image, arch] : items) {
    if (cover)
      covered.push_back(cover_item(image.id, image.kernel, image.variant, image.arch, image.specialisation, image.config, *cover));
    else
      covered.push_back(brief_item(image.id, image.kernel, image.variant, image.arch));
  }
  std::vector<store::BuildItem> sample;
  for (const auto i : covering_sample(covered, cover.value_or(1))) sample.push_back(std::move(items[i]));
  const auto count = fmt::format("{} of {} images", sample.size(), all);
  if (!quiet && cover) fmt::print("a covering sample, {} (--cover {})\n", count, *cover);
  if (!quiet && !cover) fmt::print("one of every variant, {} (--brief)\n", count);
  std::fflush(stdout);
  items = std::move(sample);
}

void print_summary(const store::BuildReport& report, const SkippedArchs& skipped, const fs::path& root) {
  for (const auto& failure : report.failures)
    fmt::print("failed {}\n", failure.substr(0, failure.find(':')));  // the progress showed the words
  for (const auto& [arch, entry] : skipped) fmt::print("skipped {} ({} images): {}\n", arch, entry.images, entry.why);
  fmt::print("{}: {} built, {} already there, {} failed", root.string(), report.built, report.present, report.failed);
  if (report.copied) fmt::print(", {} copied from earlier builds", report.copied);
  if (report.skipped) fmt::print(", {} skipped", report.skipped);
  fmt::print(", in {}\n", seconds_text(report.seconds));
}

ordered_json summary_json(const store::BuildReport& report, const SkippedArchs& skipped, const fs::path& root) {
  auto archs = ordered_json::object();
  for (const auto& [arch, entry] : skipped) archs[arch] = {{"images", entry.images}, {"why", entry.why}};
  return {{"store", root.string()},     {"built", report.built},     {"copied", report.copied},           {"present", report.present},
          {"failed", report.failed},    {"skipped", report.skipped}, {"skipped_archs", std::move(archs)}, {"seconds", report.seconds},
          {"failures", report.failures}};
}

}  // namespace

int build(std::span<const std::string> words) {
  Arguments arguments(
      "build", "[GENERATED] [--store DIR] [--jobs N] [options]",
      "Compiles every source that ejk-gen rendered into a store, in parallel, and copies the specs and templates beside the binaries.\n"
      "What is there already is kept; it may be killed and started again at any moment.",
      "ejk build\nejk build generated --store build/release/store --jobs 4\nejk build --select 'flash_attention.*avx512*'\n"
      "ejk build --cover 20260131  # about one image in ten\n"
      "ejk build --other-than before.lock  # after: git show main:generated/kernels.lock > before.lock");
  arguments.word("GENERATED", false);
  arguments.option("store", "DIR", "the store to fill (default: ../store beside ejk)");
  arguments.option("jobs", "N", "compilers at a time (default: one a core)");
  arguments.option("select", "GLOB", "only images whose id matches");
  arguments.option("other-than", "LOCK",
                   "only images that this kernels.lock does not have, or has with another hash: all that a change of specs and templates "
                   "added, before it is handed in");
  arguments.option(
      "cover", "SEED",
      "only a sample of these images: every kernel, variant and arch (a variant on half of a GPU platform's archs), and of each variant "
      "every value of a specialisation, an eighth of every two of them, and every config value is met in it; another seed draws others: "
      "two in turn have every variant on every arch, eight every two values");
  arguments.flag("brief", "only one of these images for every variant, of the most specific of its archs: a first look");
  arguments.option(
      "earlier", "DIR",
      "a store of earlier builds: what it has of the same source by the same compiler is copied, what is compiled is added to it");
  arguments.option("specs", "DIR", "the specs, copied into the store (default: specs)");
  arguments.option("templates", "DIR", "the templates, copied into the store (default: templates)");
  arguments.flag("lines", "with tables of source lines for debuggers and sanitizers: into a store of its own, since ids stay the same");
  arguments.flag("fatbin", "also write a fatbin for each CUDA image, all archs in one, into the folder <store>.fatbin");
  arguments.flag("json", "the summary as JSON");
  if (!arguments.parse(words)) return exit_done;
  const fs::path root = arguments.has("store") ? fs::path(arguments.text("store")) : default_store();
  const fs::path specs = arguments.text("specs", "specs"), templates = arguments.text("templates", "templates");
  for (const auto& [name, folder] : {std::pair{"specs", specs}, {"templates", templates}})
    if (!fs::is_directory(folder))
      throw UsageError(fmt::format("no folder '{}': run where it is, or name it with --{}", folder.string(), name));
  if (arguments.has("cover") && arguments.has("brief")) throw UsageError("--cover and --brief are two samples; give one of them");
  const auto jobs = static_cast<int>(arguments.integer("jobs", 0, 1, 4096));

  const auto catalogue = spec::Catalogue::open(specs, templates);
  auto items = read_manifest(arguments.text("GENERATED", "generated"), catalogue, arguments.text("select", "*"));
  if (arguments.has("other-than")) keep_other_than(items, arguments.text("other-than"));
  const auto skipped = take_out_impossible(items);
  if (arguments.has("cover"))
    keep_sample(items, static_cast<std::uint64_t>(arguments.integer("cover", 0, 0, INT64_MAX)), arguments.has("json"));
  else if (arguments.has("brief"))
    keep_sample(items, std::nullopt, arguments.has("json"));
  if (arguments.has("lines") && arguments.has("earlier"))
    throw UsageError("--lines builds other binaries of the same ids: it goes without --earlier");
  if (arguments.has("lines")) ask_for_lines(items);
  mirror(specs, root / "specs", {".json", ".jsonl"});
  mirror(templates, root / "templates", {".cpp", ".cu", ".hip", ".h"});
  BuildProgress progress(stderr);
  std::optional<store::Store> earlier;
  if (arguments.has("earlier")) earlier.emplace(arguments.text("earlier"), true);
  const auto report = store::build(
      store::Store(root, true), items, jobs, [&](const store::BuildEvent& event) { progress(event); }, earlier ? &*earlier : nullptr);
  progress.finish();
  auto summary = summary_json(report, skipped, root);
  if (arguments.has("cover")) summary["cover"] = arguments.integer("cover", 0, 0, INT64_MAX);
  if (!arguments.has("json")) print_summary(report, skipped, root);
  if (arguments.has("fatbin")) {
    const auto fatbins = write_fatbins(store::Store(root, false), items);
    summary["fatbins"] = {{"folder", fatbins.folder.string()}, {"written", fatbins.written}, {"images_without", fatbins.without}};
    if (!arguments.has("json"))
      fmt::print("{}: {} fatbins, {} CUDA images are in none\n", fatbins.folder.string(), fatbins.written, fatbins.without);
  }
  if (arguments.has("json")) fmt::print("{}\n", summary.dump(2));
  return report.failed ? exit_failed : exit_done;
}

}  // namespace ejk::tools

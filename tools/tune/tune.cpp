// ejk tune: measures the configs of a kernel's calls and records the best.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "command_line/command.hpp"
#include "command_line/command_line.hpp"
#include "command_line/device_option.hpp"
#include "command_line/library_options.hpp"
#include "common/guard.hpp"
#include "ejk/records.hpp"
#include "tune/stale.hpp"
#include "tune/tune_run.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

void save(const std::string& option, const std::string& path, const std::string& text) {
  std::error_code error;
  if (const auto folder = fs::path(path).parent_path(); !folder.empty()) fs::create_directories(folder, error);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw UsageError(fmt::format("--{}: {} cannot be written", option, path));
}

// "60s", "2m", "90"
double budget_of(const std::string& text) {
  std::size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const auto unit = text.substr(end);
  if (end == 0 || !(number > 0) || !(unit.empty() || unit == "s" || unit == "m" || unit == "h"))
    throw UsageError(fmt::format("--budget: expected a time such as 60s, 10m or 2h; found '{}'", text));
  return number * (unit == "m" ? 60 : unit == "h" ? 3600 : 1);
}

// Rows of earlier runs stay unless this one has the key again; sorted by key, so that the same records are the same bytes.
void merge_into(const std::string& file, const std::vector<TuningRecord>& records) {
  std::map<std::string, TuningRecord> rows;
  if (const auto before = read_records(file))
    for (const auto& row : before->rows) rows.insert_or_assign(row.record.key, row.record);
  for (const auto& record : records) rows.insert_or_assign(record.key, record);
  std::vector<TuningRecord> sorted;
  for (auto& [key, record] : rows) sorted.push_back(std::move(record));
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  throw_if_error(write_records(file, sorted));
}

// Where records go as they come: --ship, --out, or the user's own.
class RecordsOut {
 public:
  explicit RecordsOut(const Arguments& arguments) : ship_(arguments.text("ship")), out_(arguments.text("out")) {
    if (arguments.has("ship") && arguments.has("out")) throw UsageError("give either --ship or --out");
  }
  void operator()(const TuningRecord& record) {
    if (ship_.empty() && out_.empty()) return throw_if_error(Library::instance().parts().chain->persistent().append(record));
    if (!ship_.empty()) {
      auto file = records_file(ship_, record.key);
      if (!file) throw CodedError(file.error().code, file.error().message);
      return merge_into(*file, {record});
    }
    merge_into(out_, {record});
  }

 private:
  std::string ship_, out_;
};

fs::path state_file(const Arguments& arguments, const Machine& machine) {
  if (arguments.has("state")) return fs::absolute(arguments.text("state"));
  const auto& places = Library::instance().parts().places;
  if (!places.user)
    throw UsageError(fmt::format("--state FILE is needed: there is no user cache to keep the run's state in ({})", places.why_no_user));
  const auto kernel = arguments.has("KERNEL") ? arguments.text("KERNEL") : "recorded";
  return places.user->root() / "tune" / machine.probe.fingerprint / (kernel + ".state.jsonl");
}

std::vector<CallToTune> stale_calls(const Arguments& arguments, const Machine& machine, int jobs) {
  if (arguments.has("case")) throw UsageError("--case is of no use with --stale");
  return calls_of_stale_records(arguments.has("KERNEL") ? kernel_named(arguments.text("KERNEL")).name : "", machine, jobs);
}

std::vector<CallToTune> calls_of(const Arguments& arguments, const Machine& machine, const TuneRequest& request) {
  if (arguments.has("recorded")) {
    if (arguments.has("stale")) throw UsageError("give either --recorded or --stale");
    if (arguments.has("case")) throw UsageError("--case is of no use with --recorded");
    const auto name = arguments.has("KERNEL") ? kernel_named(arguments.text("KERNEL")).name : "";
    auto calls = calls_of_recording(arguments.text("recorded"), name, machine);
    if (calls.empty())
      throw UsageError(fmt::format("--recorded: {} has no call of {}{}", arguments.text("recorded"), machine.probe.fingerprint,
                                   name.empty() ? "" : " and " + name));
    return calls;
  }
  if (arguments.has("stale")) return stale_calls(arguments, machine, request.jobs);
  if (!arguments.has("KERNEL")) throw UsageError("give a KERNEL, --recorded FILE or --stale");
  const auto& kernel = kernel_named(arguments.text("KERNEL"));
  return calls_of_cases(kernel, cases_matching(*kernel.spec, arguments.text("case", "*")), machine, request.seed);
}

void add_options(Arguments& arguments) {
  arguments.word("KERNEL", false);
  arguments.option("case", "GLOB", "cases by name (default: all)");
  arguments.option("recorded", "FILE", "the calls of a recording (EJKERNEL_OPS_RECORD) in place of the spec's cases");
  arguments.flag("stale",
                 "the calls of this device's records that are passed over (`ejk records ls --stale`), of KERNEL if one is named; what an "
                 "edit left at the machine code that was measured is not measured again");
  add_device_option(arguments);
  arguments.option("budget", "TIME", "for the whole run, shared out over the calls, the smallest first: 60s, 10m, 2h (default 60s)");
  arguments.flag("resume", "go on with a run that was stopped: what it measured is not measured again");
  arguments.option("out", "FILE",
                   "write the records there; rows of other calls in it stay (default: your own records, below the user cache)");
  arguments.option("ship", "DIR", "write the records to DIR/<device>/<kernel>.jsonl, to be shipped as specs/tuned");
  arguments.option("report", "FILE", "also write a page with plots (HTML)");
  arguments.option("save", "FILE", "also write the table tuned against heuristic (Markdown)");
  arguments.option("state", "FILE", "where the run's state is kept while it lasts (default: below the user cache)");
  arguments.option("jobs", "N", "compilers at a time (default: one a core)");
  arguments.option("step", "S", "most seconds for one check or sample of a config; what takes longer hangs (default 10)");
  arguments.flag("no-cost-model", "also try configs that by their launches can fill far less of the machine than others");
  arguments.option("seed", "S", "seed of the random data (default 1)");
  add_library_options(arguments);
  arguments.flag("json", "as JSON, with every sample");
}

}  // namespace

int tune(std::span<const std::string> words) {
  Arguments arguments(
      "tune", "KERNEL [--case GLOB] | --recorded FILE | [KERNEL] --stale [options]",
      "Measures the configs that are valid for each call, beside the one that the heuristic chooses, and records the best, with its\n"
      "evidence. Each result is checked first. Configs run in another process: one that faults, hangs or is wrong is told and left out.",
      "ejk tune mean_pooling --budget 5m\n"
      "ejk tune flash_attention --case 'llama*' --device cuda --report tuned.html\n"
      "ejk tune --recorded calls.jsonl --budget 30m --resume\n"
      "ejk tune --stale --budget 10m --ship specs/tuned");
  add_options(arguments);
  if (!arguments.parse(words)) return exit_done;
  const double budget = budget_of(arguments.text("budget", "60s"));
  apply_library_options(arguments);
  const auto& machine = device_of(arguments);
  TuneRequest request;
  request.machine = &machine;
  request.budget = budget;
  request.step_seconds = arguments.number("step", 10, 0.1, 3600);
  request.jobs = static_cast<int>(arguments.integer("jobs", 0, 0, 4096));
  request.seed = static_cast<std::uint64_t>(arguments.integer("seed", 1, 0, INT64_MAX));
  request.cost_model = !arguments.has("no-cost-model");
  request.calls = calls_of(arguments, machine, request);
  if (request.calls.empty()) {  // of --stale alone
    fmt::print("{}\n", arguments.has("json") ? "{\"cases\": []}" : "no record of " + machine.probe.fingerprint + " is stale");
    return exit_done;
  }
  RecordsOut records(arguments);
  TuneState state(state_file(arguments, machine), arguments.has("resume"));
  TuneReport report{arguments.text("KERNEL", "recorded calls"),
                    command_line("tune", words),
                    date_today(),
                    machine.probe.fingerprint,
                    budget,
                    0,
                    0,
                    0,
                    {}};
  {
    TuneProgress progress(stderr, isatty(STDERR_FILENO) == 1, request.calls.size(), budget);
    if (const auto configs = state.configs()) progress.line(fmt::format("{} configs are known from the run before", configs));
    tune_calls(request, state, progress, std::ref(records), report);
  }
  if (arguments.has("report")) save("report", arguments.text("report"), html(report));
  if (arguments.has("save")) save("save", arguments.text("save"), markdown(report));
  if (arguments.has("json"))
    fmt::print("{}\n", to_json(report).dump(2));
  else
    fmt::print("{}", terminal_text(report));
  const bool complete =
      std::all_of(report.cases.begin(), report.cases.end(), [](const auto& one) { return one.error.empty() || one.no_choice; });
  if (complete) state.remove();
  return complete ? exit_done : exit_failed;
}

}  // namespace ejk::tools

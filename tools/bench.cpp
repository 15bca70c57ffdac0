// ejk bench: times a kernel's cases in turn, beside this machine's peaks and, if asked, OpenBLAS.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/cpu_features.hpp"
#include "bench_report.hpp"
#include "command.hpp"
#include "library_options.hpp"
#include "openblas.hpp"
#include "store/store.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr double most_bytes_at_a_time = 4e9;

struct Plan {
  const KernelHandle* kernel = nullptr;
  std::vector<const spec::Case*> cases;
  std::vector<std::int64_t> threads;
  std::string config;
  Memory memory = Memory::automatic;
  double seconds = 1;
  std::uint64_t seed = 1;
  std::unique_ptr<OpenBlas> openblas;
};

void show_progress(const std::string& text) {
  static const bool terminal = isatty(STDERR_FILENO);
  if (terminal) fmt::print(stderr, "\r\033[K{}", text);
}

// As typed, without what tells of this machine's folders.
std::string command_line(std::span<const std::string> words) {
  std::string text = "ejk bench";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    const bool place = word.starts_with("--store") || word.starts_with("--openblas") || word.starts_with("--save");
    if (place) {
      i += word.find('=') == std::string::npos;
      continue;
    }
    text += word.find_first_of(" *?'\"{}$&|<>;()") == std::string::npos ? " " + word : " '" + word + "'";
  }
  return text;
}

std::string compiler_of(const ordered_json& image) {
  std::ifstream file(fs::path(image["from"].get<std::string>()) / "image.json");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  try {
    return file ? store::parse_image_info(text).compiler : "compiled in memory";
  } catch (const std::runtime_error&) {
    return "unknown compiler";
  }
}

std::string tier_of(const ordered_json& told) {
  if (told["image"]["fallback"].get<bool>()) return "fallback";
  for (const auto& tier : told["tiers"])
    if (tier["answer"] == "chosen") return tier["tier"].get<std::string>();
  return "none";
}

BenchRow row_of(const BenchSubject& subject, int threads) {
  BenchRow row;
  row.name = subject.name();
  row.threads = threads;
  row.memory = subject.cold() ? fmt::format("cold ({} copies)", subject.copies()) : "warm";
  row.told = subject.told();
  row.tier = tier_of(row.told);
  row.compiler = compiler_of(row.told["image"]);
  row.cost = subject.cost();
  row.bytes = subject.bytes();
  row.samples = subject.timed().samples;
  return row;
}

// Cases that are timed in turn: as many as fit into memory together.
using Group = std::vector<const spec::Case*>;
std::vector<Group> groups_of(const Plan& plan) {
  std::vector<Group> groups;
  double bytes = most_bytes_at_a_time;
  for (const auto* c : plan.cases) {
    const double more = memory_of(*plan.kernel->spec, *c);
    if (groups.empty() || bytes + more > most_bytes_at_a_time) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(c);
    bytes += more;
  }
  return groups;
}

// A subject must not share its cores with OpenBLAS's waiting threads.
void let_rest(Timed& timed, const OpenBlas& openblas) {
  timed.prepare = [&openblas, before = timed.prepare] {
    openblas.rest();
    if (before) before();
  };
}

std::vector<BenchRow> measure_group(Plan& plan, const Group& group, Timed* sgemm, const Peaks& peaks) {
  std::vector<std::unique_ptr<BenchSubject>> subjects;
  std::vector<Timed*> timed;
  for (const auto* c : group) {
    show_progress(fmt::format("{} threads: data for {}", peaks.threads, c->name));
    subjects.push_back(std::make_unique<BenchSubject>(*plan.kernel, *c, plan.config, plan.memory, peaks, plan.seed));
    timed.push_back(&subjects.back()->timed());
    if (sgemm) let_rest(*timed.back(), *plan.openblas);
  }
  if (sgemm) timed.push_back(sgemm);
  measure(timed, plan.seconds, [&](int round) {
    show_progress(fmt::format("{} threads: {} and {} more, round {}", peaks.threads, group.front()->name, group.size() - 1, round + 1));
  });
  std::vector<BenchRow> rows;
  for (const auto& subject : subjects) rows.push_back(row_of(*subject, peaks.threads));
  return rows;
}

// All cases at one thread count, in turn with sgemm.
void measure_threads(Plan& plan, int threads, BenchReport& report) {
  throw_if_error(set_threads(threads));
  show_progress(fmt::format("{} threads: peaks of this machine", threads));
  BenchMachine machine{measure_peaks(threads), {}, 0};
  Timed sgemm;
  if (plan.openblas) {
    plan.openblas->set_threads(threads);
    sgemm.run = [&] { plan.openblas->sgemm(); };
  }
  const auto first = report.rows.size();
  for (const auto& group : groups_of(plan))
    for (auto& row : measure_group(plan, group, plan.openblas ? &sgemm : nullptr, machine.peaks)) report.rows.push_back(std::move(row));
  machine.peaks = best_of(machine.peaks, measure_peaks(threads));
  machine.sgemm_samples = sgemm.samples;
  if (!sgemm.samples.empty()) machine.sgemm_flops = OpenBlas::flops / median(sgemm.samples);
  for (auto i = first; i < report.rows.size(); ++i) {
    auto& row = report.rows[i];
    row.result = result_of(row.samples, row.cost.flops, row.bytes, machine.peaks);
    if (machine.sgemm_flops > 0) row.of_sgemm = row.result.flops / machine.sgemm_flops;
  }
  report.machines.push_back(std::move(machine));
  show_progress("");
}

Plan plan_of(const Arguments& arguments) {
  Plan plan;
  plan.config = config_override(arguments);
  plan.memory = memory_named(arguments.text("memory", "auto"));
  plan.seconds = arguments.number("seconds", 1, 0.001, 3600);
  plan.seed = static_cast<std::uint64_t>(arguments.integer("seed", 1, 0, INT64_MAX));
  if (arguments.has("threads")) plan.threads = integer_list("threads", arguments.text("threads"), 1, 4096);
  if (arguments.has("against") && arguments.text("against") != "sgemm")
    throw UsageError(fmt::format("--against: expected sgemm, found '{}'", arguments.text("against")));
  for (const auto& store : arguments.texts("store")) throw_if_error(add_store(store));
  Library::instance().parts();
  if (plan.threads.empty()) plan.threads.push_back(cpu_threads());
  plan.kernel = &kernel_named(arguments.text("KERNEL"));
  plan.cases = cases_matching(*plan.kernel->spec, arguments.text("case", "*"));
  if (arguments.has("against")) plan.openblas = std::make_unique<OpenBlas>(arguments.text("openblas"));
  return plan;
}

void save(const std::string& path, const std::string& text) {
  if (const auto folder = fs::path(path).parent_path(); !folder.empty()) fs::create_directories(folder);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw UsageError(fmt::format("--save: {} cannot be written", path));
}

}  // namespace

int bench(std::span<const std::string> words) {
  Arguments arguments(
      "bench", "KERNEL [--case GLOB] [options]",
      "Times cases in turn, round by round, on random contiguous data, and sets the medians beside this machine's peaks, measured in the\n"
      "same run. Results are not checked here: `ejk verify` does that.",
      "ejk bench mean_pooling --case 'bert*'\n"
      "ejk bench flash_attention --case 'opt2048*' --threads 1,2 --against sgemm --save docs/bench/flash_attention.md");
  arguments.word("KERNEL", true);
  arguments.option("case", "GLOB", "cases by name (default: all)");
  add_config_options(arguments);
  arguments.option("threads", "LIST", "thread counts, separated by ',' (default: as many as the process may use)");
  arguments.option("seconds", "S", "time spent on each case and thread count (default 1)");
  arguments.option("memory", "HOW",
                   "cold: inputs come from memory; warm: from the caches where they fit; auto: cold if memory-bound (default auto)");
  arguments.option("against", "WHAT", "sgemm: OpenBLAS's, n=2048, with the same threads, in the same rounds");
  arguments.option("openblas", "PATH", "the OpenBLAS to load (default libopenblas.so.0)");
  arguments.option("save", "FILE", "also write a Markdown page with the command, the machine and the table");
  arguments.option("seed", "S", "seed of the random data (default 1)");
  arguments.list("store", "DIR", "a store to look in first; may be given several times");
  arguments.flag("json", "as JSON, with every sample");
  if (!arguments.parse(words)) return exit_done;
  auto plan = plan_of(arguments);
  const std::time_t now = std::time(nullptr);
  BenchReport report{plan.kernel->name, command_line(words), fmt::format("{:%Y-%m-%d}", fmt::gmtime(now)), cpu_model(), "", {}, {}};
  if (plan.openblas) report.openblas = plan.openblas->description();
  for (const auto threads : plan.threads) measure_threads(plan, static_cast<int>(threads), report);
  if (arguments.has("save")) save(arguments.text("save"), markdown(report));
  if (arguments.has("json"))
    fmt::print("{}\n", to_json(report).dump(2));
  else
    fmt::print("{}", terminal_text(report));
  return exit_done;
}

}  // namespace ejk::tools

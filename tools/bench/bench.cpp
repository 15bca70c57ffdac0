// ejk bench: times a kernel's cases on the CPU or a device, beside its peaks and, if asked, OpenBLAS or other libraries.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "backends/cpu/cpu_features.hpp"
#include "bench/bench_cpu.hpp"
#include "bench/bench_device.hpp"
#include "bench/case_settings.hpp"
#include "command_line/command.hpp"
#include "command_line/command_line.hpp"
#include "command_line/device_option.hpp"
#include "command_line/library_options.hpp"

namespace ejk::tools {
namespace {

namespace fs = std::filesystem;

void save_text(const std::string& path, const std::string& text) {
  if (const auto folder = fs::path(path).parent_path(); !folder.empty()) fs::create_directories(folder);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw UsageError(fmt::format("--save: {} cannot be written", path));
}

// Cases that match globs, separated by ',', each once, with settings of --set.
std::vector<BenchCase> cases_named(const KernelHandle& kernel, const std::string& globs, const std::vector<std::string>& settings) {
  std::vector<const spec::Case*> named;
  for (const auto& pattern : words_of_list(globs))
    for (const auto* c : cases_matching(*kernel.spec, pattern))
      if (std::find(named.begin(), named.end(), c) == named.end()) named.push_back(c);
  if (named.empty()) throw UsageError("--case: names no case");
  std::vector<BenchCase> cases;
  for (auto& c : cases_with(*kernel.spec, named, case_settings(*kernel.spec, settings))) {
    auto name = c.name;
    cases.push_back({&kernel, std::make_shared<const spec::Case>(std::move(c)), std::move(name), ""});
  }
  return cases;
}

// Of KERNEL:GLOBS or KERNEL:GLOBS:NAME=VALUE,...
std::vector<BenchCase> cases_beside(const std::string& text) {
  const auto kernel_end = text.find(':');
  if (kernel_end == std::string::npos) throw UsageError("expected KERNEL:GLOBS or KERNEL:GLOBS:NAME=VALUE,...");
  const auto& kernel = kernel_named(text.substr(0, kernel_end));
  const auto rest = text.substr(kernel_end + 1);
  const auto globs_end = rest.find(':');
  std::vector<std::string> settings;
  if (globs_end != std::string::npos) settings.push_back(rest.substr(globs_end + 1));
  auto cases = cases_named(kernel, rest.substr(0, globs_end), settings);
  for (auto& c : cases) c.name = kernel.name + " " + c.name;
  return cases;
}

void add_beside(BenchRequest& request, const std::string& text) {
  try {
    for (auto& c : cases_beside(text)) request.beside.push_back(std::move(c));
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("--beside {}: {}", text, e.what()));
  }
}

BenchRequest request_of(const Arguments& arguments) {
  BenchRequest request;
  request.kernel = &kernel_named(arguments.text("KERNEL"));
  request.cases = cases_named(*request.kernel, arguments.text("case", "*"), arguments.texts("set"));
  for (auto& c : request.cases) c.config = config_override(arguments);
  for (const auto& text : arguments.texts("beside")) add_beside(request, text);
  request.memory = memory_named(arguments.text("memory", "auto"));
  request.seconds = arguments.number("seconds", 1, 0.001, 3600);
  request.check = arguments.has("check");
  request.seed = static_cast<std::uint64_t>(arguments.integer("seed", 1, 0, INT64_MAX));
  return request;
}

// Options of the other side are refused rather than passed over.
void check_options(const Arguments& arguments, bool on_cpu) {
  const std::vector<std::string> others =
      on_cpu ? std::vector<std::string>{"python"} : std::vector<std::string>{"threads", "openblas", "align"};
  for (const auto& name : others)
    if (arguments.has(name)) throw UsageError(fmt::format("--{} is of no use with --device {}", name, arguments.text("device", "cpu")));
  const auto libraries = peer_libraries();
  for (const auto& against : words_of_list(arguments.text("against"))) {
    const bool library = std::find(libraries.begin(), libraries.end(), against) != libraries.end();
    if (!library && against != "sgemm")
      throw UsageError(fmt::format("--against: expected sgemm, or of {}, found '{}'", fmt::join(libraries, " and "), against));
    if (on_cpu && library) throw UsageError(fmt::format("--against {} needs a device: --device cuda", against));
    if (!on_cpu && !library) throw UsageError("--against sgemm is for the CPU; a device is compared with torch");
  }
}

template <class Report>
void save(const Arguments& arguments, const Report& report) {
  for (const auto& path : arguments.texts("save"))
    save_text(path, path.ends_with(".json") ? to_json(report).dump(2) + "\n" : markdown(report));
}

// The exit code.
template <class Report>
int give(const Arguments& arguments, const Report& report) {
  save(arguments, report);
  if (arguments.has("json"))
    fmt::print("{}\n", to_json(report).dump(2));
  else
    fmt::print("{}", terminal_text(report));
  const auto failed = [](const auto& row) { return row.check && row.check->failed(); };
  return std::any_of(report.rows.begin(), report.rows.end(), failed) ? exit_failed : exit_done;
}

// Those that callers have: of their own allocators, and of NumPy's, which gives 16 bytes.
std::vector<int> alignments_of(const Arguments& arguments) {
  if (!arguments.has("align")) return {64, 16};
  std::vector<int> alignments;
  for (const auto bytes : integer_list("align", arguments.text("align"), 1, 64)) {
    if ((bytes & (bytes - 1)) != 0) throw UsageError(fmt::format("--align: expected powers of two from 1 to 64, found {}", bytes));
    alignments.push_back(static_cast<int>(bytes));
  }
  return alignments;
}

int bench_cpu(const Arguments& arguments, const std::string& command, const std::string& date) {
  CpuBench plan{request_of(arguments), {}, {}, nullptr};
  if (arguments.has("threads")) plan.threads = integer_list("threads", arguments.text("threads"), 1, 4096);
  if (plan.threads.empty()) plan.threads.push_back(cpu_threads());
  plan.alignments = alignments_of(arguments);
  BenchReport report{plan.kernel->name, command, date, cpu_model(), "", {}, {}};
  if (arguments.has("against")) {
    plan.openblas = std::make_unique<OpenBlas>(arguments.text("openblas"));
    report.openblas = plan.openblas->description();
  }
  for (const auto threads : plan.threads) measure_threads(plan, static_cast<int>(threads), report);
  return give(arguments, report);
}

int bench_device(const Arguments& arguments, const Machine& machine, const std::string& command, const std::string& date) {
  const auto request = request_of(arguments);
  std::vector<std::unique_ptr<Peer>> peers;
  for (const auto& library : words_of_list(arguments.text("against")))
    peers.push_back(std::make_unique<Peer>(library, arguments.text("python", "python3"), name_of(machine)));
  DeviceBenchReport report;
  report.command = command;
  report.date = date;
  bench_device(request, machine, peers, report, [&] { save(arguments, report); });
  return give(arguments, report);
}

void add_options(Arguments& arguments) {
  arguments.word("KERNEL", true);
  arguments.option("case", "GLOBS", "cases by name, in turn those of each of several separated by ',' (default: all)");
  add_set_option(arguments);
  arguments.list("beside", "KERNEL:GLOBS[:SET]",
                 "cases of another kernel (or of this one, without --config and --variant), with settings as --set has them: timed in all "
                 "rounds of each case; may be given several times");
  add_device_option(arguments);
  add_config_options(arguments);
  arguments.option("threads", "LIST", "thread counts, separated by ',' (default: as many as the process may use)");
  arguments.option(
      "align", "LIST",
      "bytes that the tensors' addresses are multiples of, separated by ','; all are timed in the same rounds, and the slowest is "
      "shown (default 64,16: NumPy's are multiples of 16)");
  arguments.option("seconds", "S", "time spent on each case and thread count (default 1)");
  arguments.option("memory", "HOW",
                   "cold: inputs come from memory; warm: from the caches where they fit; auto: cold on a device or if memory-bound "
                   "(default auto)");
  arguments.option(
      "against", "WHAT",
      "in the same rounds: sgemm, OpenBLAS's, n=2048, with the same threads; torch, PyTorch's kernels on the same device; fa3, "
      "FlashAttention-3 called from PyTorch (of flash_attn_3, xformers, or FLASH_ATTENTION_3=PATH of its _C.so); fla, the Triton kernels "
      "of the package fla called from PyTorch; ejkernel, its Triton kernels called from JAX, by the wall clock; or several, as torch,fa3");
  arguments.flag(
      "check",
      "compare what the timed runs left in the outputs with the float64 reference: whole where that takes a second, else a sample of "
      "rows; a wrong result fails the bench");
  arguments.option("openblas", "PATH", "the OpenBLAS to load (default libopenblas.so.0)");
  arguments.option("python", "PATH", "the Python that has the library (default python3)");
  arguments.list(
      "save", "FILE",
      "also write a Markdown page with the command, the machine and the table, or, if it ends in .json, what --json prints; may be given "
      "several times. On a device it is there as soon as the first cases are");
  arguments.option("seed", "S", "seed of the random data (default 1)");
  arguments.list("store", "DIR", "a store to look in first; may be given several times");
  arguments.flag("json", "as JSON, with every sample");
}

}  // namespace

int bench(std::span<const std::string> words) {
  Arguments arguments(
      "bench", "KERNEL [--case GLOBS] [--set NAME=VALUE,...] [options]",
      "Times cases in turn, round by round, on random contiguous data, and sets the medians beside this machine's peaks, measured in the\n"
      "same run. On a device by its own clock, with what the host spends on a call. Results are compared with --check only: `ejk verify` "
      "does more.",
      "ejk bench mean_pooling --case 'bert*'\n"
      "ejk bench flash_attention --case 'prefill_d128*' --threads 1,2 --against sgemm --save docs/bench/flash_attention.md\n"
      "ejk bench flash_attention --case 'gpu_d*' --set E=f16 --device cuda\n"
      "ejk bench flash_attention --device cuda --against torch,fa3,ejkernel --check\n"
      "ejk bench mla_attention --case gpu_prefill --beside flash_attention:gpu_mla:B=1,Sq=4096,Sk=4096 --device cuda");
  add_options(arguments);
  if (!arguments.parse(words)) return exit_done;
  const auto device = device_named(arguments.text("device", "cpu"));
  check_options(arguments, device.platform == "cpu");
  for (const auto& store : arguments.texts("store")) throw_if_error(add_store(store));
  const auto& machine = find_device(device);
  const auto command = command_line("bench", words), date = date_today();
  return device.platform == "cpu" ? bench_cpu(arguments, command, date) : bench_device(arguments, machine, command, date);
}

}  // namespace ejk::tools

// Rounds over a group of cases and sgemm.
#include "bench/bench_cpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "command_line/library_options.hpp"

namespace ejk::tools {
namespace {

BenchRow row_of(const CpuBench& plan, const BenchSubject& subject, int threads) {
  BenchRow row;
  row.name = subject.name();
  row.threads = threads;
  row.memory = subject.cold() ? fmt::format("cold ({} copies)", subject.copies()) : "warm";
  row.told = subject.told();
  row.tier = tier_of(row.told);
  row.compiler = compiler_of(row.told);
  row.cost = subject.cost();
  row.bytes = subject.bytes();
  row.samples = subject.timed().samples;
  row.alignment = subject.alignment();
  if (plan.check) row.check = check_outputs(subject.last_call(), plan.seed);
  return row;
}

// A subject must not share its cores with OpenBLAS's waiting threads.
void let_rest(Timed& timed, const OpenBlas& openblas) {
  timed.prepare = [&openblas, before = timed.prepare] {
    openblas.rest();
    if (before) before();
  };
}

using Subjects = std::vector<std::unique_ptr<BenchSubject>>;

// A case in each alignment becomes one row: the slower one's, with the times of the others.
BenchRow slowest_row(const CpuBench& plan, std::span<const std::unique_ptr<BenchSubject>> subjects, int threads) {
  const auto seconds = [](const auto& subject) { return median(subject->timed().samples); };
  const auto slowest =
      std::max_element(subjects.begin(), subjects.end(), [&](const auto& a, const auto& b) { return seconds(a) < seconds(b); });
  auto row = row_of(plan, **slowest, threads);
  for (const auto& subject : subjects)
    if (subject != *slowest) row.other_alignments.push_back({subject->alignment(), subject->timed().samples});
  return row;
}

constexpr double seconds_between_peaks = 0.2;

// Cases in turn with the machine's peaks: what slows one slows the other.
std::vector<BenchRow> measure_group(const CpuBench& plan, const BenchGroup& group, Timed* sgemm, PeakMeter& meter) {
  using Clock = std::chrono::steady_clock;
  const int threads = meter.peaks().threads;
  Subjects subjects;
  std::vector<Timed*> timed;
  for (const auto& c : group)
    for (const int alignment : plan.alignments) {
      show_progress(fmt::format("{} threads: data for {}", threads, c.name));
      subjects.push_back(std::make_unique<BenchSubject>(plan, c, alignment, meter.peaks()));
      timed.push_back(&subjects.back()->timed());
      if (sgemm) let_rest(*timed.back(), *plan.openblas);
    }
  if (sgemm) timed.push_back(sgemm);
  auto last = Clock::now();
  measure(timed, plan.seconds / static_cast<double>(plan.alignments.size()), [&](int round) {
    show_progress(fmt::format("{} threads: {} and {} more, round {}", threads, group.front().name, group.size() - 1, round + 1));
    if (std::chrono::duration<double>(Clock::now() - last).count() < seconds_between_peaks) return;
    if (sgemm) plan.openblas->rest();
    meter.measure(1);
    last = Clock::now();
  });
  std::vector<BenchRow> rows;
  const std::span<const std::unique_ptr<BenchSubject>> all(subjects);
  for (std::size_t i = 0; i < all.size(); i += plan.alignments.size())
    rows.push_back(slowest_row(plan, all.subspan(i, plan.alignments.size()), threads));
  return rows;
}

constexpr int rounds_before = 4;  // of the peaks, and as many behind all cases

}  // namespace

void measure_threads(const CpuBench& plan, int threads, BenchReport& report) {
  throw_if_error(set_threads(threads));
  show_progress(fmt::format("{} threads: peaks of this machine", threads));
  PeakMeter meter(threads);
  meter.measure(rounds_before);
  Timed sgemm;
  if (plan.openblas) {
    plan.openblas->set_threads(threads);
    sgemm.run = [&] { plan.openblas->sgemm(); };
  }
  const auto first = report.rows.size();
  for (const auto& group : groups_of(plan, memory_of))
    for (auto& row : measure_group(plan, group, plan.openblas ? &sgemm : nullptr, meter)) report.rows.push_back(std::move(row));
  meter.measure(rounds_before);
  BenchMachine machine{meter.peaks(), {}, 0};
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

}  // namespace ejk::tools

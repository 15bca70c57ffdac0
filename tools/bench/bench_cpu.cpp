// Rounds over a group of cases and sgemm.
#include "bench/bench_cpu.hpp"

#include <fmt/format.h>

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

std::vector<BenchRow> measure_group(const CpuBench& plan, const BenchGroup& group, Timed* sgemm, const Peaks& peaks) {
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
  for (const auto& subject : subjects) rows.push_back(row_of(plan, *subject, peaks.threads));
  return rows;
}

}  // namespace

void measure_threads(const CpuBench& plan, int threads, BenchReport& report) {
  throw_if_error(set_threads(threads));
  show_progress(fmt::format("{} threads: peaks of this machine", threads));
  BenchMachine machine{measure_peaks(threads), {}, 0};
  Timed sgemm;
  if (plan.openblas) {
    plan.openblas->set_threads(threads);
    sgemm.run = [&] { plan.openblas->sgemm(); };
  }
  const auto first = report.rows.size();
  for (const auto& group : groups_of(plan, memory_of))
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

}  // namespace ejk::tools

// Benchmarks on the CPU: cases in turn at each thread count, beside this machine's peaks and, if asked, OpenBLAS.
#pragma once
#include <memory>

#include "bench/bench_report.hpp"
#include "bench/bench_request.hpp"
#include "bench/openblas.hpp"

namespace ejk::tools {

struct CpuBench : BenchRequest {
  std::vector<std::int64_t> threads;
  std::vector<int> alignments;         // of tensors, in bytes; of several, the slower is shown
  std::unique_ptr<OpenBlas> openblas;  // null: not asked for
};

// All cases at one thread count, in turn with sgemm: rows and a machine for the report.
void measure_threads(const CpuBench& plan, int threads, BenchReport& report);

}  // namespace ejk::tools

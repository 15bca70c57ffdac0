// The program's OpenMP runtime as an executor.
#pragma once
#include "backends/cpu/executor.hpp"
#include "backends/cpu/openmp_runtime.hpp"

namespace ejk {

// Participants: as many as a parallel region opened by this thread would have (torch.set_num_threads, omp_set_num_threads,
// OMP_NUM_THREADS); all are certain. Whoever finds a region of ours open gets none. Only where openmp_runtime() has found one.
CpuExecutor& openmp_executor();

}  // namespace ejk

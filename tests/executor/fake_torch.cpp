// A library of PyTorch's name that computes on OpenMP, as a wheel's does: loaded outside the global scope, with its runtime behind it.
#include <omp.h>
#include <unistd.h>

extern "C" {

// The thread ids of a parallel region; returns how many.
int fake_team(int* threads, int room) {
  int count = 0;
#pragma omp parallel
  {
#pragma omp critical
    if (count < room) threads[count++] = static_cast<int>(gettid());
  }
  return count;
}

void fake_set_num_threads(int threads) { omp_set_num_threads(threads); }

// On two threads of a parallel region each.
void fake_parallel(void (*body)(void*), void* data) {
#pragma omp parallel num_threads(2)
  body(data);
}

}  // extern "C"

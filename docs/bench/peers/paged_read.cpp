// What a core reads of a paged cache, at best: vector loads of 4 KiB pieces in random order, the next 16 KiB asked for ahead.
// c++ -O3 -march=x86-64-v4 paged_read.cpp -o paged_read && ./paged_read       (a second one beside it: two cores)
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

int main() {
  constexpr std::size_t piece = 4096, pieces = 4096, buffers = 6, ahead = 4;  // 16 MiB each, six in turn: more than the last cache
  std::vector<char*> memory(buffers);
  for (auto& buffer : memory) std::memset(buffer = static_cast<char*>(std::aligned_alloc(piece, piece * pieces)), 1, piece * pieces);
  std::vector<std::size_t> order(pieces);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  double best = 1e9;
  __m512i sum = _mm512_setzero_si512();
  for (int round = 0; round < 600; ++round) {
    const char* data = memory[static_cast<std::size_t>(round) % buffers];
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < pieces; ++i)
      for (std::size_t at = 0; at < piece; at += 64) {
        _mm_prefetch(data + order[(i + ahead) % pieces] * piece + at, _MM_HINT_T0);
        sum = _mm512_add_epi64(sum, _mm512_loadu_si512(data + order[i] * piece + at));
      }
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("%.1f GB/s at best (%lld)\n", piece * pieces / best / 1e9, static_cast<long long>(_mm512_reduce_add_epi64(sum)));
}

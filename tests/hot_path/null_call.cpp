// Calls flash_attention on an empty batch `argv[1]` times: what is left is dispatch. count_instructions runs it under callgrind; by itself
// it counts allocations and locks of the second half of its calls, which must be none.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <ejk/flash_attention.hpp>
#include <new>

#include "ejk/ejk.hpp"

static long allocations = 0, locks = 0;

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto real = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++locks;
  return real(mutex);
}

int main(int argc, char** argv) {
  const long count = argc > 2 ? std::atol(argv[1]) : 0;
  if (count <= 0) {
    std::fprintf(stderr, "usage: null_call COUNT STORE\n");
    return 2;
  }
  if (const auto status = ejk::add_store(argv[2]); !status) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    return 2;
  }
  alignas(64) static float memory[64];
  const ejk::TensorView q(memory, ejk::DType::f32, {0, 16, 8, 64}), kv(memory + 16, ejk::DType::f32, {0, 16, 8, 64}),
      out(memory + 32, ejk::DType::f32, {0, 16, 8, 64});
  const ejk::FlashAttentionOptions options{.causal = true};
  long allocations_before = 0, locks_before = 0;
  for (long i = 0; i < count; ++i) {
    if (i == count / 2) allocations_before = allocations, locks_before = locks;
    if (const auto status = ejk::flash_attention_into(out, {}, {}, q, kv, kv, options); !status) {
      std::fprintf(stderr, "%s\n", status.error().message.c_str());
      return 2;
    }
  }
  std::printf("%ld allocations, %ld locks in the last %ld calls\n", allocations - allocations_before, locks - locks_before,
              count - count / 2);
  return allocations == allocations_before && locks == locks_before ? 0 : 1;
}

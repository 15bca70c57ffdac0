// unload LIBRARY STORE: dlclose of libejk, before a call, after one without worker threads, after one with, while a thread is in a call,
// and at the end of the process with a call in atexit. The library stays (it is linked -z nodelete), so nothing of it may be touched after
// free.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "ejk/ejk.h"

namespace {

const char* path = nullptr;

struct Library {
  explicit Library() : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(1);
    }
  }
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(dlsym(handle, name));
  }
  void close() const { dlclose(handle); }
  void* handle;
};

void require(bool what, const char* words) {
  if (what) return;
  std::fprintf(stderr, "unload: %s\n", words);
  std::_Exit(1);
}

// The mean of `rows` rows of ones, over as many threads as the process has.
void pool(const Library& library, std::int64_t rows) {
  constexpr std::int64_t tokens = 16, features = 64;
  std::vector<float> x(static_cast<std::size_t>(rows * tokens * features), 1), out(static_cast<std::size_t>(rows * features));
  const std::int64_t x_shape[] = {rows, tokens, features}, out_shape[] = {rows, features};
  ejk_tensor x_tensor{x.data(), {1, 0}, 3, {2, 32, 1}, x_shape, nullptr, 0},
      out_tensor{out.data(), {1, 0}, 2, {2, 32, 1}, out_shape, nullptr, 0};
  const ejk_argument arguments[] = {{"x", &x_tensor}, {"out", &out_tensor}};
  const auto status = library.function<decltype(ejk_call)>("ejk_call")("mean_pooling", arguments, 2, nullptr, nullptr, nullptr);
  require(status == EJK_OK, library.function<decltype(ejk_last_error)>("ejk_last_error")());
  for (const float each : out) require(each == 1, "a wrong mean");
}

// A call that is refused, in words too long for a std::string without memory of its own.
void fail(const Library& library) {
  const auto status = library.function<decltype(ejk_call)>("ejk_call")("no_kernel_of_that_name", nullptr, 0, nullptr, nullptr, nullptr);
  const std::string words = library.function<decltype(ejk_last_error)>("ejk_last_error")();
  require(status != EJK_OK && words.find("no_kernel_of_that_name") != std::string::npos, "a call of no kernel has no such error");
}

bool is_loaded() {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (handle) dlclose(handle);
  return handle;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  path = argv[1];
  setenv("EJKERNEL_STORE", argv[2], 1);
  setenv("EJKERNEL_THREADS", "4", 1);
  Library().close();  // nothing was called
  require(is_loaded(), "the library went with dlclose, though it is linked -z nodelete");
  {
    const Library library;
    pool(library, 1);
    library.close();
    const Library again;
    pool(again, 512);  // four threads
    again.close();
    usleep(100'000);  // workers look for work, and fall asleep
  }
  const Library third;
  std::atomic<bool> inside{false};
  std::thread caller([&] {
    for (int i = 0; i < 200; ++i) {
      pool(third, 64);
      inside = true;
    }
  });
  while (!inside) usleep(100);
  third.close();
  caller.join();
  pool(third, 512);
  fail(third);
  std::atexit([] {  // what this thread's calls kept for later ones is gone, its memory is the vectors'
    const Library last;
    for (int i = 0; i < 4; ++i) {
      pool(last, 512);
      fail(last);
    }
    last.close();
  });
  Library().close();
  return 0;
}

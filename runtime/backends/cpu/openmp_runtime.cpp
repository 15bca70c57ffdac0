// Looks through the loaded objects for those that compute on OpenMP, and takes the runtime that its calls reach.
#include "backends/cpu/openmp_runtime.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>

namespace ejk {
namespace {

constexpr std::int64_t look_interval_ns = 4'000'000;
constexpr std::size_t most_objects = 32;

// What an object is to us, by its file's name.
enum class Kind { none, torch, blas, libgomp };

struct Prefix {
  std::string_view name;
  Kind kind;
};
constexpr Prefix prefixes[] = {{"libtorch_cpu.so", Kind::torch},  {"libopenblas", Kind::blas},         {"libscipy_openblas", Kind::blas},
                               {"libmkl_gnu_thread", Kind::blas}, {"libmkl_intel_thread", Kind::blas}, {"libmkl_rt", Kind::blas},
                               {"libblis", Kind::blas},           {"libgomp", Kind::libgomp}};

Kind kind_of(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  const auto* found =
      std::find_if(std::begin(prefixes), std::end(prefixes), [&](const Prefix& prefix) { return name.starts_with(prefix.name); });
  return found == std::end(prefixes) ? Kind::none : found->kind;
}

struct Object {
  Kind kind;
  const void* base;
  char path[1024];
};

// Of one look. Arrays, since nothing may be allocated while the loader's lock is held.
struct Look {
  unsigned long long seen = 0, adds = 0;  // how often objects were added to the process, at the look before and now
  std::size_t count = 0;
  Object objects[most_objects];
};

int note(dl_phdr_info* info, std::size_t, void* data) {
  auto& look = *static_cast<Look*>(data);
  look.adds = info->dlpi_adds;
  if (look.adds == look.seen) return 1;  // nothing new: the first object says so
  const auto kind = kind_of(info->dlpi_name);
  if (kind == Kind::none || look.count == most_objects || std::strlen(info->dlpi_name) >= sizeof(Object::path)) return 0;
  auto& object = look.objects[look.count++];
  object.kind = kind;
  object.base = reinterpret_cast<const void*>(info->dlpi_addr);  // NOLINT: an address
  std::strcpy(object.path, info->dlpi_name);
  return 0;
}

// ---- forks ----

// Bases of libgomps whose threads this process does not have: they were there when it was forked.
struct Left {
  std::size_t count = 0;
  std::array<const void*, most_objects> bases{};
  bool has(const void* base) const { return std::find(bases.begin(), bases.begin() + count, base) != bases.begin() + count; }
};
Left left, left_by_a_fork_now;

void list_libgomps(Left& to) {
  auto look = std::make_unique<Look>();
  dl_iterate_phdr(note, look.get());
  to.count = 0;
  for (std::size_t i = 0; i < look->count; ++i)
    if (look->objects[i].kind == Kind::libgomp) to.bases[to.count++] = look->objects[i].base;
}

// Linux's PF_FORKNOEXEC: this process is a fork of another and has loaded no program of its own.
bool is_a_fork() {
  constexpr unsigned long forked_without_exec = 0x40;
  char text[1024];
  const int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const auto bytes = read(file, text, sizeof text - 1);
  close(file);
  if (bytes <= 0) return false;
  text[bytes] = 0;
  const char* rest = std::strrchr(text, ')');  // the program's name may have blanks
  unsigned long flags = 0;
  return rest && std::sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 && (flags & forked_without_exec);
}

// ---- the runtime ----

// What a look looks at. In a forked child the loader's list may be locked by a thread that is gone, until an object has been loaded there;
// its symbols are not. PyTorch loads its runtime into the global scope.
enum class Watch { objects, symbol, nothing };
std::atomic<Watch> watch{Watch::objects};
std::atomic<const OpenMpRuntime*> current{nullptr};
std::atomic<bool> looking{false};
std::atomic<std::int64_t> looked_at{0};
Look last_look;  // of whoever has set `looking`

// As the dynamic linker would answer a call from `handle`'s object: the global scope first.
template <class F>
bool resolve(void* handle, const char* name, F& function) {
  void* symbol = dlsym(RTLD_DEFAULT, name);
  if (!symbol && handle) symbol = dlsym(handle, name);
  function = reinterpret_cast<F>(symbol);
  return symbol;
}

const void* base_of(void* symbol, std::string* file = nullptr) {
  Dl_info where{};
  if (!symbol || !dladdr(symbol, &where)) return nullptr;
  if (file) *file = where.dli_fname;
  return where.dli_fbase;
}

const OpenMpRuntime* runtime_of(void* handle, std::string user) {
  OpenMpRuntime found;
  if (!resolve(handle, "GOMP_parallel", found.parallel) || !resolve(handle, "omp_get_max_threads", found.max_threads) ||
      !resolve(handle, "omp_get_num_threads", found.threads) || !resolve(handle, "omp_get_thread_num", found.index) ||
      !resolve(handle, "omp_get_active_level", found.active_level) ||
      !resolve(handle, "omp_get_max_active_levels", found.max_active_levels))
    return nullptr;
  void (*fork_call)() = nullptr;  // LLVM's and Intel's, which start anew in a child
  resolve(handle, "__kmpc_fork_call", fork_call);
  const auto* base = base_of(reinterpret_cast<void*>(found.parallel), &found.library);
  found.survives_fork = base && base == base_of(reinterpret_cast<void*>(fork_call));
  if (!base || (left.has(base) && !found.survives_fork)) return nullptr;
  found.user = std::move(user);
  return new OpenMpRuntime(std::move(found));  // for ever: another thread may be in it
}

// The handle is kept: as long as the process lives, so does the runtime.
const OpenMpRuntime* runtime_of(const Look& look, Kind kind) {
  for (std::size_t i = 0; i < look.count; ++i) {
    const auto& object = look.objects[i];
    if (object.kind != kind) continue;
    void* handle = dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) continue;
    if (const auto* runtime = runtime_of(handle, std::strrchr(object.path, '/') ? std::strrchr(object.path, '/') + 1 : object.path))
      return runtime;
    dlclose(handle);
  }
  return nullptr;
}

bool same(const OpenMpRuntime* one, const OpenMpRuntime* other) {
  return one && other && one->parallel == other->parallel && one->user == other->user;
}

void look_at_objects() {
  last_look.count = 0;
  dl_iterate_phdr(note, &last_look);
  if (last_look.adds == last_look.seen) return;
  last_look.seen = last_look.adds;
  const auto* found = runtime_of(last_look, Kind::torch);
  if (!found) found = runtime_of(nullptr, "the program");
  if (!found) found = runtime_of(last_look, Kind::blas);
  if (same(found, current.load(std::memory_order_relaxed)))
    delete found;
  else
    current.store(found, std::memory_order_release);
}

void look_again() {
  if (watch == Watch::symbol && dlsym(RTLD_DEFAULT, "GOMP_parallel")) watch = Watch::objects;
  if (watch == Watch::objects) look_at_objects();
}

void prepare_for_fork() { list_libgomps(left_by_a_fork_now); }

void start_in_child() {
  const auto* before = current.load();
  if (before && before->survives_fork) {
    watch = Watch::nothing;
  } else {
    current.store(nullptr);
    left = left_by_a_fork_now;
    watch = left.count ? Watch::nothing : Watch::symbol;
  }
  last_look.seen = 0;
  looking.store(false);
}

// When the library is loaded: later it could not be told what was there before a fork.
[[maybe_unused]] const bool fork_is_watched = [] {
  if (is_a_fork()) list_libgomps(left);
  pthread_atfork(prepare_for_fork, nullptr, start_in_child);
  return true;
}();

}  // namespace

const OpenMpRuntime* openmp_runtime() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const auto ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (ns - looked_at.load(std::memory_order_relaxed) >= look_interval_ns && !looking.exchange(true, std::memory_order_acquire)) {
    looked_at.store(ns, std::memory_order_relaxed);
    look_again();
    looking.store(false, std::memory_order_release);
  }
  return current.load(std::memory_order_acquire);
}

}  // namespace ejk

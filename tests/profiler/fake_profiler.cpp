// A profiler's side of NVTX: keeps the ranges that are opened, as "+name" and "-". Tests load it by NVTX_INJECTION64_PATH.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

using AnyFunction = void (*)();
struct Callbacks {
  std::size_t size;
  int (*functions_of)(int module, AnyFunction*** table, unsigned* count);
};

std::mutex mutex;
std::string told;

int push(const char* name) {
  const std::lock_guard lock(mutex);
  told += std::string("+") + name + "\n";
  return 0;
}

int pop() {
  const std::lock_guard lock(mutex);
  told += "-\n";
  return 0;
}

}  // namespace

extern "C" {

int InitializeInjectionNvtx2(const void* (*export_table)(std::uint32_t)) {
  if (std::getenv("FAKE_PROFILER_REFUSES")) return 0;
  const auto* callbacks = static_cast<const Callbacks*>(export_table(1));
  AnyFunction** table = nullptr;
  unsigned count = 0;
  if (!callbacks || callbacks->size < sizeof(Callbacks) || !callbacks->functions_of(1, &table, &count) || count < 12) return 0;
  *table[9] = reinterpret_cast<AnyFunction>(push);
  *table[11] = reinterpret_cast<AnyFunction>(pop);
  return export_table(3) != nullptr && export_table(77) == nullptr;
}

const char* fake_profiler_told() {
  const std::lock_guard lock(mutex);
  return told.c_str();
}
}

// Each of the driver's functions by its name, checked.
#include "device/driver.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace ejk {
namespace {

using Address = unsigned long long;
using Pointer = void*;

constexpr unsigned non_blocking = 1;
constexpr int thread_local_capture = 1;

}  // namespace

#define EJK_CALL(name, signature, ...) call(name, static_cast<int(*) signature>(nullptr), __VA_ARGS__)

Driver& Driver::instance() {
  static auto* driver = new Driver;  // the driver may end before statics do
  return *driver;
}

void* Driver::function(const char* name) {
  void* found = dlsym(library_, name);
  if (!found) throw std::runtime_error(std::string("libcuda has no ") + name);
  return found;
}

template <class... Parameters, class... Arguments>
void Driver::call(const char* name, int (*)(Parameters...), Arguments... arguments) {
  const int result = reinterpret_cast<int (*)(Parameters...)>(function(name))(arguments...);
  if (result == 0) return;
  const char* words = nullptr;
  reinterpret_cast<int (*)(int, const char**)>(function("cuGetErrorString"))(result, &words);
  throw std::runtime_error(std::string(name) + ": " + (words ? words : "an unknown error"));
}

Driver::Driver() {
  for (const char* path : {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"})
    if (!library_) library_ = dlopen(path, RTLD_NOW);
  if (!library_) {
    why_not_ = "no NVIDIA driver here (libcuda.so.1)";
    return;
  }
  try {
    EJK_CALL("cuInit", (unsigned), 0U);
    EJK_CALL("cuDeviceGetCount", (int*), &devices_);
    if (devices_ == 0) throw std::runtime_error("the driver finds no device");
    EJK_CALL("cuDevicePrimaryCtxRetain", (Pointer*, int), &context_, 0);
    use_on_this_thread();
  } catch (const std::runtime_error& e) {
    why_not_ = e.what();
  }
}

void Driver::use_on_this_thread() { EJK_CALL("cuCtxSetCurrent", (Pointer), context_); }

void* Driver::allocate(std::size_t bytes) {
  Address address = 0;
  EJK_CALL("cuMemAlloc_v2", (Address*, std::size_t), &address, bytes);
  return reinterpret_cast<void*>(address);
}

void Driver::free(void* memory) { EJK_CALL("cuMemFree_v2", (Address), reinterpret_cast<Address>(memory)); }

void Driver::to_device(void* to, const void* from, std::size_t bytes) {
  EJK_CALL("cuMemcpyHtoD_v2", (Address, const void*, std::size_t), reinterpret_cast<Address>(to), from, bytes);
}

void Driver::to_host(void* to, const void* from, std::size_t bytes) {
  EJK_CALL("cuMemcpyDtoH_v2", (Pointer, Address, std::size_t), to, reinterpret_cast<Address>(from), bytes);
}

void Driver::wait(void* stream) { EJK_CALL("cuStreamSynchronize", (Pointer), stream); }
void Driver::wait() { call("cuCtxSynchronize", static_cast<int (*)()>(nullptr)); }

void* Driver::make_stream() {
  void* stream = nullptr;
  EJK_CALL("cuStreamCreate", (Pointer*, unsigned), &stream, non_blocking);
  return stream;
}

void Driver::free_stream(void* stream) { EJK_CALL("cuStreamDestroy_v2", (Pointer), stream); }

void Driver::begin_capture(void* stream) { EJK_CALL("cuStreamBeginCapture_v2", (Pointer, int), stream, thread_local_capture); }

void* Driver::end_capture(void* stream) {
  void* graph = nullptr;
  void* executable = nullptr;
  EJK_CALL("cuStreamEndCapture", (Pointer, Pointer*), stream, &graph);
  EJK_CALL("cuGraphGetNodes", (Pointer, Pointer*, std::size_t*), graph, nullptr, &nodes_);
  EJK_CALL("cuGraphInstantiateWithFlags", (Pointer*, Pointer, Address), &executable, graph, 0ULL);
  EJK_CALL("cuGraphDestroy", (Pointer), graph);
  return executable;
}

void Driver::launch_graph(void* graph, void* stream) { EJK_CALL("cuGraphLaunch", (Pointer, Pointer), graph, stream); }
void Driver::free_graph(void* graph) { EJK_CALL("cuGraphExecDestroy", (Pointer), graph); }

}  // namespace ejk

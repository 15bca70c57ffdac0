// A GPU vendor's driver library as far as ejk uses it: its functions, which CUDA and HIP have alike, and what the two say differently.
// Declared here, so that no vendor's header is needed to build.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ejk::gpu {

using Result = int;        // CUresult, hipError_t
using DeviceHandle = int;  // CUdevice, hipDevice_t
using Address = unsigned long long;
using Context = struct ContextObject*;
using Stream = struct StreamObject*;
using Library = struct LibraryObject*;
using ModuleHandle = struct ModuleObject*;
using Kernel = struct KernelObject*;
using Function = struct FunctionObject*;  // also a Kernel, which the driver looks up in the current context
using Pool = struct PoolObject*;

inline Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }
inline void* pointer_to(Address address) {
  return reinterpret_cast<void*>(address);
}  // NOLINT: device addresses are integers to the driver

constexpr Result success = 0, out_of_memory = 2, no_device = 100;

enum KernelAttribute : int { dynamic_shared_bytes = 8, wide_clusters = 14 };
enum LaunchAttributeId : int { cooperative_launch = 2, cluster_dimension = 4, programmatic_order = 6 };
enum PoolAttribute : int { release_threshold = 4 };
enum CaptureMode : int { relaxed_capture = 2 };

struct LaunchAttribute {
  int id;
  int padding;
  union {
    char bytes[64];
    unsigned cluster[3];
    int cooperative;
    int may_overlap;  // of programmatic_order
  };
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
struct alignas(64) TensorMap {
  std::uint64_t words[16];
};

struct DriverFunctions {
  Result (*init)(unsigned) = nullptr;
  Result (*version)(int*) = nullptr;
  Result (*error_name)(Result, const char**) = nullptr;
  Result (*error_text)(Result, const char**) = nullptr;
  const char* (*error_name_of)(Result) = nullptr;  // HIP, in place of the two
  const char* (*error_text_of)(Result) = nullptr;
  Result (*device_count)(int*) = nullptr;
  Result (*device)(DeviceHandle*, int ordinal) = nullptr;
  Result (*device_name)(char*, int, DeviceHandle) = nullptr;
  Result (*device_attribute)(int*, int, DeviceHandle) = nullptr;
  Result (*device_memory)(std::size_t*, DeviceHandle) = nullptr;
  Result (*retain_primary)(Context*, DeviceHandle) = nullptr;
  Result (*push_context)(Context) = nullptr;
  Result (*pop_context)(Context*) = nullptr;
  Result (*current_context)(Context*) = nullptr;
  Result (*current_device)(DeviceHandle*) = nullptr;
  Result (*set_device)(DeviceHandle) = nullptr;  // HIP, in place of contexts
  Result (*synchronize)() = nullptr;
  Result (*exchange_capture_mode)(int*) = nullptr;
  Result (*is_capturing)(Stream, int*) = nullptr;  // 0: it is not
  Result (*load_library)(Library*, const void*, int*, void**, unsigned, int*, void**, unsigned) = nullptr;
  Result (*kernel)(Kernel*, Library, const char*) = nullptr;
  Result (*function)(Function*, Kernel) = nullptr;
  Result (*set_kernel_attribute)(int, int, Kernel, DeviceHandle) = nullptr;
  Result (*load_module)(ModuleHandle*, const void*) = nullptr;  // HIP, in place of libraries: for the current device
  Result (*module_function)(Function*, ModuleHandle, const char*) = nullptr;
  Result (*device_properties)(void*, DeviceHandle) = nullptr;  // HIP: a struct of at most properties_bytes
  Result (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**) = nullptr;
  Result (*launch_config)(const LaunchConfig*, Function, void**, void**) = nullptr;
  Result (*launch_cooperative)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                               void**) = nullptr;  // HIP, in place of launch_config
  Result (*blocks_a_processor)(int*, Function, int threads, std::size_t dynamic_shared) = nullptr;
  Result (*clusters_at_once)(int*, Function, const LaunchConfig*) = nullptr;  // CUDA alone
  Result (*allocate)(Address*, std::size_t) = nullptr;
  Result (*free)(Address) = nullptr;
  Result (*copy_to_device)(Address, const void*, std::size_t) = nullptr;
  Result (*copy_to_host)(void*, Address, std::size_t) = nullptr;
  Result (*memory_info)(std::size_t* available, std::size_t* total) = nullptr;
  Result (*allocate_async)(Address*, std::size_t, Stream) = nullptr;
  Result (*free_async)(Address, Stream) = nullptr;
  Result (*fill_async)(Address, unsigned char value, std::size_t, Stream) = nullptr;
  Result (*default_pool)(Pool*, DeviceHandle) = nullptr;
  Result (*pool_attribute)(Pool, int, void*) = nullptr;
  Result (*set_pool_attribute)(Pool, int, void*) = nullptr;
  Result (*encode_tiled)(TensorMap*, int type, std::uint32_t rank, void* address, const std::uint64_t* extents,
                         const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps, int interleave, int swizzle,
                         int l2_promotion, int fill) = nullptr;
  Result (*replace_address)(TensorMap*, void*) = nullptr;
};

// What CUDA and HIP differ in.
struct Vendor {
  const char *platform, *api;                     // "cuda", "CUDA"
  const char* processor;                          // "sm": what a device's fingerprint counts
  std::span<const char* const> hiding_variables;  // of the environment: they hide devices
  const char* fault_advice;                       // what finds a kernel's fault
  std::span<const Result> faults;                 // errors after which the context is of no use
  struct Attributes {
    int clock_khz, multiprocessors, memory_clock_khz, memory_bus_bits, l2_bytes, capability_major, capability_minor, shared_bytes,
        memory_pools;
  } attributes;
  std::int64_t most_threads_a_grid;  // in each dimension
  struct EventNames {
    const char *create, *destroy, *record, *synchronize, *elapsed, *copy_async;
  } events;
};

struct Driver {
  DriverFunctions call;
  std::string path;          // of the library that was loaded
  std::string why_not;       // if none is usable: what was looked for, what is wrong with it
  int version = 0;           // of CUDA or HIP that it serves: 13000
  std::string release = {};  // of the kernel module: "580.65.06"; empty: unknown
  const Vendor* vendor = nullptr;
  bool found() const { return !path.empty() && why_not.empty(); }
};

// "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
std::string error_words(const Driver& driver, Result result);

}  // namespace ejk::gpu

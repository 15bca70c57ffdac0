// Finding libamdhip64 and its functions.
#include "backends/hip/hip_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "backends/gpu/vendor_library.hpp"

namespace ejk::hip {
namespace {

constexpr const char* kernel_drivers[] = {"/dev/kfd", "/dev/dxg"};  // Linux; Windows' subsystem for it
constexpr const char* names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};

// Arguments are CUDA's by size and order, so the table is; an address is a pointer here.
std::string resolve(void* library, DriverFunctions& call) {
  SymbolReader read(library);
  read("hipInit", call.init);
  read("hipRuntimeGetVersion", call.version);
  read("hipGetErrorName", call.error_name_of);
  read("hipGetErrorString", call.error_text_of);
  read("hipGetDeviceCount", call.device_count);
  read("hipDeviceGet", call.device);
  read("hipDeviceGetName", call.device_name);
  read("hipDeviceGetAttribute", call.device_attribute);
  read("hipDeviceTotalMem", call.device_memory);
  read("hipGetDevice", call.current_device);
  read("hipSetDevice", call.set_device);
  read("hipDeviceSynchronize", call.synchronize);
  read("hipThreadExchangeStreamCaptureMode", call.exchange_capture_mode);
  read("hipStreamIsCapturing", call.is_capturing);
  read("hipModuleLoadData", call.load_module);
  read("hipModuleGetFunction", call.module_function);
  read("hipModuleLaunchKernel", call.launch);
  read("hipModuleLaunchCooperativeKernel", call.launch_cooperative);
  read("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", call.blocks_a_processor);
  read("hipMalloc", call.allocate);
  read("hipFree", call.free);
  read("hipMemcpyHtoD", call.copy_to_device);
  read("hipMemcpyDtoH", call.copy_to_host);
  read("hipMemGetInfo", call.memory_info);
  read("hipMallocAsync", call.allocate_async);
  read("hipFreeAsync", call.free_async);
  read("hipMemsetD8Async", call.fill_async);
  read("hipDeviceGetDefaultMemPool", call.default_pool);
  read("hipMemPoolGetAttribute", call.pool_attribute);
  read("hipMemPoolSetAttribute", call.set_pool_attribute);
  // Newer releases have the struct's present layout under a name of its own.
  SymbolReader newer(library);
  newer("hipGetDevicePropertiesR0600", call.device_properties);
  if (!call.device_properties) read("hipGetDeviceProperties", call.device_properties);
  return read.missing();
}

}  // namespace

std::vector<std::string> driver_candidates() {
  std::vector<std::string> candidates;
  const auto add = [&](const std::string& folder) {
    for (const char* name : names) candidates.push_back(folder + name);
  };
  for (const char* variable : {"ROCM_PATH", "HIP_PATH"})
    if (const char* folder = std::getenv(variable); folder && *folder) add(std::string(folder) + "/lib/");
  add("");
  add("/opt/rocm/lib/");
  return candidates;
}

std::string version_text(int version) { return fmt::format("HIP {}.{}", version / 10000000, version / 100000 % 100); }

Driver load_driver(const std::vector<std::string>& candidates) {
  Driver driver;
  driver.vendor = &amd();
  const auto library = open_first(candidates);
  if (!library.handle) {
    driver.why_not = "no HIP run-time library: " + library.why_not;
    return driver;
  }
  driver.path = library.path;
  if (const auto missing = resolve(library.handle, driver.call); !missing.empty())
    driver.why_not = fmt::format("{} has no {}: HIP 5.2 or newer is needed", driver.path, missing);
  else
    driver.call.version(&driver.version);
  return driver;
}

Driver find_driver() {
  const auto candidates = driver_candidates();
  const auto loaded = [](const std::string& name) { return dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr; };
  const auto exists = [](const char* path) { return access(path, F_OK) == 0; };
  if (std::ranges::any_of(kernel_drivers, exists) || std::ranges::any_of(candidates, loaded)) return load_driver(candidates);
  Driver none;
  none.vendor = &amd();
  none.why_not = fmt::format("no AMD GPU: there is no {}, so no HIP library was looked for", fmt::join(kernel_drivers, " and no "));
  return none;
}

}  // namespace ejk::hip

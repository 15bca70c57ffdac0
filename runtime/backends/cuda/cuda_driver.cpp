// Finding libcuda and its functions.
#include "backends/cuda/cuda_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cctype>
#include <fstream>
#include <sstream>

#include "backends/gpu/vendor_library.hpp"

namespace ejk::cuda {
namespace {

// Every function's name in the library: those that changed are of the newest version that driver 12.0 has.
std::string resolve(void* library, DriverFunctions& call) {
  SymbolReader read(library);
  read("cuInit", call.init);
  read("cuDriverGetVersion", call.version);
  read("cuGetErrorName", call.error_name);
  read("cuGetErrorString", call.error_text);
  read("cuDeviceGetCount", call.device_count);
  read("cuDeviceGet", call.device);
  read("cuDeviceGetName", call.device_name);
  read("cuDeviceGetAttribute", call.device_attribute);
  read("cuDeviceTotalMem_v2", call.device_memory);
  read("cuDevicePrimaryCtxRetain", call.retain_primary);
  read("cuCtxPushCurrent_v2", call.push_context);
  read("cuCtxPopCurrent_v2", call.pop_context);
  read("cuCtxGetCurrent", call.current_context);
  read("cuCtxGetDevice", call.current_device);
  read("cuCtxSynchronize", call.synchronize);
  read("cuThreadExchangeStreamCaptureMode", call.exchange_capture_mode);
  read("cuStreamIsCapturing", call.is_capturing);
  read("cuLibraryLoadData", call.load_library);
  read("cuLibraryGetKernel", call.kernel);
  read("cuKernelGetFunction", call.function);
  read("cuKernelSetAttribute", call.set_kernel_attribute);
  read("cuLaunchKernel", call.launch);
  read("cuLaunchKernelEx", call.launch_config);
  read("cuOccupancyMaxActiveBlocksPerMultiprocessor", call.blocks_a_processor);
  read("cuOccupancyMaxActiveClusters", call.clusters_at_once);
  read("cuMemAlloc_v2", call.allocate);
  read("cuMemFree_v2", call.free);
  read("cuMemcpyHtoD_v2", call.copy_to_device);
  read("cuMemcpyDtoH_v2", call.copy_to_host);
  read("cuMemGetInfo_v2", call.memory_info);
  read("cuMemAllocAsync", call.allocate_async);
  read("cuMemFreeAsync", call.free_async);
  read("cuMemsetD8Async", call.fill_async);
  read("cuDeviceGetDefaultMemPool", call.default_pool);
  read("cuMemPoolGetAttribute", call.pool_attribute);
  read("cuMemPoolSetAttribute", call.set_pool_attribute);
  read("cuTensorMapEncodeTiled", call.encode_tiled);
  read("cuTensorMapReplaceAddress", call.replace_address);
  return read.missing();
}

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build ..."
std::string kernel_module_release() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;)
    if (std::isdigit(static_cast<unsigned char>(word.front())) && word.find('.') != std::string::npos) return word;
  return {};
}

}  // namespace

std::vector<std::string> driver_candidates() {
  return {"libcuda.so.1",
          "libcuda.so",
          "/usr/local/nvidia/lib64/libcuda.so.1",
          "/usr/lib/wsl/lib/libcuda.so.1",
          "/run/opengl-driver/lib/libcuda.so.1",
          "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
          "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
          "/usr/lib64/libcuda.so.1"};
}

Driver load_driver(const std::vector<std::string>& candidates) {
  Driver driver;
  driver.vendor = &nvidia();
  const auto library = open_first(candidates);
  if (!library.handle) {
    driver.why_not = "no NVIDIA driver: " + library.why_not;
    return driver;
  }
  driver.path = library.path;
  if (const auto missing = resolve(library.handle, driver.call); !missing.empty())
    driver.why_not = fmt::format("{} has no {}: driver 525 (CUDA 12.0) or newer is needed", driver.path, missing);
  else
    driver.call.version(&driver.version);
  driver.release = kernel_module_release();
  return driver;
}

}  // namespace ejk::cuda

// libcuda's functions by their names, over the fake driver: a library that stands in the real one's place.
#include "cuda/fake_driver.hpp"

using namespace ejk::cuda;

namespace {

const DriverFunctions& table() {
  static const Driver driver = fake_driver();
  return driver.call;
}

}  // namespace

extern "C" {

Result cuInit(unsigned a) { return table().init(a); }
Result cuDriverGetVersion(int* a) { return table().version(a); }
Result cuGetErrorName(Result a, const char** b) { return table().error_name(a, b); }
Result cuGetErrorString(Result a, const char** b) { return table().error_text(a, b); }
Result cuDeviceGetCount(int* a) { return table().device_count(a); }
Result cuDeviceGet(DeviceHandle* a, int b) { return table().device(a, b); }
Result cuDeviceGetName(char* a, int b, DeviceHandle c) { return table().device_name(a, b, c); }
Result cuDeviceGetAttribute(int* a, int b, DeviceHandle c) { return table().device_attribute(a, b, c); }
Result cuDeviceTotalMem_v2(std::size_t* a, DeviceHandle b) { return table().device_memory(a, b); }
Result cuDevicePrimaryCtxRetain(Context* a, DeviceHandle b) { return table().retain_primary(a, b); }
Result cuCtxPushCurrent_v2(Context a) { return table().push_context(a); }
Result cuCtxPopCurrent_v2(Context* a) { return table().pop_context(a); }
Result cuCtxGetCurrent(Context* a) { return table().current_context(a); }
Result cuCtxGetDevice(DeviceHandle* a) { return table().current_device(a); }
Result cuCtxSynchronize() { return table().synchronize(); }
Result cuStreamIsCapturing(Stream a, int* b) { return table().is_capturing(a, b); }
Result cuThreadExchangeStreamCaptureMode(int* a) { return table().exchange_capture_mode(a); }
Result cuLibraryLoadData(Library* a, const void* b, int* c, void** d, unsigned e, int* f, void** g, unsigned h) {
  return table().load_library(a, b, c, d, e, f, g, h);
}
Result cuLibraryGetKernel(Kernel* a, Library b, const char* c) { return table().kernel(a, b, c); }
Result cuKernelGetFunction(Function* a, Kernel b) { return table().function(a, b); }
Result cuKernelSetAttribute(int a, int b, Kernel c, DeviceHandle d) { return table().set_kernel_attribute(a, b, c, d); }
Result cuLaunchKernel(Function a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h, Stream i, void** j,
                      void** k) {
  return table().launch(a, b, c, d, e, f, g, h, i, j, k);
}
Result cuLaunchKernelEx(const LaunchConfig* a, Function b, void** c, void** d) { return table().launch_config(a, b, c, d); }
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* a, Function b, int c, std::size_t d) {
  return table().blocks_a_processor(a, b, c, d);
}
Result cuOccupancyMaxActiveClusters(int* a, Function b, const LaunchConfig* c) { return table().clusters_at_once(a, b, c); }
Result cuMemAlloc_v2(Address* a, std::size_t b) { return table().allocate(a, b); }
Result cuMemFree_v2(Address a) { return table().free(a); }
Result cuMemcpyHtoD_v2(Address a, const void* b, std::size_t c) { return table().copy_to_device(a, b, c); }
Result cuMemcpyDtoH_v2(void* a, Address b, std::size_t c) { return table().copy_to_host(a, b, c); }
Result cuMemGetInfo_v2(std::size_t* a, std::size_t* b) { return table().memory_info(a, b); }
Result cuMemAllocAsync(Address* a, std::size_t b, Stream c) { return table().allocate_async(a, b, c); }
Result cuMemFreeAsync(Address a, Stream b) { return table().free_async(a, b); }
Result cuMemsetD8Async(Address a, unsigned char b, std::size_t c, Stream d) { return table().fill_async(a, b, c, d); }
Result cuDeviceGetDefaultMemPool(Pool* a, DeviceHandle b) { return table().default_pool(a, b); }
Result cuMemPoolGetAttribute(Pool a, int b, void* c) { return table().pool_attribute(a, b, c); }
Result cuMemPoolSetAttribute(Pool a, int b, void* c) { return table().set_pool_attribute(a, b, c); }
Result cuTensorMapEncodeTiled(TensorMap* a, int b, std::uint32_t c, void* d, const std::uint64_t* e, const std::uint64_t* f,
                              const std::uint32_t* g, const std::uint32_t* h, int i, int j, int k, int l) {
  return table().encode_tiled(a, b, c, d, e, f, g, h, i, j, k, l);
}
Result cuTensorMapReplaceAddress(TensorMap* a, void* b) { return table().replace_address(a, b); }

}  // extern "C"

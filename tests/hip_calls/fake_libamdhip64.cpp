// libamdhip64's functions by their names, over the fake driver of tests/hip: a library that stands in the real one's place.
#include "hip/fake_hip.hpp"

using namespace ejk::hip;

namespace {

const DriverFunctions& table() {
  static const Driver driver = fake_hip();
  return driver.call;
}

}  // namespace

extern "C" {

Result hipInit(unsigned a) { return table().init(a); }
Result hipRuntimeGetVersion(int* a) { return *a = 60342134, success; }
const char* hipGetErrorName(Result a) { return table().error_name_of(a); }
const char* hipGetErrorString(Result a) { return table().error_text_of(a); }
Result hipGetDeviceCount(int* a) { return table().device_count(a); }
Result hipDeviceGet(DeviceHandle* a, int b) { return table().device(a, b); }
Result hipDeviceGetName(char* a, int b, DeviceHandle c) { return table().device_name(a, b, c); }
Result hipDeviceGetAttribute(int* a, int b, DeviceHandle c) { return table().device_attribute(a, b, c); }
Result hipDeviceTotalMem(std::size_t* a, DeviceHandle b) { return table().device_memory(a, b); }
Result hipGetDevicePropertiesR0600(void* a, DeviceHandle b) { return table().device_properties(a, b); }
Result hipGetDevice(DeviceHandle* a) { return table().current_device(a); }
Result hipSetDevice(DeviceHandle a) { return table().set_device(a); }
Result hipDeviceSynchronize() { return table().synchronize(); }
Result hipStreamIsCapturing(Stream a, int* b) { return table().is_capturing(a, b); }
Result hipThreadExchangeStreamCaptureMode(int* a) { return table().exchange_capture_mode(a); }
Result hipModuleLoadData(ModuleHandle* a, const void* b) { return table().load_module(a, b); }
Result hipModuleGetFunction(Function* a, ModuleHandle b, const char* c) { return table().module_function(a, b, c); }
Result hipModuleLaunchKernel(Function a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h, Stream i,
                             void** j, void** k) {
  return table().launch(a, b, c, d, e, f, g, h, i, j, k);
}
Result hipModuleLaunchCooperativeKernel(Function a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h,
                                        Stream i, void** j) {
  return table().launch_cooperative(a, b, c, d, e, f, g, h, i, j);
}
Result hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* a, Function b, int c, std::size_t d) {
  return table().blocks_a_processor(a, b, c, d);
}
Result hipMalloc(Address* a, std::size_t b) { return table().allocate(a, b); }
Result hipFree(Address a) { return table().free(a); }
Result hipMemcpyHtoD(Address a, const void* b, std::size_t c) { return table().copy_to_device(a, b, c); }
Result hipMemcpyDtoH(void* a, Address b, std::size_t c) { return table().copy_to_host(a, b, c); }
Result hipMemGetInfo(std::size_t* a, std::size_t* b) { return table().memory_info(a, b); }
Result hipMallocAsync(Address* a, std::size_t b, Stream c) { return table().allocate_async(a, b, c); }
Result hipFreeAsync(Address a, Stream b) { return table().free_async(a, b); }
Result hipMemsetD8Async(Address a, unsigned char b, std::size_t c, Stream d) { return table().fill_async(a, b, c, d); }
Result hipDeviceGetDefaultMemPool(Pool* a, DeviceHandle b) { return table().default_pool(a, b); }
Result hipMemPoolGetAttribute(Pool a, int b, void* c) { return table().pool_attribute(a, b, c); }
Result hipMemPoolSetAttribute(Pool a, int b, void* c) { return table().set_pool_attribute(a, b, c); }

}  // extern "C"

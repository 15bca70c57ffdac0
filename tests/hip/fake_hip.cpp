// The functions in which HIP differs.
#include "hip/fake_hip.hpp"

#include <cstring>

namespace ejk::hip {
namespace {

constexpr Result not_found = 500;
FakeHip& fake() { return FakeHip::instance(); }
cuda::FakeDriver& shared() { return cuda::FakeDriver::instance(); }

template <class Handle>
Handle handle_of(std::size_t number) {
  return reinterpret_cast<Handle>(number);  // NOLINT: never followed
}

// The shared functions ask for a current context: it is that of the current device.
Result set_device(DeviceHandle device) {
  fake().current = device;
  shared().context_stack = {device};
  return success;
}

Result load_module(ModuleHandle* module, const void*) {
  fake().calls.push_back("module on " + std::to_string(fake().current));
  *module = handle_of<ModuleHandle>(static_cast<std::size_t>(fake().current) + 1);
  return shared().answer("load");
}

// A kernel's number, which the shared launch looks up; of the current device alone.
Result module_function(Function* function, ModuleHandle module, const char* name) {
  if (reinterpret_cast<std::size_t>(module) != static_cast<std::size_t>(fake().current) + 1) return 400;
  std::size_t number = 0;
  for (const auto& known : shared().kernels) {
    ++number;
    if (known != name) continue;
    *function = handle_of<Function>(number);
    return success;
  }
  return not_found;
}

// The name lies somewhere behind other texts and numbers.
Result properties(void* bytes, DeviceHandle device) {
  auto* text = static_cast<char*>(bytes);
  std::strcpy(text, "AMD Instinct gfx card");
  const std::uint64_t memory = 64ull << 30;
  std::memcpy(text + 300, &memory, sizeof memory);
  std::strcpy(text + 1160, fake().archs[static_cast<std::size_t>(device)].c_str());
  return success;
}

Result attribute(int* value, int which, DeviceHandle) {
  const std::map<int, int> values = {{multiprocessors, 104}, {clock_khz, 1700000},        {shared_bytes, 65536},   {l2_bytes, 8388608},
                                     {memory_pools, 1},      {memory_clock_khz, 1600000}, {memory_bus_bits, 4096}, {capability_major, 9}};
  const auto found = values.find(which);
  if (found == values.end()) return 1;
  *value = found->second;
  return success;
}

}  // namespace

FakeHip& FakeHip::instance() {
  static FakeHip state;
  return state;
}

void FakeHip::reset() {
  instance() = FakeHip();
  cuda::FakeDriver::reset();
  shared().context_stack = {0};
  for (auto& part : shared().parts) part.name = "AMD Instinct MI250X";
}

Driver fake_hip() {
  auto driver = cuda::fake_driver();
  driver.vendor = &amd();
  driver.path = "/fake/libamdhip64.so.6";
  driver.version = 60342134;
  driver.release.clear();
  auto& call = driver.call;
  call.retain_primary = nullptr;
  call.push_context = nullptr;
  call.pop_context = nullptr;
  call.load_library = nullptr;
  call.kernel = nullptr;
  call.function = nullptr;
  call.set_kernel_attribute = nullptr;
  call.launch_config = nullptr;
  call.error_name = nullptr;
  call.error_text = nullptr;
  call.error_name_of = [](Result result) {
    return result == 700 ? "hipErrorIllegalAddress" : result == no_device ? "hipErrorNoDevice" : "hipErrorX";
  };
  call.error_text_of = [](Result) { return "the library's words"; };
  call.set_device = set_device;
  call.load_module = load_module;
  call.module_function = module_function;
  call.device_properties = properties;
  call.device_attribute = attribute;
  return driver;
}

}  // namespace ejk::hip

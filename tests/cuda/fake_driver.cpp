// The functions of the fake driver.
#include "cuda/fake_driver.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace ejk::cuda {
namespace {

constexpr Result invalid_value = 1, invalid_context = 201, not_found = 500, illegal_address = 700;

FakeDriver& fake() { return FakeDriver::instance(); }

// Handles: the device's or the kernel's number, from 1 on.
template <class Handle>
Handle handle_of(std::size_t number) {
  return reinterpret_cast<Handle>(number);  // NOLINT: never followed
}

const std::string* name_of(Kernel kernel) {
  auto number = reinterpret_cast<std::size_t>(kernel);
  for (const auto& name : fake().kernels)
    if (--number == 0) return &name;
  return nullptr;
}

Result begin(FakeLaunch launch, Function function, Stream stream, void** arguments) {
  if (fake().context_stack.empty()) return invalid_context;
  if (const auto result = fake().answer("launch")) return result;
  launch.kernel = *name_of(reinterpret_cast<Kernel>(function));
  launch.device = fake().context_stack.back();
  launch.stream = stream;
  if (arguments && fake().kernels_of_maps.contains(launch.kernel)) std::memcpy(&launch.first_map, arguments[0], sizeof launch.first_map);
  if (const auto found = fake().integer_arguments.find(launch.kernel); found != fake().integer_arguments.end())
    std::memcpy(&launch.integer, arguments[found->second], sizeof launch.integer);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  fake().launches.push_back(launch);
  return success;
}

Result error_name(Result result, const char** text) {
  static const std::map<Result, const char*> names = {{1, "CUDA_ERROR_INVALID_VALUE"},
                                                      {out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                      {no_device, "CUDA_ERROR_NO_DEVICE"},
                                                      {illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  const auto found = names.find(result);
  *text = found == names.end() ? nullptr : found->second;
  return success;
}

Result device_attribute(int* value, int which, DeviceHandle device) {
  const auto& part = fake().parts[static_cast<std::size_t>(device)];
  const std::map<int, int> values = {{multiprocessors, 132},      {clock_khz, 1980000},           {shared_bytes_opt_in, 232448},
                                     {l2_bytes, 62914560},        {capability_major, part.major}, {capability_minor, part.minor},
                                     {memory_clock_khz, 3201000}, {memory_bus_bits, 6144},        {memory_pools, 1}};
  const auto found = values.find(which);
  if (found == values.end()) return invalid_value;
  *value = found->second;
  return success;
}

Result launch_config(const LaunchConfig* config, Function function, void** arguments, void**) {
  FakeLaunch launch;
  std::copy_n(config->grid, 3, launch.grid);
  std::copy_n(config->block, 3, launch.block);
  launch.shared_bytes = config->shared_bytes;
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    if (config->attributes[i].id == cluster_dimension) std::copy_n(config->attributes[i].cluster, 3, launch.cluster);
    if (config->attributes[i].id == cooperative_launch) launch.cooperative = config->attributes[i].cooperative == 1;
    if (config->attributes[i].id == programmatic_order) launch.overlaps = config->attributes[i].may_overlap == 1;
  }
  return begin(launch, function, config->stream, arguments);
}

std::mutex& memory_mutex() {
  static std::mutex mutex;
  return mutex;
}

Result allocate(Address* address, std::size_t bytes) {
  const std::lock_guard lock(memory_mutex());
  if (fake().context_stack.empty()) return invalid_context;
  if (bytes == 0) return invalid_value;
  if (const auto result = fake().answer("allocate")) return result;
  *address = reinterpret_cast<Address>(::operator new(bytes, std::align_val_t(256)));
  fake().memory[*address] = bytes;
  return success;
}

Result release(Address address) {
  const std::lock_guard lock(memory_mutex());
  if (fake().memory.erase(address) != 1) return invalid_value;
  ::operator delete(reinterpret_cast<void*>(address), std::align_val_t(256));  // NOLINT
  return success;
}

bool holds(Address address, std::size_t bytes) {
  const auto found = fake().memory.find(address);
  return found != fake().memory.end() && bytes <= found->second;
}

void fill_queries(DriverFunctions& call) {
  call.init = [](unsigned) { return fake().init_result; };
  call.version = [](int* version) { return *version = 13000, success; };
  call.error_name = error_name;
  call.error_text = [](Result, const char** text) { return *text = "the driver's words", success; };
  call.device_count = [](int* count) { return *count = static_cast<int>(fake().parts.size()), success; };
  call.device = [](DeviceHandle* device, int ordinal) { return *device = ordinal, success; };
  call.device_name = [](char* name, int size, DeviceHandle device) {
    std::strncpy(name, fake().parts[static_cast<std::size_t>(device)].name.c_str(), static_cast<std::size_t>(size));
    return success;
  };
  call.device_attribute = device_attribute;
  call.device_memory = [](std::size_t* bytes, DeviceHandle) { return *bytes = std::size_t{141} << 30, success; };
}

void fill_contexts(DriverFunctions& call) {
  call.retain_primary = [](Context* context, DeviceHandle device) {
    fake().calls.push_back("retain " + std::to_string(device));
    *context = handle_of<Context>(static_cast<std::size_t>(device) + 1);
    return fake().answer("retain");
  };
  call.push_context = [](Context context) {
    fake().context_stack.push_back(static_cast<int>(reinterpret_cast<std::size_t>(context)) - 1);
    return success;
  };
  call.pop_context = [](Context* context) {
    *context = handle_of<Context>(static_cast<std::size_t>(fake().context_stack.back()) + 1);
    fake().context_stack.pop_back();
    return success;
  };
  call.current_context = [](Context* context) {
    const auto& stack = fake().context_stack;
    *context = fake().context || stack.empty() ? fake().context : handle_of<Context>(static_cast<std::size_t>(stack.back()) + 1);
    return success;
  };
  call.current_device = [](DeviceHandle* device) {
    if (fake().context_stack.empty()) return invalid_context;
    *device = fake().context_stack.back();
    return success;
  };
  call.synchronize = [] { return fake().answer("synchronize"); };
  call.is_capturing = [](Stream, int* status) { return *status = fake().capturing, success; };
  call.exchange_capture_mode = [](int* mode) { return std::swap(*mode, fake().capture_mode), success; };
}

void fill_kernels(DriverFunctions& call) {
  call.load_library = [](Library* library, const void*, int*, void**, unsigned, int*, void**, unsigned) {
    fake().calls.push_back("load in capture mode " + std::to_string(fake().capture_mode));
    *library = handle_of<Library>(1);
    return fake().answer("load");
  };
  call.kernel = [](Kernel* kernel, Library, const char* name) {
    const auto found = fake().kernels.find(name);
    if (found == fake().kernels.end()) return not_found;
    *kernel = handle_of<Kernel>(static_cast<std::size_t>(std::distance(fake().kernels.begin(), found)) + 1);
    return success;
  };
  call.function = [](Function* function, Kernel kernel) {
    fake().calls.push_back("function");
    *function = reinterpret_cast<Function>(kernel);
    return fake().context_stack.empty() ? invalid_context : success;
  };
  call.set_kernel_attribute = [](int attribute, int value, Kernel, DeviceHandle device) {
    fake().calls.push_back("attribute " + std::to_string(attribute) + "=" + std::to_string(value) + " on " + std::to_string(device));
    return success;
  };
  call.launch = [](Function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   Stream stream, void** arguments, void**) {
    return begin({{}, 0, {gx, gy, gz}, {bx, by, bz}, shared, {}, false, nullptr, {}}, function, stream, arguments);
  };
  call.launch_config = launch_config;
  call.launch_cooperative = [](Function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, Stream stream, void** arguments) {
    return begin({{}, 0, {gx, gy, gz}, {bx, by, bz}, shared, {}, true, nullptr, {}}, function, stream, arguments);
  };
  call.blocks_a_processor = [](int* blocks, Function, int threads, std::size_t shared) {
    if (fake().context_stack.empty()) return invalid_context;
    fake().calls.push_back("occupancy of " + std::to_string(threads) + " threads, " + std::to_string(shared) + " bytes");
    *blocks = fake().blocks_a_processor;
    return fake().answer("occupancy");
  };
  call.clusters_at_once = [](int* clusters, Function, const LaunchConfig* config) {
    if (fake().context_stack.empty()) return invalid_context;
    fake().calls.push_back("clusters of " + std::to_string(config->attributes[0].cluster[0]));
    *clusters = fake().clusters_at_once;
    return fake().answer("clusters");
  };
}

void fill_memory(DriverFunctions& call) {
  call.allocate = allocate;
  call.free = release;
  call.copy_to_device = [](Address to, const void* from, std::size_t bytes) {
    if (!holds(to, bytes)) return invalid_value;
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);  // NOLINT
    return success;
  };
  call.copy_to_host = [](void* to, Address from, std::size_t bytes) {
    if (!holds(from, bytes)) return invalid_value;
    std::memcpy(to, reinterpret_cast<void*>(from), bytes);  // NOLINT
    return success;
  };
  call.memory_info = [](std::size_t* available, std::size_t* total) { return *available = 1000, *total = 2000, success; };
  call.allocate_async = [](Address* address, std::size_t bytes, Stream) { return allocate(address, bytes); };
  call.free_async = [](Address address, Stream) { return release(address); };
  call.fill_async = [](Address address, unsigned char value, std::size_t bytes, Stream stream) {
    if (fake().context_stack.empty()) return invalid_context;
    if (const auto result = fake().answer("fill")) return result;
    fake().fills.push_back({address, value, bytes, fake().launches.size(), stream});
    return success;
  };
  call.default_pool = [](Pool* pool, DeviceHandle) { return *pool = handle_of<Pool>(1), success; };
  call.pool_attribute = [](Pool, int, void* value) { return std::memcpy(value, &fake().threshold, 8), success; };
  call.set_pool_attribute = [](Pool, int, void* value) {
    fake().calls.push_back("threshold");
    return std::memcpy(&fake().threshold, value, 8), success;
  };
}

// The map holds its arguments, so that tests can read them: type, rank, address, swizzle, extents, strides, boxes.
void fill_tensor_maps(DriverFunctions& call) {
  call.encode_tiled = [](TensorMap* map, int type, std::uint32_t rank, void* address, const std::uint64_t* extents,
                         const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t*, int, int swizzle, int, int) {
    if (fake().context_stack.empty()) return invalid_context;
    fake().calls.push_back("encode");
    map->words[0] = reinterpret_cast<std::uint64_t>(address);
    map->words[1] = static_cast<std::uint64_t>(type);
    map->words[2] = rank;
    map->words[3] = static_cast<std::uint64_t>(swizzle);
    for (std::uint32_t i = 0; i < rank && i < 4; ++i) {
      map->words[4 + i] = extents[i];
      map->words[8 + i] = i + 1 < rank ? strides[i] : 0;
      map->words[12 + i] = box[i];
    }
    return success;
  };
  call.replace_address = [](TensorMap* map, void* address) {
    if (fake().context_stack.empty()) return invalid_context;
    if (reinterpret_cast<std::uintptr_t>(map) % 64) return invalid_value;
    map->words[0] = reinterpret_cast<std::uint64_t>(address);
    return success;
  };
}

}  // namespace

FakeDriver& FakeDriver::instance() {
  static FakeDriver state;
  return state;
}

std::size_t FakeDriver::count(const std::string& call) const {
  return static_cast<std::size_t>(std::ranges::count_if(calls, [&](const auto& each) { return each.starts_with(call); }));
}

Result FakeDriver::answer(const std::string& function) const {
  const auto found = next_result.find(function);
  return found == next_result.end() ? success : found->second;
}

Driver fake_driver() {
  Driver driver;
  driver.vendor = &nvidia();
  driver.path = "/fake/libcuda.so.1";
  driver.version = 13000;
  driver.release = "580.65.06";
  fill_queries(driver.call);
  fill_contexts(driver.call);
  fill_kernels(driver.call);
  fill_memory(driver.call);
  fill_tensor_maps(driver.call);
  return driver;
}

}  // namespace ejk::cuda

// The driver's functions over the emulator.
#include "emulator/ptx/device/driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>

#include "emulator/ptx/memory/allocations.hpp"
#include "emulator/ptx/run/run.hpp"

namespace ejk::ptx {
namespace {

using namespace gpu;
using gpu::Address, gpu::Result, gpu::Stream;

constexpr Result invalid_value = 1, invalid_image = 200, not_found = 500;
// None of the driver's own: a kernel's fault leaves this device as it was.
constexpr Result kernel_fault = 998;
constexpr std::align_val_t memory_alignment{256};
constexpr int sms = 4;

// A module and its entries, loaded for ever.
struct Loaded {
  std::unique_ptr<Program> program;
  std::map<std::string, std::pair<const Program*, const EntryCode*>> kernels;
};

// What the last fault of this thread was, which the driver tells as an error's text.
std::string& last_words() {
  static thread_local std::string words;
  return words;
}

int current = 0;  // what contexts point to
Context context() { return reinterpret_cast<Context>(&current); }

Result device_attribute(int* value, int which, DeviceHandle) {
  static const std::map<int, int> values = {
      {cuda::multiprocessors, sms},      {cuda::clock_khz, 1000000},    {cuda::shared_bytes_opt_in, 232448},
      {cuda::l2_bytes, 1 << 25},         {cuda::capability_major, 9},   {cuda::capability_minor, 0},
      {cuda::memory_clock_khz, 1000000}, {cuda::memory_bus_bits, 1024}, {cuda::memory_pools, 1}};
  const auto found = values.find(which);
  if (found == values.end()) return invalid_value;
  *value = found->second;
  return success;
}

void fill_devices(DriverFunctions& call) {
  call.init = [](unsigned) { return success; };
  call.version = [](int* version) { return *version = 13000, success; };
  call.error_name = [](Result result, const char** text) {
    *text = result == kernel_fault    ? "a kernel's fault"
            : result == invalid_image ? "CUDA_ERROR_INVALID_IMAGE"
            : result == out_of_memory ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == invalid_value ? "CUDA_ERROR_INVALID_VALUE"
                                      : nullptr;
    return success;
  };
  call.error_text = [](Result, const char** text) { return *text = last_words().c_str(), success; };
  call.device_count = [](int* count) { return *count = 1, success; };
  call.device = [](DeviceHandle* device, int ordinal) { return *device = ordinal, success; };
  call.device_name = [](char* name, int size, DeviceHandle) {
    std::strncpy(name, "PTX emulator", static_cast<std::size_t>(size));
    return success;
  };
  call.device_attribute = device_attribute;
  call.device_memory = [](std::size_t* bytes, DeviceHandle) { return *bytes = std::size_t{16} << 30, success; };
  call.retain_primary = [](Context* made, DeviceHandle) { return *made = context(), success; };
  call.push_context = [](Context) { return success; };
  call.pop_context = [](Context* popped) { return *popped = context(), success; };
  call.current_context = [](Context* found) { return *found = context(), success; };
  call.current_device = [](DeviceHandle* device) { return *device = 0, success; };
  call.synchronize = [] { return success; };
  call.exchange_capture_mode = [](int*) { return success; };
  call.is_capturing = [](Stream, int* status) { return *status = 0, success; };
}

Result load(Library* library, const void* bytes, int*, void**, unsigned, int*, void**, unsigned) {
  auto text = ptx_of(bytes);
  if (text.empty()) return last_words() = "it is for a GPU: the emulator takes what it has compiled itself", invalid_image;
  try {
    auto loaded = std::make_unique<Loaded>();
    loaded->program = parse(std::move(text));
    if (!loaded->program->globals.empty()) allocations().add(loaded->program->global_memory, loaded->program->globals.size());
    *library = reinterpret_cast<Library>(loaded.release());
    return success;
  } catch (const std::exception& error) {
    last_words() = fmt::format("its PTX is not understood: {}", error.what());
    return invalid_image;
  }
}

Result find_kernel(gpu::Kernel* kernel, Library library, const char* name) {
  auto& loaded = *reinterpret_cast<Loaded*>(library);
  const auto found = loaded.program->entries.find(std::string_view(name));
  if (found == loaded.program->entries.end()) return not_found;
  auto& made = loaded.kernels[name];
  made = {loaded.program.get(), &found->second};
  *kernel = reinterpret_cast<gpu::Kernel>(&made);
  return success;
}

Result launch(Function function, const LaunchConfig& config, void** arguments) {
  const auto& [program, entry] = *reinterpret_cast<const std::pair<const Program*, const EntryCode*>*>(function);
  Launch launch;
  launch.program = program, launch.entry = entry, launch.dynamic_shared = config.shared_bytes;
  launch.arguments = {arguments, entry->parameters.size()};
  launch.pace = pace(), launch.seed = next_seed();
  for (std::size_t i = 0; i < 3; ++i) launch.grid[i] = config.grid[i], launch.threads[i] = config.block[i];
  for (unsigned a = 0; a < config.attribute_count; ++a) {
    const auto& attribute = config.attributes[a];
    for (std::size_t i = 0; attribute.id == cluster_dimension && i < 3; ++i) launch.cluster[i] = attribute.cluster[i];
    if (attribute.id == cooperative_launch) launch.cooperative = attribute.cooperative == 1;
  }
  try {
    run(launch);
    return success;
  } catch (const std::exception& error) {
    last_words() = error.what();
    return kernel_fault;
  }
}

// By threads and shared memory, as compute capability 9.0 has them; PTX does not tell registers.
Result blocks_a_processor(int* blocks, Function function, int threads, std::size_t dynamic_shared) {
  constexpr std::size_t threads_of_all = 2048, shared_of_all = 233472, most_blocks = 32;
  const auto* entry = reinterpret_cast<const std::pair<const Program*, const EntryCode*>*>(function)->second;
  const auto shared = reserved_shared + entry->shared_bytes + dynamic_shared;
  *blocks = static_cast<int>(std::min({threads_of_all / static_cast<std::size_t>(threads), shared_of_all / shared, most_blocks}));
  return success;
}

void fill_kernels(DriverFunctions& call) {
  call.load_library = load;
  call.kernel = find_kernel;
  call.function = [](Function* function, gpu::Kernel kernel) { return *function = reinterpret_cast<Function>(kernel), success; };
  call.set_kernel_attribute = [](int, int, gpu::Kernel, DeviceHandle) { return success; };
  call.launch = [](Function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   Stream stream, void** arguments, void**) {
    return launch(function, LaunchConfig{{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0}, arguments);
  };
  call.launch_config = [](const LaunchConfig* config, Function function, void** arguments, void**) {
    return launch(function, *config, arguments);
  };
  call.blocks_a_processor = blocks_a_processor;
  call.clusters_at_once = [](int* clusters, Function, const LaunchConfig*) { return *clusters = 1, success; };
}

Result allocate(Address* address, std::size_t bytes) {
  void* const memory = ::operator new(bytes, memory_alignment, std::nothrow);
  if (!memory) return out_of_memory;
  std::memset(memory, 0x7f, bytes);
  allocations().add(memory, bytes);
  *address = address_of(memory);
  return success;
}

Result release(Address address) {
  allocations().remove(pointer_to(address));
  ::operator delete(pointer_to(address), memory_alignment);
  return success;
}

void fill_memory(DriverFunctions& call) {
  call.allocate = allocate;
  call.free = release;
  call.copy_to_device = [](Address to, const void* from, std::size_t bytes) { return std::memcpy(pointer_to(to), from, bytes), success; };
  call.copy_to_host = [](void* to, Address from, std::size_t bytes) { return std::memcpy(to, pointer_to(from), bytes), success; };
  call.memory_info = [](std::size_t* available, std::size_t* total) { return *available = *total = std::size_t{16} << 30, success; };
  call.allocate_async = [](Address* address, std::size_t bytes, Stream) { return allocate(address, bytes); };
  call.free_async = [](Address address, Stream) { return release(address); };
  call.fill_async = [](Address address, unsigned char value, std::size_t bytes, Stream) {
    return std::memset(pointer_to(address), value, bytes), success;
  };
  call.default_pool = [](Pool* pool, DeviceHandle) { return *pool = reinterpret_cast<Pool>(&current), success; };
  call.pool_attribute = [](Pool, int, void* value) { return std::memset(value, 0xff, sizeof(std::uint64_t)), success; };
  call.set_pool_attribute = [](Pool, int, void*) { return success; };
}

Result encode(gpu::TensorMap* to, int type, std::uint32_t rank, void* address, const std::uint64_t* extents, const std::uint64_t* strides,
              const std::uint32_t* box, const std::uint32_t*, int, int swizzle, int, int) {
  TensorMap map{};
  map.magic = tensor_map_magic, map.address = address_of(address);
  map.rank = static_cast<std::uint8_t>(rank), map.type = static_cast<std::uint8_t>(type), map.swizzle = static_cast<std::uint8_t>(swizzle);
  for (std::uint32_t i = 0; i < rank; ++i) {
    map.extents_less_1[i] = static_cast<std::uint32_t>(extents[i] - 1);
    map.box[i] = static_cast<std::uint16_t>(box[i]);
    if (i > 0) map.strides[i - 1] = strides[i - 1];
  }
  std::memcpy(to, &map, sizeof map);
  return success;
}

Result replace_address(gpu::TensorMap* to, void* address) {
  TensorMap map;
  std::memcpy(&map, to, sizeof map);
  map.address = address_of(address);
  std::memcpy(to, &map, sizeof map);
  return success;
}

}  // namespace

Driver driver() {
  Driver made;
  made.vendor = &cuda::nvidia();
  made.path = "the PTX emulator";
  made.version = 13000;
  fill_devices(made.call);
  fill_kernels(made.call);
  fill_memory(made.call);
  made.call.encode_tiled = encode, made.call.replace_address = replace_address;
  return made;
}

}  // namespace ejk::ptx

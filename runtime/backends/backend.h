// What a platform gives the runtime: probe, compile, load, launch, time, error text. One .cpp a backend implements it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backends/process/stages.hpp"
#include "ejk/tensor.hpp"
#include "spec/model.hpp"
#include "spec/render/image.hpp"

namespace ejk {

struct Probe {
  bool available = false;
  std::string why_not;                                          // if not available: what was looked for and not found
  std::string description;                                      // "Intel(R) Xeon(R) Processor, 2 threads"
  std::string fingerprint;                                      // stable text that names the device in records: "cpu-avx512-2t"
  std::vector<std::string> archs;                               // full names of the catalogue's archs this device runs, most specific first
  std::vector<std::pair<std::string, spec::Value>> properties;  // what is measured here and overrides arch properties (threads, sms)
  std::vector<std::string> features;                            // as found
};

struct CompileResult {
  bool ok = false;
  bool transient = false;            // failed for a reason outside the source (killed, timed out, disk full): worth another try
  std::string binary;                // bytes
  std::string log;                   // the compiler's words
  std::string compiler;              // "g++ (Debian 12.2.0-14) 12.2.0"
  std::vector<std::string> command;  // without paths of this machine
  spec::Resources resources;         // those of spec/check/limits.hpp that it knows
  Stages assembled;                  // what the assembler says that each entry took
};

// A loaded binary; entries live as long as it does.
class Module {
 public:
  virtual ~Module() = default;
  virtual void* entry(const std::string& name) = 0;  // nullptr: no such entry
};

// One grid of one entry. arguments[i] points at the i-th argument's value (a pointer, int64_t, float or bool).
struct LaunchRequest {
  void* entry = nullptr;
  std::int64_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  std::int64_t shared_bytes = 0;
  bool cooperative = false;
  bool overlaps = false;  // may start before the launch before it in its stream has ended; backends that cannot do so need not
  int device = 0;
  const char* name = nullptr;  // the entry's, for errors; null: unknown
  void* const* arguments = nullptr;
};

// What a device or its driver refused: no device, a lost context, memory that is out. It says nothing of a binary's worth.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A tensor map to encode: the tensor as it lies in memory (extents and strides in elements, outermost first), the box a copy moves, and the
// swizzle of its bytes in shared memory (0, 32, 64 or 128).
struct TensorMapRequest {
  DType type = DType::f32;
  void* address = nullptr;
  std::vector<std::int64_t> shape, strides, box;
  std::int64_t swizzle = 0;
  int device = 0;  // on which it will be used
};
constexpr std::size_t tensor_map_bytes = 128, tensor_map_alignment = 64;

// Memory of a device, for tools, tests and bindings that own tensors; calls themselves use none of it. Everything here waits for the
// device. Throws std::runtime_error with the driver's words.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(int device, std::int64_t bytes) = 0;  // aligned to 256 bytes
  virtual void free(int device, void* memory) noexcept = 0;
  virtual void copy_to_device(int device, void* to, const void* from, std::int64_t bytes) = 0;
  virtual void copy_to_host(int device, void* to, const void* from, std::int64_t bytes) = 0;
  virtual void synchronize(int device) = 0;  // waits for all work of the device; reports what went wrong in it
};

// Times work on a stream by the device's own clock, for tools. One user at a time. Throws std::runtime_error with the driver's words.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  virtual void start(void* stream) = 0;  // marks put on the stream, like work
  virtual void stop(void* stream) = 0;
  virtual double seconds() = 0;  // between the two marks; waits for the second
  // Both are put on the stream: a copy within the device, and an empty kernel by nothing but the driver's own launch.
  virtual void copy(void* stream, void* to, const void* from, std::int64_t bytes) = 0;
  virtual void launch_nothing(void* stream) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string platform() const = 0;  // "cpu"
  virtual DeviceType device_type() const = 0;
  virtual int device_count() { return 1; }  // 0: the platform is not here; probe(archs, 0) then says why
  // archs: the catalogue's, of this platform.
  virtual Probe probe(std::span<const spec::Arch* const> archs, int device) = 0;
  virtual bool can_compile(const spec::Arch& arch, std::string& why_not) = 0;
  virtual CompileResult compile(const spec::Image& image, const spec::Arch& arch) = 0;  // thread-safe
  // The same code, as soon as several processors have it, where somebody waits. The binary may be another, which load_bytes() takes, too.
  virtual CompileResult compile_soon(const spec::Image& image, const spec::Arch& arch) { return compile(image, arch); }
  // Vendor libraries by role, found or what was looked for: {"driver", "/usr/lib/.../libcuda.so.1, driver 580.65, CUDA 13.0"}.
  virtual std::vector<std::pair<std::string, std::string>> libraries() { return {}; }
  // What compile() would put into CompileResult::compiler; empty if there is no compiler for that arch.
  virtual std::string compiler(const spec::Arch& arch) = 0;
  // By bytes alone: what a store has hashed is what is loaded. Throws std::runtime_error with the loader's words: the binary is of no use
  // here. DeviceError: the device is.
  virtual std::unique_ptr<Module> load_bytes(const std::string& binary, const spec::Image& image) = 0;
  // Thread-safe, no allocation after warm-up. CPU: returns when the work is done. GPU: puts it on `stream` (null: the default stream) and
  // returns; legal while the stream is being captured. Throws std::runtime_error with the driver's words.
  virtual void launch(const LaunchRequest& request, void* stream) = 0;
  // Whether launches on that stream are recorded into a graph now, or may be.
  virtual bool capturing(int /*device*/, void* /*stream*/) { return false; }
  // So many blocks (CPU: work items) of that cooperative launch are there at once. Throws as launch() does.
  virtual std::int64_t resident_blocks(const LaunchRequest& /*request*/) { return INT64_MAX; }
  // Why no cluster of that launch fits the device, even when nothing else runs there; empty: one does, or the launch has none.
  virtual std::string why_not_placed(const LaunchRequest& /*request*/) { return {}; }
  // What a cooperative launch's argument `grid_barrier` is, where it is no word of the workspace; it lives for ever.
  virtual const void* grid_barrier() { return nullptr; }
  // Scratch of one call: valid for work put on `stream` between the two, 64-byte aligned (GPU: 256), contents undefined. Legal under
  // capture. Throws std::bad_alloc, or std::runtime_error with the driver's words.
  virtual void* acquire_workspace(int device, void* stream, std::int64_t bytes) = 0;
  virtual void release_workspace(int device, void* stream, void* workspace) noexcept = 0;
  // Puts it on `stream`, as a launch. Thread-safe, legal under capture. Throws std::runtime_error with the driver's words.
  virtual void zero(int device, void* stream, void* memory, std::int64_t bytes) = 0;
  // A tensor map of 128 bytes, aligned to 64: encoded for a plan, its address replaced for each call. Throws DeviceError.
  virtual void encode_tensor_map(const TensorMapRequest& request, void* map);
  virtual void set_tensor_map_address(int device, void* map, void* address);
  virtual DeviceMemory* memory() { return nullptr; }                              // nullptr: tensors lie in host memory
  virtual std::unique_ptr<DeviceTimer> timer(int /*device*/) { return nullptr; }  // nullptr: the host's clock serves
  virtual std::string source_extension() const = 0;                               // "cpp"
  virtual std::string binary_extension() const = 0;                               // "so"
};

// The CPU: g++/clang shared objects, archs by CPUID, work items over a thread pool.
Backend& cpu_backend();
// Threads that CPU launches use, caller included. 0: as many as the process may run on.
void set_cpu_threads(int threads);
int cpu_threads();

// NVIDIA GPUs: cubins by NVRTC, launched through libcuda; both are looked for at run time.
Backend& cuda_backend();

// AMD GPUs: code objects by clang or hipRTC, launched through libamdhip64; all are looked for at run time.
Backend& hip_backend();

// Every backend, in the order they are asked: those of this build, then those that a test or tool added.
std::span<Backend* const> backends();
void add_backend(Backend& backend);  // before the library's first use; it must live for ever
// In the place of that of its platform; likewise.
void replace_backend(Backend& backend);
Backend* backend_of(const std::string& platform);

}  // namespace ejk

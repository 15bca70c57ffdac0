// The one library of a process: catalogue, stores, machines, kernels. Made on first use; throws what spec and store throw.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "common/environment.hpp"
#include "ejk/kernel.hpp"
#include "ejk/library.hpp"
#include "spec/read/catalogue.hpp"
#include "store/obtain.hpp"
#include "store/store.hpp"

namespace ejk {

// One device of a backend with what it found: the archs it runs, with the measured properties (threads, cache sizes) in place of the
// arch file's.
struct Machine {
  Backend* backend = nullptr;
  int device = 0;
  Probe probe;
  std::vector<spec::Arch> archs;  // runnable ones, most specific first
  const spec::Arch* arch(const std::string& full_name) const;
};

class SpecKernel;

// What find_kernel returns: lives for ever.
class KernelHandle {
 public:
  KernelHandle(std::string name, std::shared_ptr<const spec::Spec> spec);
  ~KernelHandle();
  const std::string name;
  const std::shared_ptr<const spec::Spec> spec;
  const std::size_t inputs;        // spec->tensors[0, inputs) are inputs
  const std::vector<char> varies;  // by attribute: 1 if it stays out of keys
  const std::unique_ptr<const SpecKernel> kernel;
  const Kernel* kernel_interface() const;
};

class Library {
 public:
  static Library& instance();

  // Everything that is fixed once the library is in use. Throws std::runtime_error or spec::SpecError if there is no usable store.
  struct Parts {
    Environment environment;
    store::Places places;
    std::vector<std::string> searched;                         // every folder that was considered as a store, and what was found
    std::vector<std::pair<std::string, std::string>> refused;  // stores that others can write to: path, why
    spec::Catalogue catalogue;
    std::vector<Machine> machines;
    std::shared_ptr<ConfigSelectorChain> chain;
  };
  const Parts& parts();
  const Machine* machine(Device device);                // nullptr: no backend has that kind of device, or it has fewer
  const KernelHandle* kernel(const std::string& name);  // nullptr: no such kernel

  void add_store(const std::string& path);
  void set_threads(int threads);

  Jit jit();  // EJKERNEL_JIT, or what set_jit said since
  void set_jit(Jit jit);

  struct AtomicCounters {
    std::atomic<std::uint64_t> plans{0}, compiles{0}, loads{0}, fallbacks{0}, stand_ins{0};
  };
  static AtomicCounters counters;

 private:
  std::unique_ptr<Parts> make_parts();
  std::mutex mutex_;
  std::vector<std::string> added_stores_;
  std::unique_ptr<Parts> parts_;
  std::atomic<const Parts*> ready_{nullptr};
  static constexpr int as_environment = -1;
  std::atomic<int> jit_{as_environment};
  std::map<std::string, std::unique_ptr<KernelHandle>> kernels_;
};

// Throws CallError naming the kernels there are.
const KernelHandle& require_kernel(const std::string& name);

// A line to stderr if EJKERNEL_LOG=on.
void log_line(const std::string& line);

}  // namespace ejk

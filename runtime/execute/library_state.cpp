// Finds stores, probes machines, hands out kernels.
#include "execute/library_state.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "backends/cpu/executor.hpp"
#include "common/epoch.hpp"
#include "execute/arch_here.hpp"
#include "execute/fork_gate.hpp"
#include "execute/spec_kernel.hpp"
#include "spec/fault.hpp"

namespace ejk {
namespace {

namespace fs = std::filesystem;

// The folder of the file (library or program) that holds this code.
fs::path own_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&own_folder), &info) || !info.dli_fname) return {};
  std::error_code error;
  auto path = fs::canonical(info.dli_fname, error);
  if (error) path = fs::canonical("/proc/self/exe", error);
  return error ? fs::path{} : path.parent_path();
}

std::vector<fs::path> store_candidates(const std::vector<std::string>& added, const Environment& environment) {
  std::vector<fs::path> result(added.begin(), added.end());
  result.insert(result.end(), environment.stores.begin(), environment.stores.end());
  if (const auto own = own_folder(); !own.empty()) {
    result.push_back(own.parent_path() / "store");
    result.push_back(own.parent_path() / "share" / "ejk" / "store");
  }
  return result;
}

void replace(spec::Arch& arch, const std::string& property, const spec::Value& value) {
  const auto [place, added] = arch.properties.try_emplace(property, value);
  if (added || place->second == value) return;
  arch.replaced.emplace(property, std::exchange(place->second, value));
}

// EJKERNEL_SMEM_LIMIT: configs that need more are invalid, as on a device that has no more.
void limit_shared_memory(spec::Arch& arch, std::int64_t limit) {
  const auto found = arch.properties.find("shared_memory");
  if (arch.platform == "cpu" || !limit || found == arch.properties.end()) return;
  if (const auto* bytes = std::get_if<std::int64_t>(&found->second)) replace(arch, "shared_memory", std::min(*bytes, limit));
}

Machine make_machine(Backend& backend, int device, const spec::Catalogue& catalogue, const Environment& environment) {
  Machine machine;
  machine.backend = &backend;
  machine.device = device;
  std::vector<const spec::Arch*> archs;
  for (const auto& [name, arch] : catalogue.archs())
    if (arch.platform == backend.platform()) archs.push_back(&arch);
  machine.probe = backend.probe(archs, device);
  for (const auto& name : machine.probe.archs) {
    machine.archs.push_back(arch_here(*catalogue.arch(name), machine.probe, environment));
    if (backend.platform() == "cpu") machine.archs.back().properties["threads"] = std::int64_t{cpu_threads()};
  }
  return machine;
}

// In an agreement the user's records are written but not read: they differ from machine to machine.
std::shared_ptr<ConfigSelectorChain> make_chain(const store::Places& places, const Environment& environment) {
  std::vector<std::string> folders;
  RecordsWriting writing{"", environment.agreement, std::chrono::seconds(environment.agreement_seconds)};
  if (places.user) writing.user = (places.user->root() / "tuned").string();
  if (places.user && environment.agreement.empty()) folders.push_back(writing.user);
  for (const auto& pack : places.packs) folders.push_back((pack.root() / "specs" / "tuned").string());
  return std::make_shared<ConfigSelectorChain>(
      std::make_shared<ConfigCache>(), std::make_shared<PersistentCache>(std::move(folders), std::move(writing)), environment.policy);
}

}  // namespace

spec::Arch arch_here(const spec::Arch& arch, const Probe& probe, const Environment& environment) {
  auto here = arch;
  for (const auto& [property, value] : probe.properties) replace(here, property, value);
  limit_shared_memory(here, environment.smem_limit);
  return here;
}

const spec::Arch* Machine::arch(const std::string& full_name) const {
  const auto found = std::find_if(archs.begin(), archs.end(), [&](const auto& arch) { return arch.full_name() == full_name; });
  return found == archs.end() ? nullptr : &*found;
}

namespace {

std::vector<char> varying(const spec::Spec& spec) {
  std::vector<char> result;
  for (const auto& attribute : spec.attributes) result.push_back(attribute.varies);
  return result;
}

}  // namespace

KernelHandle::KernelHandle(std::string name_, std::shared_ptr<const spec::Spec> spec_)
    : name(std::move(name_)),
      spec(std::move(spec_)),
      inputs(static_cast<std::size_t>(std::count_if(spec->tensors.begin(), spec->tensors.end(), [](const auto& t) { return !t.output; }))),
      varies(varying(*spec)),
      kernel(std::make_unique<SpecKernel>(*this)) {}

KernelHandle::~KernelHandle() = default;

const Kernel* KernelHandle::kernel_interface() const { return kernel.get(); }

Library::AtomicCounters Library::counters;

Library& Library::instance() {
  static Library* library = new Library;  // never destroyed: calls may come from other objects' destructors
  return *library;
}

std::unique_ptr<Library::Parts> Library::make_parts() {
  auto environment = read_environment();
  store::Places places;
  if (const auto cache = store::user_cache_dir(places.why_no_user)) places.user.emplace(*cache, true, store::Trust::cache());
  std::vector<std::string> searched;
  std::vector<std::pair<std::string, std::string>> refused;
  for (const auto& path : store_candidates(added_stores_, environment)) {
    std::error_code error;
    const bool is_store = fs::is_directory(path / "specs", error);
    const auto fault = is_store ? store::pack_fault(path) : "";
    searched.push_back(path.string() + (!is_store ? ": no specs folder" : fault.empty() ? "" : ": refused: " + fault));
    if (!fault.empty()) {
      refused.emplace_back(path.string(), fault);
      log_line("a store is not used: " + fault);
    } else if (is_store) {
      places.packs.emplace_back(path, false);
    }
  }
  if (places.packs.empty())
    throw spec::CallError(
        spec::CallError::Kind::bad_input,
        fmt::format("no store with kernels found; looked at {}. Build one with `ejk build`, or name one in EJKERNEL_STORE",
                    fmt::join(searched, ", ")));
  std::vector<spec::Catalogue::Folders> folders;
  for (const auto& pack : places.packs)  // one may be named twice
    if (std::none_of(folders.begin(), folders.end(), [&](const auto& each) { return each.specs == pack.root() / "specs"; }))
      folders.push_back({pack.root() / "specs", pack.root() / "templates"});
  auto catalogue = spec::Catalogue::open(folders);
  if (environment.threads) set_cpu_threads(environment.threads);
  use_own_cpu_pool(environment.own_executor);
  std::vector<Machine> machines;
  for (auto* backend : backends())
    for (int device = 0; device < std::max(1, backend->device_count()); ++device)
      machines.push_back(make_machine(*backend, device, catalogue, environment));
  auto chain = make_chain(places, environment);
  return std::unique_ptr<Parts>(new Parts{std::move(environment), std::move(places), std::move(searched), std::move(refused),
                                          std::move(catalogue), std::move(machines), std::move(chain)});
}

const Library::Parts& Library::parts() {
  if (const auto* ready = ready_.load(std::memory_order_acquire)) return *ready;
  const ForkGate gate;
  const std::lock_guard lock(mutex_);
  if (!parts_) parts_ = make_parts();
  ready_.store(parts_.get(), std::memory_order_release);
  return *parts_;
}

const Machine* Library::machine(Device device) {
  for (const auto& machine : parts().machines)
    if (machine.backend->device_type() == device.type && (device.type == DeviceType::cpu || machine.device == device.index))
      return &machine;
  return nullptr;
}

const KernelHandle* Library::kernel(const std::string& name) {
  const ForkGate gate;
  const auto& catalogue = parts().catalogue;
  const std::lock_guard lock(mutex_);
  if (const auto found = kernels_.find(name); found != kernels_.end()) return found->second.get();
  auto spec = catalogue.kernel(name);
  if (!spec) return nullptr;
  return kernels_.emplace(name, std::make_unique<KernelHandle>(name, std::move(spec))).first->second.get();
}

void Library::add_store(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (parts_)
    throw spec::CallError(spec::CallError::Kind::bad_input,
                          "add_store('" + path + "') comes too late: the library is in use. Add stores before the first call");
  std::error_code error;
  if (!fs::is_directory(fs::path(path) / "specs", error))
    throw spec::CallError(spec::CallError::Kind::bad_input,
                          "'" + path + "' is not a store: it has no specs folder. `ejk build --store " + path + "` makes one");
  added_stores_.push_back(path);
}

void Library::set_threads(int threads) {
  if (threads < 0 || threads > 4096)
    throw spec::CallError(spec::CallError::Kind::bad_input, fmt::format("set_threads: expected 0 (all) to 4096, found {}", threads));
  set_cpu_threads(threads);
  ++decisions_epoch;
}

Jit Library::jit() {
  const int set = jit_.load(std::memory_order_relaxed);
  return set == as_environment ? parts().environment.jit : static_cast<Jit>(set);
}

void Library::set_jit(Jit jit) {
  if (jit != Jit::off && jit != Jit::on && jit != Jit::background)
    throw spec::CallError(spec::CallError::Kind::bad_input,
                          fmt::format("set_jit: expected off, on or background, found {}", static_cast<int>(jit)));
  jit_.store(static_cast<int>(jit), std::memory_order_relaxed);
  ++decisions_epoch;
}

void log_line(const std::string& line) {
  static const bool on = [] {
    try {
      return read_environment().log;
    } catch (const std::exception&) {
      return false;
    }
  }();
  if (on) std::fprintf(stderr, "ejk: %s\n", line.c_str());
}

}  // namespace ejk

// ejk/library.hpp: stores, threads, calls by name, info.
#include "ejk/library.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backends/cpu/executor.hpp"
#include "common/guard.hpp"
#include "ejk/record.hpp"
#include "execute/background.hpp"
#include "execute/facts.hpp"
#include "execute/library_state.hpp"
#include "execute/plan.hpp"
#include "execute/tested_versions.hpp"
#include "spec/call/gradient.hpp"

namespace ejk {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

std::int64_t count_images(const fs::path& root) {
  std::int64_t count = 0;
  std::error_code error;
  for (fs::directory_iterator kernel(root, error), end; !error && kernel != end; kernel.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator entry(kernel->path(), inner), last; !inner && entry != last; entry.increment(inner))
      count += fs::exists(entry->path() / "image.json", inner);
  }
  return count;
}

ordered_json backends_json(const Library::Parts& parts) {
  auto list = ordered_json::array();
  for (const auto& machine : parts.machines) {
    ordered_json properties = ordered_json::object();
    for (const auto& [name, value] : machine.probe.properties)
      std::visit([&, &name = name](const auto& v) { properties[name] = v; }, value);
    ordered_json libraries = ordered_json::object();
    for (const auto& [role, found] : machine.backend->libraries()) libraries[role] = found;
    list.push_back({{"platform", machine.backend->platform()},
                    {"device", machine.device},
                    {"available", machine.probe.available},
                    {"why_not", machine.probe.why_not},
                    {"description", machine.probe.description},
                    {"fingerprint", machine.probe.fingerprint},
                    {"archs", machine.probe.archs},
                    {"properties", properties},
                    {"features", machine.probe.features},
                    {"libraries", libraries}});
  }
  return list;
}

ordered_json stores_json(const Library::Parts& parts) {
  auto list = ordered_json::array();
  if (parts.places.user)
    list.push_back({{"role", "user cache"}, {"path", parts.places.user->root()}, {"images", count_images(parts.places.user->root())}});
  else
    list.push_back({{"role", "user cache"}, {"path", nullptr}, {"why_not", parts.places.why_no_user}});
  for (const auto& pack : parts.places.packs)
    list.push_back({{"role", "pack"}, {"path", pack.root()}, {"images", count_images(pack.root())}});
  for (const auto& [path, why] : parts.refused) list.push_back({{"role", "refused"}, {"path", nullptr}, {"named", path}, {"why_not", why}});
  return list;
}

ordered_json kernel_json(const spec::Spec& spec) {
  auto variants = ordered_json::array();
  for (const auto& variant : spec.variants) variants.push_back({{"name", variant.name}, {"archs", variant.archs}, {"doc", variant.doc}});
  return {{"name", spec.kernel},
          {"doc", spec.doc},
          {"gradient", fmt::format("{}", fmt::join(spec::gradient_kernels(spec), ", "))},
          {"cases", spec.cases.size()},
          {"variants", variants}};
}

// Those whose specs can be used; the other files of the specs folders, with what is wrong with them, go to `passed_over`.
ordered_json kernels_json(Library& library, const Library::Parts& parts, ordered_json& passed_over) {
  auto list = ordered_json::array();
  auto faults = parts.catalogue.passed_over();
  for (const auto& name : parts.catalogue.kernel_names()) {
    try {
      if (const auto* kernel = library.kernel(name)) list.push_back(kernel_json(*kernel->spec));  // else its file went meanwhile
    } catch (const spec::SpecError& error) {
      faults.insert(faults.end(), error.faults().begin(), error.faults().end());
    }
  }
  for (const auto& fault : faults) passed_over.push_back({{"file", fault.file}, {"where", fault.where}, {"reason", fault.sentence}});
  return list;
}

ordered_json compilers_json(const Library::Parts& parts) {
  auto object = ordered_json::object();
  const auto ask = [&](Backend& backend, const spec::Arch& arch) {
    std::string why_not;
    object[arch.full_name()] = backend.can_compile(arch, why_not) ? "yes" : why_not;
  };
  for (const auto& machine : parts.machines)
    for (const auto& arch : machine.archs) ask(*machine.backend, arch);
  for (const auto& [name, arch] : parts.catalogue.archs())  // those of GPUs also where no such device is
    if (auto* backend = backend_of(arch.platform); backend && arch.platform != "cpu" && !object.contains(name)) ask(*backend, arch);
  return object;
}

// Properties of the catalogue's GPU archs: what a kernel may use there.
ordered_json archs_json(const Library::Parts& parts) {
  auto object = ordered_json::object();
  for (const auto& [name, arch] : parts.catalogue.archs()) {
    if (arch.platform == "cpu") continue;
    auto& properties = object[name] = ordered_json::object();
    for (const auto& [property, value] : arch.properties)
      std::visit([&, &property = property](const auto& v) { properties[property] = v; }, value);
  }
  return object;
}

}  // namespace

const KernelHandle& require_kernel(const std::string& name) {
  auto& library = Library::instance();
  if (const auto* kernel = library.kernel(name)) return *kernel;
  std::string names;
  for (const auto& known : library.parts().catalogue.kernel_names()) names += (names.empty() ? "" : ", ") + known;
  throw spec::CallError(spec::CallError::Kind::bad_input, "no kernel '" + name + "'; the stores have " + names);
}

Status add_store(const std::string& path) {
  return guarded([&]() -> Status {
    Library::instance().add_store(path);
    return {};
  });
}

Status set_threads(int threads) {
  return guarded([&]() -> Status {
    Library::instance().set_threads(threads);
    return {};
  });
}

Status set_jit(Jit jit) {
  return guarded([&]() -> Status {
    Library::instance().set_jit(jit);
    return {};
  });
}

bool wait_for_images(std::chrono::milliseconds longest) { return wait_for_background(longest); }

Counters counters() {
  const auto& c = Library::counters;
  return {c.plans, c.compiles, c.loads, c.fallbacks, c.stand_ins};
}

Status call(const std::string& kernel, const std::map<std::string, TensorView>& tensors, const std::map<std::string, Value>& attributes,
            Stream stream, const Config* config) {
  return guarded([&]() -> Status {
    const auto& handle = require_kernel(kernel);
    const auto arguments = positional(handle, tensors, attributes);
    const auto text = config ? to_json(*config) : std::string();
    return call(&handle, arguments.tensors, arguments.attributes, stream, config ? text.c_str() : nullptr);
  });
}

Result<std::shared_ptr<const Kernel>> spec_kernel(const std::string& name) {
  return guarded([&]() -> Result<std::shared_ptr<const Kernel>> {
    const auto& handle = require_kernel(name);
    return std::shared_ptr<const Kernel>(std::shared_ptr<void>(), handle.kernel_interface());
  });
}

Result<std::string> info() {
  return guarded([&]() -> Result<std::string> {
    auto& library = Library::instance();
    const auto& parts = library.parts();
    ordered_json result;
    result["version"] = EJK_VERSION;
    result["threads"] = cpu_threads();
    result["executor"] = cpu_executor();
    result["backends"] = backends_json(parts);
    result["compilers"] = compilers_json(parts);
    result["archs"] = archs_json(parts);
    result["stores"] = stores_json(parts);
    result["stores_searched"] = parts.searched;
    auto passed_over = ordered_json::array();
    result["kernels"] = kernels_json(library, parts, passed_over);
    result["passed_over"] = passed_over;
    auto environment = ordered_json::array();
    for (const auto& variable : environment_table())
      environment.push_back({{"name", variable.name}, {"legal", variable.legal}, {"doc", variable.doc}});
    result["environment"] = environment;
    const auto recording = recording_status();
    result["tested_with"] = {{"jax", tested_jax()}, {"torch", tested_torch()}};
    const auto plans = plan_memory();
    result["plans"] = {{"count", plans.plans}, {"bytes", plans.bytes}, {"limit", plans.limit}};
    result["recording"] = {{"file", recording.file}, {"lines", recording.lines}, {"lost", recording.lost}, {"error", recording.error}};
    return result.dump(2);
  });
}

}  // namespace ejk

// Every binary is its image's id, and has every entry.
#include "tests/decision/posing_backend.hpp"

#include <algorithm>

namespace ejk::test {
namespace {

class EmptyModule final : public Module {
 public:
  void* entry(const std::string&) override { return this; }
};

}  // namespace

Probe PosingBackend::probe(std::span<const spec::Arch* const> archs, int device) {
  const auto& posed = devices_.at(static_cast<std::size_t>(device));
  Probe probe;
  probe.available = posed.here;
  probe.why_not = posed.here ? "" : "it is drawn as not here";
  probe.description = probe.fingerprint = posed.fingerprint;
  probe.properties = posed.properties;
  std::vector<const spec::Arch*> run;
  for (const auto* arch : archs)
    if (arch->name == posed.arch) run.push_back(arch);
  for (const auto* arch : archs)
    if (platform_ == "cpu" && !run.empty() && std::ranges::count(run.front()->ancestors, arch->name)) run.push_back(arch);
  std::ranges::stable_sort(run, [](const auto* a, const auto* b) { return a->ancestors.size() > b->ancestors.size(); });
  for (const auto* arch : run) probe.archs.push_back(arch->full_name());
  return probe;
}

CompileResult PosingBackend::compile(const spec::Image& image, const spec::Arch& arch) {
  CompileResult result;
  result.ok = true;
  result.binary = image.id;
  result.compiler = compiler(arch);
  return result;
}

std::unique_ptr<Module> PosingBackend::load_bytes(const std::string& binary, const spec::Image& image) {
  if (binary != image.id) throw std::runtime_error("the binary of another image");
  return std::make_unique<EmptyModule>();
}

}  // namespace ejk::test

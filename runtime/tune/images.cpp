// Finds or builds images, and judges their resources.
#include "tune/images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "execute/facts.hpp"
#include "execute/spec_kernel.hpp"
#include "store/build.hpp"

namespace ejk {
namespace {

constexpr std::size_t kept_of_a_log = 600;
constexpr std::int64_t register_step = 8;  // registers are given to a thread in such numbers

std::int64_t resource(const spec::Resources& resources, const char* name) {
  const auto found = std::find_if(resources.begin(), resources.end(), [&](const auto& r) { return r.first == name; });
  return found == resources.end() ? 0 : found->second;
}

std::int64_t property(const spec::Arch& arch, const char* name) {
  const auto found = arch.properties.find(name);
  const auto* value = found == arch.properties.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value ? *value : 0;
}

void reject(Trial& trial, std::string reason) {
  trial.state = Trial::State::rejected;
  trial.reason = std::move(reason);
}

class SpecImages : public TrialImages {
 public:
  SpecImages(const KernelHandle& kernel, const Invocation& invocation)
      : kernel_(kernel),
        arguments_(positional(kernel, invocation.tensors, invocation.attributes)),
        machine_(machine_of(kernel, arguments_.tensors)) {
    binding_ = spec::bind(*kernel.spec, facts_of(kernel, arguments_.tensors, arguments_.attributes));
  }

  void prepare(const std::vector<Trial*>& trials, int jobs) override {
    const auto& parts = Library::instance().parts();
    std::vector<Wanted> all;
    std::vector<store::BuildItem> missing;
    for (auto* trial : trials) {
      if (trial->state == Trial::State::rejected) continue;
      auto wanted = identify(*trial);
      if (!wanted) continue;
      if (!look_up(*wanted)) missing.push_back({wanted->image, parts.catalogue.arch(wanted->arch->full_name())});
      all.push_back(std::move(*wanted));
    }
    const auto failures = build(missing, jobs);
    for (auto& wanted : all) {
      if (const auto failed = failures.find(wanted.image.id); failed != failures.end()) {
        reject(*wanted.trial, failed->second);
      } else if (wanted.known || look_up(wanted)) {
        judge(wanted);
      }
    }
  }

 private:
  struct Wanted {
    Trial* trial;
    const spec::Variant* variant;
    const spec::Arch* arch;  // as measured here
    spec::Config config;
    spec::Image image;
    bool known = false;
    spec::Resources resources = {};
  };

  std::optional<Wanted> identify(Trial& trial) const {
    const auto& parts = Library::instance().parts();
    std::string reason;
    auto chosen = complete(*kernel_.spec, machine_, binding_, trial.config, reason);
    if (!chosen) {
      reject(trial, reason);
      return std::nullopt;
    }
    const auto& written = *parts.catalogue.arch(chosen->candidate.arch->full_name());  // as resolve() renders it
    auto image =
        spec::make_image(*kernel_.spec, *chosen->candidate.variant, written, binding_, chosen->config, parts.catalogue.templates());
    trial.image = image.id;
    trial.source = image.hash;
    return Wanted{&trial, chosen->candidate.variant, chosen->candidate.arch, std::move(chosen->config), std::move(image)};
  }

  bool look_up(Wanted& wanted) const {
    const auto& places = Library::instance().parts().places;
    const auto look = [&](const store::Store& store) {
      const auto found = store.find(wanted.image, machine_.backend->source_extension(), machine_.backend->binary_extension());
      if (found.verdict != store::Verdict::hit) return false;
      wanted.known = true;
      wanted.resources = found.info.resources;
      return true;
    };
    return (places.user && look(*places.user)) || std::any_of(places.packs.begin(), places.packs.end(), look);
  }

  // By image id, why it could not be built. Without a cache to build into, the worker compiles each for itself.
  std::map<std::string, std::string> build(const std::vector<store::BuildItem>& missing, int jobs) const {
    std::map<std::string, std::string> failures;
    const auto& parts = Library::instance().parts();
    if (!parts.environment.jit) {
      for (const auto& item : missing) failures[item.image.id] = "no store has its image, and EJKERNEL_JIT=off";
      return failures;
    }
    if (missing.empty() || !parts.places.user || !parts.places.user->writable()) return failures;
    store::build(*parts.places.user, missing, jobs, [&](const store::BuildEvent& event) {
      if (event.kind == store::BuildEvent::Kind::failed || event.kind == store::BuildEvent::Kind::skipped)
        failures[event.id] = "not built: " + event.text.substr(0, kept_of_a_log);
    });
    return failures;
  }

  // Limits of the variant, then what the device can launch at all.
  void judge(const Wanted& wanted) const {
    if (const auto above = spec::above_limits(wanted.image.limits, wanted.resources); !above.empty())
      return reject(*wanted.trial, "above its variant's limits: " + above);
    const auto registers = resource(wanted.resources, "registers"), held = property(*wanted.arch, "registers");
    const auto shared = resource(wanted.resources, "shared_bytes"), most_shared = property(*wanted.arch, "shared_memory");
    if (machine_.backend->platform() == "cpu") return;
    for (const auto& launch : spec::geometry_of(*wanted.variant, *wanted.arch, binding_, wanted.config).launches) {
      const auto threads = launch.block[0] * launch.block[1] * launch.block[2];
      const auto needed = (registers + register_step - 1) / register_step * register_step * threads;
      if (held && needed > held)
        return reject(*wanted.trial, fmt::format("{} needs {} registers a thread for {} threads a block; a processor has {}",
                                                 launch.launch->entry, registers, threads, held));
      if (most_shared && shared + launch.shared_bytes > most_shared)
        return reject(*wanted.trial, fmt::format("{} needs {} bytes of shared memory; a block has {}", launch.launch->entry,
                                                 shared + launch.shared_bytes, most_shared));
    }
  }

  const KernelHandle& kernel_;
  Positional arguments_;
  const Machine& machine_;
  spec::Binding binding_;
};

class NoImages : public TrialImages {
  void prepare(const std::vector<Trial*>&, int) override {}
};

}  // namespace

std::unique_ptr<TrialImages> images_of(const KernelHandle& kernel, const Invocation& invocation) {
  return std::make_unique<SpecImages>(kernel, invocation);
}

std::unique_ptr<TrialImages> no_images() { return std::make_unique<NoImages>(); }

}  // namespace ejk

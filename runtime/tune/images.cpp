// Finds or builds images, and judges their resources.
#include "tune/images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "execute/bound_call.hpp"
#include "execute/facts.hpp"
#include "store/build.hpp"
#include "tune/properties.hpp"

namespace ejk {
namespace {

constexpr std::size_t kept_of_a_log = 600;

void reject(Trial& trial, std::string reason) {
  trial.state = Trial::State::rejected;
  trial.reason = std::move(reason);
}

class SpecImages : public TrialImages {
 public:
  SpecImages(const KernelHandle& kernel, const Invocation& invocation)
      : arguments_(positional(kernel, invocation.tensors, invocation.attributes)),
        machine_(machine_of(kernel, arguments_.tensors)),
        call_(kernel, machine_,
              std::make_shared<spec::Binding>(spec::bind(*kernel.spec, facts_of(kernel, arguments_.tensors, arguments_.attributes))),
              invocation) {}

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
        compiled_[wanted.image.id] = wanted.resources;
        judge(wanted);
      }
    }
  }

  std::optional<Fill> predict(const Trial& trial) const override {
    std::string reason;
    const auto chosen = call_.complete(trial.config, reason);
    if (!chosen) return std::nullopt;  // prepare() says why
    const auto& arch = *chosen->candidate.arch;
    const auto compiled = compiled_.find(trial.image);
    try {
      return fill_of(spec::geometry_of(*chosen->candidate.variant, arch, *call_.binding(), chosen->config),
                     compiled == compiled_.end() ? spec::Resources{} : compiled->second, arch);
    } catch (const spec::ExpressionError&) {
      return std::nullopt;  // depends on data that a recorded call does not have
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
    std::string reason;
    auto chosen = call_.complete(trial.config, reason);
    if (!chosen) {
      reject(trial, reason);
      return std::nullopt;
    }
    auto image = call_.image(*chosen);
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
    if (Library::instance().jit() == Jit::off) {
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
    const auto registers = resource_of(wanted.resources, "registers"), held = property_of(*wanted.arch, "registers");
    const auto shared = resource_of(wanted.resources, "shared_bytes"), most_shared = property_of(*wanted.arch, "shared_memory");
    if (machine_.backend->platform() == "cpu") return;
    for (const auto& launch : spec::geometry_of(*wanted.variant, *wanted.arch, *call_.binding(), wanted.config).launches) {
      const auto threads = launch.block[0] * launch.block[1] * launch.block[2];
      const auto needed = registers_of_block(registers, threads, property_of(*wanted.arch, "warp"));
      if (held && needed > held)
        return reject(*wanted.trial, fmt::format("{} needs {} registers a thread for {} threads a block; a processor has {}",
                                                 launch.launch->entry, registers, threads, held));
      if (most_shared && shared + launch.shared_bytes > most_shared)
        return reject(*wanted.trial, fmt::format("{} needs {} bytes of shared memory; a block has {}", launch.launch->entry,
                                                 shared + launch.shared_bytes, most_shared));
    }
  }

  Positional arguments_;
  const Machine& machine_;
  const BoundCall call_;
  std::map<std::string, spec::Resources> compiled_;  // by image
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

// Which images a catalogue makes: variant × arch × case × selected configs, each id once.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "generator/options.hpp"
#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"

namespace ejk::generator {

// One image, not yet rendered.
struct ImagePlan {
  std::string id;
  std::shared_ptr<const spec::Spec> spec;
  const spec::Variant* variant = nullptr;
  const spec::Arch* arch = nullptr;
  std::shared_ptr<const spec::Binding> binding;  // of the first case that needs it
  spec::Config config;
  std::string case_name;
};

// Throws UsageError for an arch nobody knows.
std::vector<const spec::Arch*> chosen_archs(const spec::Catalogue& catalogue, const std::vector<std::string>& names);

// Sorted by id. Throws UsageError (unknown arch, a glob that matches nothing) and SpecError (every fault found: a case that does not bind,
// an expression that fails, one id for two different sources).
std::vector<ImagePlan> enumerate(const spec::Catalogue& catalogue, const Options& options);

// Renders them all, in order. Throws SpecError with the faults of every image, each once.
std::vector<spec::Image> render(const spec::Catalogue& catalogue, const std::vector<ImagePlan>& plans);

}  // namespace ejk::generator

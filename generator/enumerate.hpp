// Which images a catalogue makes: variant × arch × case × selected configs, each id once. However many there are, few are held.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
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

// One image after the other, in ascending order of ids, each once. Holds what is the same for many configs, and no config but the next
// of each of the few sources (case, variant and arch) whose ids begin alike.
class ImageStream {
 public:
  // Throws UsageError for an arch nobody knows. pattern: of ids, empty: all; with it, or if all are asked for, the whole config space.
  ImageStream(const spec::Catalogue& catalogue, const Options& options);
  ImageStream(const spec::Catalogue& catalogue, const Options& options, const std::string& select);
  ~ImageStream();

  std::optional<ImagePlan> next();
  // What was found so far: a case that does not bind, an expression that fails, one id for two different sources. Complete at the end.
  const std::vector<spec::Fault>& faults() const;

 private:
  class Merge;
  std::unique_ptr<Merge> merge_;
};

using PlanVisitor = std::function<void(ImagePlan&&)>;

// The whole stream, up to the first fault. Throws UsageError (unknown arch, a glob that matches nothing) and, at the end, SpecError with
// every fault.
void for_each_image(const spec::Catalogue& catalogue, const Options& options, const PlanVisitor& visit);
std::vector<ImagePlan> enumerate(const spec::Catalogue& catalogue, const Options& options);

// Renders plan by plan. From the first fault on nothing is visited any more; finish() throws SpecError with the faults, each once.
class Renderer {
 public:
  explicit Renderer(const spec::Catalogue& catalogue) : catalogue_(catalogue) {}
  std::optional<spec::Image> render(const ImagePlan& plan);  // nullopt: it or one before it has a fault
  void finish() const;

 private:
  const spec::Catalogue& catalogue_;
  std::vector<spec::Fault> faults_;
  std::set<std::string> seen_;
};

}  // namespace ejk::generator

// Enumerating images.
#include "generator/enumerate.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <tuple>

#include "generator/image_source.hpp"
#include "generator/tuned.hpp"
#include "spec/check/suggest.hpp"
#include "spec/choose/names_read.hpp"
#include "spec/render/entry_points.hpp"

namespace ejk::generator {
namespace enumeration {  // named: ImageStream::Merge has members of these types

using namespace spec;

// Of a space of millions of configs each may have a fault of its own.
constexpr std::size_t most_faults = 1000;

// Everything that goes into a source beside the variant's text and the arch: equal signatures make equal sources.
std::string signature(const ImagePlan& plan) {
  VariantScope scope(*plan.variant, *plan.arch, *plan.binding);
  scope.set_config(plan.config);
  std::string text;
  for (std::size_t i = 0; i < plan.variant->specialize.size(); ++i) text += to_text(scope.specialisation(i)) + '\n';
  for (const auto& [name, value] : plan.config) text += to_text(value) + '\n';
  for (const Launch& launch : plan.variant->launches) text += parameter_list(parameters_of(scope, launch.entry)) + '\n';
  return text;
}

// On which facts of a call its images' texts depend, beside the specialisation: those that types of parameters follow from.
class TextFacts {
 public:
  explicit TextFacts(const Variant& variant, const Spec& spec) : variant_(variant), names_(variant, spec) {
    for (const Launch& launch : variant.launches)
      for (const Argument& argument : launch.arguments) {
        if (argument.kind == Argument::Kind::value) names_.add(argument.expression);
        if (argument.kind != Argument::Kind::pointer) continue;
        if (const TensorSpec* tensor = spec.tensor(argument.name)) types_.insert(tensor->type);
      }
    for (const auto& [type, allowed] : spec.types)
      if (names_.has(type)) types_.insert(type);
  }

  // Calls with equal texts have equal sources of one config. Sizes and values of attributes are not among them (render/entry_points.cpp).
  std::string of(const VariantScope& scope) const {
    std::string text;
    for (std::size_t i = 0; i < variant_.specialize.size(); ++i) text += to_text(scope.specialisation(i)) + '\n';
    for (const std::string& type : types_)
      if (const auto bound = scope.binding.types.find(type); bound != scope.binding.types.end()) text += type + '=' + bound->second + '\n';
    for (const auto& [function, name] : names_.calls())
      if (function == "given" && scope.binding.call(function, name, {}) == Value(true)) text += name + '\n';
    if (names_.has("form")) text += scope.binding.form;
    return text;
  }

 private:
  const Variant& variant_;
  NamesRead names_;
  std::set<std::string> types_;
};

// Each fault once.
class FaultList {
 public:
  void add(const Spec& spec, const std::string& pointer, std::string sentence) {
    Fault fault{spec.file, pointer, std::move(sentence)};
    if (list_.size() < most_faults && seen_.insert(fault.text()).second) list_.push_back(std::move(fault));
  }
  void add(const ImageSource& source, const ExpressionError& error) {
    add(*source.spec, source.variant->pointer, fmt::format("case {}, {}: {}", source.case_name, source.arch->full_name(), error.what()));
  }
  const std::vector<Fault>& list() const { return list_; }

 private:
  std::vector<Fault> list_;
  std::set<std::string> seen_;
};

bool is_glob(const std::string& select) { return select != "tuned" && select != "heuristic" && select != "all"; }

// Every source of images, told apart before one config is looked at.
class Sources {
 public:
  Sources(const Catalogue& catalogue, const Options& options, const std::string& select, FaultList& faults)
      : catalogue_(catalogue),
        faults_(faults),
        whole_space_(is_glob(select) || select == "all"),
        archs_(chosen_archs(catalogue, options.archs)) {
    for (const std::string& name : catalogue_.kernel_names())
      if (const auto spec = catalogue_.kernel(name)) kernel(spec);
    if (select == "tuned") add_winners(options);
  }

  std::vector<ImageSource> list;

 private:
  void kernel(const std::shared_ptr<const Spec>& spec) {
    for (const Case& c : spec->cases) {
      std::shared_ptr<const Binding> binding;
      try {
        binding = std::make_shared<Binding>(bind(*spec, facts_of(*spec, c)));
      } catch (const SpecError& e) {
        for (const Fault& each : e.faults()) faults_.add(*spec, each.where, each.sentence);
        continue;
      } catch (const CallError& e) {
        faults_.add(*spec, c.pointer, e.what());
        continue;
      }
      for (const Variant& variant : spec->variants) variant_of({spec, &variant, nullptr, binding, c.name, {}, {}, {}});
    }
  }

  void variant_of(ImageSource source) {
    for (const Arch* arch : catalogue_.archs_of(*source.variant)) {
      if (std::find(archs_.begin(), archs_.end(), arch) == archs_.end()) continue;
      source.arch = arch;
      try {
        if (!refusal(*source.variant, *arch, *source.binding)) add(source);
      } catch (const ExpressionError& e) {
        faults_.add(source, e);
      }
    }
  }

  // Records that do not count any more are no fault: their calls have the heuristic's image.
  void add_winners(const Options& options) {
    std::vector<std::string> skipped;
    for (const auto& call : tuned_calls(catalogue_, options, archs_, skipped)) {
      const auto& [candidate, config] = call.times.front().first;
      add({call.spec, candidate.variant, candidate.arch, call.binding, call.place, config, {}, {}});
    }
  }

  void add(ImageSource source) {
    const VariantScope scope(*source.variant, *source.arch, *source.binding);
    const auto& about = about_variant(*source.variant, source.spec->server());
    source.specialised = image_id(scope, {});
    source.facts = about.text_facts.of(scope);
    // Another case has the very same images.
    if (whole_space_ && about.same_configs && !seen_.insert({source.variant, source.arch, source.specialised + '\n' + source.facts}).second)
      return;
    list.push_back(std::move(source));
  }

  struct AboutVariant {
    TextFacts text_facts;
    bool same_configs;  // of all calls of a specialisation
  };
  const AboutVariant& about_variant(const Variant& variant, const Spec& spec) {
    const auto known = about_.find(&variant);
    if (known != about_.end()) return known->second;
    return about_.emplace(&variant, AboutVariant{TextFacts(variant, spec), valid_for_all_calls(variant, spec)}).first->second;
  }

  const Catalogue& catalogue_;
  FaultList& faults_;
  const bool whole_space_;
  const std::vector<const Arch*> archs_;
  std::map<const Variant*, AboutVariant> about_;
  std::set<std::tuple<const Variant*, const Arch*, std::string>> seen_;
};

}  // namespace enumeration

using namespace enumeration;

// Sources wait in a heap by their next id; one that is not open yet by what its ids begin with, so that few are open.
class ImageStream::Merge {
 public:
  Merge(const Catalogue& catalogue, const Options& options, const std::string& select)
      : pattern_(is_glob(select) ? select : ""),
        whole_space_(is_glob(select) || select == "all"),
        sources_(catalogue, options, select, faults_) {
    for (std::size_t i = 0; i < sources_.list.size(); ++i) {
      const auto& source = sources_.list[i];
      push({source.specialised + (source.variant->config.empty() ? "" : "."), i, nullptr});
    }
  }

  std::optional<ImagePlan> next() {
    while (!waiting_.empty()) {
      auto entry = pop();
      const auto& source = sources_.list[entry.source];
      try {
        std::optional<ImagePlan> plan;
        if (!entry.open)
          entry.open = std::make_unique<OpenSource>(source, axes_of(*source.variant), pattern_);
        else
          plan = taken(source, *entry.open);
        if (entry.open->next()) {
          entry.id = entry.open->id();
          push(std::move(entry));
        }
        if (plan) return plan;
      } catch (const ExpressionError& e) {
        faults_.add(source, e);
      }
    }
    return std::nullopt;
  }

  const std::vector<Fault>& faults() const { return faults_.list(); }

 private:
  struct Entry {
    std::string id;
    std::size_t source;
    std::unique_ptr<OpenSource> open;
  };
  // Those that are not open come first: their ids may be this one.
  static bool later(const Entry& a, const Entry& b) {
    const bool a_open = a.open != nullptr, b_open = b.open != nullptr;
    return std::tie(a.id, a_open, a.source) > std::tie(b.id, b_open, b.source);
  }
  void push(Entry entry) {
    waiting_.push_back(std::move(entry));
    std::push_heap(waiting_.begin(), waiting_.end(), later);
  }
  Entry pop() {
    std::pop_heap(waiting_.begin(), waiting_.end(), later);
    auto entry = std::move(waiting_.back());
    waiting_.pop_back();
    return entry;
  }

  const IdAxes* axes_of(const Variant& variant) {
    if (!whole_space_) return nullptr;
    auto& axes = axes_[&variant];
    if (!axes) axes = std::make_unique<IdAxes>(id_axes(variant, pattern_));
    return axes.get();
  }

  // The source's next image; nullopt: an earlier source has it, too.
  std::optional<ImagePlan> taken(const ImageSource& source, const OpenSource& open) {
    ImagePlan plan{open.id(), source.spec, source.variant, source.arch, source.binding, open.config(), source.case_name};
    if (last_ && last_->id == plan.id) {
      compare(plan, source);
      return std::nullopt;
    }
    last_ = plan;
    last_source_ = &source;
    last_signature_.clear();
    return plan;
  }

  void compare(const ImagePlan& plan, const ImageSource& source) {
    if (last_->variant == plan.variant && last_->arch == plan.arch && last_source_->facts == source.facts) return;
    if (last_signature_.empty()) last_signature_ = signature(*last_);
    if (last_->variant->name == plan.variant->name && last_->arch == plan.arch && last_signature_ == signature(plan)) return;
    faults_.add(*plan.spec, plan.variant->pointer,
                fmt::format("cases {} and {} make different sources of one image id, {}: name what differs in specialize", last_->case_name,
                            plan.case_name, plan.id));
  }

  const std::string pattern_;
  const bool whole_space_;
  FaultList faults_;
  const Sources sources_;
  std::map<const Variant*, std::unique_ptr<IdAxes>> axes_;
  std::vector<Entry> waiting_;
  std::optional<ImagePlan> last_;
  const ImageSource* last_source_ = nullptr;
  std::string last_signature_;
};

ImageStream::ImageStream(const Catalogue& catalogue, const Options& options) : ImageStream(catalogue, options, options.select) {}
ImageStream::ImageStream(const Catalogue& catalogue, const Options& options, const std::string& select)
    : merge_(std::make_unique<Merge>(catalogue, options, select)) {}
ImageStream::~ImageStream() = default;
std::optional<ImagePlan> ImageStream::next() { return merge_->next(); }
const std::vector<Fault>& ImageStream::faults() const { return merge_->faults(); }

std::vector<const Arch*> chosen_archs(const Catalogue& catalogue, const std::vector<std::string>& names) {
  std::vector<const Arch*> chosen;
  std::vector<std::string> known;
  for (const auto& [full_name, arch] : catalogue.archs()) {
    known.push_back(full_name);
    if (names.empty() && arch.platform != "simt") chosen.push_back(&arch);
  }
  for (const std::string& name : names) {
    const std::size_t before = chosen.size();
    for (const auto& [full_name, arch] : catalogue.archs())
      if (full_name == name || arch.name == name) chosen.push_back(&arch);
    if (chosen.size() == before) throw UsageError(fmt::format("--arch: there is no arch '{}'; known: {}", name, listed(known)));
  }
  return chosen;
}

namespace {

[[noreturn]] void no_match(const Catalogue& catalogue, const Options& options) {
  std::vector<std::string> ids;
  ImageStream all(catalogue, options, "all");
  while (ids.size() < 10000) {
    auto plan = all.next();
    if (!plan) break;
    ids.push_back(std::move(plan->id));
  }
  const std::string near = suggestion(options.select, ids);
  throw UsageError(fmt::format("--select '{}': no image id of the chosen archs matches{}; ejk-gen SPECS --select all --list shows them all",
                               options.select, near.starts_with("; did you mean") ? near : ""));
}

}  // namespace

void for_each_image(const Catalogue& catalogue, const Options& options, const PlanVisitor& visit) {
  ImageStream stream(catalogue, options);
  bool any = false;
  while (auto plan = stream.next()) {
    any = true;
    if (stream.faults().empty()) visit(*std::move(plan));
  }
  if (!stream.faults().empty()) throw SpecError(stream.faults());
  if (!any && is_glob(options.select)) no_match(catalogue, options);
}

std::vector<ImagePlan> enumerate(const Catalogue& catalogue, const Options& options) {
  std::vector<ImagePlan> plans;
  for_each_image(catalogue, options, [&](ImagePlan&& plan) { plans.push_back(std::move(plan)); });
  return plans;
}

std::optional<Image> Renderer::render(const ImagePlan& plan) {
  try {
    auto image = make_image(*plan.spec, *plan.variant, *plan.arch, *plan.binding, plan.config, catalogue_.templates());
    if (faults_.empty()) return image;
  } catch (const SpecError& e) {
    for (const Fault& fault : e.faults())
      if (seen_.insert(fault.text()).second) faults_.push_back(fault);
    if (faults_.size() >= most_faults) finish();
  }
  return std::nullopt;
}

void Renderer::finish() const {
  if (!faults_.empty()) throw SpecError(faults_);
}

}  // namespace ejk::generator

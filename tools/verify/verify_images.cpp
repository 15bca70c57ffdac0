// Enumerating the images that run here.
#include "verify/verify_images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "command_line/arguments.hpp"
#include "execute/bound_call.hpp"
#include "sample/cover.hpp"
#include "spec/expression/expression.hpp"

namespace ejk::tools {
namespace {

std::string id_of(const spec::Variant& variant, const spec::Arch& arch, const spec::Binding& binding, const spec::Config& config) {
  spec::VariantScope scope(variant, arch, binding);
  scope.set_config(config);
  return spec::image_id(scope, config);
}

enum class Among { packs, packs_and_user_cache };

bool is_among(Among among, const VerifyImage& image, const spec::Binding& binding, const Machine& machine) {
  const auto& parts = Library::instance().parts();
  const auto rendered =
      spec::make_image(*image.kernel->spec, *image.variant, *image.arch, binding, image.config, parts.catalogue.templates());
  const auto has = [&](const store::Store& place) {
    return place.find(rendered, machine.backend->source_extension(), machine.backend->binary_extension()).verdict == store::Verdict::hit;
  };
  if (among == Among::packs_and_user_cache && parts.places.user && has(*parts.places.user)) return true;
  return std::any_of(parts.places.packs.begin(), parts.places.packs.end(), has);
}

std::vector<spec::Config> configs(const VerifyFilter& filter, const spec::Variant& variant, const spec::Arch& arch,
                                  const spec::Binding& binding) {
  if (filter.all_configs) return spec::config_space(variant, arch, binding);
  auto config = spec::valid_heuristic({&variant, &arch}, binding);
  if (!config) return {};
  return {1, *std::move(config)};
}

bool wanted(const VerifyFilter& filter, const spec::Variant& variant, const spec::Arch& arch) {
  if (!filter.variant.empty() && variant.name != filter.variant) return false;
  return filter.arch.empty() || arch.name == filter.arch || arch.full_name() == filter.arch;
}

CoverItem cover_item_of(const VerifyImage& image, const spec::Binding& binding, const VerifyFilter& filter) {
  if (filter.brief) return brief_item(image.id, image.kernel->name, image.variant->name, image.arch->full_name());
  const spec::VariantScope scope(*image.variant, *image.arch, binding);
  std::vector<std::pair<std::string, spec::Value>> specialisation;
  for (std::size_t i = 0; i < image.variant->specialize.size(); ++i)
    specialisation.emplace_back(image.variant->specialize[i].name, scope.specialisation(i));
  return cover_item(image.id, image.kernel->name, image.variant->name, image.arch->full_name(), specialisation, image.config,
                    *filter.cover);
}

}  // namespace

std::string VerifyImage::override_json() const { return to_json(public_config({{variant, arch}, config})); }

std::string VerifyImage::why_not(const spec::Binding& binding) const {
  if (const auto clause = spec::refusal(*variant, *arch, binding)) return "supports: " + *clause;
  if (const auto clause = spec::invalid_clause(*variant, *arch, binding, config)) return "valid: " + *clause;
  const auto found = id_of(*variant, *arch, binding, config);
  return found == id ? "" : "another image serves it: " + found;
}

bool is_built(const KernelHandle& kernel, const spec::Candidate& candidate, const spec::Binding& binding, const Machine& machine) {
  auto config = spec::valid_heuristic(candidate, binding);
  return config &&
         is_among(Among::packs_and_user_cache, {"", &kernel, candidate.variant, candidate.arch, *std::move(config), {}}, binding, machine);
}

std::vector<VerifyImage> images_to_verify(const KernelHandle& kernel, const Machine& machine, const VerifyFilter& filter,
                                          std::size_t& left_out) {
  const auto& spec = *kernel.spec;
  if (!filter.variant.empty() && !spec.variant(filter.variant)) return {};
  const auto& catalogue = Library::instance().parts().catalogue;
  std::map<std::string, VerifyImage> images;
  std::vector<CoverItem> covered;
  for (const auto& c : spec.cases) {
    const auto binding = spec::bind(spec, spec::facts_of(spec, c));
    for (const auto& variant : spec.variants)
      for (const auto* listed : catalogue.archs_of(variant)) {
        const auto* arch = machine.arch(listed->full_name());
        if (!arch || !wanted(filter, variant, *arch) || spec::refusal(variant, *arch, binding)) continue;
        for (auto& config : configs(filter, variant, *arch, binding)) {
          const auto id = id_of(variant, *arch, binding, config);
          if (!matches(filter.image, id)) continue;
          VerifyImage image{id, &kernel, &variant, arch, std::move(config), {}};
          if (filter.built_only && !images.contains(id) && !is_among(Among::packs_and_user_cache, image, binding, machine)) continue;
          const auto [entry, fresh] = images.try_emplace(id, std::move(image));
          if (fresh && filter.cover) {
            covered.push_back(cover_item_of(entry->second, binding, filter));
            // Not of the user cache, whose images would be drawn again each day.
            covered.back().built = filter.built_only || is_among(Among::packs, entry->second, binding, machine);
          }
          entry->second.cases.push_back(&c);
        }
      }
  }
  std::vector<VerifyImage> list;
  if (filter.cover) {
    for (const auto i : covering_sample(covered, *filter.cover)) list.push_back(std::move(images.at(covered[i].id)));
    std::ranges::sort(list, {}, &VerifyImage::id);
    left_out += covered.size() - list.size();
    return list;
  }
  for (auto& [id, image] : images) list.push_back(std::move(image));
  return list;
}

}  // namespace ejk::tools

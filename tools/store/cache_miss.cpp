// ejk cache why-miss: the wanted image, rendered anew, against the entries of each place.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "command_line/command.hpp"
#include "command_line/device_option.hpp"
#include "command_line/library_options.hpp"
#include "execute/facts.hpp"
#include "record/placed_call.hpp"
#include "spec/check/suggest.hpp"
#include "store/cache_actions.hpp"
#include "store/cache_difference.hpp"
#include "store/cache_entries.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;

// Every arch of the catalogue counts: a miss may be about another machine's image. Devices' own properties come first where it runs here.
const spec::Arch& arch_here(const spec::Arch& listed) {
  for (const auto& machine : Library::instance().parts().machines)
    if (const auto* here = machine.arch(listed.full_name())) return *here;
  return listed;
}

// Searches cases × variants × archs × configs for the id.
Wanted wanted_image(const KernelHandle& kernel, const std::string& id) {
  const auto& spec = *kernel.spec;
  const auto& catalogue = Library::instance().parts().catalogue;
  std::vector<std::string> known;
  for (const auto& c : spec.cases) {
    const auto binding = spec::bind(spec, spec::facts_of(spec, c));
    for (const auto& variant : spec.variants)
      for (const auto* listed : catalogue.archs_of(variant)) {
        const auto& arch = arch_here(*listed);
        if (spec::refusal(variant, arch, binding)) continue;
        for (const auto& config : spec::config_space(variant, arch, binding)) {
          spec::VariantScope scope(variant, arch, binding);
          scope.set_config(config);
          known.push_back(spec::image_id(scope, config));
          if (known.back() == id)
            return {spec::make_image(spec, variant, arch, binding, config, catalogue.templates()), &arch, backend_of(arch.platform), ""};
        }
      }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const auto near = spec::suggestion(id, known);
  throw UsageError(fmt::format(
      "no case of {} makes an image '{}'{}", kernel.name, id,
      near.starts_with("; did you mean") ? near : fmt::format("; it makes {} others (ejk-gen SPECS --select all --list)", known.size())));
}

// The call of these facts on a machine; its tensors have no data.
RecordedInvocation recorded_call(const KernelHandle& kernel, const spec::CallFacts& facts, const Machine& machine) {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : facts.tensors) {
    TensorView view(nullptr, tensor.type, tensor.shape);
    std::copy(tensor.strides.begin(), tensor.strides.end(), view.strides);
    view.device = {machine.backend->device_type(), machine.device};
    views.emplace(name, view);
  }
  return {.invocation = invocation_of(kernel, facts, views, machine.probe.fingerprint, {}), .alignment = {}, .archs = {}, .properties = {}};
}

Wanted wanted_of_case(const KernelHandle& kernel, const Arguments& arguments) {
  const auto& machine = device_of(arguments);
  const auto& c = case_named(*kernel.spec, arguments.text("case"));
  const PlacedCall call(recorded_call(kernel, spec::facts_of(*kernel.spec, c), machine), &machine);
  const auto selection = call.select();
  auto image = call.image(selection.config);
  const auto* arch = Library::instance().parts().catalogue.arch(image.arch);
  return {std::move(image), arch, machine.backend,
          fmt::format("case {} on {}: {} (tier {}: {})", c.name, name_of(machine), to_json(selection.config), name_of(selection.tier),
                      selection.detail)};
}

Wanted wanted_by(const Arguments& arguments) {
  if (!arguments.has("GLOB|IMAGE|KERNEL"))
    throw UsageError("why-miss: name the image, as `ejk-gen --list` prints it, or a kernel with --case");
  const auto name = arguments.text("GLOB|IMAGE|KERNEL");
  if (arguments.has("case")) return wanted_of_case(kernel_named(name), arguments);
  if (name.find('.') == std::string::npos)
    throw UsageError(fmt::format("why-miss: '{}' is a kernel; say which of its calls with --case NAME, or name an image", name));
  auto wanted = wanted_image(kernel_named(name.substr(0, name.find('.'))), name);
  if (!wanted.backend) throw UsageError(fmt::format("this build of ejk has no backend for {}", wanted.image.arch));
  return wanted;
}

// What one place has.
ordered_json asked(const store::Store& place, const std::string& role, const Wanted& wanted) {
  static constexpr const char* verdicts[] = {"hit", "miss", "bad"};
  const auto found = place.find(wanted.image, wanted.backend->source_extension(), wanted.backend->binary_extension());
  ordered_json told = {{"role", role}, {"path", place.root().string()}, {"verdict", verdicts[static_cast<int>(found.verdict)]}};
  if (found.verdict == store::Verdict::hit) {
    told["compiler"] = found.info.compiler;
    return told;
  }
  told["why"] = found.why;
  told["nearest"] = nullptr;
  told["differs"] = ordered_json::array();
  if (found.verdict == store::Verdict::miss) {
    const auto nearest = nearest_of(wanted, entries_of(place.root()));
    if (nearest.entry) told["nearest"] = nearest.entry->name;
    for (const auto& difference : nearest.differences)
      told["differs"].push_back({{"field", difference.field}, {"stored", difference.stored}, {"wanted", difference.wanted}});
  }
  if (const auto failure = failure_of(place, wanted)) told["failed_build"] = *failure;
  return told;
}

void print_place(const ordered_json& told) {
  const auto text = [&](const char* name) { return told[name].get<std::string>(); };
  if (text("verdict") == "hit") {
    fmt::print("  {} {}: hit, compiled by {}\n", text("role"), text("path"), text("compiler"));
    return;
  }
  fmt::print("  {} {}: {}: {}\n", text("role"), text("path"), text("verdict"), text("why"));
  if (told["nearest"].is_string())
    fmt::print("    nearest: {}\n", text("nearest"));
  else if (text("verdict") == "miss")
    fmt::print("    it has no image of that kernel\n");
  for (const auto& difference : told["differs"])
    fmt::print("    differs: {}\n      stored   {}\n      wanted   {}\n", difference["field"].get<std::string>(),
               difference["stored"].get<std::string>(), difference["wanted"].get<std::string>());
  if (told.contains("failed_build")) fmt::print("    {}\n", text("failed_build"));
}

}  // namespace

int why_miss(const Arguments& arguments) {
  const auto wanted = wanted_by(arguments);
  const auto& places = Library::instance().parts().places;
  ordered_json told = {{"image", wanted.image.id}, {"hash", wanted.image.hash}, {"call", wanted.call}, {"places", ordered_json::array()}};
  if (!places.user) told["no_user_cache"] = places.why_no_user;
  if (places.user) told["places"].push_back(asked(*places.user, "user cache", wanted));
  for (const auto& pack : places.packs) told["places"].push_back(asked(pack, "pack", wanted));
  const bool hit = std::any_of(told["places"].begin(), told["places"].end(), [](const auto& place) { return place["verdict"] == "hit"; });
  told["hit"] = hit;
  if (arguments.has("json")) {
    fmt::print("{}\n", told.dump(2));
  } else {
    if (!wanted.call.empty()) fmt::print("{}\n", wanted.call);
    fmt::print("{}, source hash {}\n", wanted.image.id, wanted.image.hash);
    if (!places.user) fmt::print("  user cache: none: {}\n", places.why_no_user);
    for (const auto& place : told["places"]) print_place(place);
  }
  return hit ? exit_done : exit_failed;
}

}  // namespace ejk::tools

// ejk info: this machine, its backends and compilers, the stores, the kernels and the environment.
#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/library_options.hpp"
#include "command_line/table.hpp"
#include "common/guard.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;

std::string joined(const ordered_json& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + item.get<std::string>();
  return text.empty() ? "none" : text;
}

std::string property_text(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Features some arch of the catalogue asks for: those that decide what runs.
std::string features_that_matter(const ordered_json& found) {
  std::string present, absent;
  std::set<std::string> wanted;
  for (const auto& [name, arch] : Library::instance().parts().catalogue.archs())
    wanted.insert(arch.requires_features.begin(), arch.requires_features.end());
  for (const auto& feature : wanted) {
    const bool here = std::find(found.begin(), found.end(), feature) != found.end();
    auto& text = here ? present : absent;
    text += (text.empty() ? "" : " ") + feature;
  }
  return present + (absent.empty() ? "" : "; not here: " + absent);
}

void print_libraries(const ordered_json& backend) {
  if (!backend.contains("libraries")) return;
  for (const auto& [role, found] : backend["libraries"].items())
    if (found != backend["why_not"]) fmt::print("        {:<9} {}\n", role, found.get<std::string>());
}

void print_backends(const ordered_json& info) {
  fmt::print("backends\n");
  for (const auto& backend : info["backends"]) {
    const auto platform = backend["platform"].get<std::string>();
    if (!backend["available"].get<bool>()) {
      fmt::print("  {:<6}not available: {}\n", platform, backend["why_not"].get<std::string>());
      print_libraries(backend);
      continue;
    }
    fmt::print("  {:<6}{}\n", platform, backend["description"].get<std::string>());
    if (platform != "cpu") fmt::print("        device    {}:{}\n", platform, backend["device"].get<int>());
    fmt::print("        archs     {}\n", joined(backend["archs"]));
    if (platform == "cpu") fmt::print("        features  {}\n", features_that_matter(backend["features"]));
    print_libraries(backend);
    std::string properties;
    for (const auto& [name, value] : backend["properties"].items())
      properties += fmt::format("{}{}={}", properties.empty() ? "" : " ", name, property_text(value));
    if (!properties.empty()) fmt::print("        measured  {}\n", properties);
    fmt::print("        records   {}\n", backend["fingerprint"].get<std::string>());
  }
}

// "65536 B shared, 1024 threads, waves of 64"
std::string limits_of(const ordered_json& arch) {
  std::string text;
  const auto add = [&](const char* property, const char* format) {
    if (arch.contains(property)) text += (text.empty() ? "" : ", ") + fmt::format(fmt::runtime(format), arch[property].get<std::int64_t>());
  };
  add("shared_memory", "{} B shared");
  add("max_threads", "{} threads a block");
  add(arch.contains("wave") ? "wave" : "warp", arch.contains("wave") ? "waves of {}" : "warps of {}");
  return text;
}

void print_compilers(ordered_json& info) {
  fmt::print("\narchs: their compilers and limits\n");
  for (const auto& [arch, answer] : info["compilers"].items()) {
    const auto limits = info["archs"].contains(arch) ? limits_of(info["archs"][arch]) : "";
    fmt::print("  {:<24}{}{}{}\n", arch, answer.get<std::string>(), limits.empty() ? "" : "; ", limits);
  }
}

void print_stores(const ordered_json& info) {
  fmt::print("\nstores, in the order they are asked\n");
  for (const auto& store : info["stores"]) {
    if (store["role"] == "refused")
      fmt::print("  {:<12}{}: {}\n", "refused", store["named"].get<std::string>(), store["why_not"].get<std::string>());
    else if (store["path"].is_null())
      fmt::print("  {:<12}none: {}\n", store["role"].get<std::string>(), store["why_not"].get<std::string>());
    else
      fmt::print("  {:<12}{} ({} images)\n", store["role"].get<std::string>(), store["path"].get<std::string>(),
                 store["images"].get<std::int64_t>());
  }
  for (const auto& place : info["stores_searched"])
    if (place.get<std::string>().ends_with(": no specs folder")) fmt::print("  not a store  {}\n", place.get<std::string>());
}

void print_plans(const ordered_json& info) {
  fmt::print("\nplans\n  at most {:.1f} MiB in a process (EJKERNEL_PLAN_MEMORY), the least recently used go first\n",
             static_cast<double>(info["plans"]["limit"].get<std::int64_t>()) / (1 << 20));
}

void print_kernels(const ordered_json& info) {
  fmt::print("\nkernels\n");
  Table table({{"name"}, {"cases", Align::right}, {"variants"}, {"what it computes"}});
  for (const auto& kernel : info["kernels"]) {
    std::string variants;
    for (const auto& variant : kernel["variants"]) variants += (variants.empty() ? "" : ", ") + variant["name"].get<std::string>();
    table.row({kernel["name"], kernel["cases"].dump(), variants, kernel["doc"]});
  }
  fmt::print("{}", table.text("  "));
  for (const auto& file : info["passed_over"]) {
    const auto where = file["where"].get<std::string>();
    fmt::print("  passed over: {}{}{}: {}\n", file["file"].get<std::string>(), where.empty() ? "" : ":", where,
               file["reason"].get<std::string>());
  }
}

void print_environment(const ordered_json& info) {
  fmt::print("\nenvironment\n");
  Table table({{"variable"}, {"now"}, {"legal"}, {"meaning"}});
  for (const auto& variable : info["environment"]) {
    const char* now = std::getenv(variable["name"].get<std::string>().c_str());
    table.row({variable["name"], now ? now : "-", variable["legal"], variable["doc"]});
  }
  fmt::print("{}", table.text("  "));
}

void print_recording(const ordered_json& recording) {
  const auto file = recording["file"].get<std::string>(), error = recording["error"].get<std::string>();
  if (file.empty() && error.empty()) return;
  fmt::print("\nrecording of calls\n  {}: {} written, {} lost{}{}\n", file, recording["lines"].dump(), recording["lost"].dump(),
             error.empty() ? "" : "; ", error);
}

// A "yes" becomes the compiler's own name.
void name_compilers(ordered_json& info) {
  const auto& catalogue = Library::instance().parts().catalogue;
  for (auto& [name, answer] : info["compilers"].items())
    if (const auto* arch = catalogue.arch(name); arch && answer == "yes") answer = backend_of(arch->platform)->compiler(*arch);
}

void print_cases(const KernelHandle& kernel, bool as_json) {
  auto names = ordered_json::array();
  for (const auto& each : kernel.spec->cases) names.push_back(each.name);
  if (as_json) return fmt::print("{}\n", names.dump(2));
  for (const auto& name : names) fmt::print("{}\n", name.get<std::string>());
}

}  // namespace

int info(std::span<const std::string> words) {
  Arguments arguments("info", "[--store DIR] [--cases KERNEL] [--json]",
                      "What ejk finds here: CPU, backends (and why others are not used), compilers, stores, kernels, environment.",
                      "ejk info\nejk info --json | jq .backends\nejk info --cases flash_attention");
  add_library_options(arguments);
  arguments.option("cases", "KERNEL", "instead: the names of that kernel's cases, a line each");
  arguments.flag("json", "as JSON");
  if (!arguments.parse(words)) return exit_done;
  apply_library_options(arguments);
  if (arguments.has("cases")) {
    print_cases(kernel_named(arguments.text("cases")), arguments.has("json"));
    return exit_done;
  }
  const auto text = ejk::info();
  if (!text) throw CodedError(text.error().code, text.error().message);
  auto info = ordered_json::parse(*text);
  name_compilers(info);
  if (arguments.has("json")) {
    fmt::print("{}\n", info.dump(2));
    return exit_done;
  }
  fmt::print("ejk {}, {} threads: {}\n\n", info["version"].get<std::string>(), info["threads"].get<int>(),
             info["executor"].get<std::string>());
  print_backends(info);
  print_compilers(info);
  print_stores(info);
  print_plans(info);
  print_kernels(info);
  print_environment(info);
  print_recording(info["recording"]);
  fmt::print("\nin Python, tested with\n  jax {}, torch {}\n", info["tested_with"]["jax"].get<std::string>(),
             info["tested_with"]["torch"].get<std::string>());
  return exit_done;
}

}  // namespace ejk::tools

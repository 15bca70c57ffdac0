// What the output tree holds.
#include "generator/tree.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "generator/python_api.hpp"
#include "generator/typed_api.hpp"

namespace ejk::generator {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const spec::Value& value) {
  return std::visit([](const auto& each) { return Json(each); }, value);
}

Json json_of(const std::vector<std::pair<std::string, spec::Value>>& named) {
  Json object = Json::object();
  for (const auto& [name, value] : named) object[name] = json_of(value);
  return object;
}

Json limits_json(const spec::Resources& limits) {
  Json object = Json::object();
  for (const auto& [name, value] : limits) object[name] = value;
  return object;
}

Json manifest_entry(const spec::Image& image) {
  return {{"id", image.id},
          {"kernel", image.kernel},
          {"variant", image.variant},
          {"arch", image.arch},
          {"file", image.file},
          {"hash", image.hash},
          {"flags", image.flags},
          {"limits", limits_json(image.limits)},
          {"specialisation", json_of(image.specialisation)},
          {"config", json_of(image.config)}};
}

// For editors: how a rendered source would be compiled by hand, from the output folder.
Json compile_command(const spec::Image& image) {
  const std::string file = "src/" + image.file;
  std::string command = "c++ -std=c++20";
  for (const std::string& flag : image.flags) command += " " + flag;
  return {{"directory", "."}, {"command", command + " -c " + file}, {"file", file}};
}

// The typed API of each language.
void add_apis(Sink& sink, const spec::Spec& spec) {
  sink.file(fmt::format("include/ejk/{}.hpp", spec.kernel), typed_api(spec));
  sink.file(fmt::format("python/ejk/_functions/{}.py", spec.kernel), python_api(spec));
  sink.file(fmt::format("python/ejk/_functions/{}.pyi", spec.kernel), python_stub(spec));
}

}  // namespace

// JSON lists have one entry a line, so that a diff shows entries.
void TreeMaker::add(const spec::Image& image) {
  const char* const between = images_++ == 0 ? "\n" : ",\n";
  sink_.append(lock_name, fmt::format("{} {}\n", image.id, image.hash));
  sink_.append("manifest.json", (images_ == 1 ? "{\"schema\": 1, \"images\": [" : "") + (between + manifest_entry(image).dump()));
  sink_.append("compile_commands.json", (images_ == 1 ? "[" : "") + (between + compile_command(image).dump()));
  sink_.file("src/" + image.file, image.source);
}

void TreeMaker::finish() {
  sink_.append(lock_name, "");
  sink_.append("manifest.json", images_ == 0 ? "{\"schema\": 1, \"images\": [\n]}\n" : "\n]}\n");
  sink_.append("compile_commands.json", images_ == 0 ? "[\n]\n" : "\n]\n");
  for (const std::string& name : catalogue_.kernel_names())
    if (const auto spec = catalogue_.kernel(name)) add_apis(sink_, *spec);
  sink_.file("python/ejk/_functions/__init__.py", python_functions(catalogue_.kernel_names()));
}

}  // namespace ejk::generator

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

// A JSON list with one entry a line, so that a diff shows entries.
std::string lines_of(const std::vector<Json>& entries) {
  std::string text = "[";
  for (const Json& entry : entries) text += (text.size() == 1 ? "\n" : ",\n") + entry.dump();
  return text + "\n]";
}

// The typed API of each language.
void add_apis(Tree& tree, const spec::Spec& spec) {
  tree[fmt::format("include/ejk/{}.hpp", spec.kernel)] = typed_api(spec);
  tree[fmt::format("python/ejk/_functions/{}.py", spec.kernel)] = python_api(spec);
  tree[fmt::format("python/ejk/_functions/{}.pyi", spec.kernel)] = python_stub(spec);
}

}  // namespace

Tree make_tree(const spec::Catalogue& catalogue, std::vector<spec::Image> images) {
  Tree tree;
  std::string lock;
  std::vector<Json> manifest, commands;
  for (spec::Image& image : images) {
    lock += fmt::format("{} {}\n", image.id, image.hash);
    manifest.push_back(manifest_entry(image));
    commands.push_back(compile_command(image));
    tree["src/" + image.file] = std::move(image.source);
  }
  for (const std::string& name : catalogue.kernel_names())
    if (const auto spec = catalogue.kernel(name)) add_apis(tree, *spec);
  tree["python/ejk/_functions/__init__.py"] = python_functions(catalogue.kernel_names());
  tree["kernels.lock"] = std::move(lock);
  tree["manifest.json"] = fmt::format("{{\"schema\": 1, \"images\": {}}}\n", lines_of(manifest));
  tree["compile_commands.json"] = lines_of(commands) + "\n";
  return tree;
}

}  // namespace ejk::generator

// Stores, threads, kernels, cases, attributes and configs from the command line.
#include "command_line/library_options.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/guard.hpp"
#include "spec/check/suggest.hpp"

namespace ejk::tools {
namespace {

using nlohmann::json;

const char* type_name(spec::AttributeType type) {
  switch (type) {
    case spec::AttributeType::boolean:
      return "true or false";
    case spec::AttributeType::integer:
      return "an integer";
    case spec::AttributeType::floating:
      return "a number";
    case spec::AttributeType::string:
      return "a string";
  }
  return "";
}

std::optional<Value> attribute_value(spec::AttributeType type, const json& node) {
  switch (type) {
    case spec::AttributeType::boolean:
      return node.is_boolean() ? std::optional<Value>(node.get<bool>()) : std::nullopt;
    case spec::AttributeType::integer:
      return node.is_number_integer() ? std::optional<Value>(node.get<std::int64_t>()) : std::nullopt;
    case spec::AttributeType::floating:
      return node.is_number() ? std::optional<Value>(node.get<double>()) : std::nullopt;
    case spec::AttributeType::string:
      return node.is_string() ? std::optional<Value>(node.get<std::string>()) : std::nullopt;
  }
  return std::nullopt;
}

template <class List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(item.name);
  return names;
}

constexpr std::size_t named_cases = 5;  // in an error: some kernels have hundreds

std::string all_cases(const spec::Spec& spec) {
  return fmt::format("; `ejk info --cases {}` prints all {}", spec.kernel, spec.cases.size());
}

std::string near_cases(const spec::Spec& spec, const std::string& pattern) {
  const auto names = names_of(spec.cases);
  if (auto one = spec::suggestion(pattern, names); names.size() <= named_cases || one.starts_with("; did you mean")) return one;
  return "; the nearest are " + spec::listed(spec::nearest(pattern, names, named_cases)) + all_cases(spec);
}

}  // namespace

void add_library_options(Arguments& arguments) {
  arguments.list("store", "DIR",
                 "a store to look in first; may be given several times (default: $EJKERNEL_STORE, then ../store beside ejk)");
  arguments.option("threads", "N", "threads for CPU work (default: as many as the process may use)");
}

void apply_library_options(const Arguments& arguments) {
  for (const auto& store : arguments.texts("store")) throw_if_error(add_store(store));
  Library::instance().parts();  // throws if there is no store; also reads EJKERNEL_THREADS, which --threads overrides
  if (arguments.has("threads")) throw_if_error(set_threads(static_cast<int>(arguments.integer("threads", 0, 0, 4096))));
}

const KernelHandle& kernel_named(const std::string& name) {
  auto& library = Library::instance();
  if (const auto* kernel = library.kernel(name)) return *kernel;
  throw UsageError(fmt::format("no kernel '{}'{}", name, spec::suggestion(name, library.parts().catalogue.kernel_names())));
}

std::vector<const spec::Case*> cases_matching(const spec::Spec& spec, const std::string& pattern) {
  std::vector<const spec::Case*> result;
  for (const auto& c : spec.cases)
    if (matches(pattern, c.name) || c.name.starts_with(pattern + ".")) result.push_back(&c);
  if (result.empty()) throw UsageError(fmt::format("{} has no case '{}'{}", spec.kernel, pattern, near_cases(spec, pattern)));
  return result;
}

const spec::Case& case_named(const spec::Spec& spec, const std::string& name) {
  if (const auto* exact = spec.find_case(name)) return *exact;
  const auto found = cases_matching(spec, name);
  if (found.size() == 1) return *found.front();
  std::vector<std::string> names;
  for (const auto* c : found) names.push_back(c->name);
  names.resize(std::min(names.size(), named_cases));
  throw UsageError(fmt::format("'{}' stands for {} cases of {}; name one, such as {}{}", name, found.size(), spec.kernel,
                               spec::listed(names), all_cases(spec)));
}

std::map<std::string, Value> attributes_from_json(const spec::Spec& spec, const std::string& text) {
  const auto object = json::parse(text, nullptr, false);
  if (!object.is_object())
    throw UsageError(fmt::format("--attributes: expected a JSON object such as '{{\"name\": 1}}', found '{}'", text));
  std::map<std::string, Value> result;
  for (const auto& [name, node] : object.items()) {
    const auto* attribute = spec.attribute(name);
    if (!attribute)
      throw UsageError(
          fmt::format("--attributes: {} has no attribute '{}'{}", spec.kernel, name, spec::suggestion(name, names_of(spec.attributes))));
    auto value = attribute_value(attribute->type, node);
    if (!value) throw UsageError(fmt::format("--attributes: {} is {}; found {}", name, type_name(attribute->type), node.dump()));
    result.emplace(name, std::move(*value));
  }
  return result;
}

void add_config_options(Arguments& arguments) {
  arguments.option("variant", "NAME", "force this variant");
  arguments.option("arch", "ARCH", "force this arch, e.g. cpu:avx2");
  arguments.option("config", "JSON", "force these parameters, e.g. '{\"block_m\": 64}'");
}

std::string config_override(const Arguments& arguments) {
  auto config = config_from_json(arguments.text("config", "{}"));
  if (!config) throw UsageError("--" + config.error().message);
  if (arguments.has("variant")) config->variant = arguments.text("variant");
  if (arguments.has("arch")) config->arch = arguments.text("arch");
  return *config == Config{} ? "" : to_json(*config);
}

void throw_if_error(const Status& status) {
  if (!status) throw CodedError(status.error().code, status.error().message);
}

}  // namespace ejk::tools

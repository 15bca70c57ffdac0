// Tuning records as the generator needs them: the call of the key, bound, and the winner's config.
#include "generator/tuned.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace ejk::generator {
namespace {

using namespace spec;
using nlohmann::json;
namespace fs = std::filesystem;

Value value_of(const json& node) {
  if (node.is_boolean()) return node.get<bool>();
  if (node.is_number_integer()) return node.get<std::int64_t>();
  if (node.is_number()) return node.get<double>();
  return node.get<std::string>();
}

// The key's tensors are [type, shape] or [type, shape, strides].
TensorFacts tensor_of(const json& node) {
  TensorFacts facts;
  const auto type = dtype_named(node.at(0).get<std::string>());
  if (!type) throw std::runtime_error("no such element type");
  facts.type = *type;
  facts.shape = node.at(1).get<std::vector<std::int64_t>>();
  if (node.size() > 2) {
    facts.strides = node.at(2).get<std::vector<std::int64_t>>();
    return facts;
  }
  facts.strides.resize(facts.shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = facts.shape.size(); i-- > 0; stride *= std::max<std::int64_t>(facts.shape[i], 1)) facts.strides[i] = stride;
  return facts;
}

CallFacts call_of(const json& key) {
  CallFacts facts;
  for (const auto& [name, node] : key.at("tensors").items()) facts.tensors.emplace(name, tensor_of(node));
  for (const auto& [name, node] : key.at("attributes").items()) facts.attributes.emplace(name, value_of(node));
  return facts;
}

class Reader {
 public:
  Reader(const Catalogue& catalogue, const std::shared_ptr<const Spec>& spec) : catalogue_(catalogue), spec_(spec) {}

  std::optional<ImagePlan> row(const std::string& line) const {
    const auto record = json::parse(line, nullptr, false);
    if (!record.is_object()) return std::nullopt;
    try {
      auto plan = plan_of(record);
      if (!plan) return std::nullopt;
      const auto image = make_image(*spec_, *plan->variant, *plan->arch, *plan->binding, plan->config, catalogue_.templates());
      return image.hash == record.value("source", "") ? plan : std::nullopt;
    } catch (const std::exception&) {  // of another spec or form: as good as gone
      return std::nullopt;
    }
  }

 private:
  std::optional<ImagePlan> plan_of(const json& record) const {
    const auto& config = record.at("config");
    ImagePlan plan;
    plan.spec = spec_;
    plan.variant = spec_->variant(config.at("variant").get<std::string>());
    plan.arch = catalogue_.arch(config.at("arch").get<std::string>());
    if (!plan.variant || !plan.arch) return std::nullopt;
    const auto archs = catalogue_.archs_of(*plan.variant);
    if (std::find(archs.begin(), archs.end(), plan.arch) == archs.end()) return std::nullopt;
    plan.binding = std::make_shared<const Binding>(bind(*spec_, call_of(record.at("key"))));
    for (const auto& parameter : plan.variant->config) plan.config.emplace_back(parameter.name, value_of(config.at(parameter.name)));
    if (refusal(*plan.variant, *plan.arch, *plan.binding) || invalid_clause(*plan.variant, *plan.arch, *plan.binding, plan.config))
      return std::nullopt;
    return plan;
  }

  const Catalogue& catalogue_;
  const std::shared_ptr<const Spec>& spec_;
};

}  // namespace

std::vector<ImagePlan> tuned_images(const Catalogue& catalogue, const fs::path& specs, const std::shared_ptr<const Spec>& spec) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator device(specs / "tuned", error), end; !error && device != end; device.increment(error))
    if (const auto file = device->path() / (spec->kernel + ".jsonl"); fs::is_regular_file(file, error)) files.push_back(file);
  std::sort(files.begin(), files.end());
  const Reader reader(catalogue, spec);
  std::vector<ImagePlan> plans;
  for (const auto& file : files) {
    std::ifstream stream(file);
    std::string line;
    for (std::size_t number = 1; std::getline(stream, line); ++number)
      if (auto plan = reader.row(line)) {
        plan->case_name = fmt::format("tuned/{}:{}", file.lexically_relative(specs / "tuned").generic_string(), number);
        plans.push_back(std::move(*plan));
      }
  }
  return plans;
}

}  // namespace ejk::generator

// The fields of a tuning record that speak of its call and its times.
#include "spec/choose/measured.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "spec/read/files.hpp"

namespace ejk::spec {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

Value value_of(const json& node) {
  if (node.is_boolean()) return node.get<bool>();
  if (node.is_number_integer()) return node.get<std::int64_t>();
  if (node.is_number_float()) return node.get<double>();
  if (node.is_string()) return node.get<std::string>();
  throw std::runtime_error(fmt::format("expected a number, a boolean or a string, found {}", node.type_name()));
}

// ["f32", [2, 3]] or ["f32", [2, 3], [1, 2]]
TensorFacts tensor_of(const json& node) {
  TensorFacts facts;
  const auto type = dtype_named(node.at(0).get<std::string>());
  if (!type) throw std::runtime_error(fmt::format("no element type '{}'", node.at(0).get<std::string>()));
  facts.type = *type;
  facts.shape = node.at(1).get<std::vector<std::int64_t>>();
  facts.strides.assign(facts.shape.size(), 1);
  for (std::size_t i = facts.shape.size(); i-- > 1;) facts.strides[i - 1] = facts.strides[i] * std::max<std::int64_t>(facts.shape[i], 1);
  if (node.size() > 2) facts.strides = node.at(2).get<std::vector<std::int64_t>>();
  if (facts.strides.size() != facts.shape.size()) throw std::runtime_error("a tensor has one stride a dimension");
  return facts;
}

MeasuredConfig config_of(const json& node, double us) {
  MeasuredConfig config;
  config.us = us;
  for (const auto& [name, value] : node.items()) {
    if (name == "variant" || name == "arch")
      (name == "variant" ? config.variant : config.arch) = value.get<std::string>();
    else
      config.values.emplace(name, value_of(value));
  }
  return config;
}

MeasuredCall call_of(const json& record) {
  MeasuredCall call;
  const auto& key = record.at("key");
  call.kernel = key.at("kernel").get<std::string>();
  call.device = key.at("device").get<std::string>();
  call.key = key.dump();
  call.name = call.kernel;
  for (const auto& [name, node] : key.at("tensors").items()) {
    call.facts.tensors.emplace(name, tensor_of(node));
    call.name += fmt::format(" {}={}[{}]", name, node.at(0).get<std::string>(), fmt::join(call.facts.tensors.at(name).shape, ","));
  }
  for (const auto& [name, node] : key.at("attributes").items()) {
    call.facts.attributes.emplace(name, value_of(node));
    call.name += fmt::format(" {}={}", name, node.dump());
  }
  call.name += " on " + call.device;
  call.source = record.value("source", "");
  call.configs.push_back(config_of(record.at("config"), record.value("median_us", 0.0)));
  if (record.contains("baseline")) call.configs.push_back(config_of(record["baseline"], record.value("baseline_us", 0.0)));
  if (record.contains("alternatives"))
    for (const auto& pair : record["alternatives"]) call.configs.push_back(config_of(pair.at(0), pair.at(1).get<double>()));
  call.configs.erase(std::remove_if(call.configs.begin() + 1, call.configs.end(), [](const auto& config) { return !(config.us > 0); }),
                     call.configs.end());
  return call;
}

void read_file(const fs::path& folder, const fs::path& path, std::vector<MeasuredCall>& calls, std::vector<std::string>& skipped) {
  std::vector<Fault> faults;
  auto text = read_text(path, faults, longest_records);
  for (const auto& fault : faults) skipped.push_back(fault.text());
  std::istringstream stream(text ? std::move(*text) : "");
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto place = fmt::format("{}:{}", path.lexically_relative(folder).generic_string(), number);
    try {
      auto call = call_of(json::parse(line));
      call.place = place;
      calls.push_back(std::move(call));
    } catch (const std::exception& error) {
      skipped.push_back(fmt::format("{}: {}", place, error.what()));
    }
  }
}

}  // namespace

std::vector<MeasuredCall> read_measured(const fs::path& folder, std::vector<std::string>& skipped) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == ".jsonl") files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  std::vector<MeasuredCall> calls;
  for (const auto& file : files) read_file(folder, file, calls, skipped);
  return calls;
}

}  // namespace ejk::spec

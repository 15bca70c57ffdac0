// TuningRecord to and from its JSON line.
#include <cmath>
#include <nlohmann/json.hpp>

#include "ejk/tuning.hpp"

namespace ejk {
namespace {

using nlohmann::json;

json object_of(const Config& config) { return json::parse(to_json(config)); }

class BadRecord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The fields of one record; what is missing stays as it is.
class Reader {
 public:
  explicit Reader(const json& node) : node_(node) {}

  void read(const char* name, std::string& value) const {
    if (const auto* field = find(name, &json::is_string, "a string")) value = field->get<std::string>();
  }
  void read(const char* name, double& value) const {
    if (const auto* field = find(name, &json::is_number, "a number")) value = finite(name, *field);
  }
  void read(const char* name, std::int64_t& value) const {
    if (const auto* field = find(name, &json::is_number_integer, "an integer")) value = field->get<std::int64_t>();
  }
  void read(const char* name, Config& value) const {
    if (node_.contains(name)) value = config(name, node_[name]);
  }
  void read(const char* name, std::vector<double>& values) const {
    if (const auto* field = find(name, &json::is_array, "a list"))
      for (const auto& item : *field) values.push_back(finite(name, item));
  }
  void read(const char* name, std::vector<std::pair<Config, double>>& values) const {
    const auto* field = find(name, &json::is_array, "a list");
    if (!field) return;
    for (const auto& item : *field) {
      if (!item.is_array() || item.size() != 2) throw BadRecord(std::string(name) + ": each must be [config, microseconds]");
      values.emplace_back(config(name, item[0]), finite(name, item[1]));
    }
  }

 private:
  const json* find(const char* name, bool (json::*is)() const noexcept, const char* expected) const {
    const auto found = node_.find(name);
    if (found == node_.end()) return nullptr;
    if (!((*found).*is)()) throw BadRecord(std::string(name) + " must be " + expected + "; found " + found->type_name());
    return &*found;
  }
  static double finite(const char* name, const json& node) {
    if (!node.is_number()) throw BadRecord(std::string(name) + " must have numbers; found " + node.type_name());
    return node.get<double>();
  }
  static Config config(const char* name, const json& node) {
    auto parsed = config_from_json(node.dump());
    if (!parsed) throw BadRecord(std::string(name) + ": " + parsed.error().message);
    return std::move(*parsed);
  }
  const json& node_;
};

TuningRecord read_record(std::string_view line) {
  const auto node = json::parse(line, nullptr, false);
  if (!node.is_object()) throw BadRecord("not a JSON object");
  if (!node.contains("key") || !(node["key"].is_object() || node["key"].is_string())) throw BadRecord("no key");
  if (!node.contains("config")) throw BadRecord("no config");
  TuningRecord record;
  record.key = node["key"].is_string() ? node["key"].get<std::string>() : node["key"].dump();
  const Reader reader(node);
  reader.read("config", record.config);
  reader.read("source", record.source);
  reader.read("code", record.code);
  reader.read("samples_us", record.samples_us);
  reader.read("median_us", record.median_us);
  reader.read("noise", record.noise);
  reader.read("baseline", record.baseline);
  reader.read("baseline_us", record.baseline_us);
  reader.read("alternatives", record.alternatives);
  reader.read("checked_against", record.checked_against);
  reader.read("residual", record.residual);
  reader.read("measured", record.measured);
  reader.read("rejected", record.rejected);
  reader.read("machine", record.machine);
  reader.read("version", record.version);
  return record;
}

}  // namespace

std::string to_json(const TuningRecord& record) {
  auto key = json::parse(record.key, nullptr, false);
  json node = {{"key", key.is_object() ? std::move(key) : json(record.key)},
               {"config", object_of(record.config)},
               {"source", record.source},
               {"samples_us", record.samples_us},
               {"median_us", record.median_us},
               {"noise", record.noise},
               {"baseline", object_of(record.baseline)},
               {"baseline_us", record.baseline_us},
               {"checked_against", record.checked_against},
               {"residual", record.residual},
               {"measured", record.measured},
               {"rejected", record.rejected},
               {"machine", record.machine},
               {"version", record.version}};
  if (!record.code.empty()) node["code"] = record.code;
  if (!record.alternatives.empty()) {
    auto list = json::array();
    for (const auto& [config, median] : record.alternatives) list.push_back(json::array({object_of(config), median}));
    node["alternatives"] = std::move(list);
  }
  return node.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<TuningRecord> record_from_json(std::string_view line) {
  try {
    return read_record(line);
  } catch (const std::exception& e) {
    return Error{ErrorCode::bad_input, e.what()};
  }
}

}  // namespace ejk

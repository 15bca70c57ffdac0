// From labels to invocations and the configs that the chain chooses for them.
#include <fmt/format.h>

#include <filesystem>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "describe/invocation.hpp"
#include "describe/values.hpp"
#include "ejk/label.hpp"
#include "label/label_text.hpp"
#include "record/placed_call.hpp"
#include "store/files.hpp"

namespace ejk {
namespace {

namespace fs = std::filesystem;

bool is_hash(const std::string& text) { return !text.ends_with('}'); }

std::string kernel_of(const std::string& text) {
  const auto name = std::string_view(text).substr(label_mark.size());
  return std::string(name.substr(0, name.find(':')));
}

// Invocations by the hash label of their key.
class HashTable {
 public:
  explicit HashTable(const std::string& file) {
    if (file.empty()) return;
    auto recorded = get_invocations(file);
    if (!recorded) throw CodedError(recorded.error().code, recorded.error().message);
    for (const auto& call : recorded->invocations) add(call);
  }

  // Several where calls of one key were recorded at addresses of different alignment.
  const std::vector<RecordedInvocation>& find(const std::string& text) {
    if (!calls_.contains(text)) read_records(kernel_of(text));
    return calls_[text];
  }

 private:
  void add(const RecordedInvocation& call) {
    if (const auto text = label(call.invocation)) calls_[*text].push_back(call);
  }

  // The keys of a kernel's tuning records, of every device.
  void read_records(const std::string& kernel) {
    if (!read_.insert(kernel).second) return;
    const auto& places = Library::instance().parts().places;
    if (places.user) read_folder(places.user->root() / "tuned", kernel);
    for (const auto& pack : places.packs) read_folder(pack.root() / "specs" / "tuned", kernel);
  }

  void read_folder(const fs::path& folder, const std::string& kernel) {
    std::error_code error;
    for (fs::directory_iterator device(folder, error), end; !error && device != end; device.increment(error)) {
      std::string missing;
      auto text = store::read_file(device->path() / (kernel + ".jsonl"), store::lines_limit, missing);
      std::istringstream stream(text ? std::move(*text) : "");
      for (std::string line; std::getline(stream, line);) read_record(line);
    }
  }

  void read_record(const std::string& line) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("key")) return;
    try {
      RecordedInvocation call;
      call.invocation = invocation_from(record["key"], "key");
      add(call);
    } catch (const CodedError&) {
      // not a record: those who read records for their configs tell of it
    }
  }

  std::unordered_map<std::string, std::vector<RecordedInvocation>> calls_;
  std::unordered_set<std::string> read_;  // kernels
};

RecordedInvocation invocation_in(const std::string& text) {
  RecordedInvocation call;
  call.invocation = invocation_from(parse_json(std::string_view(text).substr(text.find('{')), "label"), "label");
  return call;
}

LabelConfig config_of(const std::string& text, const RecordedInvocation& call) {
  LabelConfig result{text, call, {}, {}};
  try {
    result.selection = PlacedCall(call).select();
  } catch (...) {
    result.why_not = current_error().message;
  }
  return result;
}

void add_configs(std::vector<LabelConfig>& configs, const std::string& text, HashTable& hashes) {
  if (!is_hash(text)) {
    configs.push_back(config_of(text, invocation_in(text)));
    return;
  }
  const auto& calls = hashes.find(text);
  for (const auto& call : calls) configs.push_back(config_of(text, call));
  if (calls.empty()) configs.push_back({text, {}, {}, "no recorded call and no tuning record has this hash"});
}

}  // namespace

Result<std::vector<LabelConfig>> labels_to_configs(std::span<const std::string> labels, const std::string& file) {
  return guarded([&]() -> Result<std::vector<LabelConfig>> {
    HashTable hashes(file);
    std::vector<LabelConfig> configs;
    for (const auto& text : labels) {
      try {
        if (extract_labels_from_hlo_text(text) != std::vector<std::string>{text})
          refuse("not a label: expected ejk:<kernel>:<16 hex digits> or ejk:<kernel>:<JSON>");
        add_configs(configs, text, hashes);
      } catch (const CodedError& fault) {
        configs.push_back({text, {}, {}, fault.what()});
      }
    }
    return configs;
  });
}

}  // namespace ejk

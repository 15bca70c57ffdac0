// Reading, appending and merging records files.
#include "ejk/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/guard.hpp"
#include "select/agreement.hpp"
#include "select/locked_file.hpp"
#include "select/records_file.hpp"

namespace ejk {
namespace {

using Group = std::pair<std::string, std::string>;  // key, source
Group group_of(const TuningRecord& record) { return {record.key, record.source}; }

bool is_file_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find_first_of("/\\\0\n", 0, 4) == std::string::npos && name.size() < 200;
}

struct Place {
  std::string device, kernel;
};
Place place_of(const std::string& key) {
  const auto node = nlohmann::json::parse(key, nullptr, false);
  const auto text = [&](const char* name) {
    return node.is_object() && node.contains(name) && node[name].is_string() ? node[name].get<std::string>() : std::string();
  };
  Place place{text("device"), text("kernel")};
  if (!is_file_name(place.device) || !is_file_name(place.kernel))
    throw CodedError(ErrorCode::bad_input, fmt::format("the key of a record must name a device and a kernel; found {}", key));
  return place;
}

std::string file_of(const std::string& folder, const std::string& key) {
  const auto [device, kernel] = place_of(key);
  return fmt::format("{}/{}/{}.jsonl", folder, device, kernel);
}

void require_measured(const TuningRecord& record) {
  const auto measured = [](double us) { return std::isfinite(us) && us > 0; };
  if (record.samples_us.empty() || !measured(record.median_us) ||
      !std::all_of(record.samples_us.begin(), record.samples_us.end(), measured))
    throw CodedError(ErrorCode::bad_input, fmt::format("{}: a record needs the samples and the median of its measurement", record.key));
  const auto finite = std::isfinite(record.noise) && std::isfinite(record.baseline_us) && std::isfinite(record.residual);
  if (!finite || record.residual > 1)
    throw CodedError(ErrorCode::bad_input,
                     fmt::format("{}: its noise, baseline and residual must be numbers, the residual at most 1; found {}, {}, {}",
                                 record.key, record.noise, record.baseline_us, record.residual));
}

RecordsContent content_of(const RecordsFile& file, const std::string& path) {
  RecordsContent content;
  if (file.bad_count()) content.skipped.push_back(fmt::format("{}: lines {}", path, file.bad_lines()));
  for (const auto& row : file.rows()) {
    if (auto record = record_from_json(row.line))
      content.rows.push_back({std::move(*record), path, row.number});
    else
      content.skipped.push_back(fmt::format("{}:{}: {}", path, row.number, record.error().message));
  }
  return content;
}

std::string lines_of(const std::vector<TuningRecord>& records) {
  std::string text;
  for (const auto& record : records) text += to_json(record) + '\n';
  return text;
}

// Removes superseded and bad lines, once they are as many as the rows that count. The caller holds the lock.
void compact(const LockedFile& lock, const std::string& path) {
  const RecordsFile file({}, lock.text(), "");
  std::map<Group, std::size_t> last;
  std::vector<std::string_view> lines;
  const auto content = content_of(file, path);
  for (std::size_t i = 0; i < content.rows.size(); ++i) last[group_of(content.rows[i].record)] = i;
  const auto dead = content.rows.size() - last.size() + content.skipped.size();
  if (dead < std::max<std::size_t>(last.size(), 8)) return;
  std::set<std::size_t> kept;
  for (const auto& [group, index] : last) kept.insert(index);
  std::string text;
  for (const auto index : kept) text += to_json(content.rows[index].record) + '\n';
  lock.replace(text);
}

}  // namespace

Result<RecordsContent> read_records(const std::string& path) {
  return guarded([&]() -> Result<RecordsContent> {
    const RecordsFile file(path);
    if (!file.exists()) return Error{ErrorCode::io, path + ": no such file"};
    if (file.rows().empty() && !file.bad_count() && !file.bad_lines().empty()) return Error{ErrorCode::io, file.bad_lines()};
    return content_of(file, path);
  });
}

Result<std::string> records_file(const std::string& folder, const std::string& key) {
  return guarded([&]() -> Result<std::string> { return file_of(folder, key); });
}

namespace {

void append_to(const LockedFile& file, const std::string& path, const TuningRecord& record) {
  file.append_line(to_json(record));
  compact(file, path);
}

}  // namespace

Status append_agreed(const std::string& folder, const TuningRecord& record) {
  return guarded([&]() -> Status {
    require_measured(record);
    const auto [device, kernel] = place_of(record.key);
    try {
      append_to(LockedFile(make_agreement_folder(folder, device), kernel + ".jsonl"), file_of(folder, record.key), record);
    } catch (const CodedError&) {
      throw;
    } catch (const std::runtime_error& refused) {
      throw CodedError(ErrorCode::io, refused.what());
    }
    return {};
  });
}

Status append_record(const std::string& folder, const TuningRecord& record) {
  return guarded([&]() -> Status {
    require_measured(record);
    const auto path = file_of(folder, record.key);
    append_to(LockedFile(path), path, record);
    return {};
  });
}

bool better_measured(const TuningRecord& a, const TuningRecord& b) {
  if (a.checked_against.empty() != b.checked_against.empty()) return b.checked_against.empty();
  const auto standard_error = [](const TuningRecord& r) {
    return r.noise / std::sqrt(std::max<double>(static_cast<double>(r.samples_us.size()), 1));
  };
  const auto error_a = standard_error(a), error_b = standard_error(b);
  if (error_a != error_b) return error_a < error_b;
  return a.samples_us.size() > b.samples_us.size();
}

std::vector<TuningRecord> merge_records(std::vector<TuningRecord> records) {
  std::vector<TuningRecord> result;
  std::map<Group, std::size_t> places;
  for (auto& record : records) {
    const auto [place, fresh] = places.emplace(group_of(record), result.size());
    if (fresh)
      result.push_back(std::move(record));
    else if (!better_measured(result[place->second], record))
      result[place->second] = std::move(record);
  }
  return result;
}

Result<ImportReport> import_records(const std::string& folder, const std::vector<TuningRecord>& records) {
  return guarded([&]() -> Result<ImportReport> {
    std::map<std::string, std::vector<const TuningRecord*>> by_file;
    for (const auto& record : records) {
      require_measured(record);
      by_file[file_of(folder, record.key)].push_back(&record);
    }
    ImportReport report;
    for (const auto& [path, incoming] : by_file) {
      const LockedFile lock(path);
      std::map<Group, TuningRecord> rows;
      std::vector<Group> order;
      const auto content = content_of(RecordsFile(path), path);
      for (const auto& row : content.rows)
        if (rows.insert_or_assign(group_of(row.record), row.record).second) order.push_back(group_of(row.record));
      for (const auto* record : incoming) {
        const auto [own, fresh] = rows.emplace(group_of(*record), *record);
        if (fresh) order.push_back(own->first);
        const bool replaces = !fresh && better_measured(*record, own->second);
        if (replaces) own->second = *record;
        ++(fresh ? report.added : replaces ? report.replaced : report.kept);
      }
      std::vector<TuningRecord> all;
      for (const auto& group : order) all.push_back(rows.at(group));
      lock.replace(lines_of(all));
    }
    return report;
  });
}

namespace {

void replace_or_remove(const LockedFile& lock, const std::vector<TuningRecord>& records) {
  if (!records.empty()) return lock.replace(lines_of(records));
  lock.remove();
}

}  // namespace

Result<std::size_t> remove_records(const std::string& path, const std::function<bool(const TuningRecord&)>& unwanted) {
  return guarded([&]() -> Result<std::size_t> {
    if (!RecordsFile(path).exists()) return Error{ErrorCode::io, path + ": no such file"};
    const LockedFile lock(path);
    std::vector<TuningRecord> kept;
    const auto content = content_of(RecordsFile(path), path);
    for (const auto& row : content.rows)
      if (!unwanted(row.record)) kept.push_back(row.record);
    const auto removed = content.rows.size() - kept.size();
    if (removed) replace_or_remove(lock, kept);
    return removed;
  });
}

Status write_records(const std::string& path, const std::vector<TuningRecord>& records) {
  return guarded([&]() -> Status {
    const LockedFile lock(path);
    replace_or_remove(lock, records);
    return {};
  });
}

}  // namespace ejk

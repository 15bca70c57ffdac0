// ejk records: what was measured: listing, showing, and moving tuning records between machines.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/library_options.hpp"
#include "command_line/table.hpp"
#include "ejk/records.hpp"
#include "spec/check/suggest.hpp"
#include "tune/renew.hpp"
#include "tune/stale.hpp"

namespace ejk::tools {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string user_folder() {
  const auto& writing = Library::instance().parts().chain->persistent().writing();
  if (writing.user.empty())
    throw UsageError("there is no user cache to keep records in: " + Library::instance().parts().places.why_no_user);
  return writing.user;
}

struct Found {
  std::string role;
  RecordsRow row;
  std::string kernel, device, call;
  std::string stale;          // why it is passed over; judged only if asked for
  bool not_compared = false;  // for want of a binary
};

// "x f32[2,64] mask bool[2] chunk_size=8"
std::string call_text(const json& key) {
  std::string text;
  for (const auto& [name, tensor] : key.at("tensors").items())
    text += fmt::format("{}{} {}{}{}", text.empty() ? "" : " ", name, tensor.at(0).get<std::string>(), tensor.at(1).dump(),
                        tensor.size() > 2 ? " strided" : "");
  for (const auto& [name, value] : key.at("attributes").items()) text += fmt::format(" {}={}", name, value.dump());
  return text;
}

Found found_of(const std::string& role, const RecordsRow& row) {
  Found found{role, row, {}, {}, row.record.key, {}, false};
  const auto key = json::parse(row.record.key, nullptr, false);
  if (!key.is_object()) return found;
  try {
    found.kernel = key.value("kernel", "");
    found.device = key.value("device", "");
    found.call = call_text(key);
  } catch (const json::exception&) {
    found.call = row.record.key;
  }
  return found;
}

bool wanted(const Arguments& arguments, const Found& found) {
  return matches(arguments.text("kernel", "*"), found.kernel) && matches(arguments.text("device", "*"), found.device);
}

RecordsContent content_of(const fs::path& file) {
  auto content = read_records(file.string());
  if (!content) throw UsageError(content.error().message);
  return std::move(*content);
}

// Without sound ones, and without those whose call has a sound one.
void keep_stale(std::vector<Found>& rows) {
  std::set<std::string> sound;
  for (auto& found : rows) {
    const auto judged = judge(found.row.record);
    if (judged.serves()) sound.insert(found.row.record.key);
    found.stale = judged.reason;
    found.not_compared = judged.verdict == RecordJudgement::Verdict::not_compared;
  }
  std::erase_if(rows, [&](const Found& found) { return sound.contains(found.row.record.key); });
}

// Those that --kernel and --device choose; skipped lines are told on stderr.
std::vector<Found> rows(const Arguments& arguments, const std::vector<RecordsFolder>& places) {
  std::vector<Found> result;
  for (const auto& place : places)
    for (const auto& file : record_files_below(place.path)) {
      const auto content = content_of(file);
      for (const auto& line : content.skipped) fmt::print(stderr, "skipped {}\n", line);
      for (const auto& row : content.rows)
        if (auto found = found_of(place.role, row); wanted(arguments, found)) result.push_back(std::move(found));
    }
  if (arguments.has("stale")) keep_stale(result);
  return result;
}

std::string microseconds(double us) { return seconds_text(us * 1e-6); }

std::string gain_text(const TuningRecord& record) {
  return record.baseline_us > 0 && record.median_us > 0 ? digits(record.baseline_us / record.median_us) : "-";
}

ordered_json row_json(const Found& found) {
  ordered_json row = {
      {"role", found.role}, {"file", found.row.file}, {"line", found.row.line}, {"record", ordered_json::parse(to_json(found.row.record))}};
  if (!found.stale.empty()) row["stale"] = found.stale;
  return row;
}

int list(const Arguments& arguments) {
  const auto all = rows(arguments, record_folders());
  if (arguments.has("json")) {
    auto list = ordered_json::array();
    for (const auto& found : all) list.push_back(row_json(found));
    fmt::print("{}\n", list.dump(2));
    return exit_done;
  }
  Table table({{"kernel"}, {"device"}, {"call"}, {"config"}, {"median", Align::right}, {"gain", Align::right}, {"record"}});
  for (const auto& found : all)
    table.row({found.kernel, found.device, found.call, to_json(found.row.record.config), microseconds(found.row.record.median_us),
               gain_text(found.row.record), fmt::format("{} {}:{}", found.role, found.row.file, found.row.line)});
  if (table.rows()) fmt::print("{}", table.text());
  for (const auto& found : all)
    if (!found.stale.empty()) fmt::print("stale {}:{}: {}\n", found.row.file, found.row.line, found.stale);
  if (std::any_of(all.begin(), all.end(), [](const Found& found) { return found.not_compared; }))
    fmt::print(
        "`ejk records renew [FOLDER]` compiles those whose machine code could not be compared, and keeps them where it is the same\n");
  fmt::print("{} {}records\n", all.size(), arguments.has("stale") ? "stale " : "");
  return exit_done;
}

int show(const Arguments& arguments) {
  const auto all = rows(arguments, record_folders());
  if (all.empty()) throw UsageError("show: no record of that kernel and device; `ejk records ls` lists all");
  if (arguments.has("json")) return list(arguments);
  for (const auto& found : all) {
    const auto& record = found.row.record;
    fmt::print("{} on {}: {}\n  at       {} {}:{}\n  config   {}\n", found.kernel, found.device, found.call, found.role, found.row.file,
               found.row.line, to_json(record.config));
    fmt::print("  median   {} of {} samples, noise {}%\n  default  {}: {}, {} times as long\n", microseconds(record.median_us),
               record.samples_us.size(), digits(record.noise * 100), to_json(record.baseline), microseconds(record.baseline_us),
               gain_text(record));
    fmt::print("  checked  against {}: {} of the tolerance\n  search   {} configs timed, {} rejected\n", record.checked_against,
               digits(record.residual), record.measured, record.rejected);
    for (const auto& [config, median] : record.alternatives) fmt::print("  also     {}: {}\n", to_json(config), microseconds(median));
    fmt::print("  machine  {}\n  ejk      {}, source {}{}\n", record.machine, record.version, record.source,
               record.code.empty() ? "" : ", machine code " + record.code);
  }
  return exit_done;
}

std::vector<TuningRecord> records_of(const std::vector<std::string>& files) {
  std::vector<TuningRecord> records;
  for (const auto& file : files) {
    if (fs::is_directory(file)) {
      for (const auto& each : record_files_below(file))
        for (auto& record : records_of({each.string()})) records.push_back(std::move(record));
      continue;
    }
    auto content = content_of(file);
    for (const auto& line : content.skipped) fmt::print(stderr, "skipped {}\n", line);
    for (auto& row : content.rows) records.push_back(std::move(row.record));
  }
  return records;
}

int import(const Arguments& arguments) {
  const auto files = arguments.words("FILE");
  if (files.empty()) throw UsageError("import: name the files or folders to take records from");
  const auto records = records_of(files);
  if (records.empty()) throw UsageError(fmt::format("import: there is no record in {}", fmt::join(files, ", ")));
  const auto folder = arguments.text("to", arguments.has("to") ? "" : user_folder());
  const auto report = import_records(folder, records);
  if (!report) throw UsageError("import: " + report.error().message);
  if (arguments.has("json"))
    fmt::print("{}\n",
               ordered_json{{"folder", folder}, {"added", report->added}, {"replaced", report->replaced}, {"kept", report->kept}}.dump(2));
  else
    fmt::print("{}: {} added, {} replaced by better measured ones, {} of the folder kept\n", folder, report->added, report->replaced,
               report->kept);
  return exit_done;
}

int write_to(const Arguments& arguments, const std::string& file, const std::vector<TuningRecord>& records) {
  throw_if_error(write_records(file, records));
  if (arguments.has("json"))
    fmt::print("{}\n", ordered_json{{"file", file}, {"records", records.size()}}.dump(2));
  else
    fmt::print("{}: {} records\n", file, records.size());
  return exit_done;
}

int export_(const Arguments& arguments) {
  const auto files = arguments.words("FILE");
  if (files.size() != 1) throw UsageError("export: name one file to write");
  std::vector<TuningRecord> records;
  for (const auto& found : rows(arguments, {{"user", user_folder()}})) records.push_back(found.row.record);
  records = merge_records(std::move(records));
  if (records.empty()) throw UsageError("export: there is no such record of yours; `ejk records ls` lists all");
  return write_to(arguments, files[0], records);
}

int merge(const Arguments& arguments) {
  const auto files = arguments.words("FILE");
  if (files.empty() || !arguments.has("to")) throw UsageError("merge: name the files, and the one to write by --to FILE");
  const auto records = merge_records(records_of(files));
  if (records.empty()) throw UsageError("merge: the files have no records");
  return write_to(arguments, arguments.text("to"), records);
}

int drop(const Arguments& arguments) {
  if (!arguments.has("all") && !arguments.has("kernel") && !arguments.has("device"))
    throw UsageError("drop: say which of your records: --kernel NAME, --device NAME or --all");
  std::size_t dropped = 0;
  for (const auto& file : record_files_below(user_folder())) {
    const auto removed = remove_records(file.string(), [&](const TuningRecord& record) {
      return wanted(arguments, found_of("user", {record, "", 0}));
    });
    if (!removed) throw UsageError("drop: " + removed.error().message);
    dropped += *removed;
  }
  if (arguments.has("json"))
    fmt::print("{}\n", ordered_json{{"dropped", dropped}}.dump(2));
  else
    fmt::print("{}: {} records dropped\n", user_folder(), dropped);
  return exit_done;
}

int renew(const Arguments& arguments) {
  auto named = arguments.words("FILE");
  if (named.empty()) named.push_back(user_folder());
  std::vector<fs::path> files;
  for (const auto& each : named) {
    if (!fs::is_directory(each)) files.emplace_back(each);
    for (auto& file : record_files_below(each)) files.push_back(std::move(file));
  }
  const auto report = renew_records(
      files,
      [&](const TuningRecord& record) {
        return wanted(arguments, found_of("", {record, "", 0}));
      },
      static_cast<int>(arguments.integer("jobs", 0, 1, 4096)));
  if (arguments.has("json")) {
    auto stale = ordered_json::array();
    for (const auto& [place, reason] : report.stale) stale.push_back({{"record", place}, {"stale", reason}});
    fmt::print("{}\n", ordered_json{{"records", report.records},
                                    {"sound", report.sound},
                                    {"renewed", report.renewed},
                                    {"identified", report.identified},
                                    {"stale", stale}}
                           .dump(2));
    return exit_done;
  }
  for (const auto& [place, reason] : report.stale) fmt::print("stale {}: {}\n", place, reason);
  fmt::print("{}: of {} records {} sound, {} renewed, {} given the hash of their machine code, {} stale\n", fmt::join(named, ", "),
             report.records, report.sound, report.renewed, report.identified, report.stale.size());
  return exit_done;
}

struct Action {
  const char* name;
  int (*function)(const Arguments& arguments);
  bool takes_files;
};
constexpr Action actions[] = {{"ls", list, false},    {"show", show, false},  {"import", import, true}, {"export", export_, true},
                              {"merge", merge, true}, {"renew", renew, true}, {"drop", drop, false}};

}  // namespace

int records(std::span<const std::string> words) {
  Arguments arguments(
      "records",
      "ls [--stale] | show | import FILE... | export FILE | merge FILE... --to FILE | renew [FILE...] | drop (--kernel NAME | --all)",
      "Tuning records: yours (in the user cache) and those that packs ship. show: with their evidence. import: takes records of\n"
      "files or folders into yours; of two for one call, device and source the better measured one stays: checked before\n"
      "unchecked, then the smaller standard error, then the more samples. export: yours into one file. merge: files into one,\n"
      "by the same rule. renew: where only the source has changed, compiles it (into your cache) and compares the machine code with\n"
      "what was measured: if it is the same, the record is of today's source from then on; else it stays stale. `ejk tune --stale`\n"
      "measures those anew. Sound records without a hash of their machine code get it. It takes yours, or\n"
      "those of the files and folders named. drop: forgets yours (shipped ones are never touched).",
      "ejk records ls\nejk records ls --stale --device 'cuda-*'\nejk records show --kernel 'mean_*' --json\nejk records export h200.jsonl "
      "--device 'cuda-*'\n"
      "ejk records import h200.jsonl\nejk records merge node0.jsonl node1.jsonl --to all.jsonl\nejk records renew specs/tuned\nejk records "
      "drop --device 'cuda-*'");
  arguments.word("ACTION", true).rest("FILE");
  arguments.option("kernel", "NAME", "only those of this kernel; * and ? stand for anything");
  arguments.option("device", "NAME", "only those of this device's fingerprint; * and ? stand for anything");
  arguments.option("to", "FILE", "merge: the file to write; import: the folder of records, instead of yours");
  arguments.flag(
      "stale",
      "ls, show: only those that are passed over, with the reason: the config is no longer valid, the source has changed (and the "
      "machine code with it, or no binary is here to tell)");
  arguments.option("jobs", "N", "renew: compilers at a time (default: one a core)");
  arguments.flag("all", "drop: everything");
  arguments.list("store", "DIR", "a store to look in first; may be given several times");
  arguments.flag("json", "as JSON");
  if (!arguments.parse(words)) return exit_done;
  const auto name = arguments.text("ACTION");
  std::vector<std::string> names;
  for (const auto& action : actions) {
    names.emplace_back(action.name);
    if (name != action.name) continue;
    if (const auto files = arguments.words("FILE"); !files.empty() && !action.takes_files)
      throw UsageError(fmt::format("{}: one word too many: '{}'", name, files[0]));
    for (const auto& store : arguments.texts("store")) throw_if_error(add_store(store));
    return action.function(arguments);
  }
  throw UsageError(fmt::format("no action '{}'{}", name, spec::suggestion(name, names)));
}

}  // namespace ejk::tools

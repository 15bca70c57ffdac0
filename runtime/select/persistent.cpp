// PersistentCache: tuning records on disk.
#include <fmt/format.h>

#include "ejk/records.hpp"
#include "select/agreement.hpp"
#include "select/record_fault.hpp"
#include "select/records_file.hpp"
#include "store/files.hpp"

namespace ejk {

struct PersistentCache::Files {
  std::shared_ptr<const RecordsFile> get(const std::string& path) {
    const std::lock_guard lock(mutex);
    auto& slot = files[path];
    if (!slot || slot->stamp() != stamp_of(path)) slot = std::make_shared<const RecordsFile>(path);
    return slot;
  }

  // Of an agreement: its folder is judged, and no link in it followed.
  std::shared_ptr<const RecordsFile> agreed(const std::string& folder, const Invocation& invocation) {
    std::string why_not;
    const auto name = invocation.kernel + ".jsonl";
    const auto held = open_agreement_folder(folder, invocation.device, why_not);
    const auto facts = held ? held->facts(name) : std::nullopt;
    if (!facts) return std::make_shared<const RecordsFile>(FileStamp{}, std::nullopt, why_not);
    const std::lock_guard lock(mutex);
    auto& slot = files[held->path() / name];
    if (slot && slot->stamp() == stamp_of(*facts)) return slot;
    auto text = held->read(name, store::lines_limit, why_not);
    return slot = std::make_shared<const RecordsFile>(stamp_of(*facts), std::move(text), why_not);
  }

  std::shared_ptr<const RecordsFile> of(const std::string& folder, const RecordsWriting& writing, const Invocation& invocation) {
    if (!folder.empty() && folder == writing.agreement) return agreed(folder, invocation);
    return get(fmt::format("{}/{}/{}.jsonl", folder, invocation.device, invocation.kernel));
  }

  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const RecordsFile>> files;
};

namespace {

constexpr std::size_t nearest_tried = 8;
constexpr double farthest = 4;  // log2, all dims together: of a call sixteen times as large or small the heuristic knows more

// One look-up: what was found and what was passed over.
class LookUp {
 public:
  LookUp(const Kernel& kernel, const Invocation& invocation, const std::string& key)
      : kernel_(kernel), invocation_(invocation), key_(key) {}

  // The row's record if it can serve this call; otherwise the reason is noted.
  std::shared_ptr<const TuningRecord> take(const RecordsFile::Row& row, const std::string& path) {
    auto record = record_from_json(row.line);
    const auto why = record ? fault_of(*record) : record.error().message;
    if (why.empty()) return std::make_shared<const TuningRecord>(std::move(*record));
    if (passed_over_.size() < 400) passed_over_ += fmt::format("; row {} of {}: {}", row.number, path, why);
    return nullptr;
  }

  std::shared_ptr<const TuningRecord> exact(const RecordsFile& file, const std::string& path, std::string& where) {
    for (const auto* row : file.rows_of(key_))
      if (auto record = take(*row, path)) {
        where = fmt::format("{}:{}", path, row->number);
        return record;
      }
    return nullptr;
  }

  void collect_nearest(std::shared_ptr<const RecordsFile> file, const std::string& path) {
    for (const auto& row : file->rows())
      if (row.key != key_)
        if (auto near = kernel_.nearness(key_, std::string(row.key))) near_.push_back({std::move(*near), near_.size(), &row, path, file});
  }

  std::size_t sort_nearest(std::size_t wanted) {
    const auto count = std::min(near_.size(), wanted);
    std::partial_sort(near_.begin(), near_.begin() + static_cast<std::ptrdiff_t>(count), near_.end(), [](const auto& a, const auto& b) {
      return a.near.distance != b.near.distance ? a.near.distance < b.near.distance : a.order < b.order;
    });
    return count;
  }

  std::shared_ptr<const TuningRecord> nearest(std::string& where) {
    const auto count = sort_nearest(nearest_tried);
    for (std::size_t i = 0; i < count && near_[i].near.distance <= farthest; ++i)
      if (auto record = take(*near_[i].row, near_[i].path)) {
        where = fmt::format("nearest: {}:{} measured at {}", near_[i].path, near_[i].row->number, near_[i].near.measured);
        return record;
      }
    return nullptr;
  }

  const std::string& passed_over() const { return passed_over_; }

  void collect_own(const std::shared_ptr<const RecordsFile>& file, const std::string& path) {
    for (const auto* row : file->rows_of(key_)) near_.push_back({{}, near_.size(), row, path, file});
  }

  std::vector<PersistentCache::Near> told(std::size_t wanted) {
    std::vector<PersistentCache::Near> result;
    const auto count = sort_nearest(wanted);
    for (std::size_t i = 0; i < count; ++i)
      if (auto record = record_from_json(near_[i].row->line)) {
        auto fault = fault_of(*record);
        result.push_back({fmt::format("{}:{}", near_[i].path, near_[i].row->number), near_[i].near.measured,
                          std::make_shared<const TuningRecord>(std::move(*record)), std::move(fault)});
      }
    return result;
  }

 private:
  std::string fault_of(const TuningRecord& record) const {
    const auto judged = judge_record(kernel_, invocation_, record);
    return judged.serves() ? "" : judged.reason;
  }

  struct Near {
    Nearness near;
    std::size_t order;
    const RecordsFile::Row* row;
    std::string path;
    std::shared_ptr<const RecordsFile> file;  // keeps the row
  };
  const Kernel& kernel_;
  const Invocation& invocation_;
  const std::string& key_;
  std::string passed_over_;
  std::vector<Near> near_;
};

std::vector<std::string> with_agreement(std::vector<std::string> folders, const RecordsWriting& writing) {
  if (!writing.agreement.empty()) folders.insert(folders.begin(), writing.agreement);
  return folders;
}

}  // namespace

PersistentCache::PersistentCache(std::vector<std::string> folders, RecordsWriting writing)
    : folders_(with_agreement(std::move(folders), writing)), writing_(std::move(writing)), files_(std::make_unique<Files>()) {}

PersistentCache::~PersistentCache() = default;

std::shared_ptr<const TuningRecord> PersistentCache::find(const Kernel& kernel, const Invocation& invocation, const std::string& key,
                                                          std::string& detail) const {
  LookUp look_up(kernel, invocation, key);
  std::string looked, where, skipped_before;
  for (const auto& folder : folders_) {
    const auto path = fmt::format("{}/{}/{}.jsonl", folder, invocation.device, invocation.kernel);
    const auto file = files_->of(folder, writing_, invocation);
    const auto skipped = file->bad_lines().empty() ? "" : "; lines skipped: " + file->bad_lines();
    if (auto record = look_up.exact(*file, path, where)) {
      detail = where + skipped + skipped_before + look_up.passed_over();
      return record;
    }
    looked += fmt::format("; {}: {}{}", path, file->exists() ? "no row for this key" : "no such file", skipped);
    if (!skipped.empty()) skipped_before += fmt::format("; {}{}", path, skipped.substr(1));
    if (folder != writing_.agreement) look_up.collect_nearest(file, path);  // which rows are there yet differs from process to process
  }
  auto record = look_up.nearest(where);
  const auto rest = folders_.empty() ? "; no folder of records" : looked;
  detail = (where.empty() ? rest.substr(2) : where + skipped_before) + look_up.passed_over();
  return record;
}

std::vector<PersistentCache::Near> PersistentCache::near(const Kernel& kernel, const Invocation& invocation, const std::string& key,
                                                         std::size_t count) const {
  LookUp look_up(kernel, invocation, key);
  for (const auto& folder : folders_) {
    const auto path = fmt::format("{}/{}/{}.jsonl", folder, invocation.device, invocation.kernel);
    const auto file = files_->of(folder, writing_, invocation);
    look_up.collect_own(file, path);
    look_up.collect_nearest(file, path);
  }
  return look_up.told(count);
}

std::size_t PersistentCache::rows(const Invocation& invocation, const std::string& key) const {
  std::size_t count = 0;
  for (const auto& folder : folders_) count += files_->of(folder, writing_, invocation)->rows_of(key).size();
  return count;
}

Status PersistentCache::append(const TuningRecord& record) const {
  Status result;
  for (const auto& folder : {writing_.agreement, writing_.user})
    if (!folder.empty())
      if (auto status = folder == writing_.agreement ? append_agreed(folder, record) : append_record(folder, record); !status && result)
        result = std::move(status);
  return result;
}

}  // namespace ejk

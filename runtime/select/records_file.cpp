// Reads and indexes a records file.
#include "select/records_file.hpp"

#include <fmt/format.h>
#include <string.h>  // memmem
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "store/files.hpp"

namespace ejk {
namespace {

// The key's text in a line as to_json(TuningRecord) writes it: "key":{...} without blanks. Config values are scalars, so no object inside
// a record has another member "key" that is an object, and in a string the quotes would be escaped. Empty: written in another form.
std::string_view plain_key(std::string_view line) {
  static constexpr std::string_view mark = R"("key":{)";
  if (line.front() != '{' || line.back() != '}') return {};
  const auto* found = static_cast<const char*>(memmem(line.data(), line.size(), mark.data(), mark.size()));
  if (!found) return {};
  const char* const begin = found + mark.size() - 1;
  int depth = 0;
  bool quoted = false;
  for (const char* at = begin; at < line.data() + line.size(); ++at) {
    const char c = *at;
    if (quoted) {
      if (c == '\\')
        ++at;
      else
        quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == ' ' || c == '\t') {
      return {};
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return {begin, static_cast<std::size_t>(at + 1 - begin)};
    }
  }
  return {};
}

std::uint64_t hash_of(std::string_view key) { return XXH3_64bits(key.data(), key.size()); }

}  // namespace

FileStamp stamp_of(const struct stat& facts) {
  return {facts.st_ino, facts.st_size, std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec};
}

FileStamp stamp_of(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 ? stamp_of(facts) : FileStamp{};
}

RecordsFile::RecordsFile(const std::string& path) : stamp_(stamp_of(path)) {
  if (!exists()) return;
  std::string why_not;
  auto text = store::read_file(path, store::lines_limit, why_not);
  index(std::move(text), why_not);
}

RecordsFile::RecordsFile(const FileStamp& stamp, std::optional<std::string> text, const std::string& why_not) : stamp_(stamp) {
  index(std::move(text), why_not);
}

void RecordsFile::index(std::optional<std::string> text, const std::string& why_not) {
  if (!text) {
    bad_lines_ = why_not;
    return;
  }
  text_ = std::move(*text);
  rows_.reserve(text_.size() / 256);
  const std::string_view whole(text_);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < whole.size();) {
    const auto end = std::min(whole.find('\n', begin), whole.size());
    if (++number; end > begin) add(whole.substr(begin, end - begin), number);
    begin = end + 1;
  }
  by_hash_.resize(rows_.size());
  for (std::uint32_t i = 0; i < rows_.size(); ++i) by_hash_[i] = i;
  std::sort(by_hash_.begin(), by_hash_.end(),
            [&](auto a, auto b) { return rows_[a].hash != rows_[b].hash ? rows_[a].hash < rows_[b].hash : a > b; });
}

void RecordsFile::add(std::string_view line, std::size_t number) {
  auto key = plain_key(line);
  if (key.empty()) {
    const auto record = record_from_json(line);
    if (!record) return add_bad(number, record.error().message);
    key = *rewritten_.emplace_back(std::make_unique<std::string>(record->key));
  }
  rows_.push_back({hash_of(key), key, line, number});
}

void RecordsFile::add_bad(std::size_t number, std::string_view why) {
  static constexpr std::size_t named = 8;
  if (++bad_count_ <= named) bad_lines_ += fmt::format("{}{} ({})", bad_lines_.empty() ? "" : ", ", number, why);
  if (bad_count_ == named + 1) bad_lines_ += ", ...";
}

std::vector<const RecordsFile::Row*> RecordsFile::rows_of(std::string_view key) const {
  std::vector<const Row*> found;
  const auto hash = hash_of(key);
  auto at = std::lower_bound(by_hash_.begin(), by_hash_.end(), hash, [&](auto i, auto wanted) { return rows_[i].hash < wanted; });
  for (; at != by_hash_.end() && rows_[*at].hash == hash; ++at)
    if (rows_[*at].key == key) found.push_back(&rows_[*at]);
  return found;
}

}  // namespace ejk

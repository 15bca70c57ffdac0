// The folder's kernels.lock is held, to find each id in it; all else is compared as it comes.
#include "generator/differences.hpp"

#include <fmt/format.h>
#include <algorithm>

#include "generator/files.hpp"

namespace ejk::generator {
namespace {

std::string_view id_of(std::string_view line) { return line.substr(0, line.find(' ')); }

std::string_view hash_in(std::string_view line) {
  const auto space = line.find(' ');
  return space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
}

// What a line is about, as far as images of one kernel have it alike: "kernels.lock: mean_pooling", "src/mean_pooling"; empty: something
// else.
std::string_view subject_of(std::string_view difference) {
  constexpr std::string_view of_lock = "kernels.lock: ", of_source = "src/";
  if (difference.starts_with(of_lock)) return difference.substr(0, difference.find_first_of(". ", of_lock.size()));
  if (difference.starts_with(of_source)) return difference.substr(0, difference.find('/', of_source.size()));
  return {};
}

}  // namespace

Differences::Differences(std::filesystem::path out) : out_(std::move(out)) {
  read_file(out_ / lock_name, lock_);
  for (std::string_view rest = lock_; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    if (end > 0) lines_.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::stable_sort(lines_.begin(), lines_.end(), [](auto a, auto b) { return id_of(a) < id_of(b); });
  met_.resize(lines_.size());
}

void Differences::add(const std::string& name, std::string sentence) { list_.emplace(name, fmt::format("{}: {}", name, sentence)); }

void Differences::file(const std::string& name, const std::string& bytes) {
  names_.push_back(hash_of(name));
  std::string found;
  if (read_file(out_ / name, found) && found != bytes) add(name, "differs from what the specs make");
}

void Differences::lock_line(std::string_view line) {
  const auto id = id_of(line);
  const auto known = std::lower_bound(lines_.begin(), lines_.end(), id, [](auto a, auto b) { return id_of(a) < b; });
  if (known == lines_.end() || id_of(*known) != id) return add(lock_name, fmt::format("{} is missing", id));
  met_[static_cast<std::size_t>(known - lines_.begin())] = true;
  if (hash_in(*known) != hash_in(line))
    add(lock_name, fmt::format("{} has hash {}, its source now has {}", id, hash_in(*known), hash_in(line)));
}

void Differences::append(const std::string& name, std::string_view bytes) {
  const auto [at, fresh] = compared_.try_emplace(name);
  auto& [found, exists, same] = at->second;
  if (fresh) {
    found.open(out_ / name, std::ios::binary);
    exists = found.is_open();
  }
  if (name == lock_name && !bytes.empty()) lock_line(bytes.substr(0, bytes.size() - 1));
  if (!same || !exists) return;
  std::string part(bytes.size(), '\0');
  found.read(part.data(), static_cast<std::streamsize>(part.size()));
  same = static_cast<std::size_t>(found.gcount()) == bytes.size() && part == bytes;
}

void Differences::finish_lock() {
  for (std::size_t i = 0; i < lines_.size(); ++i)
    if (!met_[i] && (i == 0 || id_of(lines_[i - 1]) != id_of(lines_[i])))
      add(lock_name, fmt::format("{} is not made any more", id_of(lines_[i])));
}

std::vector<std::string> Differences::list() {
  finish_lock();
  for (auto& [name, compared] : compared_) {
    if (!compared.exists) continue;
    if (compared.same && compared.found.peek() == std::ifstream::traits_type::eof()) continue;
    if (name != lock_name)
      add(name, "differs from what the specs make");
    else if (!list_.contains(lock_name))
      add(name, "not as it is written (order or stray text)");
  }
  std::sort(names_.begin(), names_.end());
  std::set<std::string> stale;
  for_each_marked_file(out_, [&](const std::string& name) {
    if (!std::binary_search(names_.begin(), names_.end(), hash_of(name))) stale.insert(name);
  });
  std::vector<std::string> lines;
  for (auto& [name, line] : list_) lines.push_back(std::move(line));
  for (const auto& name : stale) lines.push_back(fmt::format("{}: is not made any more", name));
  return lines;
}

std::vector<std::string> shortened(const std::vector<std::string>& differences) {
  constexpr std::ptrdiff_t shown = 3;
  std::vector<std::string> lines;
  for (auto first = differences.begin(); first != differences.end();) {
    const auto subject = subject_of(*first);
    const auto end =
        std::find_if(first + 1, differences.end(), [&](const auto& line) { return subject.empty() || subject_of(line) != subject; });
    const bool long_run = end - first > shown + 1;
    lines.insert(lines.end(), first, long_run ? first + shown : end);
    if (long_run) lines.push_back(fmt::format("{}: and {} more; --json has all", subject, end - first - shown));
    first = end;
  }
  return lines;
}

}  // namespace ejk::generator

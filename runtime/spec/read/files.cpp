// Files of specs, by system calls: whatever stands in a folder, to list and to read it ends.
#include "spec/read/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "spec/read/json_node.hpp"

namespace ejk::spec {
namespace {

namespace fs = std::filesystem;

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

// Why a file is no spec's or arch's; nullopt: it may be.
std::optional<std::string> oddity(const fs::directory_entry& entry) {
  std::error_code error;  // each asks of what a link leads to
  if (entry.is_regular_file(error)) return bad_file_name(entry.path().stem().string());
  if (entry.is_directory(error)) return "a folder; expected a file";
  return entry.exists(error) ? "not a regular file" : "a link that leads nowhere";
}

// errno tells why not.
std::optional<std::string> whole(int file, std::size_t size) {
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const auto count = ::read(file, text.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace

JsonFiles json_files(const fs::path& folder) {
  JsonFiles found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto& path = entry->path();
    if (path.extension() != ".json" || path.filename().string().starts_with('.')) continue;
    if (auto why = oddity(*entry))
      found.passed_over.push_back({path.generic_string(), "", std::move(*why)});
    else
      found.files.push_back(path);
  }
  if (error) throw std::runtime_error("cannot read the folder " + folder.generic_string() + ": " + error.message());
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.passed_over.begin(), found.passed_over.end(), [](const Fault& a, const Fault& b) { return a.file < b.file; });
  return found;
}

std::optional<std::string> read_text(const fs::path& path, std::vector<Fault>& faults, std::size_t limit) {
  const auto refuse = [&](std::string reason) -> std::optional<std::string> {
    faults.push_back({path.generic_string(), "", std::move(reason)});
    return std::nullopt;
  };
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  struct stat facts {};
  if (file.value < 0 || ::fstat(file.value, &facts) != 0) return refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
  if (!S_ISREG(facts.st_mode)) return refuse("not a regular file");
  const auto size = static_cast<std::size_t>(facts.st_size);
  if (size > limit) return refuse(fmt::format("the file has {} bytes; the limit is {}", size, limit));
  auto text = whole(file.value, size);
  return text ? std::move(text) : refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
}

std::string read_text(const fs::path& path) {
  std::vector<Fault> faults;
  auto text = read_text(path, faults);
  if (!text) throw SpecError(std::move(faults));
  return std::move(*text);
}

}  // namespace ejk::spec

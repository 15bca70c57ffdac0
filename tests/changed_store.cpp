// Changed stores and the processes that try them. A status is returned with a number added, which no sanitizer or abort returns.
#include "tests/changed_store.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace ejk::test {
namespace {

namespace fs = std::filesystem;
constexpr int first_status = 64, statuses = 64;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// `copy` gets links to all that `folder` has, and one text of its own, at `file` below it.
void link_all_but(const fs::path& file, const fs::path& folder, const fs::path& copy, const std::string& text) {
  fs::create_directory(copy);
  const fs::path first = *file.begin();
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != first) fs::create_symlink(entry.path(), copy / entry.path().filename());
  if (first == file)
    std::ofstream(copy / file) << text;
  else
    link_all_but(fs::relative(file, first), folder / first, copy / first, text);
}

void lay_out(const fs::path& store, const fs::path& root, const std::optional<Change>& change) {
  fs::create_directories(store / "cache");
  fs::permissions(store / "cache", fs::perms::owner_all);
  fs::create_directory_symlink(root / "specs", store / "specs");
  const auto templates = root / "templates";
  if (!change) return fs::create_directory_symlink(templates, store / "templates");
  link_all_but(change->file, templates, store / "templates", changed(text_of(templates / change->file), *change));
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

}  // namespace

std::string changed(const std::string& text, const Change& change) {
  auto at = text.find(change.word);
  for (int i = 0; i < change.occurrence && at != std::string::npos; ++i) at = text.find(change.word, at + change.word.size());
  if (at == std::string::npos)
    throw std::invalid_argument(fmt::format("'{}' does not occur {} times in {}", change.word, change.occurrence + 1, change.file));
  return text.substr(0, at) + change.by + text.substr(at + change.word.size());
}

ChangedStore::ChangedStore(const fs::path& root, const std::optional<Change>& change) {
  std::string name = (fs::temp_directory_path() / "ejk-trial-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
  path_ = name;
  lay_out(path_, root, change);
}

ChangedStore::~ChangedStore() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Ended in_a_process(unsigned processor_seconds, unsigned most_seconds, const std::function<int()>& run) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    alarm(most_seconds);
    const rlimit limit{processor_seconds, processor_seconds};
    setrlimit(RLIMIT_CPU, &limit);
    const int status = run();
    std::fflush(nullptr);
    _exit(first_status + status);
  }
  close(ends[1]);
  Ended ended{std::nullopt, read_all(ends[0])};
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) - first_status : -1;
  if (code >= 0 && code < statuses) ended.status = code;
  return ended;
}

}  // namespace ejk::test

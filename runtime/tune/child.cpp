// posix_spawn on one end of a socket pair; a socket, so that writing to a dead program raises no SIGPIPE in a host.
#include "tune/child.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;
constexpr off_t kept_words = 2000;                                // of stderr
constexpr std::size_t longest_line = 1 << 24;                     // a child that babbles is ended
constexpr auto patience_at_end = std::chrono::milliseconds(200);  // until a program whose socket is closed is gone

struct FileActions {
  posix_spawn_file_actions_t value;
  FileActions(int socket, int errors) {
    posix_spawn_file_actions_init(&value);
    posix_spawn_file_actions_adddup2(&value, socket, 0);
    posix_spawn_file_actions_adddup2(&value, socket, 1);
    posix_spawn_file_actions_adddup2(&value, errors, 2);
  }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&value); }
};

std::runtime_error cannot(const std::string& what) { return std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno))); }

std::string ending(int status) {
  if (WIFEXITED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return "an unknown end";
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::vector<std::string>& environment)
    : errors_(memfd_create("ejk-child-stderr", MFD_CLOEXEC)) {
  int ends[2];
  if (errors_.value < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw cannot("no socket for a child process");
  const Descriptor theirs(ends[1]);
  socket_.value = ends[0];
  const SpawnAttributes attributes;
  const FileActions actions(theirs.value, errors_.value);
  const auto arguments = spawn_pointers(command), variables = spawn_pointers(environment);
  if (const int error = posix_spawn(&pid_, arguments[0], &actions.value, &attributes.value, arguments.data(), variables.data())) {
    pid_ = -1;
    throw std::runtime_error(fmt::format("cannot start {}: {}", command[0], std::strerror(error)));
  }
}

Child::~Child() { end(); }

bool Child::send(const std::string& line) {
  const auto text = line + "\n";
  for (std::size_t sent = 0; sent < text.size();) {
    const auto count = ::send(socket_.value, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

Child::Answer Child::receive(double seconds, std::string& line) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  char bytes[4096];
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return Answer::line;
    }
    if (buffer_.size() > longest_line) return Answer::ended;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{socket_.value, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::clamp<long long>(left, 0, 3'600'000)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return Answer::timed_out;
    const auto count = ready < 0 ? -1 : recv(socket_.value, bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Answer::ended;
    buffer_.append(bytes, static_cast<std::size_t>(count));
  }
}

std::string Child::end() {
  if (pid_ < 0) return "it never ran";
  socket_.close_now();
  int status = 0;
  const auto deadline = Clock::now() + patience_at_end;
  auto waited = waitpid(pid_, &status, WNOHANG);
  for (timespec pause{0, 1'000'000}; waited == 0 && Clock::now() < deadline; waited = waitpid(pid_, &status, WNOHANG))
    nanosleep(&pause, nullptr);
  kill(-pid_, SIGKILL);  // what it started, too
  if (waited == 0) waited = waitpid(pid_, &status, 0);
  const auto ended = waited == pid_ ? ending(status) : "an end that this process was not told: it reaps its children elsewhere";
  pid_ = -1;
  return ended;
}

std::string Child::last_words() const {
  struct stat info {};
  if (fstat(errors_.value, &info) != 0 || info.st_size == 0) return {};
  std::string text(static_cast<std::size_t>(std::min(info.st_size, kept_words)), '\0');
  const auto count = pread(errors_.value, text.data(), text.size(), info.st_size - static_cast<off_t>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace ejk

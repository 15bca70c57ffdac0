// posix_spawn with captured output and a time limit.
#include "backends/process/process.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "backends/process/spawn.hpp"

namespace ejk {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t output_limit = 1 << 20;

// glibc has it from 2.29 on; null before.
using AddChdir = int(posix_spawn_file_actions_t*, const char*);
AddChdir* add_chdir() {
  static const auto found = reinterpret_cast<AddChdir*>(dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addchdir_np"));
  return found;
}

bool needs_shell(const ProcessRequest& request) { return !request.folder.empty() && (request.shell_changes_folder || !add_chdir()); }

struct FileActions {
  posix_spawn_file_actions_t value;
  FileActions(const ProcessRequest& request, int output) {
    posix_spawn_file_actions_init(&value);
    posix_spawn_file_actions_addopen(&value, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&value, output, 1);
    posix_spawn_file_actions_adddup2(&value, output, 2);
    if (!request.folder.empty() && !needs_shell(request)) add_chdir()(&value, request.folder.c_str());
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&value); }
};

// The command as it is started.
std::vector<std::string> started_command(const ProcessRequest& request) {
  if (!needs_shell(request)) return request.command;
  std::vector<std::string> command{"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", request.folder.string()};
  command.insert(command.end(), request.command.begin(), request.command.end());
  return command;
}

// Reads until the writers are gone; false: the deadline came first.
bool read_until(int fd, Clock::time_point deadline, std::string& output) {
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const auto count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    if (output.size() < output_limit) output.append(buffer, static_cast<std::size_t>(count));
  }
}

// false: the deadline came first.
bool wait_until(pid_t pid, Clock::time_point deadline, int& status) {
  timespec pause{0, 1'000'000};
  for (;;) {
    const auto waited = waitpid(pid, &status, WNOHANG);
    if (waited == pid) return true;
    if (waited < 0 && errno != EINTR) {  // the host reaps its children itself: the exit status is lost
      status = -1;
      return true;
    }
    if (Clock::now() >= deadline) return false;
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

ProcessResult run_process(const ProcessRequest& request) {
  ProcessResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.output = std::string("cannot make a pipe: ") + std::strerror(errno);
    return result;
  }
  Descriptor reader{ends[0]}, writer{ends[1]};
  const SpawnAttributes attributes;
  const FileActions actions(request, writer.value);
  const auto command = started_command(request);
  const auto arguments = spawn_pointers(command), environment = spawn_pointers(request.environment);
  pid_t pid = 0;
  if (const int error = posix_spawn(&pid, arguments[0], &actions.value, &attributes.value, arguments.data(), environment.data())) {
    result.output = "cannot start " + request.command[0] + ": " + std::strerror(error);
    return result;
  }
  writer.close_now();
  result.started = true;
  const auto deadline = Clock::now() + std::chrono::seconds(request.timeout_s);
  int status = 0;
  if (!read_until(reader.value, deadline, result.output) || !wait_until(pid, deadline, status)) {
    result.timed_out = true;
    kill(-pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  if (status == -1) {
    result.output += "\nits exit status is unknown: this process reaps its children elsewhere";
  } else if (WIFEXITED(status)) {
    result.exit_status = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  }
  return result;
}

}  // namespace ejk

// Runs one program to its end and keeps its output. No shell, but where only that can change the folder.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace ejk {

struct ProcessResult {
  bool started = false;
  bool timed_out = false;
  int exit_status = -1;  // -1: did not exit by itself
  int signal = 0;        // that ended it
  std::string output;    // stdout and stderr as they came; the first MiB
  bool ok() const { return started && !timed_out && exit_status == 0; }
};

struct ProcessRequest {
  std::vector<std::string> command;  // command[0]: path of an executable
  std::filesystem::path folder;      // working folder; empty: this process's
  std::vector<std::string> environment;
  int timeout_s = 300;
  bool shell_changes_folder = false;  // so it is anyway where glibc cannot, before 2.29
};

// The program gets its own process group, so that a time-out also ends what it started. Thread-safe. Never throws for what the program
// does; output says why it did not start.
ProcessResult run_process(const ProcessRequest& request);

}  // namespace ejk

// A program that runs beside this one and is spoken to in lines: what it is told on its stdin, what it answers on its stdout, each
// with a time limit. It has a process group of its own, which ends with the object.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "backends/process/spawn.hpp"

namespace ejk {

class Child {
 public:
  // command[0]: path of an executable. Throws std::runtime_error if it cannot be started.
  Child(const std::vector<std::string>& command, const std::vector<std::string>& environment);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  bool send(const std::string& line);  // false: it is gone
  enum class Answer { line, timed_out, ended };
  Answer receive(double seconds, std::string& line);

  // Kills the group if it still runs, and tells in words how the program ended: "signal 11 (Segmentation fault)", "exit status 3".
  std::string end();
  std::string last_words() const;  // the end of what it wrote to stderr; may be empty

 private:
  Descriptor socket_, errors_;
  pid_t pid_ = -1;
  std::string buffer_;
};

}  // namespace ejk

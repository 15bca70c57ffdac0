// Faults in specs and templates: collected, so that all are reported at once as `file:/json/pointer: sentence`.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

namespace ejk::spec {

struct Fault {
  std::string file;      // as the user named it (specs/x.json), or template path
  std::string where;     // JSON pointer (/variants/0/valid/1; empty: the whole file), line:column for bad JSON, a line for templates
  std::string sentence;  // what was found, what was expected
  std::string text() const { return file + (where.empty() ? "" : ":" + where) + ": " + sentence; }
};

// Thrown once everything that can be checked has been; carries every fault, in file order.
class SpecError : public std::runtime_error {
 public:
  explicit SpecError(std::vector<Fault> faults);  // what(): the faults' texts, one a line
  const std::vector<Fault>& faults() const { return faults_; }

 private:
  std::vector<Fault> faults_;
};

// A call whose tensors or attributes break the contract, or that no variant supports. what() is the user's message.
class CallError : public std::runtime_error {
 public:
  enum class Kind { bad_input, unsupported };
  CallError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace ejk::spec

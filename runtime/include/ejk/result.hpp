// What a public call returns: a value or an Error. The library never throws across its interface, prints or aborts.
#pragma once
#include <string>
#include <utility>
#include <variant>

namespace ejk {

enum class ErrorCode : int {
  ok = 0,
  bad_input = 2,       // the caller's tensors, attributes, spec or file are wrong; the message names the argument
  unsupported = 3,     // legal, but no variant takes it; the message lists each variant with the clause that refused it
  missing_image = 4,   // no binary, and none could be built; the message lists every place that was tried
  compile_failed = 5,  // the compiler refused a rendered source; the message has the image id and the compiler's words
  io = 6,              // a file or folder could not be read or written
  device = 7,          // the backend refused a load or a launch
  internal = 8,        // a fault of ejk itself
};

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;  // names the thing, what was found, what was expected and what to do
};

// A T or an Error. `if (auto r = f()) use(*r); else report(r.error().message);`
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return error_.code == ErrorCode::ok; }
  const Error& error() const { return error_; }

 private:
  Error error_{ErrorCode::ok, {}};
};

}  // namespace ejk

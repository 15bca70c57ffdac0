// The border between C and the library: what C gives becomes views, values and configs; what is thrown becomes a status and words.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "common/guard.hpp"
#include "ejk/ejk.h"
#include "ejk/json.hpp"
#include "ejk/kernel.hpp"
#include "execute/library_state.hpp"

namespace ejk::c_api {

std::string& last_error();  // this thread's

[[noreturn]] inline void bad(const std::string& message) { throw spec::CallError(spec::CallError::Kind::bad_input, message); }

// Throws CallError that names what is NULL.
template <class T>
T* required(T* pointer, const char* what) {
  if (!pointer) bad(std::string(what) + " is NULL");
  return pointer;
}

std::map<std::string, TensorView> views_of(const char* kernel, const ejk_argument* tensors, std::size_t count);
std::map<std::string, Value> attributes_of(const char* kernel, const char* text);
std::optional<Config> config_of(const char* text);

// A call by names whose tensors need no data, in canonical form.
Invocation invocation_of(const char* kernel, const ejk_argument* tensors, std::size_t count, const char* attributes);

// A text for ejk_free. Throws CallError if there is nowhere to put it.
Status give(Result<std::string> text, char** out);

// Runs f, which returns a Status; keeps the error's words.
template <class F>
ejk_status guarded_call(F&& f) noexcept {
  const Status status = guarded([&]() -> Status { return f(); });
  last_error() = status ? std::string() : status.error().message;
  return status ? EJK_OK : static_cast<ejk_status>(status.error().code);
}

}  // namespace ejk::c_api

// The border of the library: whatever is thrown inside becomes an Error here.
#pragma once
#include <exception>
#include <new>
#include <string>

#include "backends/backend.h"
#include "ejk/result.hpp"
#include "spec/expression/expression.hpp"
#include "spec/fault.hpp"

namespace ejk {

// An internal exception that knows its code.
class CodedError : public std::runtime_error {
 public:
  CodedError(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The Error of the exception being handled; call it in a catch block only.
inline Error current_error() noexcept {
  try {
    throw;
  } catch (const CodedError& e) {
    return {e.code(), e.what()};
  } catch (const spec::CallError& e) {
    return {e.kind() == spec::CallError::Kind::bad_input ? ErrorCode::bad_input : ErrorCode::unsupported, e.what()};
  } catch (const spec::SpecError& e) {
    return {ErrorCode::bad_input, e.what()};
  } catch (const DeviceError& e) {
    return {ErrorCode::device, e.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::internal, "out of memory"};
  } catch (const std::exception& e) {
    return {ErrorCode::internal, e.what()};
  } catch (...) {
    return {ErrorCode::internal, "unknown exception"};
  }
}

template <class F>
auto guarded(F&& f) noexcept -> decltype(f()) {
  try {
    return f();
  } catch (...) {
    return current_error();
  }
}

}  // namespace ejk

// Configs, invocations and plain values as JSON and back. Written JSON is stable: keys sorted, no spaces, equal things give equal bytes.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "ejk/kernel.hpp"
#include "ejk/value.hpp"

namespace ejk {

using Values = std::map<std::string, Value>;

// Any JSON text in that form. An error for what is no JSON (NaN and Infinity are none), for a key that occurs twice and for numbers that do
// not fit 64 bits; it says where.
EJK_API Result<std::string> stable_json(std::string_view text);

// A number that is not finite, or text that is not UTF-8, is an error that names the value.
EJK_API Result<std::string> to_json(const Values& values);
EJK_API Result<Values> values_from_json(std::string_view text);

// The key of the invocation: kernel, device, tensors without their data, attributes without the varying ones.
EJK_API Result<std::string> to_json(const Invocation& invocation);
// Its tensors have no data; they lie on device 0 of the platform that the fingerprint begins with.
EJK_API Result<Invocation> invocation_from_json(std::string_view text);

// from_json<Config>(text), from_json<Invocation>(text), from_json<Values>(text)
template <class T>
Result<T> from_json(std::string_view text) {
  if constexpr (std::is_same_v<T, Config>) return config_from_json(text);
  if constexpr (std::is_same_v<T, Invocation>) return invocation_from_json(text);
  if constexpr (std::is_same_v<T, Values>) return values_from_json(text);
}

}  // namespace ejk

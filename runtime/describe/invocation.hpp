// Invocations as nlohmann's JSON and back.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "ejk/kernel.hpp"

namespace ejk {

// Device 0 of the platform that a fingerprint begins with.
Device device_of_fingerprint(std::string_view fingerprint);

// What Invocation::key() writes. Throws CodedError for what JSON cannot hold.
nlohmann::json json_of(const Invocation& invocation);

// The four fields of a key; others of the object are not looked at. Throws CodedError.
Invocation invocation_from(const nlohmann::json& object, const std::string& what);

}  // namespace ejk

// Reads the environment table.
#include "execute/environment.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "spec/fault.hpp"

namespace ejk {
namespace {

std::string_view value_of(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

[[noreturn]] void refuse(const char* name, std::string_view found, const char* legal) {
  throw spec::CallError(spec::CallError::Kind::bad_input, std::string("environment variable ") + name + " is '" + std::string(found) +
                                                              "'; expected " + legal + ", or unset it");
}

bool on_off(const char* name, bool fallback) {
  const auto text = value_of(name);
  if (text.empty()) return fallback;
  if (text == "on") return true;
  if (text == "off") return false;
  refuse(name, text, "on or off");
}

// The first choice is that of an unset variable.
std::string choice(const char* name, std::initializer_list<std::string_view> choices, const char* legal) {
  const auto text = value_of(name);
  if (text.empty()) return std::string(*choices.begin());
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) refuse(name, text, legal);
  return std::string(text);
}

int threads() {
  const auto text = value_of("EJKERNEL_THREADS");
  if (text.empty()) return 0;
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end != text.data() + text.size() || count < 0 || count > 4096)
    refuse("EJKERNEL_THREADS", text, "a number from 0 (all) to 4096");
  return count;
}

std::vector<std::string> folders(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    const auto colon = text.find(':');
    if (colon != 0) result.emplace_back(text.substr(0, colon));
    text = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  }
  return result;
}

}  // namespace

const std::vector<EnvironmentVariable>& environment_table() {
  static const std::vector<EnvironmentVariable> table = {
      {"EJKERNEL_STORE", "folders separated by ':'", "stores (packs) to look in, before those beside the library"},
      {"EJKERNEL_CACHE_DIR", "a folder", "the user cache; by default $XDG_CACHE_HOME/ejk or ~/.cache/ejk"},
      {"EJKERNEL_JIT", "on | off", "compile images that no store has (default on)"},
      {"EJKERNEL_THREADS", "0 to 4096", "threads for CPU work; 0 or unset: as many as the process may use"},
      {"EJKERNEL_LOG", "on | off", "a line to stderr for each compile and fallback (default off)"},
      {"EJKERNEL_OPS_STAMP", "none | hash | json", "how launches are labelled for profilers (default none)"},
      {"EJKERNEL_OPS_RECORD", "a file", "where calls are recorded, a JSON line each, without data; unset: nowhere"},
  };
  return table;
}

Environment read_environment() {
  Environment environment;
  environment.jit = on_off("EJKERNEL_JIT", true);
  environment.log = on_off("EJKERNEL_LOG", false);
  environment.stores = folders(value_of("EJKERNEL_STORE"));
  environment.cache_dir = value_of("EJKERNEL_CACHE_DIR");
  environment.threads = threads();
  environment.stamp = choice("EJKERNEL_OPS_STAMP", {"none", "hash", "json"}, "none, hash or json");
  environment.record = value_of("EJKERNEL_OPS_RECORD");
  return environment;
}

}  // namespace ejk

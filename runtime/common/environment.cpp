// Reads the environment table.
#include "common/environment.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
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

std::int64_t number(const char* name, std::int64_t fallback, std::int64_t low, std::int64_t high, const char* legal) {
  const auto text = value_of(name);
  if (text.empty()) return fallback;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) refuse(name, text, legal);
  return value;
}

// The first choice is that of an unset variable.
std::string choice(const char* name, std::initializer_list<std::string_view> choices, const char* legal) {
  const auto text = value_of(name);
  if (text.empty()) return std::string(*choices.begin());
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) refuse(name, text, legal);
  return std::string(text);
}

Jit jit() {
  const auto text = choice("EJKERNEL_JIT", {"on", "off", "background"}, "on, off or background");
  return text == "on" ? Jit::on : text == "off" ? Jit::off : Jit::background;
}

AutotunePolicy policy() {
  AutotunePolicy result;
  if (choice("EJKERNEL_AUTOTUNE_POLICY", {"heuristics", "autotune"}, "autotune or heuristics") == "autotune")
    result.cache_miss_fallback = CacheMissFallback::autotune;
  return result;
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
      {"EJKERNEL_TRUST", "folders separated by ':'",
       "used, with all in them, whoever can write there: stores, the cache, the agreement folder (docs/security.md)"},
      {"EJKERNEL_JIT", "on | off | background",
       "compile images that no store has (default on); background: on another thread, while the best image that is there serves"},
      {"EJKERNEL_THREADS", "0 to 4096", "threads for CPU work; 0 or unset: as many as the process may use"},
      {"EJKERNEL_EXECUTOR", "auto | own",
       "whose threads do CPU work: those of XLA's pool inside JAX, else of the program's OpenMP runtime, else own ones (auto, the "
       "default); "
       "own ones always"},
      {"EJKERNEL_LOG", "on | off", "a line to stderr for each compile, with what its stages took, and each fallback (default off)"},
      {"EJKERNEL_AUTOTUNE_POLICY", "autotune | heuristics", "what answers a call that nothing was measured for (default heuristics)"},
      {"EJKERNEL_LOG_AUTOTUNE", "on | off", "a line to stderr when a tuning starts, ends or fails (default off)"},
      {"EJKERNEL_AGREEMENT", "a folder", "shared by the processes of one job: who comes first tunes, the others take its record"},
      {"EJKERNEL_AGREEMENT_TIMEOUT", "1 to 86400", "seconds that a process waits for another's record (default 600)"},
      {"EJKERNEL_SMEM_LIMIT", "0 to 1073741824", "bytes of shared memory a GPU config may use; 0 or unset: what the device has"},
      {"EJKERNEL_PLAN_MEMORY", "1048576 to 68719476736",
       "bytes that the plans of all shapes seen may take (default 67108864, 64 MiB); the least recently used go first"},
      {"EJKERNEL_OPS_STAMP", "none | hash | json", "how launches are labelled for profilers (default none)"},
      {"EJKERNEL_OPS_RECORD", "a file or a pipe",
       "where calls are recorded, a JSON line each, without data; a pipe gets what its reader takes, the rest is counted as lost; unset: "
       "nowhere"},
      {"EJKERNEL_CHECK", "on | off",
       "an error if a call on host tensors turns numbers into NaN; rules over data (offsets, lengths, tables of pages) hold for "
       "tensors on a device, too, which is waited for (default off)"},
  };
  return table;
}

Environment read_environment() {
  Environment environment;
  environment.jit = jit();
  environment.log = on_off("EJKERNEL_LOG", false);
  environment.stores = folders(value_of("EJKERNEL_STORE"));
  environment.cache_dir = value_of("EJKERNEL_CACHE_DIR");
  environment.threads = static_cast<int>(number("EJKERNEL_THREADS", 0, 0, 4096, "a number from 0 (all) to 4096"));
  environment.own_executor = choice("EJKERNEL_EXECUTOR", {"auto", "own"}, "auto or own") == "own";
  environment.policy = policy();
  environment.log_autotune = on_off("EJKERNEL_LOG_AUTOTUNE", false);
  environment.agreement = value_of("EJKERNEL_AGREEMENT");
  environment.agreement_seconds =
      static_cast<int>(number("EJKERNEL_AGREEMENT_TIMEOUT", 600, 1, 86400, "a number of seconds from 1 to 86400"));
  environment.smem_limit = number("EJKERNEL_SMEM_LIMIT", 0, 0, std::int64_t{1} << 30, "a number of bytes from 0 (no limit) to 1073741824");
  environment.trust = folders(value_of("EJKERNEL_TRUST"));
  environment.plan_bytes = number("EJKERNEL_PLAN_MEMORY", environment.plan_bytes, std::int64_t{1} << 20, std::int64_t{1} << 36,
                                  "a number of bytes from 1048576 (1 MiB) to 68719476736 (64 GiB)");
  environment.stamp = choice("EJKERNEL_OPS_STAMP", {"none", "hash", "json"}, "none, hash or json");
  environment.record = value_of("EJKERNEL_OPS_RECORD");
  environment.check = on_off("EJKERNEL_CHECK", false);
  return environment;
}

void log_autotune(const std::string& line) {
  static const bool on = [] {
    try {
      return read_environment().log_autotune;
    } catch (const std::exception&) {
      return false;
    }
  }();
  if (on) std::fprintf(stderr, "ejk: %s\n", line.c_str());
}

}  // namespace ejk

// From an image to a loaded module: user cache, packs, JIT; each step's answer kept for `explain` and for the error.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/store.hpp"

namespace ejk::store {

enum class Origin { user_cache, pack, jit };

struct Obtained {
  std::shared_ptr<Module> module;
  Origin origin = Origin::jit;
  std::string from;  // path of the entry, or "in memory"
  double seconds = 0;
  std::string above_limits = {};  // compiled now: what its variant's limits do not allow; it runs all the same
  Stages stages = {};             // compiled now: look (in the stores), compiler (finding it), lock, compile, store, load
  Stages assembled = {};          // of compile: what the assembler says that each entry took
};

// One line a place that was tried: "user cache: no entry mean_pooling/...", "jit: EJKERNEL_JIT=off".
using Tried = std::vector<std::string>;

struct JitPolicy {
  bool allowed = true;
  std::string why_not;                                       // if not allowed
  std::function<void(const std::string& line)> progress;     // while another process builds the image; may be empty
  std::chrono::milliseconds patience = BuildLock::patience;  // with that process
};

// Thread-safe; one image is loaded once a process (a weak table keeps modules), compiled once a machine.
// nullopt: nowhere to be had, `tried` says why. Never throws for a bad entry; throws DeviceError where the device cannot take any binary,
// std::runtime_error for nothing else than internal faults.
std::optional<Obtained> obtain(const Places& places, const spec::Image& image, const spec::Arch& arch, Backend& backend,
                               const JitPolicy& jit, Tried& tried);

}  // namespace ejk::store

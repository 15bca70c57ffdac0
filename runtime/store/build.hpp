// Compiles rendered images into a store, in parallel, with progress: the engine of `ejk build`.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "spec/read/catalogue.hpp"
#include "store/store.hpp"

namespace ejk::store {

struct BuildItem {
  spec::Image image;
  const spec::Arch* arch = nullptr;
};

struct BuildEvent {
  enum class Kind { started, built, copied, present, failed, skipped };  // skipped: no compiler for that arch
  Kind kind = Kind::started;
  std::string id;
  std::string text;  // failed: compiler's words; skipped: why
  double seconds = 0;
  std::size_t done = 0, total = 0;
};

struct BuildReport {
  std::size_t built = 0, copied = 0, present = 0, failed = 0, skipped = 0;
  double seconds = 0;
  std::vector<std::string> failures;  // "<id>:\n<log>"
};

// events are delivered one at a time. jobs 0: one a core. Safe to kill at any moment and start again.
// earlier: a store of earlier builds, or nullptr. What it has of the same source by the same compiler is copied (and judged by the image's
// limits, as if compiled now); what is compiled is added to it where it is writable, best effort.
// Throws std::runtime_error if the store cannot be written at all, and what on_event throws.
BuildReport build(const Store& store, std::span<const BuildItem> items, int jobs, const std::function<void(const BuildEvent&)>& on_event,
                  const Store* earlier = nullptr);

}  // namespace ejk::store

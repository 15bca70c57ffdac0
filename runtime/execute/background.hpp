// Work on threads of its own while calls go on: images that are compiled while stand-ins serve, and those that a gradient will need.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "backends/backend.h"

namespace ejk {

// An image that is being compiled.
struct Build {
  enum class State : char { running, ready, failed };
  std::atomic<State> state{State::running};  // written last
  std::string why;                           // failed: what was tried
  std::shared_ptr<Module> module;            // ready: kept loaded, so that calls find it
};

// The build of an image; it is begun if nobody has. nullptr: there can be no thread for it (none can be started, the process ends). key: of
// the call that wants it, for events.
std::shared_ptr<const Build> build_behind(const spec::Image& image, const spec::Arch& arch, Backend& backend, const std::string& key);

bool being_built(const spec::Image& image);

// Runs a job, which throws nothing, on such a thread. false: as above, it will not run.
bool run_behind(std::function<void()> job);

// Threads that have nothing to do for a moment end. The end of the process waits for jobs that run, and drops the others. A fork's child
// has neither: its calls begin anew what they need.
bool on_background_thread() noexcept;
bool wait_for_background(std::chrono::milliseconds longest) noexcept;  // until there are no jobs; false: there still are

// Modules of images that were built ahead of any call: loaded until the process ends.
void keep_loaded(std::shared_ptr<Module> module);

}  // namespace ejk

// Events of the config chain: what it chose and why, told to a callback while it happens.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ejk/kernel.hpp"

namespace ejk {

struct Event {
  enum class Kind {
    override_,        // the call's own cfg was taken
    overlay_hit,      // a scope's config was taken
    cache_hit,        // tier: memory or persistent
    autotune_start,   // a measurement begins; may take long
    autotune_finish,  // it ended well: config and seconds
    heuristics,       // the heuristic's config was taken
    error,         // a tuner failed, a record could not be written, an image could not be built behind the calls, or no tier had an answer
    build_start,   // EJKERNEL_JIT=background: the image of `config` is compiled on another thread from now on
    stand_in,      // a call's own image is being compiled so: `config` serves until it is there
    build_finish,  // it is there; told on the thread that compiled it
  };
  Kind kind = Kind::error;
  std::string kernel;
  std::string key;               // Invocation::key() of the call
  std::optional<Config> config;  // what was chosen or measured
  std::optional<Tier> tier;      // the tier that speaks
  double seconds = 0;            // autotune_finish, build_finish, error of a tuner: how long it took
  std::string detail;
};
EJK_API std::string_view name_of(Event::Kind kind);  // "override", "overlay_hit", ...

using EventCallback = std::function<void(const Event&)>;

// The process's callback; an empty one ends it. It is called on the thread whose call it is (build_finish, and the error of such a build:
// on the thread that compiles), under no lock of ejk, and not for calls whose plan exists already (nothing is chosen then). What it throws
// is dropped: an observer does not break a call.
EJK_API void set_event_callback(EventCallback callback);

// A callback for the events of this thread while the object lives; inner scopes are called first, then outer ones, then the process's.
class EJK_API event_scope {
 public:
  explicit event_scope(EventCallback callback);
  event_scope(const event_scope&) = delete;
  event_scope& operator=(const event_scope&) = delete;
  ~event_scope();
};

}  // namespace ejk

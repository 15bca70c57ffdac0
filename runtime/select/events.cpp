// The process's event callback, this thread's, and the autotune log.
#include "select/events.hpp"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/thread_table.hpp"
#include "common/environment.hpp"

namespace ejk {
namespace {

using Shared = std::shared_ptr<const EventCallback>;

struct ProcessCallback {
  std::mutex mutex;
  Shared callback;
  std::atomic<bool> set{false};
};

ProcessCallback& process_callback() {
  static auto* callback = new ProcessCallback;  // never destroyed: threads may outlive main
  return *callback;
}

std::vector<Shared>& scopes() { return of_thread<std::vector<Shared>>(); }

void call(const Shared& callback, const Event& event) noexcept {
  try {
    if (callback && *callback) (*callback)(event);
  } catch (...) {  // an observer does not break a call
  }
}

void log(const Event& event) {
  using enum Event::Kind;
  if (event.kind == autotune_start)
    log_autotune(fmt::format("tuning {}: {}", event.kernel, event.key));
  else if (event.kind == autotune_finish)
    log_autotune(fmt::format("tuned {} in {:.1f} s: {}; {}", event.kernel, event.seconds, event.config ? to_json(*event.config) : "none",
                             event.detail));
  else if (event.kind == error && event.tier == Tier::autotune)
    log_autotune(fmt::format("tuning {} failed after {:.1f} s: {}", event.kernel, event.seconds, event.detail));
}

}  // namespace

std::string_view name_of(Event::Kind kind) {
  static constexpr std::string_view names[] = {"override",   "overlay_hit", "cache_hit",   "autotune_start", "autotune_finish",
                                               "heuristics", "error",       "build_start", "stand_in",       "build_finish"};
  return names[static_cast<std::size_t>(kind)];
}

bool events_wanted() noexcept { return process_callback().set.load(std::memory_order_acquire) || !scopes().empty(); }

void tell(const Event& event) noexcept {
  try {
    log(event);
    const auto inner = scopes();  // a copy: a callback may open a scope of its own
    for (auto scope = inner.rbegin(); scope != inner.rend(); ++scope) call(*scope, event);
    Shared last;
    {
      auto& process = process_callback();
      const std::lock_guard lock(process.mutex);
      last = process.callback;
    }
    call(last, event);
  } catch (...) {  // no memory for a line of news
  }
}

void set_event_callback(EventCallback callback) {
  auto& process = process_callback();
  auto shared = callback ? std::make_shared<const EventCallback>(std::move(callback)) : nullptr;
  const std::lock_guard lock(process.mutex);
  process.callback.swap(shared);  // the old one's captures are destroyed after the lock
  process.set.store(process.callback != nullptr, std::memory_order_release);
}

event_scope::event_scope(EventCallback callback) { scopes().push_back(std::make_shared<const EventCallback>(std::move(callback))); }
event_scope::~event_scope() { close_innermost(scopes()); }

}  // namespace ejk

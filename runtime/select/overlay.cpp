// overlay_cache: a config that holds while the object lives, on this thread.
#include "select/overlay.hpp"

#include <atomic>

#include "backends/thread_table.hpp"

namespace ejk {

std::vector<OverlayScope>& overlay_scopes() { return of_thread<std::vector<OverlayScope>>(); }

std::uint64_t overlay_id() {
  const auto& scopes = overlay_scopes();
  return scopes.empty() ? 0 : scopes.back().id;
}

overlay_cache::overlay_cache(std::string kernel, Config config) {
  static std::atomic<std::uint64_t> next{1};
  overlay_scopes().push_back({std::move(kernel), std::move(config), next++});
}

overlay_cache::~overlay_cache() { close_innermost(overlay_scopes()); }

}  // namespace ejk

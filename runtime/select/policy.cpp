// policy_override: a policy that holds while the object lives, on this thread.
#include "select/policy.hpp"

#include "backends/thread_table.hpp"

namespace ejk {

std::vector<AutotunePolicy>& policy_scopes() { return of_thread<std::vector<AutotunePolicy>>(); }

std::uint64_t policy_word() {
  const auto& scopes = policy_scopes();
  if (scopes.empty()) return 0;
  const auto& policy = scopes.back();
  return 1 | static_cast<std::uint64_t>(policy.allow_autotune) << 1 | static_cast<std::uint64_t>(policy.allow_heuristics) << 2 |
         static_cast<std::uint64_t>(policy.validate_backward) << 3 | static_cast<std::uint64_t>(policy.cache_miss_fallback) << 4;
}

policy_override::policy_override(AutotunePolicy policy) { policy_scopes().push_back(policy); }
policy_override::~policy_override() { close_innermost(policy_scopes()); }

}  // namespace ejk

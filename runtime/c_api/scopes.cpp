// Overlays and policies of this thread: pushed and popped, or kept and used again.
#include <memory>
#include <vector>

#include "backends/thread_table.hpp"
#include "c_api/border.hpp"
#include "describe/values.hpp"
#include "ejk/policy.hpp"
#include "select/overlay.hpp"
#include "select/policy.hpp"

namespace {

using namespace ejk;
using namespace ejk::c_api;

// Scopes that C opened and has not closed, innermost last; a thread's end closes them in order.
template <class Scope>
class Stack {
 public:
  ~Stack() {
    while (!scopes_.empty()) scopes_.pop_back();
  }
  void push(std::unique_ptr<Scope> scope) { scopes_.push_back(std::move(scope)); }
  void pop(const char* what) {
    if (scopes_.empty()) bad(std::string("no ") + what + " is open on this thread: each pop needs a push before it");
    scopes_.pop_back();
  }

 private:
  std::vector<std::unique_ptr<Scope>> scopes_;
};

Stack<overlay_cache>& overlays() { return of_thread<Stack<overlay_cache>>(); }

Stack<policy_override>& policies() { return of_thread<Stack<policy_override>>(); }

CacheMissFallback fallback_of(const Value& value) {
  const auto* name = std::get_if<std::string>(&value);
  if (name && *name == "autotune") return CacheMissFallback::autotune;
  if (name && *name == "heuristics") return CacheMissFallback::heuristics;
  if (name && *name == "error") return CacheMissFallback::error;
  bad("the policy's cache_miss_fallback is " + (name ? "'" + *name + "'" : "no text") + "; expected autotune, heuristics or error");
}

bool flag_of(const std::string& name, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  bad("the policy's " + name + " must be true or false");
}

AutotunePolicy policy_of(const char* text) {
  AutotunePolicy policy;
  for (const auto& [name, value] : values_from(parse_json(required(text, "the policy"), "the policy"), "the policy")) {
    if (name == "allow_autotune")
      policy.allow_autotune = flag_of(name, value);
    else if (name == "allow_heuristics")
      policy.allow_heuristics = flag_of(name, value);
    else if (name == "cache_miss_fallback")
      policy.cache_miss_fallback = fallback_of(value);
    else if (name == "validate_backward")
      policy.validate_backward = flag_of(name, value);
    else
      bad("a policy has no '" + name + "'; it has allow_autotune, allow_heuristics, cache_miss_fallback, validate_backward");
  }
  return policy;
}

// How many of this thread's scopes the last ejk_use_scopes has put there, below what the thread has opened itself.
struct Used {
  std::size_t overlays = 0, policies = 0;
};

template <class Scope>
void replace(std::vector<Scope>& scopes, std::size_t& used, const std::vector<Scope>& by) {
  scopes.erase(scopes.begin(), scopes.begin() + static_cast<std::ptrdiff_t>(used));
  used = 0;
  scopes.insert(scopes.begin(), by.begin(), by.end());
  used = by.size();
}

}  // namespace

struct ejk_kept_scopes {
  std::vector<OverlayScope> overlays;
  std::vector<AutotunePolicy> policies;
};

extern "C" {

ejk_status ejk_keep_scopes(ejk_kept_scopes** scopes) {
  return guarded_call([&]() -> Status {
    if (!scopes) bad("scopes is NULL; expected a place for what is kept");
    *scopes = new ejk_kept_scopes{overlay_scopes(), policy_scopes()};
    return {};
  });
}

ejk_status ejk_use_scopes(const ejk_kept_scopes* scopes) {
  return guarded_call([&]() -> Status {
    static const ejk_kept_scopes none;
    auto& used = of_thread<Used>();
    const auto& by = scopes ? *scopes : none;
    replace(overlay_scopes(), used.overlays, by.overlays);
    replace(policy_scopes(), used.policies, by.policies);
    return {};
  });
}

void ejk_release_scopes(ejk_kept_scopes* scopes) { delete scopes; }

ejk_status ejk_push_overlay(const char* kernel, const char* config) {
  return guarded_call([&]() -> Status {
    const std::string name = kernel ? kernel : "";
    if (!name.empty()) (void)require_kernel(name);
    overlays().push(std::make_unique<overlay_cache>(name, *config_of(required(config, "the config"))));
    return {};
  });
}

ejk_status ejk_pop_overlay(void) {
  return guarded_call([]() -> Status {
    overlays().pop("overlay");
    return {};
  });
}

ejk_status ejk_push_policy(const char* policy) {
  return guarded_call([&]() -> Status {
    policies().push(std::make_unique<policy_override>(policy_of(policy)));
    return {};
  });
}

ejk_status ejk_pop_policy(void) {
  return guarded_call([]() -> Status {
    policies().pop("policy");
    return {};
  });
}

}  // extern "C"

// AutotunePolicy: whether a call that nothing was measured for is tuned, and what answers otherwise. Scopes of this thread override it.
#pragma once
#include "ejk/export.hpp"

namespace ejk {

// What answers a call that no cfg, overlay, remembered config or record serves.
enum class CacheMissFallback {
  autotune,    // the tuner, if allow_autotune; if it is not there or fails, the heuristic, if allow_heuristics; else an error
  heuristics,  // the heuristic, if allow_heuristics; else an error. Nothing is measured
  error,       // an error that names every tier
};

// The process's own policy is that of EJKERNEL_AUTOTUNE_POLICY (autotune | heuristics). Unset means heuristics: tuning takes seconds to
// minutes, and a first call must never look as if it hung; `ejk tune`, or a scope with `autotune`, measures when you say so.
struct AutotunePolicy {
  bool allow_autotune = true;
  bool allow_heuristics = true;
  CacheMissFallback cache_miss_fallback = CacheMissFallback::heuristics;
  // After a call's kernel was tuned, the kernel of its gradient (the spec's "gradient") is selected under the same policy for the call's
  // shapes, so that the backward pass finds its config measured. Its failure is told in the autotune tier's detail, and by an event;
  // the forward call goes on.
  bool validate_backward = false;
  friend bool operator==(const AutotunePolicy&, const AutotunePolicy&) = default;
};

// The policy that holds while the object lives, on this thread only; the innermost scope counts. Plans made under one policy are not used
// under another.
class EJK_API policy_override {
 public:
  explicit policy_override(AutotunePolicy policy);
  policy_override(const policy_override&) = delete;
  policy_override& operator=(const policy_override&) = delete;
  ~policy_override();
};

}  // namespace ejk

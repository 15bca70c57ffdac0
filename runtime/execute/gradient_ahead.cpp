// A job works out the gradient's calls, and one job each compiles what they need.
#include "execute/gradient_ahead.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "execute/background.hpp"
#include "execute/facts.hpp"
#include "execute/plan.hpp"
#include "execute/spec_kernel.hpp"
#include "select/overlay.hpp"
#include "select/policy.hpp"
#include "spec/call/gradient.hpp"

namespace ejk {
namespace {

constinit thread_local const char* expected_inputs = nullptr;

// What chooses configs on a thread.
struct ScopesThen {
  std::vector<OverlayScope> overlays = overlay_scopes();
  std::vector<AutotunePolicy> policies = policy_scopes();
  void use() const {
    overlay_scopes() = overlays;
    policy_scopes() = policies;
  }
};

// Measuring is for the call itself: it takes the device.
bool would_tune() {
  const auto tunes = [](const AutotunePolicy& policy) { return policy.cache_miss_fallback == CacheMissFallback::autotune; };
  const auto& scopes = policy_scopes();
  return tunes(scopes.empty() ? Library::instance().parts().environment.policy : scopes.back());
}

std::set<std::string> names_of_list(const std::string& list) {
  std::set<std::string> names;
  std::istringstream words(list);
  for (std::string name; std::getline(words, name, ',');) names.insert(name);
  return names;
}

Invocation shapes_of(Invocation invocation) {
  for (auto& [name, view] : invocation.tensors) view.data = nullptr;
  return invocation;
}

// Leaves of the call's optional outputs those gradients that are needed. False: none of its outputs is.
bool keep_needed(GradientCall& call, const spec::Spec& forward, const std::set<std::string>& needed) {
  const auto& spec = *require_kernel(call.invocation.kernel).spec;
  bool any = false;
  for (const auto& tensor : spec.tensors) {
    if (!tensor.output || !call.invocation.tensors.contains(tensor.name)) continue;
    const auto own = call.tensors.find(tensor.name);
    const bool wanted = own == call.tensors.end() || needed.contains(spec::differentiated(forward, own->second));
    any |= wanted;
    if (!wanted && tensor.optional) call.invocation.tensors.erase(tensor.name);
  }
  return any;
}

template <class F>
void quietly_ahead(const std::string& what, F&& f) noexcept {
  try {
    f();
  } catch (const std::exception& error) {
    try {
      log_line(fmt::format("{}: not built ahead: {}", what, error.what()));
    } catch (...) {
    }
  }
}

void build_call_ahead(const Invocation& call, const ScopesThen& scopes) noexcept {
  quietly_ahead(call.kernel, [&] {
    scopes.use();
    const auto& handle = require_kernel(call.kernel);
    const auto arguments = positional(handle, call.tensors, call.attributes);
    const auto plan = make_plan(handle, arguments.tensors, arguments.attributes, {}, nullptr, nullptr);
    keep_loaded(plan->resolved.obtained.module);
  });
}

void build_calls_ahead(const Invocation& call, const std::set<std::string>& needed, const ScopesThen& scopes) noexcept {
  quietly_ahead(call.kernel, [&] {
    scopes.use();
    const auto& handle = require_kernel(call.kernel);
    auto gradient = handle.kernel->gradient(call);
    if (!gradient) return;
    for (auto& each : gradient->calls) {
      if (!keep_needed(each, *handle.spec, needed)) continue;
      auto one = shapes_of(std::move(each.invocation));
      if (&each == &gradient->calls.back())
        build_call_ahead(one, scopes);
      else
        run_behind([one = std::move(one), scopes] { build_call_ahead(one, scopes); });
    }
  });
}

}  // namespace

GradientExpected::GradientExpected(const char* inputs) noexcept : before_(std::exchange(expected_inputs, inputs)) {}
GradientExpected::~GradientExpected() { expected_inputs = before_; }

void build_gradient_ahead(const Invocation& invocation) noexcept {
  if (!expected_inputs) return;
  quietly_ahead(invocation.kernel, [&] {
    if (Library::instance().jit() == Jit::off || would_tune()) return;
    if (require_kernel(invocation.kernel).spec->gradient.empty()) return;
    run_behind([call = shapes_of(invocation), needed = names_of_list(expected_inputs), scopes = ScopesThen()] {
      build_calls_ahead(call, needed, scopes);
    });
  });
}

}  // namespace ejk

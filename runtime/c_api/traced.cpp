// ejk.h: calls whose data is not there yet.
#include "ejk/traced.hpp"

#include <nlohmann/json.hpp>

#include "c_api/border.hpp"
#include "common/epoch.hpp"
#include "execute/gradient_ahead.hpp"
#include "select/overlay.hpp"
#include "select/policy.hpp"

using namespace ejk;
using namespace ejk::c_api;

extern "C" {

ejk_status ejk_bind(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, char** json) {
  return guarded_call([&] {
    required(kernel, "the kernel's name");
    return give(bind_call(kernel, views_of(kernel, tensors, count), attributes_of(kernel, attributes)), json);
  });
}

ejk_status ejk_choose(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* config,
                      char** json) {
  return guarded_call([&]() -> Status {
    required(kernel, "the kernel's name");
    const auto cfg = config_of(config);
    const auto choice = choose(kernel, views_of(kernel, tensors, count), attributes_of(kernel, attributes), cfg ? &*cfg : nullptr);
    if (!choice) return choice.error();
    const nlohmann::json told = {
        {"config", nlohmann::json::parse(to_json(choice->config))}, {"image", choice->image}, {"workspace_bytes", choice->workspace_bytes}};
    return give(told.dump(), json);
  });
}

ejk_status ejk_build_gradient(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, const char* inputs) {
  return guarded_call([&]() -> Status {
    const GradientExpected expected(required(inputs, "the list of inputs"));
    build_gradient_ahead(invocation_of(kernel, tensors, count, attributes));
    return {};
  });
}

uint64_t ejk_scopes(void) {
  // Few parts, mixed so that equal sums of unequal ones do not meet.
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
  return (decisions_epoch.load(std::memory_order_relaxed) * odd + overlay_id()) * odd + policy_word();
}

}  // extern "C"

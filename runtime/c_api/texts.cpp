// What the library tells as JSON: kernels, contracts, gradients, counters.
#include <nlohmann/json.hpp>

#include "c_api/border.hpp"
#include "describe/contract.hpp"
#include "describe/values.hpp"
#include "ejk/library.hpp"
#include "execute/library_state.hpp"

namespace {

using namespace ejk;
using namespace ejk::c_api;
using nlohmann::ordered_json;

ordered_json json_of(const GradientCall& call) {
  const auto& spec = *require_kernel(call.invocation.kernel).spec;
  auto outputs = ordered_json::array();
  auto attributes = ordered_json::object(), shapes = ordered_json::object();
  for (const auto& tensor : spec.tensors) {
    if (!tensor.output || !call.names.contains(tensor.name)) continue;
    outputs.push_back(tensor.name);
    if (call.tensors.contains(tensor.name)) continue;
    const auto& view = call.invocation.tensors.at(tensor.name);  // a temporary
    shapes[tensor.name] = {std::string(name_of(view.type)), std::vector(view.shape, view.shape + view.rank)};
  }
  for (const auto& [name, value] : call.invocation.attributes) attributes[name] = ejk::json_of(value, name);
  return {{"kernel", spec.kernel}, {"tensors", call.names}, {"outputs", outputs}, {"shapes", shapes}, {"attributes", attributes}};
}

}  // namespace

extern "C" {

ejk_status ejk_kernels(char** json) {
  return guarded_call([&] { return give(ordered_json(Library::instance().parts().catalogue.kernel_names()).dump(), json); });
}

ejk_status ejk_describe(const char* kernel, char** json) {
  return guarded_call([&] { return give(contract_json(*require_kernel(required(kernel, "the kernel's name")).spec).dump(), json); });
}

ejk_status ejk_gradient(const char* kernel, const ejk_argument* tensors, size_t count, const char* attributes, char** json) {
  return guarded_call([&]() -> Status {
    const auto invocation = invocation_of(kernel, tensors, count, attributes);
    const auto gradient = require_kernel(kernel).kernel_interface()->gradient(invocation);
    if (!gradient) return gradient.error();
    auto calls = ordered_json::array();
    for (const auto& call : gradient->calls) calls.push_back(json_of(call));
    return give(ordered_json{{"calls", calls}, {"equal", gradient->equal}}.dump(), json);
  });
}

ejk_status ejk_counters(char** json) {
  return guarded_call([&] {
    const auto count = counters();
    return give(ordered_json{{"plans", count.plans},
                             {"compiles", count.compiles},
                             {"loads", count.loads},
                             {"fallbacks", count.fallbacks},
                             {"stand_ins", count.stand_ins}}
                    .dump(),
                json);
  });
}

}  // extern "C"

// vmap_with_config: one config, then one folded call or a loop.
#include <fmt/format.h>

#include "batch/fold.hpp"
#include "batch/shared_config.hpp"
#include "common/guard.hpp"

namespace ejk {
namespace {

// Of one call, with the least alignment that any of them has.
std::shared_ptr<const spec::Binding> binding_of_one(const NamedCall& one, const Mapped& mapped) {
  auto facts = facts_of(one.kernel, one.arguments.tensors, one.arguments.attributes);
  for (auto& [name, tensor] : facts.tensors) tensor.alignment = mapped.tensors.at(name).alignment();
  return std::make_shared<spec::Binding>(spec::bind(*one.kernel.spec, std::move(facts)));
}

Status run_loop(const KernelHandle& kernel, const Mapped& mapped, const Values& attributes, Stream stream, const std::string& config) {
  for (std::int64_t i = 0; i < mapped.calls; ++i) {
    const NamedCall call(kernel, mapped.at(i), attributes);
    if (auto status = call.run(stream, config); !status)
      return Error{status.error().code, fmt::format("call {} of {}: {}", i, mapped.calls, status.error().message)};
  }
  return {};
}

}  // namespace

Result<BatchReport> vmap_with_config(const std::string& kernel, const std::map<std::string, TensorView>& tensors, const Values& attributes,
                                     const Axes& axes, Stream stream, const Config* config) {
  return guarded([&]() -> Result<BatchReport> {
    const auto& handle = require_kernel(kernel);
    const auto mapped = map_tensors(handle, tensors, axes);
    BatchReport report;
    report.calls = mapped.calls;
    if (mapped.calls == 0) return report;
    const NamedCall one(handle, mapped.at(0), attributes);
    const auto& machine = machine_of(handle, one.arguments.tensors);
    const auto binding = binding_of_one(one, mapped);
    report.config = choose_config(handle, machine, mapped.at(0), binding, config);
    const auto text = to_json(report.config);
    const auto views = folded(handle, machine, mapped, attributes, *binding, report.config, report.why_not_folded);
    report.made = views ? 1 : mapped.calls;
    auto status = views ? NamedCall(handle, *views, attributes).run(stream, text) : run_loop(handle, mapped, attributes, stream, text);
    if (!status && status.error().code == ErrorCode::missing_image && !config) {
      // No binary of that config can be had here: each call falls back as it does alone, all to the same.
      report.made = mapped.calls;
      report.why_not_folded = "no binary of the chosen config could be had";
      status = run_loop(handle, mapped, attributes, stream, {});
    }
    if (!status) return status.error();
    return report;
  });
}

}  // namespace ejk

// Executor: choose by the chain, then run.
#include "ejk/kernel.hpp"
#include "execute/guard.hpp"
#include "execute/library_state.hpp"

namespace ejk {

Executor::Executor() = default;
Executor::Executor(std::shared_ptr<ConfigSelectorChain> chain) : chain_(std::move(chain)) {}

Result<Selection> Executor::choose(const Kernel& kernel, const Invocation& invocation, const Config* cfg) const {
  return guarded(
      [&]() -> Result<Selection> { return (chain_ ? *chain_ : *Library::instance().parts().chain).select(kernel, invocation, cfg); });
}

Status Executor::operator()(const Kernel& kernel, const Invocation& invocation, const Config* cfg) const {
  auto selection = choose(kernel, invocation, cfg);
  if (!selection) return selection.error();
  return guarded([&]() -> Status { return kernel.run(invocation, selection->config); });
}

}  // namespace ejk

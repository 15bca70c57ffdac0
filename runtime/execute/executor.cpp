// Executor: choose by the chain, then run.
#include "common/guard.hpp"
#include "ejk/kernel.hpp"
#include "execute/library_state.hpp"

namespace ejk {

Executor::Executor() = default;
Executor::Executor(std::shared_ptr<ConfigSelectorChain> chain) : chain_(std::move(chain)) {}

namespace {

const ConfigSelectorChain& chain_or_own(const std::shared_ptr<ConfigSelectorChain>& chain) {
  return chain ? *chain : *Library::instance().parts().chain;
}

}  // namespace

Result<Selection> Executor::choose(const Kernel& kernel, const Invocation& invocation, const Config* cfg) const {
  return guarded([&]() -> Result<Selection> { return chain_or_own(chain_).select(kernel, invocation, cfg); });
}

Status Executor::operator()(const Kernel& kernel, const Invocation& invocation, const Config* cfg) const {
  return guarded([&]() -> Status {
    const auto& chain = chain_or_own(chain_);
    if (cfg) {
      const auto selection = chain.select(kernel, invocation, cfg);
      return selection ? kernel.run(invocation, selection->config) : selection.error();
    }
    const auto selection = chain.select_shared(kernel, invocation);
    return selection ? kernel.run(invocation, (*selection)->config) : selection.error();
  });
}

}  // namespace ejk

// Which image a call gets: the config by the chain, the image rendered; nothing is loaded or compiled.
#pragma once
#include <string>

#include "execute/library_state.hpp"
#include "execute/spec_kernel.hpp"
#include "spec/binding.hpp"
#include "spec/image.hpp"

namespace ejk::tools {

// The call of these facts on a machine; its tensors have no data.
Invocation invocation_of(const KernelHandle& kernel, const spec::CallFacts& facts, const Machine& machine);

struct ChosenImage {
  Candidate candidate;
  spec::Binding binding;
  spec::Config config;
  std::string tier, detail;  // which tier of the chain answered, and with what words
  std::string id;
};
// Throws CallError if the call breaks the contract, CodedError if nothing serves it.
ChosenImage chosen_image(const KernelHandle& kernel, const Invocation& invocation, const Machine& machine);

spec::Image image_of(const KernelHandle& kernel, const Candidate& candidate, const spec::Binding& binding, const spec::Config& config);
std::string image_id_of(const Candidate& candidate, const spec::Binding& binding, const spec::Config& config);

}  // namespace ejk::tools

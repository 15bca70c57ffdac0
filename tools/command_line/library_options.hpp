// What most sub-commands share: --store and --threads, the kernel by name, its cases, attributes and configs as JSON.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "command_line/arguments.hpp"
#include "ejk/kernel.hpp"
#include "execute/library_state.hpp"
#include "spec/model.hpp"

namespace ejk::tools {

void add_library_options(Arguments& arguments);
// Adds the stores and sets the threads. Throws CodedError.
void apply_library_options(const Arguments& arguments);

// Throws UsageError naming the kernels that are near or known.
const KernelHandle& kernel_named(const std::string& name);

// The cases a pattern names: a shell pattern ("llama*"), a full name, or a name without its types ("minilm" is minilm.f32, minilm.bf16 …).
// Throws UsageError if there is none.
std::vector<const spec::Case*> cases_matching(const spec::Spec& spec, const std::string& pattern);
// The one case. Throws UsageError if the name is unknown or stands for several.
const spec::Case& case_named(const spec::Spec& spec, const std::string& name);

// {"causal": true, "window_left": 127}. Throws UsageError for bad JSON, an unknown attribute, or a value of another type.
std::map<std::string, Value> attributes_from_json(const spec::Spec& spec, const std::string& text);

// --config, --variant and --arch as one override; empty text: none. Throws UsageError.
void add_config_options(Arguments& arguments);
std::string config_override(const Arguments& arguments);

void throw_if_error(const Status& status);  // CodedError

}  // namespace ejk::tools

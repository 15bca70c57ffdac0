// Labels: names that tie a launch in a profile or a compiled program to its invocation.
//   ejk:<kernel>:<first 16 hex digits of the SHA-256 of the key>
//   ejk:<kernel>:<the key, in ASCII>
// The key is Invocation::key() of Kernel::canonical(the call), as in recorded calls and tuning records.
// EJKERNEL_OPS_STAMP=hash or json puts an NVTX range of that name round the launches of every call; `none` costs nothing.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ejk/record.hpp"

namespace ejk {

enum class Stamp { none, hash, json };

inline constexpr std::size_t longest_label = 4096;  // bytes; a call whose JSON needs more gets its hash

// "" for Stamp::none. An error for what JSON cannot hold. In a kernel's name all but letters, digits, '_', '.' and '-' become '_'.
EJK_API Result<std::string> label(const Invocation& invocation, Stamp stamp = Stamp::hash);
EJK_API Result<std::string> label(const std::string& kernel, const std::string& key, Stamp stamp = Stamp::hash);  // of Invocation::key()

// The labels in an HLO or StableHLO text dump, wherever they stand (op_name metadata, backend_config, a name), each once, in order of first
// appearance, without escapes; C, JSON and MLIR escapes are understood, up to three layers of them. What begins as a label and is cut off
// or garbled is told in `damaged`: its offset and its first bytes.
EJK_API std::vector<std::string> extract_labels_from_hlo_text(std::string_view text, std::vector<std::string>* damaged = nullptr);

// What is known of a label.
struct LabelConfig {
  std::string label;
  std::optional<RecordedInvocation> invocation;
  std::optional<Selection> selection;  // what the config chain chooses for it, without tuning
  std::string why_not;                 // if there is no invocation or no selection
};

// JSON labels hold their invocation. Hashes are looked up among the calls recorded in `file` (if one is named), then in the keys of the
// tuning records of the user and of the stores. One entry a label, in order; several for a hash whose call was recorded at addresses of
// different alignment, which may want different configs. An error only if the file cannot be read.
EJK_API Result<std::vector<LabelConfig>> labels_to_configs(std::span<const std::string> labels, const std::string& file = {});

}  // namespace ejk

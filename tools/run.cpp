// ejk run: one call, on a case's random data or on the user's own tensors.
#include <fmt/format.h>
#define XXH_INLINE_ALL  // header only: no library to link
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/device_option.hpp"
#include "command_line/kernel_call.hpp"
#include "command_line/library_options.hpp"
#include "command_line/safetensors.hpp"
#include "command_line/table.hpp"
#include "verify/result_check.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
using reference::Call;

constexpr double most_seconds_of_reference = 20;

std::string shape_text(const reference::HostTensor& tensor) {
  return fmt::format("{}[{}]", std::string(name_of(tensor.type())), fmt::join(tensor.shape(), ", "));
}

// XXH64 of the elements' bytes: the same result gives the same word.
std::string checksum(const reference::HostTensor& tensor) {
  const auto bytes = tensor.row_major_bytes();
  return fmt::format("{:016x}", XXH64(bytes.data(), bytes.size(), 0));
}

ordered_json tensors_json(const Call& call) {
  auto list = ordered_json::array();
  for (const auto& tensor : call.outputs)
    list.push_back({{"name", tensor.name()},
                    {"type", std::string(name_of(tensor.type()))},
                    {"shape", tensor.shape()},
                    {"checksum", checksum(tensor)}});
  return list;
}

// The tier that answered; a fallback is no tier's answer.
std::string tier_of(const ordered_json& told) {
  for (const auto& tier : told["tiers"])
    if (tier["answer"] == "chosen") return tier["tier"].get<std::string>() + " (" + tier["detail"].get<std::string>() + ")";
  return "none";
}

double launch_time(const PackedCall& packed, const std::string& config) {
  packed.launch(config);  // makes the plan, touches the pages
  packed.wait();
  const auto start = std::chrono::steady_clock::now();
  packed.launch(config);
  packed.wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Launches the call, and tells how long a launch takes. One that updates inputs is timed on a copy: it would go on from what it left.
double launch_and_time(const KernelHandle& kernel, const Call& call, const Machine& machine, const PackedCall& packed,
                       const std::string& config) {
  const auto updates = [&](const reference::HostTensor& input) { return !kernel.spec->tensor(input.name())->updated_as.empty(); };
  if (std::none_of(call.inputs.begin(), call.inputs.end(), updates)) return launch_time(packed, config);
  Call copy = call;
  const double seconds = launch_time(PackedCall(kernel, copy, machine), config);
  packed.launch(config);
  return seconds;
}

void print_report(const Call& call, const ordered_json& told, double seconds, const CheckResult& check) {
  fmt::print("{}\n", call.label);
  for (const auto& tensor : call.outputs) fmt::print("  {:<10}{}  xxh64 {}\n", tensor.name(), shape_text(tensor), checksum(tensor));
  const auto flops = told["cost"].value("flops", ordered_json());
  fmt::print("  time      {}{}\n", seconds_text(seconds),
             flops.is_number() && seconds > 0 ? fmt::format(" ({} GFLOP/s)", digits(flops.get<double>() / seconds / 1e9)) : "");
  fmt::print("  config    {}\n  tier      {}\n  image     {}, {}\n", told["config"].dump(), tier_of(told),
             told["image"]["id"].get<std::string>(), told["image"]["origin"].get<std::string>());
  fmt::print("  check     {}\n", check.text);
}

}  // namespace

int run(std::span<const std::string> words) {
  Arguments arguments(
      "run", "KERNEL --case NAME | --inputs FILE [--outputs FILE] [options]",
      "One call. With --case on random data; with --inputs on your own: a safetensors file with tensors by their names in the spec\n"
      "(`ejk info` lists kernels). The result is compared with the float64 reference where that takes seconds, else with another variant.",
      "ejk run mean_pooling --case minilm.f32\n"
      "ejk run flash_attention --inputs qkv.safetensors --attributes '{\"causal\": true}' --want lse --outputs out.safetensors");
  arguments.word("KERNEL", true);
  add_call_options(arguments);
  arguments.option("outputs", "FILE", "write the outputs to this safetensors file");
  arguments.option("check", "HOW", "auto, reference, variant or none (default auto)");
  add_device_option(arguments);
  add_config_options(arguments);
  add_library_options(arguments);
  arguments.flag("json", "as JSON");
  if (!arguments.parse(words)) return exit_done;
  const auto config = config_override(arguments);
  const auto how = check_named(arguments.text("check", "auto"));
  apply_library_options(arguments);
  const auto& machine = device_of(arguments);
  const auto& kernel = kernel_named(arguments.text("KERNEL"));
  auto call = call_from(arguments, kernel);
  PackedCall packed(kernel, call, machine);
  const auto told = packed.explain(config);
  const double seconds = launch_and_time(kernel, call, machine, packed, config);
  packed.copy_back();
  const auto check = check_result(kernel, machine, call, how, told, most_seconds_of_reference);
  if (arguments.has("outputs")) write_safetensors(arguments.text("outputs"), call.outputs);
  if (arguments.has("json")) {
    ordered_json result{{"kernel", kernel.name},    {"call", call.label},    {"outputs", tensors_json(call)}, {"seconds", seconds},
                        {"config", told["config"]}, {"tier", tier_of(told)}, {"image", told["image"]},        {"cost", told["cost"]},
                        {"check", check.text},      {"failed", check.failed}};
    fmt::print("{}\n", result.dump(2));
  } else {
    print_report(call, told, seconds, check);
  }
  return check.failed ? exit_failed : exit_done;
}

}  // namespace ejk::tools

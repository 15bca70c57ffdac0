// ejk explain: which variant, config, image and launches a call gets, and why.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/device_option.hpp"
#include "command_line/kernel_call.hpp"
#include "command_line/library_options.hpp"
#include "command_line/table.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;

std::string scalar(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string pairs(const ordered_json& object) {
  std::string text;
  for (const auto& [name, value] : object.items()) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, scalar(value));
  return text.empty() ? "none" : text;
}

std::string volume(const ordered_json& extents) {
  return fmt::format("{} x {} x {}", extents[0].dump(), extents[1].dump(), extents[2].dump());
}

void print_call(const ordered_json& told) {
  fmt::print("call\n  kernel      {}\n", told["kernel"].get<std::string>());
  if (const auto form = told["form"].get<std::string>(); !form.empty()) fmt::print("  form        {}\n", form);
  fmt::print("  dims        {}\n  types       {}\n  attributes  {}\n  device      {}\n", pairs(told["dims"]), pairs(told["types"]),
             pairs(told["attributes"]), told["device"].get<std::string>());
}

void print_variants(const ordered_json& told) {
  Table table({{"variant"}, {"arch"}, {"state"}, {"why"}});
  for (const auto& variant : told["variants"])
    table.row({variant["name"], variant["arch"].is_null() ? "-" : scalar(variant["arch"]), variant["state"], variant["reason"]});
  fmt::print("\nvariants, by priority\n{}", table.text("  "));
}

void print_tiers(const ordered_json& told) {
  Table table({{"tier"}, {"answer"}, {"detail"}, {"config"}});
  for (const auto& tier : told["tiers"])
    table.row({tier["tier"], tier["answer"], tier["detail"], tier["config"].is_null() ? "" : pairs(tier["config"])});
  fmt::print("\nconfig tiers, in order\n{}", table.text("  "));
}

void print_evidence(const ordered_json& told) {
  if (const auto& evidence = told["evidence"]; !evidence.is_null()) {
    const auto us = [](const ordered_json& value) { return seconds_text(value.get<double>() * 1e-6); };
    fmt::print("\nmeasured ({} tier)\n  config    {}\n  median    {} of {} samples, noise {}%\n", scalar(evidence["of"]),
               pairs(evidence["config"]), us(evidence["median_us"]), evidence["samples"].dump(),
               digits(evidence["noise"].get<double>() * 100));
    fmt::print("  default   {}: {}", pairs(evidence["baseline"]), us(evidence["baseline_us"]));
    if (evidence["gain"].is_number()) fmt::print(", {} times as long", digits(evidence["gain"].get<double>()));
    fmt::print(
        "\n  checked   against {}: {} of the tolerance\n  searched  {} configs timed, {} rejected\n  on        {}, ejk {}, source {}{}\n",
        scalar(evidence["checked_against"]), digits(evidence["residual"].get<double>()), evidence["measured"].dump(),
        evidence["rejected"].dump(), scalar(evidence["machine"]), scalar(evidence["version"]), scalar(evidence["source"]),
        evidence["code"] == "" ? "" : ", machine code " + scalar(evidence["code"]));
    Table table({{"other configs"}, {"median", Align::right}});
    for (const auto& other : evidence["alternatives"]) table.row({pairs(other["config"]), us(other["median_us"])});
    if (table.rows()) fmt::print("{}", table.text("  "));
  }
  Table near({{"record"}, {"measured at"}, {"median", Align::right}, {"config"}, {"can serve"}});
  for (const auto& row : told["near"])
    near.row({row["where"], row["measured"] == "" ? "this call" : scalar(row["measured"]),
              seconds_text(row["median_us"].get<double>() * 1e-6), pairs(row["config"]),
              row["fault"] == "" ? "yes" : scalar(row["fault"])});
  if (near.rows()) fmt::print("\nrecords of this call and near it\n{}", near.text("  "));
}

std::string stages_text(const ordered_json& stages) {
  std::string text;
  for (const auto& [name, seconds] : stages.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, seconds_text(seconds.get<double>()));
  return text;
}

void print_image(const ordered_json& told) {
  const auto& image = told["image"];
  fmt::print("\nimage\n  id      {}\n  hash    {}\n  origin  {}\n  from    {}\n  loaded  in {}\n", scalar(image["id"]),
             scalar(image["hash"]), scalar(image["origin"]), scalar(image["from"]), seconds_text(image["seconds"].get<double>()));
  if (!image["stages"].empty()) fmt::print("  took    {}\n", stages_text(image["stages"]));
  if (!image["assembled"].empty()) fmt::print("  of it   in the assembler {}\n", stages_text(image["assembled"]));
  if (image["fallback"].get<bool>()) fmt::print("  a fallback: no binary of the chosen config could be had\n");
  for (const auto& line : image["tried"]) fmt::print("  tried   {}\n", scalar(line));
}

void print_launches(const ordered_json& told) {
  Table table({{"entry"}, {"grid"}, {"block"}, {"shared", Align::right}});
  for (const auto& launch : told["launches"])
    table.row({launch["entry"], volume(launch["grid"]), volume(launch["block"]), bytes_text(launch["shared_bytes"].get<double>())});
  fmt::print("\nlaunches\n{}", table.text("  "));
  fmt::print("\nworkspace  {}\n", bytes_text(told["workspace_bytes"].get<double>()));
  const auto& cost = told["cost"];
  if (cost.contains("flops") && cost["flops"].is_number()) fmt::print("cost       {} GFLOP", digits(cost["flops"].get<double>() / 1e9));
  if (cost.contains("bytes") && cost["bytes"].is_number()) fmt::print(", {}", bytes_text(cost["bytes"].get<double>()));
  fmt::print("\n");
}

}  // namespace

int explain(std::span<const std::string> words) {
  Arguments arguments(
      "explain", "KERNEL --case NAME | --inputs FILE [options]",
      "How a call would be carried out: every variant and what refused it, every config tier and its answer, the image and where its\n"
      "binary came from, launches, workspace and cost. The image is loaded (and compiled if no store has it); nothing is launched.",
      "ejk explain mean_pooling --case minilm.f32\n"
      "ejk explain flash_attention --inputs qkv.safetensors --attributes '{\"causal\": true}' --json");
  arguments.word("KERNEL", true);
  add_call_options(arguments);
  add_device_option(arguments);
  add_config_options(arguments);
  add_library_options(arguments);
  arguments.flag("json", "as JSON");
  if (!arguments.parse(words)) return exit_done;
  const auto config = config_override(arguments);
  apply_library_options(arguments);
  const auto& machine = device_of(arguments);
  const auto& kernel = kernel_named(arguments.text("KERNEL"));
  auto call = call_from(arguments, kernel);
  const auto told = PackedCall(kernel, call, machine).explain(config);
  if (arguments.has("json")) {
    fmt::print("{}\n", told.dump(2));
    return exit_done;
  }
  print_call(told);
  print_variants(told);
  print_tiers(told);
  print_evidence(told);
  print_image(told);
  print_launches(told);
  return exit_done;
}

}  // namespace ejk::tools

// Groups of cases, and the words of a bench report.
#include "bench/bench_request.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "command_line/arguments.hpp"
#include "store/files.hpp"
#include "store/store.hpp"

namespace ejk::tools {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr double most_bytes_at_a_time = 4e9;

}  // namespace

Memory memory_named(const std::string& text) {
  if (text == "auto") return Memory::automatic;
  if (text == "warm") return Memory::warm;
  if (text == "cold") return Memory::cold;
  throw UsageError(fmt::format("--memory: expected auto, warm or cold; found '{}'", text));
}

std::vector<BenchGroup> groups_of(const BenchRequest& request, double (*bytes_of)(const spec::Spec&, const spec::Case&)) {
  const auto bytes_of_case = [&](const BenchCase& c) { return bytes_of(*c.kernel->spec, *c.values); };
  double beside = 0;
  for (const auto& c : request.beside) beside += bytes_of_case(c);
  std::vector<BenchGroup> groups;
  double bytes = most_bytes_at_a_time;
  for (const auto& c : request.cases) {
    const double more = bytes_of_case(c);
    if (groups.empty() || bytes + more > most_bytes_at_a_time) {
      groups.emplace_back();
      bytes = beside;
    }
    groups.back().push_back(c);
    bytes += more;
  }
  for (auto& group : groups) group.insert(group.end(), request.beside.begin(), request.beside.end());
  return groups;
}

std::string tier_of(const ordered_json& told) {
  if (told["image"]["fallback"].get<bool>()) return "fallback";
  for (const auto& tier : told["tiers"])
    if (tier["answer"] == "chosen") return tier["tier"].get<std::string>();
  return "none";
}

std::string compiler_of(const ordered_json& told) {
  std::string missing;
  const auto text = store::read_file(fs::path(told["image"]["from"].get<std::string>()) / "image.json", store::info_limit, missing);
  try {
    return text ? store::parse_image_info(*text).compiler : "compiled in memory";
  } catch (const std::runtime_error&) {
    return "unknown compiler";
  }
}

std::string parameters_of(const ordered_json& told) {
  std::string text;
  for (const auto& [name, value] : told["config"].items())
    if (name != "variant" && name != "arch") text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value.dump());
  return text.empty() ? "-" : text;
}

std::string image_line(const ordered_json& told, const std::string& compiler) {
  return fmt::format("{} ({}, {})", told["image"]["id"].get<std::string>(), told["image"]["origin"].get<std::string>(), compiler);
}

void show_progress(const std::string& text) {
  static const bool terminal = isatty(STDERR_FILENO);
  if (terminal) fmt::print(stderr, "\r\033[K{}", text);
}

}  // namespace ejk::tools

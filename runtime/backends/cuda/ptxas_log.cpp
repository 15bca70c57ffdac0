// What ptxas says of a program's entries.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "backends/cuda/cuda_compile.hpp"

namespace ejk::cuda {
namespace {

// The number before those words; 0: they are not in the line.
std::int64_t number_before(std::string_view line, std::string_view words) {
  const auto at = line.find(words);
  if (at == std::string_view::npos) return 0;
  auto first = at;
  while (first > 0 && std::isdigit(static_cast<unsigned char>(line[first - 1]))) --first;
  std::int64_t number = 0;
  for (; first < at && number < (std::int64_t{1} << 40); ++first) number = 10 * number + (line[first] - '0');
  return number;
}

// What follows those words in the line; empty: they are not in it.
std::string_view text_after(std::string_view line, std::string_view words) {
  const auto at = line.find(words);
  return at == std::string_view::npos ? std::string_view{} : line.substr(at + words.size());
}

std::string_view next_line(std::string_view& text) {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

}  // namespace

spec::Resources resources_of(const std::string& log, const CubinFacts& cubin) {
  std::int64_t registers = cubin.registers, spill = 0, stack = cubin.stack_bytes, shared = 0, losses = 0;
  for (std::string_view rest = log; !rest.empty();) {
    const auto line = next_line(rest);
    registers = std::max(registers, number_before(line, " registers"));
    spill = std::max(spill, number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads"));
    stack = std::max({stack, number_before(line, " bytes stack frame"), number_before(line, " bytes cumulative stack size")});
    shared = std::max(shared, number_before(line, " bytes smem"));
    losses += line.find("Potential Performance Loss") != std::string_view::npos;
  }
  return {{"registers", registers}, {"spill_bytes", spill},           {"stack_bytes", stack},
          {"shared_bytes", shared}, {"code_bytes", cubin.code_bytes}, {"performance_losses", losses}};
}

Stages entry_times(const std::string& log) {
  Stages times;
  std::string_view entry;
  for (std::string_view rest = log; !rest.empty();) {
    const auto line = next_line(rest);
    if (const auto name = text_after(line, "Compiling entry function '"); !name.empty()) entry = name.substr(0, name.find('\''));
    if (const auto time = text_after(line, "Compile time = "); !time.empty())
      times.emplace_back(entry, std::strtod(std::string(time).c_str(), nullptr) * 1e-3);
  }
  return times;
}

}  // namespace ejk::cuda

// One rendered source to one shared object, in a fresh folder under fixed names, so that the bytes depend on nothing else.
#include "backends/cpu_compile.hpp"

#include <fmt/format.h>
#include <string.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "backends/process.hpp"
#include "backends/shared_object.hpp"
#include "backends/temporary_folder.hpp"

namespace ejk {
namespace {

namespace fs = std::filesystem;
constexpr int compile_timeout_s = 300;
constexpr char source_name[] = "source.cpp", binary_name[] = "binary.so";

// --as-needed and no build id: nothing in the file that is not used.
const std::vector<std::string>& shared_object_flags() {
  static const std::vector<std::string> flags = {"-std=c++20",
                                                 "-fno-math-errno",
                                                 "-fno-trapping-math",
                                                 "-fno-exceptions",
                                                 "-fno-rtti",
                                                 "-fvisibility=hidden",
                                                 "-g0",
                                                 "-fPIC",
                                                 "-shared",
                                                 "-Wl,--build-id=none,--as-needed,-z,noexecstack"};
  return flags;
}

// No -ffast-math: NaN and infinities mean what SEMANTICS.md says.
const std::vector<std::string>& cpu_flags() {
  static const std::vector<std::string> flags = {"-O3", "-ffp-contract=fast"};
  return flags;
}

std::vector<std::string> command_line(const SystemCompiler& compiler, const spec::Image& image, const std::vector<std::string>& flags) {
  auto command = compiler.command;
  for (const auto* part : {&shared_object_flags(), &flags}) command.insert(command.end(), part->begin(), part->end());
  command.insert(command.end(), image.flags.begin(), image.flags.end());
  for (const char* word : {"-o", binary_name, source_name}) command.emplace_back(word);
  return command;
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return !file.fail();
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool has(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

bool lacks_room(const std::string& log) {
  return has(log, "No space left on device") || has(log, "Cannot allocate memory") || has(log, "out of memory") ||
         has(log, "Disk quota exceeded") || has(log, "File too large") || has(log, "Killed signal");
}

void explain_failure(const ProcessResult& run, const std::string& program, CompileResult& result) {
  const bool crashed = run.signal != 0;
  result.transient = !run.started || run.timed_out || crashed || run.exit_status < 0 || lacks_room(run.output);
  if (run.timed_out) result.log += fmt::format("\n{} was stopped after {} s", program, compile_timeout_s);
  if (crashed && !run.timed_out) {
    result.log += fmt::format("\n{} was ended by signal {} ({}){}", program, run.signal, strsignal(run.signal),
                              run.signal == 9 ? "; the system may be out of memory" : "");
  }
  if (result.log.empty()) result.log = fmt::format("{} failed with exit status {} and said nothing", program, run.exit_status);
}

}  // namespace

CompileResult compile_cpu_image(const SystemCompiler& compiler, const spec::Image& image) {
  return compile_shared_object(compiler, image, cpu_flags());
}

CompileResult compile_shared_object(const SystemCompiler& compiler, const spec::Image& image, const std::vector<std::string>& flags) {
  CompileResult result;
  result.compiler = compiler.description;
  const auto program = fs::path(compiler.command.front()).filename().string();
  try {
    const TemporaryFolder folder(work_folder_name());
    if (!write_file(folder.path() / source_name, image.source)) {
      result.transient = true;
      result.log = fmt::format("cannot write {} bytes of source to {}: is the disk full?", image.source.size(), folder.path().string());
      return result;
    }
    result.command = command_line(compiler, image, flags);
    const auto run = run_process({result.command, folder.path(), compiler_environment(folder.path().string()), compile_timeout_s});
    result.command.front() = program;
    result.log = run.output;
    if (run.ok()) result.binary = read_file(folder.path() / binary_name);
    result.ok = !result.binary.empty();
    if (!result.ok) explain_failure(run, program, result);
  } catch (const std::runtime_error& error) {
    result.transient = true;
    result.log = error.what();
  }
  if (result.ok) result.resources = {{"code_bytes", elf_code_bytes(result.binary)}};
  return result;
}

}  // namespace ejk

// The child makes a store with the changed template, and calls the kernel through the library. The emulator's memory is the host's: tensors
// stay where they are, and are made known to it.
#include "tests/ptx/hopper_trial.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "ejk/ejk.hpp"
#include "emulator/ptx.hpp"
#include "emulator/ptx/device/driver.hpp"
#include "emulator/ptx/memory/allocations.hpp"
#include "reference/reference.hpp"
#include "spec/read/catalogue.hpp"
#include "tests/paths.hpp"

namespace ejk::hopper_trial {
namespace {

namespace fs = std::filesystem;
constexpr rlim_t processor_seconds = 20;  // NVRTC takes a few of them
constexpr int exit_base = 64, is_broken = 4, has_no_compiler = 8;

struct BrokenTrial : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string read_whole(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string changed(const std::string& text, const Change& change) {
  auto at = text.find(change.word);
  for (int i = 0; i < change.occurrence && at != std::string::npos; ++i) at = text.find(change.word, at + change.word.size());
  if (at == std::string::npos)
    throw BrokenTrial(fmt::format("'{}' does not occur {} times in {}", change.word, change.occurrence + 1, change.file));
  return text.substr(0, at) + change.by + text.substr(at + change.word.size());
}

// `copy` gets links to all that `folder` has, and one text of its own, at `file` below it.
void link_all_others(const fs::path& file, const fs::path& folder, const fs::path& copy, const std::string& text) {
  fs::create_directory(copy);
  const fs::path first = *file.begin();
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != first) fs::create_symlink(entry.path(), copy / entry.path().filename());
  if (first == file)
    std::ofstream(copy / file) << text;
  else
    link_all_others(fs::relative(file, first), folder / first, copy / first, text);
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "ejk-hopper-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

void lay_out_store(const fs::path& folder, const std::optional<Change>& change) {
  const fs::path source = test::source_dir(), templates = source / "templates";
  fs::create_directories(folder / "cache");
  fs::permissions(folder / "cache", fs::perms::owner_all);
  fs::create_directory_symlink(source / "specs", folder / "specs");
  if (!change) return fs::create_directory_symlink(templates, folder / "templates");
  link_all_others(change->file, templates, folder / "templates", changed(read_whole(templates / change->file), *change));
}

class Known {  // to the emulator, as memory of its device
 public:
  explicit Known(reference::HostTensor& tensor) : block_(tensor.block()) { ptx::allocations().add(block_.data(), block_.size()); }
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;
  ~Known() { ptx::allocations().remove(block_.data()); }

 private:
  std::span<std::byte> block_;
};

void call_on_emulator(const Subject& subject, reference::Call& given) {
  std::map<std::string, TensorView> tensors;
  std::vector<std::unique_ptr<Known>> known;
  for (const auto& [name, tensor] : given.launched()) {
    auto view = tensor->view();
    view.device = {DeviceType::cuda, 0};
    tensors.emplace(name, view);
    known.push_back(std::make_unique<Known>(const_cast<reference::HostTensor&>(*tensor)));
  }
  const Config config{subject.variant, "", {}};
  const auto status = ejk::call(subject.kernel, tensors, given.attributes, {}, &config);
  if (status) return;
  for (const auto code : {ErrorCode::bad_input, ErrorCode::unsupported, ErrorCode::missing_image, ErrorCode::compile_failed})
    if (status.error().code == code) throw BrokenTrial(status.error().message);
  throw std::runtime_error(status.error().message);  // the emulator's
}

// What is wrong at this pace; empty: nothing.
std::string words_at(PtxPace pace, const Subject& subject, const spec::Spec& spec, const reference::KernelReference& reference,
                     const spec::Case& sized) {
  ptx_set_pace(pace);
  constexpr std::uint64_t seed = 1;
  auto call = reference::make_call(spec, sized, seed);
  try {
    return reference::first_failure(
        reference::verify_call(reference, call, [&](reference::Call& each) { call_on_emulator(subject, each); }));
  } catch (const BrokenTrial&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Bits: 1 shown by eager, 2 by lazy.
int shown_by(const fs::path& store, const Subject& subject) {
  setenv("EJKERNEL_CACHE_DIR", (store / "cache").c_str(), 1);
  for (const char* name : {"EJKERNEL_STORE", "EJKERNEL_JIT", "EJKERNEL_LOG"}) unsetenv(name);
  replace_backend(ptx_backend());
  if (const auto added = add_store(store.string()); !added) throw BrokenTrial(added.error().message);
  const auto catalogue = spec::Catalogue::open(store / "specs", store / "templates");
  const auto spec = catalogue.kernel(subject.kernel);
  const auto* reference = reference::find_reference(subject.kernel);
  if (!spec || !reference) throw BrokenTrial("no kernel or no reference of the name " + subject.kernel);
  const auto* found = spec->find_case(subject.case_name);
  if (!found) throw BrokenTrial(subject.kernel + " has no case " + subject.case_name);
  auto sized = *found;
  sized.dims.clear();
  for (const auto& [name, value] : subject.sizes) sized.dims[name] = value;
  int shown = 0;
  for (const auto pace : {PtxPace::eager, PtxPace::lazy}) {
    const auto words = words_at(pace, subject, *spec, *reference, sized);
    fmt::print(stderr, "{}: {}\n", pace == PtxPace::eager ? "eager" : "lazy", words.empty() ? "right" : words);
    if (!words.empty()) shown |= pace == PtxPace::eager ? 1 : 2;
  }
  return shown;
}

int run_in_child(const Subject& subject, const std::optional<Change>& change) {
  if (!ptx::compiler().found()) return exit_base + has_no_compiler;
  try {
    const Folder folder;
    lay_out_store(folder.path, change);
    return exit_base + shown_by(folder.path, subject);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}", error.what());
    return exit_base + is_broken;
  }
}

std::string all_of(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

}  // namespace

Outcome try_on_hopper(const Subject& subject, const std::optional<Change>& change) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    const rlimit limit{processor_seconds, processor_seconds};
    setrlimit(RLIMIT_CPU, &limit);
    const int code = run_in_child(subject, change);
    std::fflush(nullptr);
    _exit(code);
  }
  close(ends[1]);
  Outcome outcome;
  outcome.words = all_of(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) - exit_base : is_broken;
  outcome.has_compiler = code != has_no_compiler;
  outcome.is_broken = code < 0 || code == is_broken;  // the emulator has no right to crash or to spin for ever either
  if (code >= 0 && code < is_broken) outcome.shown = static_cast<Shown>(code);
  return outcome;
}

}  // namespace ejk::hopper_trial

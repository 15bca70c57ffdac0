// The child makes a store with the changed template, and calls the kernel through the library. The emulator's memory is the host's: tensors
// stay where they are, and are made known to it.
#include "tests/ptx/hopper_trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ejk/ejk.hpp"
#include "emulator/ptx.hpp"
#include "emulator/ptx/device/driver.hpp"
#include "emulator/ptx/memory/allocations.hpp"
#include "reference/reference.hpp"
#include "spec/read/catalogue.hpp"
#include "tests/changed_store.hpp"
#include "tests/paths.hpp"

namespace ejk::hopper_trial {
namespace {

namespace fs = std::filesystem;
constexpr unsigned processor_seconds = 20;  // NVRTC takes a few of them
constexpr unsigned most_seconds = 300;
constexpr int is_broken = 4, has_no_compiler = 8;

struct BrokenTrial : std::runtime_error {
  using std::runtime_error::runtime_error;
};

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

// Of an attention's gradient: where all keys are one, sums over them cancel, and show in which order they were made.
reference::Values of_keys_alike(const reference::KernelReference& reference, const reference::Call& call,
                                const reference::Execute& execute) {
  auto alike = call;
  alike.rebind();
  auto& keys = alike.input("k");
  const auto row = keys.shape().back();
  for (std::int64_t i = row; i < keys.elements(); ++i) keys.set(i, keys.at(i % row));
  reference.complete(alike);
  return reference::run_copy(alike, execute);
}

// Warps take turns in another order each time, but two orders may happen to add in the same one.
constexpr int runs_of_keys_alike = 3;

// What is wrong at this pace; empty: nothing. outputs: each run's of a call that gives the same bits each time, with keys alike.
std::string words_at(PtxPace pace, const Subject& subject, const spec::Spec& spec, const reference::KernelReference& reference,
                     const spec::Case& sized, std::vector<reference::Values>& outputs) {
  ptx_set_pace(pace);
  constexpr std::uint64_t seed = 1;
  auto call = reference::make_call(spec, sized, seed);
  try {
    const auto execute = [&](reference::Call& each) { call_on_emulator(subject, each); };
    const auto words = reference::first_failure(reference::verify_call(reference, call, execute));
    for (int i = 0; i < runs_of_keys_alike && call.has_attribute("deterministic") && call.flag("deterministic"); ++i)
      outputs.push_back(of_keys_alike(reference, call, execute));
    return words;
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
  std::vector<reference::Values> outputs;
  for (const auto pace : {PtxPace::eager, PtxPace::lazy}) {
    const bool is_eager = pace == PtxPace::eager;
    const auto words = words_at(pace, subject, *spec, *reference, sized, outputs);
    fmt::print(stderr, "{}: {}\n", is_eager ? "eager" : "lazy", words.empty() ? "right" : words);
    if (!words.empty()) shown |= is_eager ? 1 : 2;
  }
  if (shown == 0 && std::adjacent_find(outputs.begin(), outputs.end(), std::not_equal_to<>()) != outputs.end()) {
    fmt::print(stderr, "other bits in another order of warps\n");
    shown = 3;
  }
  return shown;
}

int run_trial(const fs::path& store, const Subject& subject) {
  if (!ptx::compiler().found()) return has_no_compiler;
  try {
    return shown_by(store, subject);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}", error.what());
    return is_broken;
  }
}

}  // namespace

Outcome try_on_hopper(const Subject& subject, const std::optional<Change>& change) {
  const test::ChangedStore store(test::source_dir(), change);
  const auto ended = test::in_a_process(processor_seconds, most_seconds, [&] { return run_trial(store.path(), subject); });
  const int status = ended.status.value_or(is_broken);  // the emulator has no right to crash or to spin for ever either
  Outcome outcome{status != has_no_compiler, status == is_broken, Shown::by_none, ended.words};
  if (status < is_broken) outcome.shown = static_cast<Shown>(status);
  return outcome;
}

}  // namespace ejk::hopper_trial

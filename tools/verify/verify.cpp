// ejk verify: every image that runs here against the float64 reference.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <map>

#include "command_line/arguments.hpp"
#include "command_line/command.hpp"
#include "command_line/device_option.hpp"
#include "command_line/library_options.hpp"
#include "emulator/ptx.hpp"
#include "emulator/simt.hpp"
#include "spec/check/suggest.hpp"
#include "verify/older_copy.hpp"
#include "verify/verify_report.hpp"

namespace ejk::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int default_threads = 2;  // both the alone and the shared path of the pool, at little cost

// On a terminal one line that changes.
void show_progress(std::size_t done, std::size_t total, const std::string& id) {
  static const bool terminal = isatty(STDERR_FILENO);
  if (!terminal) return;
  if (done == total)
    fmt::print(stderr, "\r\033[K");
  else
    fmt::print(stderr, "\r\033[K{}/{} {}", done + 1, total, id.substr(0, 100));
}

void append(VerifyOutcome& outcome, VerifyOutcome more, const std::string& label) {
  outcome.calls += more.calls;
  outcome.properties += more.properties;
  outcome.worst = std::max(outcome.worst, more.worst);
  outcome.missing |= more.missing;
  for (auto& failure : more.failures) outcome.failures.push_back(label + failure);
}

// What the device says if it is of no more use; empty if it works.
std::string loss_of(const Machine& machine) {
  try {
    if (auto* memory = machine.backend->memory()) memory->synchronize(machine.device);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

bool is_emulated(const Machine& machine) { return machine.backend == &simt_backend() || machine.backend == &ptx_backend(); }

// What `check` finds. Emulators are asked twice, with threads in either order, or with asynchronous work done at once and as late as may
// be: a result that depends on it is a race's.
template <class Check>
VerifyOutcome in_every_order(const Machine& machine, const Check& check) {
  ptx_set_pace(PtxPace::eager);  // orders as if nothing had run before, so that a check by itself repeats them
  auto outcome = check();
  if (!is_emulated(machine)) return outcome;
  if (machine.backend == &ptx_backend()) {
    ptx_set_pace(PtxPace::lazy);
    append(outcome, check(), "asynchronous work late: ");
    ptx_set_pace(PtxPace::eager);
    return outcome;
  }
  simt_set_order(SimtOrder::backwards);
  append(outcome, check(), "threads backwards: ");
  simt_set_order(SimtOrder::forwards);
  return outcome;
}

// Options alone and in pairs, on every variant and arch: an outcome an image.
void verify_options(const KernelHandle& kernel, const Machine& machine, const reference::KernelReference& reference,
                    const VerifyEffort& effort, Verified& verified) {
  const auto cases = reference.option_cases();
  std::map<std::string, VerifyOutcome> images;
  const auto take = [&](const reference::OptionCase& option) {
    for (auto& outcome : check_option_case(kernel, machine, reference, option, effort)) {
      auto& image = images.try_emplace(outcome.id).first->second;
      image.id = outcome.id;
      if (outcome.failed()) verified.lost = loss_of(machine);
      append(image, std::move(outcome), "");
    }
  };
  for (std::size_t i = 0; i < cases.size() && verified.lost.empty(); ++i) {
    show_progress(i, cases.size() + 1, kernel.name + ", pairs of options");
    take(cases[i]);
  }
  for (auto& [id, outcome] : images) verified.option_calls.push_back(std::move(outcome));
}

void verify_kernel(const KernelHandle& kernel, const Machine& machine, const VerifyFilter& filter, const VerifyEffort& effort,
                   bool random_calls, Verified& verified) {
  if (!verified.lost.empty()) return;
  const auto* reference = reference::find_reference(kernel.name);
  if (!reference) {
    verified.without_reference.push_back(kernel.name);
    return;
  }
  const auto runs_here = [&](const spec::Variant& variant) {
    const auto archs = Library::instance().parts().catalogue.archs_of(variant);
    return std::any_of(archs.begin(), archs.end(), [&](const auto* arch) { return machine.arch(arch->full_name()) != nullptr; });
  };
  if (std::none_of(kernel.spec->variants.begin(), kernel.spec->variants.end(), runs_here)) {
    verified.without_variant.push_back(kernel.name);
    return;
  }
  const auto images = images_to_verify(kernel, machine, filter, verified.left_out);
  for (std::size_t i = 0; i < images.size(); ++i) {
    show_progress(i, images.size(), images[i].id);
    verified.images.push_back(in_every_order(machine, [&] { return check_image(images[i], machine, *reference, effort); }));
    if (verified.images.back().failed() && !(verified.lost = loss_of(machine)).empty()) return;
  }
  const int calls = random_calls ? 2 * effort.random : 0;
  for (int i = 0; i < calls; ++i) {
    show_progress(static_cast<std::size_t>(i), static_cast<std::size_t>(calls) + 1, kernel.name + ", random calls");
    auto outcome = in_every_order(machine, [&] { return check_random_call(kernel, machine, *reference, i / 2, i % 2 == 1, effort); });
    if (outcome.refused)
      ++verified.refused;
    else if (!outcome.id.empty())
      verified.random_calls.push_back(std::move(outcome));
    if (!verified.random_calls.empty() && verified.random_calls.back().failed() && !(verified.lost = loss_of(machine)).empty()) return;
  }
  if (random_calls && effort.properties) verify_options(kernel, machine, *reference, effort, verified);
  show_progress(1, 1, "");
}

std::optional<std::uint64_t> cover_of(const Arguments& arguments) {
  if (!arguments.has("cover")) return {};
  return static_cast<std::uint64_t>(arguments.integer("cover", 0, 0, INT64_MAX));
}

VerifyFilter filter_of(const Arguments& arguments) {
  const auto configs = arguments.text("configs", "heuristic");
  if (configs != "heuristic" && configs != "all")
    throw UsageError(fmt::format("--configs: expected heuristic or all, found '{}'", configs));
  if (arguments.has("brief") && !arguments.has("cover")) throw UsageError("--brief is a part of a sample: give --cover SEED, too");
  return {arguments.text("variant"), arguments.text("arch"), arguments.text("image", "*"), configs == "all",
          arguments.has("built"),    cover_of(arguments),    arguments.has("brief")};
}

VerifyEffort effort_of(const Arguments& arguments, const Machine& machine) {
  const bool quick = arguments.has("quick");
  VerifyEffort effort;
  effort.random = static_cast<int>(arguments.integer("random", quick ? 1 : 4, 1, 100000));
  effort.seconds = arguments.number("seconds", quick ? 0.2 : 1, 0, 3600);
  effort.properties = !quick;
  if (is_emulated(machine)) effort.whole_case /= 100;  // it takes minutes for what a processor does at once
  effort.seed = static_cast<std::uint64_t>(arguments.integer("seed", 1, 0, INT64_MAX));
  effort.cover = cover_of(arguments);
  return effort;
}

std::vector<const KernelHandle*> kernels_of(const Arguments& arguments, const Machine& machine, const VerifyFilter& filter) {
  std::vector<const KernelHandle*> kernels;
  const auto pattern = arguments.text("KERNEL", "*");
  for (const auto& name : Library::instance().parts().catalogue.kernel_names())
    if (matches(pattern, name)) kernels.push_back(&kernel_named(name));
  if (kernels.empty()) kernels.push_back(&kernel_named(pattern));  // which says what there is
  std::vector<std::string> variants, archs;
  for (const auto* kernel : kernels)
    for (const auto& variant : kernel->spec->variants) variants.push_back(variant.name);
  for (const auto& arch : machine.archs) archs.push_back(arch.name);
  const auto known = [](const auto& list, const std::string& name) { return std::find(list.begin(), list.end(), name) != list.end(); };
  if (!filter.variant.empty() && !known(variants, filter.variant))
    throw UsageError(fmt::format("--variant: no variant '{}'{}", filter.variant, spec::suggestion(filter.variant, variants)));
  const auto bare = filter.arch.substr(filter.arch.find(':') + 1);
  if (!filter.arch.empty() && !known(archs, bare))
    throw UsageError(fmt::format("--arch: no arch '{}' runs here{}", filter.arch, spec::suggestion(bare, archs)));
  return kernels;
}

std::string no_reference(const std::vector<std::string>& kernels) {
  return fmt::format(
      "this ejk has no float64 reference of {}, with which results are compared: it is compiled into ejk from reference/kernels/{}.cpp",
      fmt::join(kernels, ", "), kernels.size() == 1 ? kernels[0] : "<kernel>");
}

void add_options(Arguments& arguments) {
  arguments.word("KERNEL", false);
  add_device_option(arguments);
  arguments.option("variant", "NAME", "only this variant");
  arguments.option("arch", "ARCH", "only this arch, e.g. cpu:avx2");
  arguments.option("image", "GLOB", "only images whose id matches");
  arguments.option("configs", "WHICH", "heuristic: the config each case gets; all: every valid one (default heuristic)");
  arguments.flag("built", "only images that a store has; the others are compiled first");
  arguments.option(
      "cover", "SEED",
      "only a sample of these images, in which every variant and arch is met, and of each variant every value of a "
      "specialisation and every config value; each option runs on each variant, on one arch. Of two values or options together "
      "an eighth is met: eight seeds in turn have all");
  arguments.flag("brief", "with --cover: only one of these images for every variant and arch");
  arguments.flag("random-only", "only the random calls of each kernel, and its pairs of options");
  arguments.option("random", "N", "varied calls an image, random calls a kernel (default 4)");
  arguments.option("seconds", "S", "most time for an image after its first call (default 1)");
  arguments.option("seed", "S", "seed of everything random (default 1)");
  arguments.flag("quick", "one call an image, no laws, no pairs of options");
  add_library_options(arguments);
  arguments.flag("json", "as JSON");
}

}  // namespace

int verify(std::span<const std::string> words) {
  Arguments arguments(
      "verify", "[KERNEL] [options]",
      "Runs every image that can run here (each variant on each arch of the device, for the types and features of the spec's cases) on\n"
      "varied calls and layouts, compares each with the float64 reference, and judges the kernel's laws. Then random calls of every "
      "option, and every pair of options. KERNEL may be a pattern over names.",
      "ejk verify\nejk verify mean_pooling --arch avx2\nejk verify 'rnn*'\nejk verify --quick --json\nejk verify flash_attention --configs "
      "all --built\n"
      "ejk verify --device cuda\nejk verify --cover 20260131  # a sample, in a fraction of the time");
  add_options(arguments);
  if (!arguments.parse(words)) return exit_done;
  const auto filter = filter_of(arguments);
  apply_library_options(arguments);
  if (!arguments.has("threads")) throw_if_error(set_threads(default_threads));
  const auto& machine = device_of(arguments);
  const auto effort = effort_of(arguments, machine);
  const bool narrowed = arguments.has("variant") || arguments.has("arch") || arguments.has("image") || arguments.has("built");
  const auto start = Clock::now();
  Verified verified;
  if (machine.backend->platform() != "cpu") verified.device = " --device " + name_of(machine);
  const auto kernels = kernels_of(arguments, machine, filter);
  verified.other_copies = other_copies(kernels, ".");
  for (const auto& sentence : verified.other_copies) fmt::print(stderr, "ejk verify: {}\n", sentence);
  for (const auto* kernel : kernels) {
    auto chosen = filter;
    if (arguments.has("random-only")) chosen.image = "";  // no id is empty
    verify_kernel(*kernel, machine, chosen, effort, !narrowed, verified);
  }
  verified.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (verified.images.empty() && verified.random_calls.empty() && verified.without_reference.size() == kernels.size())
    throw UsageError(no_reference(verified.without_reference));
  if (verified.images.empty() && narrowed)
    throw UsageError("no image that runs here fits these options; `ejk verify` without them lists all");
  if (verified.images.empty() && verified.random_calls.empty())
    throw UsageError(fmt::format("nothing to verify on {}: no kernel has a variant that runs there and a reference", name_of(machine)));
  if (arguments.has("json"))
    fmt::print("{}\n", to_json(verified, effort).dump(2));
  else
    print_report(verified, effort);
  return count_bad(verified) ? exit_failed : exit_done;
}

}  // namespace ejk::tools

// The calls an image is checked with.
#include "verify/verify_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "command_line/kernel_call.hpp"
#include "common/guard.hpp"
#include "execute/bound_call.hpp"
#include "sample/cover.hpp"
#include "verify/allocated_outputs.hpp"

namespace ejk::tools {
namespace {

using reference::Call;
using reference::Rng;
using Clock = std::chrono::steady_clock;

constexpr int attempts_a_call = 4;  // other variations, when the image does not serve one

constexpr int random_calls_of_a_sample = 2;  // for which an image may be compiled: that takes longer than the call

constexpr const char* allocated_label = ", outputs allocated";

// The image does not serve this call: not a failure.
struct NotServed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A call without elements says little of an image.
bool has_empty_dim(const spec::Case& c) {
  return std::any_of(c.dims.begin(), c.dims.end(), [](const auto& dim) { return dim.second == spec::Value(std::int64_t{0}); });
}

// Judged without data, which is slow to make: true if only data could tell.
bool likely_served(const VerifyImage& image, const spec::Case& c) {
  try {
    return image.why_not(spec::bind(*image.kernel->spec, spec::facts_of(*image.kernel->spec, c))).empty();
  } catch (const std::exception&) {
    return true;
  }
}

class ImageChecker {
 public:
  ImageChecker(const VerifyImage& image, const Machine& machine, const reference::KernelReference& reference, const VerifyEffort& effort)
      : image_(image),
        machine_(machine),
        reference_(reference),
        effort_(effort),
        config_(image.override_json()),
        rng_(Rng::stream(effort.seed, image.id)) {
    outcome_.id = image.id;
  }

  VerifyOutcome run() {
    const auto start = Clock::now();
    const auto time_left = [&] { return std::chrono::duration<double>(Clock::now() - start).count() < effort_.seconds; };
    for (int i = 0; i < effort_.random && (i == 0 || time_left()) && !outcome_.missing; ++i) varied(i);
    if (!outcome_.missing && (outcome_.calls == 0 || time_left())) small_case();
    return std::move(outcome_);
  }

 private:
  // The i-th varied case: 0 contiguous, with the properties; then other layouts and shapes.
  void varied(int index) {
    if (index == 0) return first_varied();
    for (int attempt = 0; attempt < attempts_a_call; ++attempt) {
      const auto& origin = *image_.cases[static_cast<std::size_t>(index) % image_.cases.size()];
      const std::uint64_t seed = rng_.next() >> 1;
      Rng rng(seed);
      const auto layout = attempt + 1 < attempts_a_call ? reference::random_layout(rng) : reference::Layout{};
      if (one_call(reference_.vary(origin, rng), seed, {layout, index % 2 == 0}, false)) return;
    }
  }
  void first_varied() {
    for (int left = attempts_at_the_first; const auto drawn = draw_served(image_, reference_, rng_, left);)
      if (one_call(drawn->c, drawn->seed, {}, true)) return;
  }

  // No varied call may have been one of this image: then even an emulator has the time.
  void small_case() {
    if (const auto* c = whole_case(image_, outcome_.calls == 0 ? VerifyEffort().whole_case : effort_.whole_case))
      one_call(*c, effort_.seed, {}, false);
  }

  // False: the image does not serve this call.
  bool one_call(const spec::Case& c, std::uint64_t seed, const reference::Arrangement& arrangement, bool properties) {
    std::string label = fmt::format("case {} ({}), seed {}, {}", c.name, reference::describe(c), seed, arrangement.layout.text());
    try {
      auto call = reference::make_call(*image_.kernel->spec, c, seed, arrangement);
      if (!image_.why_not(call.binding).empty()) return false;
      label = call.label;
      compare(call);
      if (properties && effort_.properties) judge_properties(call, seed);
      if (properties) allocated(call);
    } catch (const CodedError& e) {
      refused(e, label);
    } catch (const std::exception& e) {
      outcome_.failures.push_back(label + ": " + e.what());
    }
    return true;
  }

  void refused(const CodedError& e, const std::string& label) {
    outcome_.missing = outcome_.missing || e.code() == ErrorCode::missing_image || e.code() == ErrorCode::compile_failed;
    outcome_.failures.push_back(outcome_.missing ? std::string(e.what()) : label + ": " + e.what());
  }

  void compare(Call& call) {
    const auto results = reference::verify_call(reference_, call, execution(*image_.kernel, config_, machine_));
    ++outcome_.calls;
    for (const auto& result : results) {
      if (result.tolerance > 0) outcome_.worst = std::max(outcome_.worst, result.error / result.tolerance);
      if (!result.ok()) outcome_.failures.push_back(call.label + ": " + result.message);
    }
  }

  void allocated(Call& call) {
    call.label += allocated_label;
    allocate_outputs(call);
    if (image_.why_not(call.binding).empty()) compare(call);
  }

  // A law may make calls that this image does not serve: the variant decides then, with its own config.
  void judge_properties(const Call& call, std::uint64_t seed) {
    const auto execute = [&](Call& changed) {
      changed.rebind();
      const auto& variant = *image_.variant;
      if (image_.why_not(changed.binding).empty()) return execution(*image_.kernel, config_, machine_)(changed);
      if (spec::refusal(variant, *image_.arch, changed.binding)) throw NotServed("");
      execution(*image_.kernel, to_json(Config{variant.name, image_.arch->full_name(), {}}), machine_)(changed);
    };
    Rng rng(seed);
    for (const auto& property : reference_.properties()) {
      if (!property.applies(call)) continue;
      try {
        const auto message = property.check(call, execute, rng);
        ++outcome_.properties;
        if (!message.empty()) outcome_.failures.push_back(fmt::format("{}: \"{}\" does not hold: {}", call.label, property.name, message));
      } catch (const NotServed&) {
        continue;
      }
    }
  }

  const VerifyImage& image_;
  const Machine& machine_;
  const reference::KernelReference& reference_;
  const VerifyEffort& effort_;
  const std::string config_;
  Rng rng_;
  VerifyOutcome outcome_;
};

// The variant of lowest priority that takes the call.
std::string plainest_config(const Machine& machine, const Call& call) {
  auto decider = decider_of(machine, call.binding);
  const auto& eligible = decider.eligible();
  if (eligible.empty()) return "";  // the chain will say why
  return to_json(Config{eligible.back().variant->name, "", {}});
}

struct FreeCall {
  const spec::Case& c;
  std::string name;
  std::uint64_t seed;
  reference::Arrangement arrangement;
  bool laws = false, allocated = false;  // judged, too; made once more with its outputs left to be allocated
};

// A law may make calls that the variant does not take: it says nothing of it then. Where `call` names a variant, the chain says that it
// "cannot serve" such a call.
bool is_refusal(const CodedError& e) {
  return e.code() == ErrorCode::unsupported || std::string_view(e.what()).find("cannot serve this call") != std::string_view::npos;
}

void judge_laws(const reference::KernelReference& reference, const Call& call, const reference::Execute& execute, std::uint64_t seed,
                VerifyOutcome& outcome) {
  Rng rng(seed);
  for (const auto& law : reference.properties()) {
    if (!law.applies(call)) continue;
    try {
      const std::string message = law.check(call, execute, rng);
      ++outcome.properties;
      if (!message.empty()) outcome.failures.push_back(fmt::format("{}: \"{}\" does not hold: {}", call.label, law.name, message));
    } catch (const CodedError& e) {
      if (!is_refusal(e)) throw;
    }
  }
}

// By this config, or by the plainest variant.
VerifyOutcome check_call(const KernelHandle& kernel, const Machine& machine, const reference::KernelReference& reference,
                         const FreeCall& free, const std::optional<std::string>& override_config) {
  VerifyOutcome outcome;
  std::string label = fmt::format("{} ({}), seed {}", free.name, reference::describe(free.c), free.seed);
  try {
    auto call = reference::make_call(*kernel.spec, free.c, free.seed, free.arrangement);
    label = call.label;
    const auto config = override_config ? *override_config : plainest_config(machine, call);
    outcome.id = PackedCall(kernel, call, machine).explain(config)["image"]["id"].get<std::string>();
    const auto compare = [&] {
      for (const auto& result : reference::verify_call(reference, call, execution(kernel, config, machine))) {
        if (result.tolerance > 0) outcome.worst = std::max(outcome.worst, result.error / result.tolerance);
        if (!result.ok()) outcome.failures.push_back(label + ": " + result.message);
      }
      ++outcome.calls;
    };
    compare();
    if (free.laws) judge_laws(reference, call, execution(kernel, config, machine), free.seed, outcome);
    if (free.allocated) {
      label += allocated_label;
      allocate_outputs(call);
      compare();
    }
  } catch (const CodedError& e) {
    outcome.missing = e.code() == ErrorCode::missing_image || e.code() == ErrorCode::compile_failed;
    outcome.refused = e.code() == ErrorCode::unsupported && machine.backend->platform() != "cpu";
    if (!outcome.refused) outcome.failures.push_back(label + ": " + e.what());
  } catch (const std::exception& e) {
    outcome.failures.push_back(label + ": " + e.what());
  }
  if (outcome.id.empty()) outcome.id = fmt::format("{} {}", kernel.name, free.name);
  return outcome;
}

// Of each variant one, in their order. All cases of a kernel draw the same, so that they share images.
std::vector<Candidate> one_arch_each(const std::vector<Candidate>& eligible, std::uint64_t seed, const std::string& kernel) {
  std::map<const spec::Variant*, std::size_t> archs, drawn_of;
  for (const auto& candidate : eligible) ++archs[candidate.variant];
  for (const auto& [variant, count] : archs) drawn_of[variant] = drawn(seed, kernel + ' ' + variant->name, count);
  std::vector<Candidate> result;
  for (const auto& candidate : eligible)
    if (drawn_of[candidate.variant]-- == 0) result.push_back(candidate);
  return result;
}

// Judged as if the tensors were contiguous: then another image may serve the call after all.
bool finds_its_image(const KernelHandle& kernel, const Machine& machine, const spec::Case& c, bool plainest) {
  try {
    const auto binding = spec::bind(*kernel.spec, spec::facts_of(*kernel.spec, c));
    auto decider = decider_of(machine, binding);
    const auto& eligible = decider.eligible();
    return !eligible.empty() && is_built(kernel, plainest ? eligible.back() : eligible.front(), binding, machine);
  } catch (const std::exception&) {
    return false;  // the call itself will say why
  }
}

}  // namespace

std::optional<DrawnCase> draw_served(const VerifyImage& image, const reference::KernelReference& reference, Rng& seeds, int& attempts) {
  while (attempts-- > 0) {
    const std::uint64_t seed = seeds.next() >> 1;
    Rng rng(seed);
    // Where the first case brings none, the others in turn: some image serves only sizes that are near a certain case's.
    const auto which = attempts < attempts_at_the_first / 2 ? static_cast<std::size_t>(attempts) % image.cases.size() : 0;
    auto c = reference.vary(*image.cases[which], rng);
    if (!has_empty_dim(c) && likely_served(image, c)) return DrawnCase{std::move(c), seed};
  }
  return {};
}

const spec::Case* whole_case(const VerifyImage& image, double seconds) {
  for (const auto* c : image.cases) {
    const auto binding = spec::bind(*image.kernel->spec, spec::facts_of(*image.kernel->spec, *c));
    if (affordable(cost_of(*image.kernel->spec, binding), tensor_bytes(binding.facts), seconds)) return c;
  }
  return nullptr;
}

VerifyOutcome check_image(const VerifyImage& image, const Machine& machine, const reference::KernelReference& reference,
                          const VerifyEffort& effort) {
  return ImageChecker(image, machine, reference, effort).run();
}

reference::Arrangement arrangement_of_random_call(int index, Rng& rng) {
  if (index == 1) return {{.padded = true, .permuted = true, .outputs = true}, false};
  return {index % 2 ? reference::random_layout(rng) : reference::Layout{}, index % 3 == 2};
}

VerifyOutcome check_random_call(const KernelHandle& kernel, const Machine& machine, const reference::KernelReference& reference, int index,
                                bool plainest, const VerifyEffort& effort) {
  Rng seeds = Rng::stream(effort.seed, fmt::format("{} random {}", kernel.name, index));
  const std::uint64_t seed = seeds.next() >> 1;
  Rng rng(seed);
  const auto c = reference.random_case(rng);
  const auto arrangement = arrangement_of_random_call(index, rng);
  if (effort.cover && index >= random_calls_of_a_sample && !finds_its_image(kernel, machine, c, plainest)) return {};
  return check_call(kernel, machine, reference, {c, fmt::format("random call {}", index), seed, arrangement, false, true},
                    plainest ? std::nullopt : std::optional<std::string>(""));
}

std::vector<VerifyOutcome> check_option_case(const KernelHandle& kernel, const Machine& machine,
                                             const reference::KernelReference& reference, const reference::OptionCase& option,
                                             const VerifyEffort& effort) {
  const auto& c = option.c;
  if (effort.cover && !option.alone && !pair_drawn(*effort.cover, kernel.name + ' ' + c.name)) return {};
  Rng seeds = Rng::stream(effort.seed, fmt::format("{} options {}", kernel.name, c.name));
  const FreeCall call{c, c.name, seeds.next() >> 1, {}, option.alone};
  std::vector<VerifyOutcome> outcomes;
  const auto binding = spec::bind(*kernel.spec, spec::facts_of(*kernel.spec, c));
  auto places = decider_of(machine, binding).eligible();
  if (effort.cover) places = one_arch_each(places, *effort.cover, kernel.name);
  for (const auto& [variant, arch] : places)
    outcomes.push_back(check_call(kernel, machine, reference, call, to_json(Config{variant->name, arch->full_name(), {}})));
  return outcomes;
}

}  // namespace ejk::tools

// Whoever asks which image a call gets is told the same: the call's plan, explain, the chain with a Kernel, ejk_choose, labels, warm and
// pack, on the machine and, from what was recorded, without it. Calls and circumstances are drawn; a day of tools/test has a quarter of the
// 2,000 calls (tests/day.hpp); EJK_SEED repeats a run. Nothing is compiled or launched: devices pose (posing_backend.hpp).
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "common/guard.hpp"
#include "ejk/label.hpp"
#include "ejk/traced.hpp"
#include "execute/explain.hpp"
#include "execute/facts.hpp"
#include "execute/plan.hpp"
#include "record/placed_call.hpp"
#include "record/recorder.hpp"
#include "store/pack_plan.hpp"
#include "store/warm_plan.hpp"
#include "tests/day.hpp"
#include "tests/decision/draw.hpp"
#include "tests/execute/store_fixture.hpp"

namespace ejk::test {
namespace {

constexpr std::size_t worlds = 20, calls_of_a_world = 100;

std::uint64_t seed() {
  const char* text = std::getenv("EJK_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 1;
}

// An image id, or "refused".
std::string answer(const std::function<std::string()>& ask, std::string& why) {
  try {
    return ask();
  } catch (...) {
    why = current_error().message;
    return "refused";
  }
}

template <class T>
const T& sound(const Result<T>& result) {
  if (!result) throw CodedError(result.error().code, result.error().message);
  return *result;
}

// Scopes that are open while a call is made.
class InForce {
 public:
  explicit InForce(const Circumstances& drawn) {
    const auto& chain = *Library::instance().parts().chain;
    if (drawn.policy) policy_.emplace(*drawn.policy);
    if (drawn.overlay) overlay_.emplace(drawn.overlay->first, drawn.overlay->second);
    if (drawn.record && !chain.persistent().append(*drawn.record)) throw std::runtime_error("a drawn record was refused");
    if (drawn.remembered) chain.memory().put(drawn.remembered->first, drawn.remembered->second);
  }

 private:
  std::optional<policy_override> policy_;
  std::optional<overlay_cache> overlay_;
};

// What another process needs to ask again: a JSON line.
std::string line_of(const std::string& recorded, const Circumstances& drawn, const std::string& image) {
  nlohmann::json line = {{"call", nlohmann::json::parse(recorded)}, {"image", image}};
  if (drawn.policy)
    line["policy"] = {drawn.policy->allow_autotune, drawn.policy->allow_heuristics, static_cast<int>(drawn.policy->cache_miss_fallback)};
  if (drawn.overlay) line["overlay"] = {drawn.overlay->first, to_json(drawn.overlay->second)};
  if (drawn.record) line["record"] = to_json(*drawn.record);
  if (drawn.remembered) line["remembered"] = {drawn.remembered->first, to_json(drawn.remembered->second)};
  return line.dump() + "\n";
}

Circumstances circumstances_of(const nlohmann::json& line) {
  Circumstances drawn;
  const auto named_config = [&](const char* name) {
    return std::pair(line[name][0].get<std::string>(), sound(config_from_json(line[name][1].get<std::string>())));
  };
  if (line.contains("policy"))
    drawn.policy =
        AutotunePolicy{line["policy"][0], line["policy"][1], static_cast<CacheMissFallback>(line["policy"][2].get<int>()), false};
  if (line.contains("overlay")) drawn.overlay = named_config("overlay");
  if (line.contains("record")) drawn.record = sound(record_from_json(line["record"].get<std::string>()));
  if (line.contains("remembered")) drawn.remembered = named_config("remembered");
  return drawn;
}

class OneDecision : public StoreTest {
 protected:
  std::filesystem::path path(const std::string& name) const { return folder / name; }

  // Work of a process of its own in that world, with a cache of its own. What it prints into `report` are faults.
  void in_world(World world, bool here, const std::string& cache, const std::function<void(const World&, std::ostream&)>& work) {
    const auto report = path("report");
    const auto child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(run(std::move(world), here, cache, report, work));
    int status = 0;
    waitpid(child, &status, 0);
    std::stringstream text;
    text << std::ifstream(report).rdbuf();
    EXPECT_EQ(text.str(), "");
    EXPECT_EQ(status, 0) << "the child ended by itself";
  }

  // In a process of its own, so that this one's library stays untouched.
  void SetUp() override {
    store_ = path("project");
    std::filesystem::create_directories(store_ / "specs");
    for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/specs"))
      if (entry.path().filename() != "tuned") std::filesystem::create_symlink(entry.path(), store_ / "specs" / entry.path().filename());
    std::filesystem::create_directory_symlink(source_dir() + "/templates", store_ / "templates");
  }

  std::filesystem::path store_;

 private:
  int run(World world, bool here, const std::string& cache, const std::filesystem::path& report,
          const std::function<void(const World&, std::ostream&)>& work) {
    std::ofstream faults(report, std::ios::trunc);
    try {
      std::filesystem::create_directories(path(cache));
      std::filesystem::permissions(path(cache), std::filesystem::perms::owner_all);
      setenv("EJKERNEL_CACHE_DIR", path(cache).c_str(), 1);
      for (const auto& [name, value] : world.environment) setenv(name.c_str(), value.c_str(), 1);
      for (auto& device : world.devices) device.here = here;
      auto* backend = new PosingBackend(world.platform, world.devices);  // as long as the library
      add_backend(*backend);
      set_tuner(nullptr);
      if (const auto status = add_store(store_.string()); !status) throw std::runtime_error(status.error().message);
      work(world, faults);
    } catch (...) {
      faults << "thrown: " << current_error().message << "\n";
    }
    faults.flush();
    return 0;
  }
};

// All ways to ask on the machine itself.
class Asked {
 public:
  Asked(const DrawnCall& call, const std::filesystem::path& folder)
      : call_(call),
        handle_(require_kernel(call.kernel)),
        arguments_(positional(handle_, call.tensors, call.attributes)),
        machine_(machine_of(handle_, arguments_.tensors)),
        trace_(folder / "trace.jsonl"),
        bound_(bind()) {
    recorded_ = recorded_of(bound_.invocation(), &machine_);
    line_ = sound(to_json(recorded_));
    std::ofstream(trace_) << line_ << "\n";
  }

  const BoundCall& bound() const { return bound_; }
  const std::string& line() const { return line_; }

  std::string plan() const {
    PlanKey key;
    if (!pack_key(key, handle_, arguments_.tensors, arguments_.attributes, nullptr)) throw std::runtime_error("no key");
    return find_plan(key, handle_, arguments_.tensors, arguments_.attributes, {}, nullptr).resolved.image.id;
  }
  std::string explained() const {
    return explain(handle_, arguments_.tensors, arguments_.attributes, nullptr)["image"]["id"].get<std::string>();
  }
  std::string chosen_without_data() const { return sound(choose(call_.kernel, call_.tensors, call_.attributes)).image; }
  std::string executor() const {
    const auto invocation = handle_.kernel_interface()->canonical(bound_.invocation());
    return bound_.image(sound(Executor().choose(*handle_.kernel_interface(), invocation)).config).id;
  }
  std::string warmed() const {
    const auto plan = tools::plan_to_warm(trace_, "", nullptr);
    if (plan.items.size() != 1) throw std::runtime_error(plan.skipped.empty() ? "nothing to warm" : plan.skipped[0].why);
    return plan.items[0].image.id;
  }
  std::string packed() const {
    const auto plan = tools::plan_pack(trace_, nullptr);
    if (plan.calls.size() != 1) throw std::runtime_error(plan.skipped.empty() ? "nothing to pack" : plan.skipped[0].why);
    return plan.images.at(plan.calls[0].demand.choices.at(0).image).item.image.id;
  }
  std::string labelled() const {
    const std::vector labels{sound(label(bound_.invocation(), Stamp::json))};
    const auto configs = sound(labels_to_configs(labels));
    if (configs.size() != 1 || !configs[0].selection) throw std::runtime_error(configs.empty() ? "no config" : configs[0].why_not);
    return bound_.image(configs[0].selection->config).id;
  }

 private:
  BoundCall bind() const {
    auto facts = facts_of(handle_, arguments_.tensors, arguments_.attributes);
    auto invocation = invocation_of(handle_, facts, call_.tensors, machine_.probe.fingerprint, {});
    return {handle_, machine_, std::make_shared<spec::Binding>(spec::bind(*handle_.spec, std::move(facts))), std::move(invocation)};
  }

  const DrawnCall& call_;
  const KernelHandle& handle_;
  const Positional arguments_;
  const Machine& machine_;
  const std::filesystem::path trace_;
  const BoundCall bound_;
  RecordedInvocation recorded_;
  std::string line_;
};

std::vector<std::shared_ptr<const spec::Spec>> specs_of(const spec::Catalogue& catalogue) {
  std::vector<std::shared_ptr<const spec::Spec>> specs;
  for (const auto& name : catalogue.kernel_names()) specs.push_back(catalogue.kernel(name));
  return specs;
}

// Each way's answer beside the plan's.
void compare(const Asked& asked, bool aligned, const std::string& image, const std::string& why_not, std::ostream& faults) {
  const auto check = [&](const char* who, std::string (Asked::*ask)() const) {
    std::string why;
    const auto found = answer([&] { return (asked.*ask)(); }, why);
    if (found != image)
      faults << fmt::format("{}: {} ({}), but the plan: {} ({})\n  call {}\n", who, found, why, image, why_not, asked.line());
  };
  check("explain", &Asked::explained);
  check("the chain, asked with a Kernel", &Asked::executor);
  check("warm", &Asked::warmed);
  check("pack", &Asked::packed);
  if (aligned) {  // these know no addresses
    check("ejk_choose", &Asked::chosen_without_data);
    check("labels", &Asked::labelled);
  }
}

struct Counts {
  std::size_t served = 0, refused = 0, changed = 0;  // changed: the heuristic alone would have said another image
};

void ask_everybody(Dice dice, const World& world, const std::filesystem::path& folder, std::ostream& faults, std::ostream& lines,
                   Counts& counts) {
  const auto specs = specs_of(Library::instance().parts().catalogue);
  for (std::size_t i = 0; i < calls_of_a_world; ++i) {
    const auto call = draw_call(dice, specs, world);
    const Asked asked(call, folder);
    const auto drawn = draw_circumstances(dice, asked.bound());
    const InForce scopes(drawn);
    std::string why;
    const auto image = answer([&] { return asked.plan(); }, why);
    lines << line_of(asked.line(), drawn, image);
    ++(image == "refused" ? counts.refused : counts.served);
    const auto heuristic = asked.bound().decider().heuristic();
    counts.changed += heuristic && image != "refused" && asked.bound().image(*heuristic).id != image;
    compare(asked, call.aligned, image, why, faults);
  }
}

// The same calls where their devices are not.
void ask_elsewhere(const std::filesystem::path& lines, std::ostream& faults) {
  std::ifstream stream(lines);
  std::size_t count = 0;
  for (std::string text; std::getline(stream, text); ++count) {
    const auto line = nlohmann::json::parse(text);
    const InForce scopes(circumstances_of(line));
    const auto wanted = line["image"].get<std::string>(), recorded = line["call"].dump();
    std::string why;
    const auto found = answer(
        [&] {
          const PlacedCall call(sound(recorded_from_json(recorded)));
          return call.image(call.select().config).id;
        },
        why);
    if (found != wanted) faults << fmt::format("elsewhere: {} ({}), but where it is: {}\n  line {}\n", found, why, wanted, text);
  }
  if (count != calls_of_a_world) faults << fmt::format("{} calls were asked elsewhere\n", count);
}

TEST_F(OneDecision, AllWhoAreAskedNameOneImage) {
  std::cout << fmt::format("seed {}\n", seed());
  const auto start = std::clock();
  const auto catalogue = spec::Catalogue::open(store_ / "specs", store_ / "templates");
  Counts all;
  std::size_t asked = 0;
  for (std::size_t i = 0; i < worlds && !HasFailure(); ++i) {
    if (!of_the_day(i, 4)) continue;
    asked += calls_of_a_world;
    SCOPED_TRACE(fmt::format("world {} of seed {}", i, seed()));
    Dice dice(seed() * 1000 + i);
    const auto world = draw_world(dice, catalogue, i);
    const auto lines = path(fmt::format("lines{}", i)), counts = path("counts");
    in_world(world, true, fmt::format("here{}", i), [&](const World& drawn, std::ostream& faults) {
      Counts found;
      std::ofstream stream(lines);
      ask_everybody(dice, drawn, folder, faults, stream, found);
      std::ofstream(counts) << found.served << ' ' << found.refused << ' ' << found.changed;
    });
    in_world(world, false, fmt::format("elsewhere{}", i), [&](const World&, std::ostream& faults) { ask_elsewhere(lines, faults); });
    Counts found;
    std::ifstream(counts) >> found.served >> found.refused >> found.changed;
    all.served += found.served, all.refused += found.refused, all.changed += found.changed;
  }
  std::cout << fmt::format("{} calls served, {} refused by all; {} by another image than the heuristic's; {:.1f} s here\n", all.served,
                           all.refused, all.changed, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  EXPECT_EQ(all.served + all.refused, asked);
  EXPECT_GT(all.served, asked / 2) << "else little is compared";
  EXPECT_GT(all.changed, asked / 20) << "else circumstances change nothing";
}

// Builds one of the first images of that order, where the call would compile nothing.
std::string build_one(Dice& dice, const PlacedCall& call, const std::vector<PlacedCall::Fallback>& order) {
  const auto& wanted = order.at(dice.below(std::min<std::size_t>(order.size(), 12)));
  const auto image = call.image(wanted.config);
  auto& backend = *call.machine().backend;
  const auto& arch = *Library::instance().parts().catalogue.arch(image.arch);
  Library::instance().parts().places.user->publish(image, backend.compile(image, arch), backend.source_extension(),
                                                   backend.binary_extension());
  return image.id;
}

void fall_back(Dice dice, const World& world, const std::filesystem::path& folder, std::ostream& faults, std::size_t& fallen) {
  const auto specs = specs_of(Library::instance().parts().catalogue);
  std::set<std::string> built, drawn_before;
  for (std::size_t i = 0; i < calls_of_a_world; ++i) {
    const auto call = draw_call(dice, specs, world);
    const Asked asked(call, folder);
    if (!drawn_before.insert(asked.line()).second) continue;  // such a call keeps what has served it, whatever is built since
    const PlacedCall placed(sound(recorded_from_json(asked.line())));
    std::vector<PlacedCall::Fallback> order;
    std::string why;
    const auto chosen = answer([&] { return placed.image(placed.select().config).id; }, why);
    if (chosen == "refused") continue;
    order.push_back({placed.select().config, chosen});
    for (auto& fallback : placed.fallbacks(order.front().config)) order.push_back(std::move(fallback));
    built.insert(build_one(dice, placed, order));
    const auto first = std::ranges::find_if(order, [&](const auto& each) { return built.contains(each.image_id); });
    const auto found = answer([&] { return asked.plan(); }, why);
    fallen += found != chosen;
    if (found != first->image_id)
      faults << fmt::format("the call took {} ({}), where {} is the first that is built\n  call {}\n", found, why, first->image_id,
                            asked.line());
  }
}

// What pack counts on, and the generator: a call takes the first of its fallbacks that is built.
TEST_F(OneDecision, ACallFallsBackInTheOrderThatIsTold) {
  const auto catalogue = spec::Catalogue::open(store_ / "specs", store_ / "templates");
  std::size_t all = 0;
  for (std::size_t i = 0; i < 4 && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("world {} of seed {}", i, seed()));
    Dice dice(seed() * 2000 + i);
    auto world = draw_world(dice, catalogue, i);
    world.environment.emplace_back("EJKERNEL_JIT", "off");
    in_world(world, true, fmt::format("here{}", i), [&](const World& drawn, std::ostream& faults) {
      std::size_t fallen = 0;
      fall_back(dice, drawn, folder, faults, fallen);
      std::ofstream(path("counts")) << fallen;
    });
    std::size_t fallen = 0;
    std::ifstream(path("counts")) >> fallen;
    all += fallen;
  }
  EXPECT_GT(all, 50u) << "else every call had its own image";
}

}  // namespace
}  // namespace ejk::test

// A variant's names: archs, and what each of its expressions may use.
#include "spec/check/check_names.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "spec/check/let_nesting.hpp"
#include "spec/check/name_check.hpp"
#include "spec/check/suggest.hpp"
#include "spec/expression/expression_node.hpp"
#include "spec/expression/no_names.hpp"
#include "spec/read/archs.hpp"
#include "spec/read/json.hpp"

namespace ejk::spec {
namespace {

constexpr std::int64_t max_space = 100'000;  // configs of one variant

class VariantCheck {
 public:
  VariantCheck(const Spec& spec, const Variant& variant, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults)
      : spec_(spec), variant_(variant), archs_(archs), faults_(faults), names_(spec, faults) {}

  void run() {
    archs();
    rules_.known = contract_names(spec_);
    rules_.in_variant = true;
    rules_.archs = archs_covered(variant_.archs, archs_);
    rules_.sound_lets = &sound_lets_;
    rules_.variant = &variant_;
    for (std::size_t i = 0; i < variant_.supports.size(); ++i)
      judge([&] { return supports_pointer(variant_, i).substr(variant_.pointer.size()); }, variant_.supports[i], "'supports'");
    for (const Named& named : variant_.specialize)
      judge([&] { return pointer_to("/specialize", named.name); }, named.expression, "'specialize'");
    for (const Named& named : variant_.specialize) learn(named.name);
    for (std::size_t i = 0; i < variant_.heuristic.size(); ++i) rule(i);
    space();
    for (const ConfigParameter& parameter : variant_.config) learn(parameter.name);
    lets();
    judge_all([] { return "/valid"; }, variant_.valid, "'valid'");
    for (std::size_t i = 0; i < variant_.workspace.size(); ++i) {
      judge_all([&] { return pointer_to("/workspace", i) + "/shape"; }, variant_.workspace[i].shape, "a workspace's shape");
      judge([&] { return pointer_to("/workspace", i) + "/zero"; }, variant_.workspace[i].zero, "a workspace's 'zero'");
    }
    for (std::size_t i = 0; i < variant_.launches.size(); ++i) launch(i);
    fold();
  }

 private:
  void fault(const std::string& below, std::string sentence) {
    faults_.push_back({spec_.file, variant_.pointer + below, std::move(sentence)});
  }
  void learn(const std::string& name) {
    if (std::find(rules_.known.begin(), rules_.known.end(), name) == rules_.known.end()) rules_.known.push_back(name);
  }
  // below(): where it stands in the variant. Only faults ask: a process's first call judges hundreds of expressions that have none.
  template <class Below>
  void judge(const Below& below, const Expression& expression, const char* place) {
    const std::pair once(expression.identity(), rules_.varying);
    if (sound_.count(once)) return;
    rules_.place = place;
    const std::size_t before = faults_.size();
    names_.judge("", expression, rules_);
    if (faults_.size() == before) sound_.insert(once);
    for (std::size_t i = before; i < faults_.size(); ++i) faults_[i].where = variant_.pointer + below();
  }
  template <class Below>
  void judge_all(const Below& below, const std::vector<Expression>& expressions, const char* place) {
    for (std::size_t i = 0; i < expressions.size(); ++i) judge([&] { return pointer_to(below(), i); }, expressions[i], place);
  }

  void archs() {
    bool cpu = false, other = false;
    for (std::size_t i = 0; i < variant_.archs.size(); ++i) {
      const std::string& pattern = variant_.archs[i];
      (pattern.starts_with("cpu") ? cpu : other) = true;
      if (!covers_some(pattern, archs_)) unknown_arch(pointer_to("/archs", i), pattern);
    }
    if (cpu && other) fault("/archs", "a variant is for CPUs or for GPUs, not for both: their templates and launches differ");
    is_cpu_ = cpu;
  }

  void unknown_arch(const std::string& below, const std::string& pattern) {
    std::vector<std::string> known;
    for (const auto& [name, arch] : archs_) known.push_back(name);
    const std::string bare = pattern.ends_with('+') ? pattern.substr(0, pattern.size() - 1) : pattern;
    fault(below, "unknown arch '" + bare + "'" + suggestion(bare, known) + " (archs are the files of specs/arch)");
  }

  // The config is being chosen here, so neither it nor 'let' has a value.
  void rule(std::size_t index) {
    const HeuristicRule& rule = variant_.heuristic[index];
    const auto below = [&] { return pointer_to("/heuristic", index); };
    judge([&] { return below() + "/if"; }, rule.condition, "the heuristic");
    for (const Named& use : rule.use) {
      const auto place = [&] { return pointer_to(below() + "/use", use.name); };
      judge(place, use.expression, "the heuristic");
      literal_in_space(place, use);
    }
  }

  // A value that depends on nothing is judged even if no case uses its rule.
  template <class Below>
  void literal_in_space(const Below& below, const Named& use) {
    const auto needs_nothing = [](const Expression::Node& node) {
      return node.operation != Operation::name && node.operation != Operation::name_call;
    };
    if (!all_nodes(use.expression, needs_nothing)) return;
    for (const ConfigParameter& parameter : variant_.config) {
      if (parameter.name != use.name) continue;
      try {
        const Value value = use.expression.evaluate(NoNames());
        if (std::find(parameter.values.begin(), parameter.values.end(), value) == parameter.values.end())
          fault(below(), to_text(value) + " is not in the config space of '" + use.name + "': " + values_of(parameter));
      } catch (const ExpressionError& error) {
        fault(below(), error.what());
      }
    }
  }

  static std::string values_of(const ConfigParameter& parameter) {
    std::vector<std::string> texts;
    for (const Value& value : parameter.values) texts.push_back(to_text(value));
    return listed(texts);
  }

  void space() {
    std::int64_t size = 1;
    for (const ConfigParameter& parameter : variant_.config)
      if (__builtin_mul_overflow(size, static_cast<std::int64_t>(parameter.values.size()), &size) || size > max_space)
        return fault("/config", "the config space has more than " + std::to_string(max_space) + " points; tuning could not look at them");
  }

  // Each sees those before it, so there are no circles. Where some come from another variant, the order is not the reader's: any will do.
  void lets() {
    rules_.configured = true;
    if (!variant_.let.empty()) nesting();
    if (!variant_.like.empty())
      for (const Named& named : variant_.let) learn(named.name);
    for (const Named& named : variant_.let) {
      const auto is_known = [&](const std::string& name) { return is_in(rules_.known, name); };
      const bool in_order = all_nodes(named.expression, [&](const Expression::Node& node) {
        return node.operation != Operation::name || is_known(node.name) || !is_let(node.name);
      });
      for (const std::string& name : in_order ? std::set<std::string>() : named.expression.names())
        if (is_let(name) && !is_known(name)) {
          fault(pointer_to("/let", named.name),
                "'" + named.name + "' uses '" + name + "', which is defined " + (name == named.name ? "by itself" : "later; put it first"));
          learn(name);  // said once
        }
      judge([&] { return pointer_to("/let", named.name); }, named.expression, "'let'");
      learn(named.name);
    }
  }

  // Of the variant's lets, which the kernel's may lie between.
  void nesting() {
    if (variant_.let.empty()) return;  // the kernel's own were judged with it
    std::vector<const Named*> lets;
    for (const Named& named : variant_.let) lets.push_back(&named);
    for (const SharedLet& let : spec_.let) lets.push_back(&let);
    const auto found = nesting_of(lets);
    const auto own = [&](const Named* let) { return let && is_let(let->name); };
    if (!variant_.like.empty() && own(found.circular))
      fault(pointer_to("/let", found.circular->name), "'" + found.circular->name + "' is defined by way of itself");
    if (found.too_deep)
      fault(own(found.too_deep) ? pointer_to("/let", found.too_deep->name) : "/let", LetNesting::sentence(*found.too_deep));
  }

  bool is_let(const std::string& name) const {
    return std::any_of(variant_.let.begin(), variant_.let.end(), [&](const Named& named) { return named.name == name; });
  }

  void launch(std::size_t index) {
    const Launch& launch = variant_.launches[index];
    const std::string below = pointer_to("/launches", index);
    judge([&] { return below + "/if"; }, launch.condition, "a launch's condition");
    judge_all([&] { return below + "/grid"; }, launch.grid, "a grid");
    judge_all([&] { return below + "/block"; }, launch.block, "a block");
    judge([&] { return below + "/shared"; }, launch.shared, "'shared'");
    judge_all([&] { return below + "/cluster"; }, launch.cluster, "a cluster");
    judge([&] { return below + "/repeat"; }, launch.repeat, "'repeat'");
    if (is_cpu_ && !launch.block.empty()) fault(below + "/block", "a CPU launch has no block: one work item runs on one thread; drop it");
    if (is_cpu_ && !launch.cluster.empty()) fault(below + "/cluster", "a CPU launch has no clusters; drop it");
    if (launch.cooperative && launch.overlaps)
      fault(below + "/overlaps",
            "the blocks of a cooperative launch must all fit the device, so it cannot overlap another launch; drop it");
    if (is_cpu_ && launch.overlaps) fault(below + "/overlaps", "a CPU launch never overlaps the one before it; drop it");
    if (!is_cpu_ && launch.block.empty()) fault(below, "missing field 'block': the threads of a GPU launch");
    for (std::size_t i = 0; i < launch.arguments.size(); ++i) argument([&] { return pointer_to(below + "/args", i); }, launch.arguments[i]);
  }

  void fold() {
    if (!variant_.fold) return;
    if (spec_.batch.dim.empty()) fault("/fold", "calls fold along the batch dim, and the kernel has none; say which it is by \"batch\"");
    judge([] { return "/fold/if"; }, variant_.fold->condition, "'fold'");
    judge_all([] { return "/fold/same"; }, variant_.fold->same, "'fold'");
  }

  template <class Below>
  void argument(const Below& below, const Argument& argument) {
    if (argument.kind == Argument::Kind::tensor_map && is_cpu_)
      fault(below(), "a CPU launch takes no tensor maps; pass view(" + argument.name + ")");
    judge_all([&] { return below() + "/box"; }, argument.box, "a tensor map's box");
    for (std::size_t i = 0; i < argument.choices.size(); ++i)
      judge([&] { return pointer_to(below() + "/tensor_map", i) + "/if"; }, argument.choices[i].condition, "a tensor map's choice");
    rules_.varying = argument.expression.as_name().has_value();
    judge(below, argument.expression, "an expression of 'args'");
    rules_.varying = false;
  }

  const Spec& spec_;
  const Variant& variant_;
  const std::map<std::string, Arch>& archs_;
  std::vector<Fault>& faults_;
  NameCheck names_;
  NameRules rules_;
  // What was judged without a fault, and whether varying attributes were allowed: launches say much alike, and names only become more.
  std::set<std::pair<const void*, bool>> sound_;
  std::set<const void*> sound_lets_;
  bool is_cpu_ = false;
};

}  // namespace

namespace {

// The variant that a place is in.
const Variant* variant_at(const Spec& spec, const std::string& pointer) {
  for (const Variant* variant : spec.variants.ready())
    if (pointer == variant->pointer || pointer.starts_with(variant->pointer + "/")) return variant;
  return nullptr;
}

}  // namespace

void as_written(const Spec& spec, std::vector<Fault>& faults, std::size_t first) {
  std::set<std::pair<std::string, std::string>> said;
  std::vector<Fault> kept;
  for (std::size_t i = first; i < faults.size(); ++i) {
    Fault& fault = faults[i];
    const std::string where = spec.origins.written_at(fault.where);
    if (!said.emplace(where, fault.sentence).second) continue;
    if (const Variant* variant = where == fault.where ? nullptr : variant_at(spec, fault.where);
        variant && variant_at(spec, where) != variant)
      fault.sentence += " (in variant '" + variant->name + "', which is like this one)";
    kept.push_back({std::move(fault.file), where, std::move(fault.sentence)});
  }
  faults.resize(first);
  faults.insert(faults.end(), std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
}

std::string supports_pointer(const Variant& variant, std::size_t index) {
  const std::string pointer = variant.pointer + "/supports";
  return variant.supports_is_list ? pointer_to(pointer, index) : pointer;
}

void check_variant_names(const Spec& spec, const Variant& variant, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults) {
  VariantCheck(spec, variant, archs, faults).run();
}

void check_names(const Spec& spec, const std::map<std::string, Arch>& archs, std::vector<Fault>& faults) {
  const std::size_t before = faults.size();
  check_contract(spec, faults);
  if (check_lets(spec, faults))  // else there may be circles
    for (const Variant* variant : spec.variants.ready()) check_variant_names(spec, *variant, archs, faults);
  as_written(spec, faults, before);
}

}  // namespace ejk::spec

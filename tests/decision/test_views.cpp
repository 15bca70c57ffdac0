// Views of any strides have a variant wherever their contiguous copies have one ("Tensors" in docs/semantics.md): each tensor of each case
// with gaps between rows, and with its outer dims in another order. Nothing is compiled or launched.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "spec/call/binding.hpp"
#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"
#include "tests/paths.hpp"

namespace ejk::test {
namespace {

bool runs(const spec::Arch& machine, const spec::Arch& arch) {
  return machine.platform == arch.platform && (machine.name == arch.name || std::ranges::count(machine.ancestors, arch.name));
}

bool served(const spec::Catalogue& catalogue, const spec::Spec& spec, const spec::Arch& machine, const spec::Binding& binding) {
  return std::ranges::any_of(spec.variants, [&](const spec::Variant& variant) {
    return std::ranges::any_of(catalogue.archs_of(variant),
                               [&](const spec::Arch* arch) { return runs(machine, *arch) && !spec::refusal(variant, *arch, binding); });
  });
}

// Strides of dims that lie in this order, the last innermost; `gap` more elements a row.
void lay_out(spec::TensorFacts& tensor, const std::vector<std::size_t>& order, std::int64_t gap) {
  std::int64_t next = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    tensor.strides[order[i]] = next;
    next *= std::max<std::int64_t>(tensor.shape[order[i]], 1);
    if (i + 1 == order.size()) next += gap;
  }
}

std::vector<std::size_t> dims_of(const spec::TensorFacts& tensor, bool reversed) {
  std::vector<std::size_t> order(tensor.shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (reversed && order.size() > 2) std::reverse(order.begin(), order.end() - 1);
  return order;
}

struct View {
  std::string text;
  spec::CallFacts facts;
};

std::vector<View> views_of(const spec::CallFacts& facts) {
  std::vector<View> views;
  for (const bool reversed : {false, true}) {
    const std::string how = reversed ? "permuted" : "padded";
    View all{how, facts};
    for (const auto& [name, tensor] : facts.tensors) {
      if (tensor.shape.size() < 2) continue;
      lay_out(all.facts.tensors[name], dims_of(tensor, reversed), reversed ? 0 : 1);
      views.push_back({name + " " + how, facts});
      lay_out(views.back().facts.tensors[name], dims_of(tensor, reversed), reversed ? 0 : 1);
    }
    views.push_back(std::move(all));
  }
  return views;
}

// The least archs that serve a call: what serves a view there serves it on those that extend them, too.
std::vector<const spec::Arch*> least_machines(const spec::Catalogue& catalogue, const spec::Spec& spec, const spec::Binding& binding) {
  std::vector<const spec::Arch*> machines;
  for (const auto& [name, machine] : catalogue.archs())
    if (served(catalogue, spec, machine, binding)) machines.push_back(&machine);
  const auto all = machines;
  std::erase_if(machines, [&](const spec::Arch* machine) {
    return std::ranges::any_of(all, [&](const spec::Arch* other) { return other != machine && runs(*machine, *other); });
  });
  return machines;
}

// Machines on which a view has no variant, though the contiguous call has one.
std::string faults_of(const spec::Catalogue& catalogue, const spec::Spec& spec, const spec::Case& c, std::size_t& judged) {
  std::string faults;
  const auto facts = spec::facts_of(spec, c);
  const auto machines = least_machines(catalogue, spec, spec::bind(spec, facts));
  for (const View& view : views_of(facts)) {
    const auto binding = spec::bind(spec, view.facts);
    for (const auto* machine : machines)
      if (++judged; !served(catalogue, spec, *machine, binding))
        faults += fmt::format("{} {} on {}: {}\n", spec.kernel, c.name, machine->full_name(), view.text);
  }
  return faults;
}

TEST(Views, OfAnyStridesHaveAVariantWhereverTheirCopiesHaveOne) {
  const auto catalogue = spec::Catalogue::open(source_dir() + "/specs", source_dir() + "/templates");
  std::size_t judged = 0;
  for (const auto& kernel : catalogue.kernel_names()) {
    const auto spec = catalogue.kernel(kernel);
    if (spec->same_as) continue;
    for (const auto& c : spec->cases) EXPECT_EQ(faults_of(catalogue, *spec, c, judged), "");
  }
  EXPECT_GT(judged, 10000u);
}

}  // namespace
}  // namespace ejk::test

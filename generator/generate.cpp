// The runs that ejk-gen offers.
#include "generator/generate.hpp"

#include "generator/state.hpp"

namespace ejk::generator {
namespace {

std::vector<ImagePlan> plans_of(const spec::Catalogue& catalogue, const Options& options, BudgetReport& budget) {
  return options.portfolio ? within_budget(catalogue, options, budget) : enumerate(catalogue, options);
}

Tree rendered_tree(const Options& options, std::size_t& images, BudgetReport& budget) {
  const spec::Catalogue catalogue = spec::Catalogue::load(options.specs, options.templates);
  std::vector<spec::Image> rendered = render(catalogue, plans_of(catalogue, options, budget));
  images = rendered.size();
  return make_tree(catalogue, std::move(rendered));
}

}  // namespace

Report generate(const Options& options) {
  Report report;
  const std::string inputs = inputs_hash(options);
  if (!options.portfolio && is_up_to_date(options, inputs, report.images)) {
    report.up_to_date = true;
    return report;
  }
  const Tree tree = rendered_tree(options, report.images, report.budget);
  report.files = write_tree(options.out, tree);
  write_state(options, inputs, tree, report.images);
  return report;
}

std::vector<std::string> check(const Options& options) {
  std::size_t images = 0;
  BudgetReport budget;
  return differences(options.out, rendered_tree(options, images, budget));
}

std::vector<Listed> list(const Options& options) {
  BudgetReport budget;
  const spec::Catalogue catalogue = spec::Catalogue::load(options.specs, options.templates);
  std::vector<Listed> listed;
  for (const ImagePlan& plan : plans_of(catalogue, options, budget))
    listed.push_back({plan.id, plan.spec->kernel, plan.variant->name, plan.arch->full_name(), plan.case_name});
  return listed;
}

}  // namespace ejk::generator

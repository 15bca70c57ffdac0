// The runs that ejk-gen offers.
#include "generator/generate.hpp"

#include "generator/differences.hpp"
#include "generator/state.hpp"

namespace ejk::generator {
namespace {

// So many are held, so that they are found once; where there are more they are found twice: to count them, and to render them.
constexpr std::size_t most_held = 20'000;

class Plans {
 public:
  Plans(const spec::Catalogue& catalogue, const Options& options, BudgetReport& budget) : catalogue_(catalogue), options_(options) {
    if (options.portfolio) {
      held_ = within_budget(catalogue, options, budget);
      count_ = held_.size();
    } else {
      for_each_image(catalogue, options, [&](ImagePlan&& plan) { count(std::move(plan)); });
    }
  }

  std::size_t count() const { return count_; }

  void visit(const PlanVisitor& visitor) {
    if (held_.size() != count_) return for_each_image(catalogue_, options_, visitor);
    for (auto& plan : held_) visitor(std::move(plan));
  }

 private:
  void count(ImagePlan&& plan) {
    if (++count_ <= most_held)
      held_.push_back(std::move(plan));
    else
      held_ = {};
    if (options_.progress) options_.progress(count_, 0);
  }

  const spec::Catalogue& catalogue_;
  const Options& options_;
  std::vector<ImagePlan> held_;
  std::size_t count_ = 0;
};

std::size_t render_into(Sink& sink, const Options& options, BudgetReport& budget) {
  const auto catalogue = spec::Catalogue::load(options.specs, options.templates);
  Plans plans(catalogue, options, budget);
  Renderer renderer(catalogue);
  TreeMaker tree(catalogue, sink);
  std::size_t done = 0;
  plans.visit([&](ImagePlan&& plan) {
    if (const auto image = renderer.render(plan)) tree.add(*image);
    if (options.progress) options.progress(++done, plans.count());
  });
  renderer.finish();
  tree.finish();
  return tree.images();
}

Listed listed(const ImagePlan& plan) { return {plan.id, plan.spec->kernel, plan.variant->name, plan.arch->full_name(), plan.case_name}; }

}  // namespace

Report generate(const Options& options) {
  Report report;
  const std::string inputs = inputs_hash(options);
  if (!options.portfolio && is_up_to_date(options, inputs, report.images)) {
    report.up_to_date = true;
    return report;
  }
  StagedTree tree(options.out);
  report.images = render_into(tree, options, report.budget);
  report.files = tree.commit();
  write_state(options, inputs, tree.fingerprint(), report.images);
  return report;
}

std::vector<std::string> check(const Options& options) {
  BudgetReport budget;
  Differences differences(options.out);
  render_into(differences, options, budget);
  return differences.list();
}

void for_each_listed(const Options& options, const std::function<void(const Listed&)>& visit) {
  const auto catalogue = spec::Catalogue::load(options.specs, options.templates);
  if (!options.portfolio) return for_each_image(catalogue, options, [&](ImagePlan&& plan) { visit(listed(plan)); });
  BudgetReport budget;
  for (const auto& plan : within_budget(catalogue, options, budget)) visit(listed(plan));
}

std::vector<Listed> list(const Options& options) {
  std::vector<Listed> all;
  for_each_listed(options, [&](const Listed& each) { all.push_back(each); });
  return all;
}

}  // namespace ejk::generator

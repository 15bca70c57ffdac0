// The runs that ejk-gen offers.
#include "generator/generate.hpp"

#include "generator/state.hpp"

namespace ejk::generator {
namespace {

Tree rendered_tree(const Options& options, std::size_t& images) {
  const spec::Catalogue catalogue = spec::Catalogue::load(options.specs, options.templates);
  std::vector<spec::Image> rendered = render(catalogue, enumerate(catalogue, options));
  images = rendered.size();
  return make_tree(catalogue, std::move(rendered));
}

}  // namespace

Report generate(const Options& options) {
  Report report;
  const std::string inputs = inputs_hash(options);
  if (is_up_to_date(options, inputs, report.images)) {
    report.up_to_date = true;
    return report;
  }
  const Tree tree = rendered_tree(options, report.images);
  report.files = write_tree(options.out, tree);
  write_state(options, inputs, tree, report.images);
  return report;
}

std::vector<std::string> check(const Options& options) {
  std::size_t images = 0;
  return differences(options.out, rendered_tree(options, images));
}

std::vector<Listed> list(const Options& options) {
  const spec::Catalogue catalogue = spec::Catalogue::load(options.specs, options.templates);
  std::vector<Listed> listed;
  for (const ImagePlan& plan : enumerate(catalogue, options))
    listed.push_back({plan.id, plan.spec->kernel, plan.variant->name, plan.arch->full_name(), plan.case_name});
  return listed;
}

}  // namespace ejk::generator

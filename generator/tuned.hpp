// Tuning records as calls of today's specs: what was measured, as configs that can still be made.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "generator/options.hpp"
#include "spec/choose/decider.hpp"
#include "spec/read/catalogue.hpp"

namespace ejk::generator {

struct TunedCall {
  std::string name;   // "mean_pooling x=f32[4,16,384] on cpu-avx512-2t"
  std::string place;  // "tuned/cpu-avx512-2t/mean_pooling.jsonl:3"
  std::shared_ptr<const spec::Spec> spec;
  std::shared_ptr<const spec::Binding> binding;
  const spec::Arch* arch = nullptr;                       // of the device, as far as the record tells: the one that extends the others
  std::vector<std::pair<spec::Completed, double>> times;  // microseconds, 0 if not told; the winner first
};

// Of the records in <specs>/tuned those whose winner is of one of the archs. skipped: records that do not count any more, and why.
std::vector<TunedCall> tuned_calls(const spec::Catalogue& catalogue, const Options& options, const std::vector<const spec::Arch*>& archs,
                                   std::vector<std::string>& skipped);

// The arch and, on the CPU, those whose binaries it also runs.
std::vector<const spec::Arch*> archs_below(const spec::Catalogue& catalogue, const spec::Arch* arch);

}  // namespace ejk::generator

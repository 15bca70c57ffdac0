// What references tell of large calls, of small ones: elements of the whole result, for random calls of every kernel.
#include "references/samples.hpp"

namespace ejk::reference {
namespace {

TEST(Samples, AreElementsOfTheOutputsOfEveryKernel) {
  for (const std::string& kernel : reference_names())
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      if (!test::of_the_day(seed, 4)) continue;
      Rng rng(seed);
      const spec::Case c = find_reference(kernel)->random_case(rng);
      expect_samples_of_the_whole(make_call(spec_of(kernel), c, seed, {random_layout(rng), rng.chance(0.5)}));
    }
}

// Of calls with every output, some of each but sums over too much.
TEST(Samples, AreThereForEveryKernel) {
  constexpr std::size_t enough = 100;
  for (const std::string& kernel : reference_names()) {
    std::size_t elements = 0;
    for (std::uint64_t seed = 1; seed <= 20 && elements <= enough; ++seed) {
      Rng rng(seed);
      const Call call = make_call(spec_of(kernel), find_reference(kernel)->random_case(rng), seed);
      for (const auto& [output, sample] : find_reference(kernel)->sample(call, rng)) elements += sample.places.size();
    }
    EXPECT_GT(elements, enough) << kernel;
  }
}

}  // namespace
}  // namespace ejk::reference

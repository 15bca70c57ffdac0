// Checks one image, or one random call, against the float64 reference.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "reference/reference.hpp"
#include "verify/verify_images.hpp"

namespace ejk::tools {

struct VerifyEffort {
  int random = 4;           // varied cases an image, random calls a kernel
  double seconds = 1;       // an image, once the first varied case is done
  double whole_case = 0.5;  // a case of the spec is run whole if the reference needs no more seconds
  bool properties = true;
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> cover;  // draws the pairs of options that run, and the archs of options; without it all run on all
};

struct VerifyOutcome {
  std::string id;                     // the image
  int calls = 0;                      // compared with the reference
  int properties = 0;                 // laws judged
  double worst = 0;                   // largest error over its tolerance
  bool missing = false;               // no binary could be had
  bool refused = false;               // a random call that no variant of this device takes
  std::vector<std::string> failures;  // what failed: the call with its seed, and how
  bool failed() const { return missing || !failures.empty(); }
};

constexpr int attempts_at_the_first = 200;  // a varied case must be found: wide vectors take only some of the odd sizes

struct DrawnCase {
  spec::Case c;
  std::uint64_t seed;
};
// The next variation of a case of the image (of its first, in the second half of the attempts of any) that has elements and that it serves;
// none after so many, which become fewer.
std::optional<DrawnCase> draw_served(const VerifyImage& image, const reference::KernelReference& reference, reference::Rng& seeds,
                                     int& attempts);

// The first of the image's cases that the reference can do whole in so many seconds; null: none.
const spec::Case* whole_case(const VerifyImage& image, double seconds);

// The first case itself if it is small, varied cases in contiguous and other layouts, and the reference's properties. The same seed does
// the same calls in the same order; a slow machine stops earlier.
VerifyOutcome check_image(const VerifyImage& image, const Machine& machine, const reference::KernelReference& reference,
                          const VerifyEffort& effort);

// How the tensors of the random call of that number lie: at random, but one call, which few numbers are enough for, has strides everywhere,
// in inputs and outputs. Variants that only take what is contiguous are found then, and not by chance.
reference::Arrangement arrangement_of_random_call(int index, reference::Rng& rng);

// Any legal call, as users make them: through the config chain, or through the plainest variant that takes it. The outcome's id is the
// image that served it. On the CPU some variant must take every legal call. With effort.cover the third and further calls are made only
// where a store has the image; an outcome without an id is of a call that was not made.
VerifyOutcome check_random_call(const KernelHandle& kernel, const Machine& machine, const reference::KernelReference& reference, int index,
                                bool plainest, const VerifyEffort& effort);

// One of the reference's option cases, on every variant and arch that takes it: an outcome each. With effort.cover on each variant once, on
// one of its archs, the same for all cases; and of two options together only those that this seed draws (pair_drawn): none for the others.
std::vector<VerifyOutcome> check_option_case(const KernelHandle& kernel, const Machine& machine,
                                             const reference::KernelReference& reference, const reference::OptionCase& option,
                                             const VerifyEffort& effort);

}  // namespace ejk::tools

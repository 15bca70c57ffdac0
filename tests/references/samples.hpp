// A sample of a call's outputs against the whole reference.
#pragma once
#include <gtest/gtest.h>

#include <cmath>

#include "references/calls.hpp"

namespace ejk::reference {

inline void expect_samples_of_the_whole(const Call& call) {
  const KernelReference& reference = *find_reference(call.spec->kernel);
  Rng rng(3);
  const Samples samples = reference.sample(call, rng);
  const Values values = reference.compute(call);
  for (const auto& [output, sample] : samples) {
    ASSERT_EQ(sample.places.size(), sample.expected.size());
    for (std::size_t i = 0; i < sample.places.size(); ++i) {
      const double whole = values.at(output).at(static_cast<std::size_t>(sample.places[i]));
      if (whole == sample.expected[i] || (std::isnan(whole) && std::isnan(sample.expected[i]))) continue;
      EXPECT_NEAR(sample.expected[i], whole, 1e-12 * (1 + std::fabs(whole))) << call.label << ": " << output << " " << sample.places[i];
    }
    EXPECT_GE(sample.rounding, 0) << output;
  }
}

}  // namespace ejk::reference

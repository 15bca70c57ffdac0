// The stride of a dim of one element says nothing, so that no variant that copies by tensor maps refuses a call for it: what takes two
// heads, groups or rows takes one.
#include <gtest/gtest.h>

#include <algorithm>

#include "spec/call/binder.hpp"
#include "spec/fault.hpp"
#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"
#include "tests/paths.hpp"

namespace mapped_dims_test {
namespace {

using namespace ejk::spec;

bool maps_tensors(const Variant& variant) {
  return std::ranges::any_of(variant.launches, [](const Launch& launch) {
    return std::ranges::any_of(launch.arguments, [](const Argument& argument) { return argument.kind == Argument::Kind::tensor_map; });
  });
}

// The clause that refuses the case; "" where it is taken or no call.
std::string refused(const Spec& spec, const Variant& variant, const Arch& arch, const Case& c) {
  try {
    return refusal(variant, arch, bind(spec, facts_of(spec, c))).value_or("");
  } catch (const std::runtime_error&) {
    return "";
  }
}

TEST(MappedDims, OfOneElementRefuseNoCallForTheirStride) {
  const auto catalogue = Catalogue::open(ejk::test::source_dir() + "/specs", ejk::test::source_dir() + "/templates");
  const auto& arch = *catalogue.arch("cuda:sm_90a");
  int taken = 0;
  for (const auto& name : catalogue.kernel_names()) {
    const auto spec = catalogue.kernel(name);
    if (spec->same_as) continue;  // its variants are another kernel's
    for (const auto& variant : spec->variants) {
      if (!maps_tensors(variant) || std::ranges::find(variant.archs, "cuda:sm_90a") == variant.archs.end()) continue;
      for (const auto& whole : spec->cases) {
        if (!refused(*spec, variant, arch, whole).empty()) continue;
        ++taken;
        Case heads_of_one = whole;
        for (const auto& [dim, extent] : whole.dims) {
          Case one = whole;
          one.dims[dim] = Value(std::int64_t{1});
          if (dim.starts_with("H")) heads_of_one.dims[dim] = Value(std::int64_t{1});
          const auto clause = refused(*spec, variant, arch, one);
          EXPECT_TRUE(clause.find("stride(") == std::string::npos)
              << name << " " << variant.name << ", " << whole.name << " with " << dim << " 1: " << clause;
        }
        const auto clause = refused(*spec, variant, arch, heads_of_one);
        EXPECT_TRUE(clause.find("stride(") == std::string::npos)
            << name << " " << variant.name << ", " << whole.name << " with one head: " << clause;
      }
    }
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace mapped_dims_test

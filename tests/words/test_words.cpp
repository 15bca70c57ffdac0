// A kernel made of the words for roots, streaming stores, leading dimensions that are one, and tensors of one shape: on the CPU and the
// emulator against the reference, on views of every kind; and its sources for CUDA and HIP.
#include "backends/backend.h"
#include "ejk/library.hpp"
#include "emulator/simt.hpp"
#include "execute/library_state.hpp"
#include "execute/store_fixture.hpp"
#include "reference/reference.hpp"
#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"
#include "tests/paths.hpp"

namespace ejk {
namespace {

const std::string store = test::source_dir() + "/tests/words/data";

class Words : public StoreTest {
 protected:
  void SetUp() override { ASSERT_TRUE(add_store(store)); }
};

void run_on(reference::Call& call, Device device) {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : call.launched()) {
    views[name] = tensor->view();
    views[name].device = device;
  }
  const auto status = ejk::call(call.spec->kernel, views, call.attributes);
  if (!status) throw std::runtime_error(status.error().message);
}

bool rows_step_alike(const reference::Call& call) {
  for (const char* name : {"x", "residual", "out"})
    if (call.given(name) && !std::get<bool>(*call.binding.call("foldable", name, {}))) return false;
  return true;
}

// Views whose rows do not step alike are refused, in words that name the rule.
void verify_on(Device device) {
  auto catalogue = spec::Catalogue::open(store + "/specs", store + "/templates");
  const auto spec = catalogue.kernel("rms_norm");
  const auto& reference = *reference::find_reference("rms_norm");
  reference::Rng rng(7);
  int right = 0, refused = 0;
  for (int i = 0; i < 60; ++i) {
    const auto layout = i % 3 ? reference::random_layout(rng) : reference::Layout{};
    auto call = reference::make_call(*spec, reference.random_case(rng), static_cast<std::uint64_t>(i), {layout, i % 2 == 1});
    if (rows_step_alike(call)) {
      const auto results = reference::verify_call(reference, call, [&](reference::Call& each) { run_on(each, device); });
      EXPECT_EQ(reference::first_failure(results), "") << call.label;
      ++right;
      continue;
    }
    try {
      run_on(call, device);
      ADD_FAILURE() << call.label << ": expected to be refused";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("foldable("), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GE(right, 30);
  EXPECT_GE(refused, 3);
}

TEST_F(Words, TheResultIsTheReferencesOnTheCpu) { verify_on({}); }

TEST_F(Words, TheResultIsTheReferencesOnTheEmulator) {
  add_backend(simt_backend());
  for (const int device : {0, 1, 2}) verify_on({DeviceType::extension, device});
}

TEST_F(Words, SourcesCompileForCudaAndHip) {
  const auto catalogue = spec::Catalogue::open(store + "/specs", store + "/templates");
  const auto spec = catalogue.kernel("rms_norm");
  const auto& variant = *spec->variant("warps");
  int compiled = 0;
  for (const std::string arch_name : {"cuda:sm_80", "cuda:sm_90a", "hip:gfx90a", "hip:gfx1100"}) {
    const auto& arch = *catalogue.arch(arch_name);
    auto& backend = *backend_of(arch.platform);
    if (std::string why_not; !backend.can_compile(arch, why_not)) continue;  // no compiler of that platform here
    for (const auto& c : spec->cases) {
      const auto binding = spec::bind(*spec, spec::facts_of(*spec, c));
      const auto image =
          spec::make_image(*spec, variant, arch, binding, *spec::heuristic_config(variant, arch, binding), catalogue.templates());
      const auto result = backend.compile(image, arch);
      EXPECT_TRUE(result.ok) << image.id << "\n" << result.log;
      ++compiled;
    }
  }
  if (!compiled) GTEST_SKIP() << "neither NVRTC nor a compiler for HIP is here";
}

}  // namespace
}  // namespace ejk

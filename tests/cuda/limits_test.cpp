// Limits and obtaining with the CUDA backend: `ejk build` refuses spills and lost speed, calls do not; a device's refusal costs no stored
// binary.
#include <algorithm>

#include "backends/cuda/cuda.hpp"
#include "cuda/cuda_image.hpp"
#include "cuda/fake_driver.hpp"
#include "store/build.hpp"
#include "store/fixtures.hpp"

namespace ejk::cuda {
namespace {

namespace fs = std::filesystem;

TEST(CudaLimits, ABuildRefusesASpillingKernel) {
  NEEDS_NVRTC();
  const store::Folder folder;
  const store::Store store(folder.path, true);
  const auto arch = cuda_arch("sm_90a");
  auto spilling = cuda_image(spilling_source), fine = cuda_image(small_source);
  spilling.id += ".spilling";
  spilling.limits = fine.limits = {{"spill_bytes", 0}, {"registers", 255}};
  const std::vector<store::BuildItem> items = {{spilling, &arch}, {fine, &arch}};
  const auto report = store::build(store, items, 1, {});
  EXPECT_EQ(report.built, 1u);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_TRUE(
      report.failures[0].starts_with("toy.gpu.cuda_sm_90a.spilling:\nit needs more than its variant's limits allow: spill_bytes is "))
      << report.failures[0];
  EXPECT_NE(report.failures[0].find(", the limit is 0 (compiled by " + nvrtc().description + "); it said:\nptxas info "), std::string::npos)
      << report.failures[0];
  EXPECT_TRUE(fs::exists(store.entry_path(fine) / "binary.cubin"));
  EXPECT_TRUE(fs::exists(store.entry_path(fine) / "source.cu"));
}

// No limit is declared: what ptxas calls a loss is one.
TEST(CudaLimits, ABuildRefusesSerialisedProductsUnlessTheVariantAllowsThem) {
  NEEDS_NVRTC();
  const store::Folder folder;
  const store::Store store(folder.path, true);
  const auto arch = cuda_arch("sm_90a");
  auto refused = cuda_image(serialised_source), allowed = refused;
  allowed.id += ".allowed";
  allowed.limits = {{"performance_losses", 1}};
  const auto report = store::build(store, std::vector<store::BuildItem>{{refused, &arch}, {allowed, &arch}}, 1, {});
  EXPECT_EQ(report.built, 1u);
  ASSERT_EQ(report.failures.size(), 1u);
  EXPECT_TRUE(
      report.failures[0].starts_with("toy.gpu.cuda_sm_90a:\nit needs more than its variant's limits allow: performance_losses is 1, "
                                     "the limit is 0 (compiled by " +
                                     nvrtc().description + "); it said:\n"))
      << report.failures[0];
  EXPECT_NE(report.failures[0].find("wgmma.mma_async instructions are serialized due to "), std::string::npos) << report.failures[0];
  const auto kept = store.find(allowed, "cu", "cubin");
  ASSERT_EQ(kept.verdict, store::Verdict::hit);
  const auto& resources = kept.info.resources;  // what image.json has
  EXPECT_EQ(std::count(resources.begin(), resources.end(), std::pair<std::string, std::int64_t>("performance_losses", 1)), 1);
}

TEST(CudaLimits, ACallUsesASpillingKernelAndTellsIt) {
  NEEDS_NVRTC();
  FakeDriver::reset();
  auto& backend = lasting(make_backend(fake_driver, nvrtc));
  auto image = cuda_image(spilling_source);
  image.limits = {{"spill_bytes", 0}};
  store::Places places;
  store::Tried tried;
  const auto obtained = store::obtain(places, image, cuda_arch("sm_90a"), backend, {}, tried);
  ASSERT_TRUE(obtained);
  EXPECT_TRUE(obtained->above_limits.starts_with("spill_bytes is ")) << obtained->above_limits;
  EXPECT_NE(obtained->module->entry("scale"), nullptr);
}

TEST(CudaLimits, WithoutADeviceAStoredBinaryStaysWhereItIs) {
  NEEDS_NVRTC();
  const store::Folder folder;
  store::Places places;
  places.user.emplace(folder.path, true);
  auto& backend = lasting(make_backend([] { return load_driver({}); }, nvrtc));
  const auto image = cuda_image(small_source, "sm_80");
  const auto arch = cuda_arch("sm_80");
  store::build(*places.user, std::vector<store::BuildItem>{{image, &arch}}, 1, {});
  store::Tried tried;
  EXPECT_THROW(store::obtain(places, image, arch, backend, {}, tried), DeviceError);
  EXPECT_TRUE(fs::exists(places.user->entry_path(image) / "binary.cubin"));
}

}  // namespace
}  // namespace ejk::cuda

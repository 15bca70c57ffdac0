// Hopper's vocabulary: every word compiles for sm_90a alone, without a stack; wgmma in every width.
#include <fmt/format.h>

#include "cuda/cuda_image.hpp"
#include "spec/check/limits.hpp"
#include "spec/render/template.hpp"
#include "tests/paths.hpp"

namespace ejk::cuda {
namespace {

class OnCuda : public spec::Scope {
 public:
  std::optional<spec::Value> lookup(std::string_view name) const override {
    if (name == "arch.platform") return spec::Value(std::string("cuda"));
    return std::nullopt;
  }
};

CompileResult compiled(const std::string& body) {
  static const spec::TemplateLibrary library(test::source_dir() + "/templates");
  const std::string text = "#include \"device/gpu.h\"\n#include \"device/sm90.h\"\n" + body;
  auto image = cuda_image(spec::Template::parse("test", text).render(OnCuda(), library));
  image.flags = {"--diag-suppress=177"};  // words that this kernel does not use
  return compile_cuda_image(nvrtc(), image);
}

// In a kernel of 256 threads: `at` is an address in shared memory, `map` a tensor map, `out` global memory, `n` a number.
CompileResult compiled_statements(const std::string& statements) {
  return compiled(
      "KERNEL(256, 1) kernel(const __grid_constant__ TensorMap map, float* out, int n) {\n"
      "  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared()));\n" +
      statements + "\n}\n");
}

void expect_good(const CompileResult& result) {
  ASSERT_TRUE(result.ok) << result.log;
  EXPECT_EQ(result.log.find("warning"), std::string::npos) << result.log;
  EXPECT_EQ(spec::above_limits({{"spill_bytes", 0}, {"stack_bytes", 0}}, result.resources), "") << result.log;
}

struct Word {
  const char* name;
  const char* statements;
  friend void PrintTo(const Word& word, std::ostream* stream) { *stream << word.name; }
};

const Word words[] = {
    {"Roles", "if (warpgroup() == 1 && elect_one()) out[0] = 1;"},
    {"Registers", "if (warpgroup() == 0) give_registers<40>(); else take_registers<208>();"},
    {"BarriersOfSome", "if (warpgroup() == 0) sync_some(1, 256); else arrive_some(1, 256);"},
    {"Fences", "fence_async(); fence_async_everywhere();"},
    {"MatrixStores",
     "const uint32_t r[4] = {1, 2, 3, 4}; store_matrices(at + lane() * 16, r); store_matrices_transposed(at + lane() * 16, r);"},
    {"Clusters", "sync_cluster(); out[0] = static_cast<float>(cluster_rank() + cluster_blocks());"},
    {"ClusterMemory", "const uint32_t there = address_in_block(at, n); store_to_cluster(there, load_from_cluster(there));"},
    {"OverlappingLaunches", "wait_for_previous_launch(); let_next_launch_go();"},
    {"Barriers",
     "barrier_init(at, 1); fence_barrier_init(); barrier_expect(at, 16); barrier_arrive(at); barrier_arrive_expect(at, 16);"
     "barrier_wait(at, 0); barrier_invalidate(at);"},
    {"ClusterBarriers", "barrier_arrive_in_block(at, n); barrier_wait_cluster(at, 1);"},
    {"TileLoads",
     "prefetch_tensor_map(map); load_tile(at, map, at, {n}); load_tile(at, map, at, {n, 1}); load_tile(at, map, at, {n, 1, 2});"
     "load_tile(at, map, at, {n, 1, 2, 3}, Keep::shortly); load_tile(at, map, at, {n, 1, 2, 3, 4}, Keep::long_time);"},
    {"TileLoadsOfAll",
     "load_tile_multicast(at, map, at, {n}, 3); load_tile_multicast(at, map, at, {n, 1}, 3); load_tile_multicast(at, map, at, {n, 1, 2}, "
     "3);"
     "load_tile_multicast(at, map, at, {n, 1, 2, 3}, 3); load_tile_multicast(at, map, at, {n, 1, 2, 3, 4}, 3, Keep::shortly);"},
    {"TileStores",
     "store_tile(map, {n}, at); store_tile(map, {n, 1}, at); store_tile(map, {n, 1, 2}, at); store_tile(map, {n, 1, 2, 3}, at);"
     "store_tile(map, {n, 1, 2, 3, 4}, at); store_commit(); store_wait_read<1>(); store_wait<0>();"},
    {"TileSums",
     "add_tile(map, {n}, at); add_tile(map, {n, 1}, at); add_tile(map, {n, 1, 2}, at); add_tile(map, {n, 1, 2, 3}, at);"
     "add_tile(map, {n, 1, 2, 3, 4}, at); store_commit(); store_wait<0>();"},
    {"Bytes", "load_bytes(at, out, 64, at); store_bytes(out, at, 64); store_commit(); store_wait<0>();"},
};

class Sm90Word : public testing::TestWithParam<Word> {};

TEST_P(Sm90Word, Compiles) {
  NEEDS_NVRTC();
  expect_good(compiled_statements(GetParam().statements));
}

INSTANTIATE_TEST_SUITE_P(Words, Sm90Word, testing::ValuesIn(words), [](const auto& info) { return std::string(info.param.name); });

// One kernel a width: both places of A, both layouts of B, both types.
class Sm90Products : public testing::TestWithParam<int> {};

TEST_P(Sm90Products, CompileInWidth) {
  NEEDS_NVRTC();
  std::string kernels;
  for (const char* type : {"half", "bfloat16"})
    kernels += fmt::format(R"(
KERNEL(128, 1) products_{0}(float* out, int n) {{
  constexpr int N = {1};
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared()));
  float d[N / 2];
  keep_in_place(d);
  wgmma_fence();
  wgmma<{0}, N>(d, depth_major<128>(at), depth_major<64>(at), false);
  wgmma<{0}, N, true, true>(d, row_major<32>(at, 16), row_major<128>(at, 64), n > 0);
  wgmma<{0}, N, false, true>(d, matrix_in_shared<0>(at, 128, 256), moved(row_major<128>(at, 64), 2048), true);
  const uint32_t a[4] = {{1, 2, 3, 4}};
  wgmma<{0}, N>(d, a, depth_major<128>(at), true);
  wgmma<{0}, N, true>(d, a, row_major<128>(at, 64), true);
  wgmma_commit();
  wgmma_wait<0>();
  keep_in_place(d);
  for (int i = 0; i < N / 2; ++i) out[i * 128 + thread_x()] = d[i];
}}
)",
                           type, GetParam());
  expect_good(compiled(kernels));
}

INSTANTIATE_TEST_SUITE_P(Widths, Sm90Products, testing::Range(8, 257, 8));

TEST(Sm90, OtherArchsRefuseIt) {
  NEEDS_NVRTC();
  const std::string source = "extern \"C\" __global__ void kernel() { asm volatile(\"setmaxnreg.dec.sync.aligned.u32 24;\"); }";
  EXPECT_TRUE(compile_cuda_image(nvrtc(), cuda_image(source, "sm_90a")).ok);
  EXPECT_FALSE(compile_cuda_image(nvrtc(), cuda_image(source, "sm_89")).ok);
}

}  // namespace
}  // namespace ejk::cuda

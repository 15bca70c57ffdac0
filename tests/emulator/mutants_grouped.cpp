// Grouped products: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::grouped {
namespace {

constexpr char walk[] = "device/matrix/grouped_walk.h", rows[] = "tgmm/group_rows.h";
constexpr char product[] = "device/matrix/mma_product.h", waves[] = "device/matrix/wave_product.h",
               wave_rows[] = "device/matrix/wave_rows.h", square[] = "device/matrix/square_product.h";
const Sizes several_groups = {{"M", 300}, {"K", 200}, {"N", 136}, {"G", 7}, {"L", 7}};
const Sizes some_matrices = {{"M", 300}, {"K", 72}, {"N", 136}, {"G", 7}, {"L", 3}};
const Sizes no_groups = {{"M", 65}, {"K", 24}, {"N", 32}, {"G", 0}, {"L", 0}};
const Sizes many_groups = {{"M", 300}, {"K", 24}, {"N", 16}, {"G", 40}, {"L", 40}};
const Sizes several_matrices = {{"M", 300}, {"K", 72}, {"N", 136}, {"G", 4}};
const Sizes many_matrices = {{"M", 300}, {"K", 24}, {"N", 16}, {"G", 40}};

Subject tiles(const char* case_name, Sizes sizes = several_groups) {
  return {root, "grouped_matmul", case_name, "grouped_matmul/forward.matrix.gpu.cu", std::move(sizes)};
}
Subject exact(const char* case_name, Sizes sizes = several_groups) {
  return {root, "grouped_matmul", case_name, "grouped_matmul/forward.fma.gpu.cu", std::move(sizes)};
}
Subject gradient(const char* case_name, Sizes sizes = several_matrices) {
  return {root, "tgmm", case_name, "tgmm/forward.matrix.gpu.cu", std::move(sizes)};
}
Subject exact_gradient(const char* case_name, Sizes sizes = several_matrices) {
  return {root, "tgmm", case_name, "tgmm/forward.fma.gpu.cu", std::move(sizes)};
}

constexpr char matrix[] = "device/matrix/amd_matrix.h";
enum Device { cdna = 1, rdna3 = 2, rdna4 = 3 };
Subject on(Device device, Subject subject) {
  subject.device = device;
  return subject;
}

const Mutant mutants[] = {
    {"TilesWithoutTheBarrier", tiles("small_bf16"), {"sync_block();", 0, nothing, product}},
    {"TilesThatWaitForOneStepLess", tiles("small_bf16"), {"copy_async_wait<STAGES - 2>", 0, "copy_async_wait<STAGES - 1>", product}},
    {"TilesThatDoNotCommit", tiles("small_bf16"), {"copy_async_commit();", 0, ";", product}},
    {"TilesInOnePlace", tiles("small_bf16"), {"step % STAGES * STAGE", 0, "0", product}},
    {"TilesOfAMatrixNotTransposed", tiles("small_bf16"), {"right.load_b_transposed(", 0, "right.load_b(", product}},
    {"TilesOfMatricesInAnotherOrder", tiles("small_bf16"), {"b[2], b[3]", 0, "b[0], b[1]", product}},
    {"TilesThatWriteOthersRows", tiles("small_bf16"), {"if (r >= rows) continue;", 0, nothing, product}},
    {"TilesThatLeaveOutWhatIsThere", tiles("part_16.l3.group_offset2", some_matrices), {"low += ", 0, "low = low + 0 * ", product}},
    {"TilesOfTheNextMatrix", tiles("small_bf16"), {"group - (BATCHED ? 0 : group_offset)", 0, "group - (BATCHED ? 0 : group_offset - 1)"}},
    {"TilesOfMatricesNotHeld", tiles("part_16.l3.group_offset2", some_matrices), {"held_here ? K", 0, "true ? K"}},
    {"TilesPastTheDepth", tiles("small_bf16.transpose_rhs"), {"row < rows && column < columns", 0, "row < rows", product}},
    {"CdnaTilesWithoutTheBarrier", on(cdna, tiles("small_bf16")), {"sync_block();", 0, nothing, waves}},
    {"CdnaTilesInOnePlace", on(cdna, tiles("small_bf16")), {"(k / DEPTH % 2 == 0 ? 0 : STAGE)", 0, "0", waves}},
    {"CdnaTilesOfOtherColumns", on(cdna, tiles("small_bf16")), {"(feature + j) *", 0, "(feature + (j ^ 1)) *", wave_rows}},
    {"CdnaTilesOfOtherRows", on(cdna, tiles("small_bf16")), {"matrix_column();", 0, "15 - matrix_column();", waves}},
    {"CdnaTilesThatWriteOthersRows", on(cdna, tiles("small_bf16")), {"if (r >= rows) continue;", 0, nothing, waves}},
    {"CdnaTilesThatLeaveOutWhatIsThere",
     on(cdna, tiles("part_16.l3.group_offset2", some_matrices)),
     {"sum += to", 0, "sum = sum + 0 * to", waves}},
    {"CdnaTilesWithRowsOfAnotherLane",
     on(cdna, tiles("small_bf16")),
     {"SUMS * (wave_lane() / 16) + i", 0, "SUMS * i + wave_lane() / 16", matrix}},
    {"Rdna3TilesWithTheRowsOfRdna4", on(rdna3, tiles("small_f16")), {"2 * i + wave_lane() / 16", 0, "i + 8 * (wave_lane() / 16)", matrix}},
    {"Rdna4TilesPastTheDepth",
     on(rdna4, tiles("small_bf16.transpose_rhs")),
     {"row < factor.across && depth < left", 0, "row < factor.across", waves}},
    {"Rdna4GradientWithRowsOfTheNextGroup", on(rdna4, gradient("small_bf16")), {"row < left && feature", 0, "feature", wave_rows}},
    {"Rdna3GradientWithoutTheBarrier", on(rdna3, gradient("small_bf16")), {"sync_block();", 0, nothing, waves}},
    {"CdnaExactTilesWithoutTheBarrierAfterCopies", on(cdna, exact("small")), {"sync_block();", 0, nothing, square}},
    {"AWalkThatAddsRowsOfTheNextLane",
     tiles("small_bf16"),
     {"shuffle(my_end, lane() > 0 ? lane() - 1 : 0)", 0, "shuffle(my_end, lane())", walk}},
    {"AWalkThatFindsTheGroupBefore", tiles("small_bf16"), {"<= place) before", 0, "< place) before", walk}},
    {"AWalkThatForgetsRowsOfTheWindowBefore", tiles("small_bf16", many_groups), {"rows_before = rows_until", 0, "rows_before = 0", walk}},
    {"AWalkThatForgetsTilesOfTheWindowBefore",
     tiles("small_bf16", many_groups),
     {"tiles_before += tiles", 0, "tiles_before += 0 * tiles", walk}},
    {"AWalkWithoutRowsOfNoGroup", tiles("small_bf16", no_groups), {"group == groups ? all : 0", 0, "0", walk}},
    {"ExactTilesWithoutTheBarrierAfterCopies", exact("small"), {"sync_block();", 0, nothing, square}},
    {"ExactTilesWithoutTheBarrierBeforeCopies", exact("small"), {"sync_block();", 1, nothing, square}},
    {"ExactTilesOfOtherColumns", exact("small"), {"16 * q + across", 0, "16 * q + 15 - across", square}},
    {"AGradientWithoutTheBarrier", gradient("small_bf16"), {"sync_block();", 0, nothing, product}},
    {"AGradientThatWaitsForOneStepLess",
     gradient("small_bf16"),
     {"copy_async_wait<STAGES - 2>", 0, "copy_async_wait<STAGES - 1>", product}},
    {"AGradientWithRowsOfTheNextGroup", gradient("small_bf16"), {"row < rows && column", 0, "column", product}},
    {"AGradientWithSwappedRows",
     gradient("small_bf16"),
     {"lane() / 8 % 2 * 8", 0, "(1 - lane() / 8 % 2) * 8", "device/tile/tile_transposed.h"}},
    {"AGradientThatIsTransposed", gradient("small_bf16.transpose_rhs"), {"TRANSPOSED ? of_dout : of_lhs", 0, "of_lhs"}},
    {"AGradientOfRowsBefore",
     gradient("small_bf16", many_matrices),
     {"before += shuffle_xor(before, mask)", 0, "before += shuffle_xor(before, 1)", rows}},
    {"AGradientOfTheNextGroup", gradient("small_bf16"), {"other < group;", 0, "other <= group;", rows}},
    {"AnExactGradientWithoutTheBarrierAfterCopies", exact_gradient("small"), {"sync_block();", 0, nothing, square}},
    {"AnExactGradientWithoutTheBarrierBeforeCopies", exact_gradient("small"), {"sync_block();", 1, nothing, square}},
    {"AnExactGradientWithRowsOfTheNextGroup", exact_gradient("small"), {"depth < depths && place", 0, "place", square}},
};

INSTANTIATE_TEST_SUITE_P(Grouped, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Grouped, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::grouped

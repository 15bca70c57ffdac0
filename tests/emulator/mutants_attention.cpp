// Attention, forward: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::attention {
namespace {

// Attention: on matrix instructions, and row by row.
constexpr char tile[] = "device/tile/tile.h";
constexpr char attention_rows[] = "device/attention/attention_rows.h";
constexpr char plain_rows[] = "device/attention/attention_plain.h";
constexpr char warp_attention[] = "flash_attention/mma_attention.h";
constexpr char fragment[] = "device/matrix/fragment.h";

const Sizes several_blocks = {{"B", 1}, {"Sq", 133}, {"Sk", 217}, {"Hq", 6}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};

// No step looks at single keys or values, and finds them undefined.
const Sizes whole_blocks = {{"B", 1}, {"Sq", 64}, {"Sk", 192}, {"Hq", 2}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};

Subject attention(const char* case_name, Sizes sizes = several_blocks) {
  return {root, "flash_attention", case_name, "flash_attention/forward.mma.gpu.cu", std::move(sizes)};
}
Subject plain_attention(const char* case_name, Sizes sizes = one_block) {
  return {root, "flash_attention", case_name, "flash_attention/forward.plain.gpu.cu", std::move(sizes)};
}

// Few query rows: four parts of each kv head's keys on the emulator's processors, two teams of warps a block.
constexpr char split_exchange[] = "flash_attention/split_exchange.h";
constexpr char split_parts[] = "flash_attention/attention_parts.h";

const Sizes few_rows = {{"B", 1}, {"Sq", 5}, {"Sk", 777}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};
const Sizes eight_parts = {{"B", 1}, {"Sq", 5}, {"Sk", 777}, {"Hq", 4}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}};
const Sizes fewer_rows = {{"B", 1}, {"Sq", 3}, {"Sk", 777}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};  // four teams of one warp

Subject split_attention(const char* case_name, Sizes sizes = few_rows) {
  return {root, "flash_attention", case_name, "flash_attention/forward.split.gpu.cu", std::move(sizes)};
}
Subject wave_attention(const char* case_name, Sizes sizes = several_blocks) {
  return {root, "flash_attention", case_name, wave, std::move(sizes)};
}

constexpr char wave_rows[] = "device/matrix/wave_rows.h";

const Mutant mutants[] = {
    {"CdnaAttentionWithoutTheBarrierBeforeItsTiles", on(cdna, wave_attention("cross.bf16", whole_blocks)), {"sync_block();", 0, nothing}},
    {"CdnaAttentionWithoutTheBarrierAfterItsTiles", on(cdna, wave_attention("cross.bf16", whole_blocks)), {"sync_block();", 1, nothing}},
    {"CdnaAttentionWithRowsOfAnotherLane",
     on(cdna, wave_attention("cross.bf16.causal")),
     {"SUMS * (wave_lane() / 16) + i", 0, "SUMS * i + wave_lane() / 16", matrix}},
    {"CdnaAttentionWithTheLargestOfHalfTheColumn",
     on(cdna, wave_attention("cross.bf16")),
     {"mask = 16; mask < WAVE", 0, "mask = 32; mask < WAVE", matrix}},
    {"CdnaAttentionWithTheSumOfHalfTheColumn",
     on(cdna, wave_attention("cross.bf16")),
     {"mask = 16; mask < WAVE", 1, "mask = 32; mask < WAVE", matrix}},
    {"CdnaAttentionWithKOfTheWrongLanes", on(cdna, wave_attention("cross.f16")), {"first_k() * 2", 0, "0", matrix}},
    {"Rdna3AttentionWithTheOddRowsFirst",
     on(rdna3, wave_attention("cross.bf16")),
     {"even = upper ? other : mine", 0, "even = upper ? mine : other", matrix}},
    {"Rdna3AttentionWithTheRowsOfRdna4",
     on(rdna3, wave_attention("cross.bf16.causal")),
     {"2 * i + wave_lane() / 16", 0, "i + 8 * (wave_lane() / 16)", matrix}},
    {"Rdna4AttentionWithTheRowsOfRdna3",
     on(rdna4, wave_attention("cross.bf16.causal")),
     {"SUMS * (wave_lane() / 16) + i", 0, "2 * i + wave_lane() / 16", matrix}},
    {"Rdna4AttentionWithTheKeysOfTheNextTile", on(rdna4, wave_attention("cross.bf16")), {"32 * n, V_PITCH", 0, "32 * (n ^ 1), V_PITCH"}},
    {"CdnaAttentionWithFeaturesOfAnotherRow",
     on(cdna, wave_attention("cross.bf16")),
     {"(feature + j) * TRANSPOSED", 0, "(feature + (j ^ 1)) * TRANSPOSED", wave_rows}},
    {"CdnaPlainAttentionWithOneWeight",
     on(cdna, plain_attention("cross.f32")),
     {"shuffle(weight[r], j)", 0, "shuffle(weight[r], 0)", plain_rows}},
    {"AttentionWithoutTheBarrierOfItsSteps", attention("cross.bf16"), {"sync_block();", 3, nothing}},
    {"AttentionThatDoesNotWait", attention("cross.bf16", whole_blocks), {"copy_async_wait<0>", 2, "copy_async_wait<1>"}},
    {"AttentionThatDoesNotCommit", attention("cross.bf16", whole_blocks), {"copy_async_commit();", 1, ";"}},
    {"AttentionWithOnePlaceForKeys", attention("cross.bf16"), {"(step & (STAGES - 1)) * KTile", 0, "0 * KTile"}},
    {"AttentionWithoutTheBarrierOfItsRanges", attention("cross.bf16.causal"), {"sync_block();", 0, nothing, attention_rows}},
    {"AttentionWithoutTheBarrierBeforeItsStores", attention("cross.bf16"), {"sync_warp();", 1, nothing, warp_attention}},
    {"AttentionWithTheLargestOfHalfTheRow", attention("cross.bf16"), {"shuffle_xor(x, 2)", 0, "shuffle_xor(x, 1)", fragment}},
    {"AttentionWithTheSumOfHalfTheRow", attention("cross.bf16"), {"shuffle_xor(sum, 2)", 0, "shuffle_xor(sum, 1)", warp_attention}},
    {"AttentionThatSeesTheFuture", attention("cross.bf16.causal"), {"lane() % 4 * 2 + i);", 0, "lane() % 4 * 2 + i - 1);", warp_attention}},
    {"AttentionWithSwappedKeys",
     attention("cross.f16"),
     {"lane() % 8 + lane() / 16 * 8, lane() / 8 % 2 * 8", 0, "lane() % 16, lane() / 16 * 8", tile}},
    {"AttentionWithValuesNotTransposed", attention("cross.f16"), {"load_matrices_transposed(b", 0, "load_matrices(b", tile}},
    {"AttentionWithAnotherSequencesItems",
     attention("packed.bf16", {{"N", 3}, {"Tq", 700}, {"Tk", 400}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}}),
     {"shuffle(here, found) - items", 0, "shuffle(here, 0) - items", attention_rows}},
    {"SplitWithoutTheBarrierOfATeam", split_attention("cross.bf16"), {"sync_block();", 0, ";"}},
    {"SplitThatAgreesWithoutABarrier", split_attention("cross.bf16"), {"sync_block();", 0, nothing, split_exchange}},
    {"SplitWithoutTheBarrierAfterItsWeightsChange", split_attention("cross.bf16"), {"sync_block();", 1, nothing}},
    {"SplitWithoutTheBarrierBeforeItsSumsAreRead", split_attention("cross.bf16"), {"sync_block();", 2, nothing}},
    {"SplitThatVotesByWarp", split_attention("cross.bf16"), {"any_in_block(grows)", 0, "any_in_warp(grows)"}},
    {"SplitWithOnePlaceForWeights",
     split_attention("cross.bf16", fewer_rows),
     {"step % 2 * WEIGHTS_BYTES", 0, "0 * WEIGHTS_BYTES", split_exchange}},
    {"SplitWithWeightsOfItsOwnTeam", split_attention("cross.bf16"), {"weights(fellow(team)", 0, "weights(warp()", split_exchange}},
    {"SplitThatAddsUpWithoutABarrier", split_attention("cross.bf16"), {"sync_block();", 0, nothing, split_parts}},
    {"SplitThatAddsUpPartsOfOneWarp", split_attention("cross.bf16", eight_parts), {"number, ROW_WARPS", 0, "0, ROW_WARPS", split_parts}},
    {"SplitThatDoesNotWaitForKeys", split_attention("cross.bf16"), {"(TEAMS == 1 ? 4 : 3)", 0, "(TEAMS == 1 ? 4 : 2)"}},
    {"SplitThatDoesNotWaitForValues", split_attention("cross.bf16"), {"<2 * STAGES - 3>", 0, "<2 * STAGES - 2>"}},
    {"SplitThatSeesTheFuture", split_attention("cross.bf16.causal"), {"8 * h + lane() / 4)", 0, "8 * h + lane() / 4 - 1)"}},
    {"SplitThatForgetsATile", split_attention("cross.bf16"), {"part < longer ? 1 : 0", 0, "0"}},
    {"SplitWithTheLargestOfALane",
     split_attention("cross.bf16"),
     {"largest_of_fragment_column(largest_of_row(s, r, i))", 0, "largest_of_row(s, r, i)"}},
    {"SplitWithValuesOfAnotherKey", split_attention("cross.f16"), {"load_matrices_transposed(a", 0, "load_matrices(a"}},
    {"PlainAttentionWithoutTheBarrierOfItsQueries", plain_attention("cross.f32"), {"sync_warp();", 0, nothing, plain_rows}},
    {"PlainAttentionWithOneWeight", plain_attention("cross.f32"), {"shuffle(weight[r], j)", 0, "shuffle(weight[r], 0)", plain_rows}},
};

INSTANTIATE_TEST_SUITE_P(Attention, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Attention, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::attention

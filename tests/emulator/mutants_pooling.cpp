// Mean pooling, forward and backward: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::pooling {
namespace {

// Pooling: forward and backward, at sizes that reach the lines in question.
constexpr char forward[] = "mean_pooling/forward.gpu.cu";
constexpr char backward[] = "mean_pooling/backward.gpu.cu";
constexpr char numbering[] = "mean_pooling/pooling_numbering.h";
constexpr char counts[] = "mean_pooling/pooling_counts.h";
constexpr char rows[] = "mean_pooling/pooling_rows.h";

Subject pooling(const char* case_name, Sizes sizes = {}) { return {root, "mean_pooling", case_name, forward, std::move(sizes)}; }
Subject pooling_gradient(const char* case_name, Sizes sizes = {}) {
  return {root, "mean_pooling_bwd", case_name, backward, std::move(sizes)};
}

const Sizes long_row = {{"B", 1}, {"S", 200}, {"C", 256}};     // over several warps and blocks
const Sizes few_features = {{"B", 2}, {"S", 60}, {"C", 16}};   // lanes share tokens
const Sizes empty_rows = {{"T", 5}, {"N", 60}, {"C", 24}};     // most sequences have no token
const Sizes packed_rows = {{"T", 190}, {"N", 60}, {"C", 40}};  // of random lengths
const Sizes packed_gradient = {{"T", 190}, {"tokens", 190}, {"N", 60}, {"R", 70}, {"C", 40}};
const Sizes many_rows = {{"T", 9000}, {"N", 5000}, {"C", 2}};  // two blocks number them

// The same templates as AMD's GPUs run them: waves of 64, two warps each, or of 32.
constexpr char amd[] = "device/platform/amd.h";

const Mutant mutants[] = {
    {"CdnaThatShufflesIntoTheOtherHalf", on(cdna, pooling("bert.bf16", few_features)), {"first_of_warp() + (from", 0, "0 + (from", amd}},
    {"CdnaThatReducesAcrossTheHalves", on(cdna, pooling("bert.bf16", few_features)), {"lane() ^ mask", 0, "lane() ^ (2 * mask)", amd}},
    {"CdnaWithoutTheBarrierOfItsWarps", on(cdna, pooling("bert.bf16", long_row)), {"sync_block();", 0, nothing}},
    {"CdnaGradientThatCountsHalfTheLanes",
     on(cdna, pooling_gradient("minilm.bf16", long_row)),
     {"mask = WARP / 2", 0, "mask = WARP / 4", counts}},
    {"RdnaThatShufflesTheWrongWay", on(rdna3, pooling("bert.bf16", few_features)), {"lane() ^ mask", 0, "lane()", amd}},
    {"RdnaNumberingThatScansWithoutBarriers",
     on(rdna4, pooling("packed_chunks.bf16", packed_rows)),
     {"sync_block();", 4, nothing, numbering}},
    {"PoolingWithoutTheBarrierOfItsWarps", pooling("bert.bf16", long_row), {"sync_block();", 0, nothing}},
    {"PoolingWithoutTheBarrierInAWarp", pooling("bert.bf16", long_row), {"sync_warp();", 0, nothing}},
    {"PoolingThatCountsPartsWithoutBarriers", pooling("minilm.bf16", long_row), {"sync_block();", 1, nothing}},
    {"PoolingThatReadsTheCountTooEarly", pooling("minilm.bf16", long_row), {"sync_block();", 2, nothing}},
    {"PoolingThatAddsPartsWithoutBarriers", pooling("bert.bf16", long_row), {"sync_block();", 4, nothing}},
    {"PoolingWithSumsOfAnotherLane", pooling("bert.bf16", long_row), {"[i / WIDE][lane()].at", 0, "[i / WIDE][lane() ^ 1].at"}},
    {"PoolingThatAddsOverTheWrongLanes", pooling("bert.bf16", few_features), {"mask_of_lanes = WARP / side", 0, "mask_of_lanes = 1"}},
    {"PoolingThatClearsTheWrongRows", pooling("packed.bf16", empty_rows), {"(is_empty), from)", 0, "(is_empty), 0)"}},
    {"PoolingThatVotesInABranch", pooling("packed.bf16", empty_rows), {"!any_in_warp(is_empty)", 0, "is_empty && !any_in_warp(is_empty)"}},
    {"PoolingOfMaskedTokens", pooling("minilm.f32"), {"(!MASKED || mask[t + u * side])", 0, "true"}},
    {"PoolingWithTailsInTheSlotOfHeads", pooling("packed.bf16"), {"last.begin < tile_begin ? 0 : 1", 0, "0"}},
    {"PoolingWithTailsOfWarpsInTheSlotOfHeads", pooling("packed.f32"), {"rows.begin < begin ? 0 : 1", 0, "0"}},
    {"PoolingWithoutRowsThatCross", pooling("packed.f32"), {"last.end > tile_end", 0, "false"}},
    {"PoolingThatClearsNoRow", pooling("packed.f32"), {"bool is_empty = mine < rows", 0, "bool is_empty = false"}},
    {"PoolingWithTheCountOfTheWrongSlot", pooling("minilm.f32"), {"partial_count[t * 2 + (t == first_tile)]", 0, "partial_count[t * 2]"}},
    {"PoolingWithTheOffsetsOfTheNextLane", pooling("packed.bf16", packed_rows), {"n - window_begin_)", 0, "n - window_begin_ + 1)", rows}},
    {"NumberingThatAddsWithoutBarriers", pooling("packed_chunks.bf16", packed_rows), {"sync_block();", 1, nothing, numbering}},
    {"NumberingThatReadsTheSumTooEarly", pooling("packed_chunks.bf16", many_rows), {"sync_block();", 2, nothing, numbering}},
    {"NumberingThatOverwritesTheSum", pooling("packed_chunks.bf16", packed_rows), {"sync_block();", 3, nothing, numbering}},
    {"NumberingThatScansWithoutBarriers", pooling("packed_chunks.bf16", packed_rows), {"sync_block();", 4, nothing, numbering}},
    {"NumberingThatScansInPlace", pooling("packed_chunks.bf16", packed_rows), {"sync_block();", 5, nothing, numbering}},
    {"GradientThatCountsHalfTheLanes", pooling_gradient("minilm.bf16", long_row), {"mask = WARP / 2", 0, "mask = WARP / 4", counts}},
    {"GradientOfAnotherTurn", pooling_gradient("minilm.bf16", few_features), {"lane() / lanes, side", 0, "lane() % lanes, side"}},
    {"GradientOfMaskedTokens", pooling_gradient("minilm.f32"), {"visible[u] ? share : Pack<Element, VEC>{}", 0, "share"}},
    {"GradientOverTheWholeRow", pooling_gradient("minilm.f32"), {"visible_tokens(rows, counts, parts)", 0, "rows.end - rows.begin"}},
    {"GradientOfTokensOfNoSequence", pooling_gradient("packed.f32"), {"if (rows.row >= 0) share", 0, "share"}},
    {"GradientOfTheFirstSequence", pooling_gradient("chunks.bf16"), {"rows.sequence * row_count", 0, "0"}},
    {"GradientThatNumbersWithoutBarriers",
     pooling_gradient("packed_chunks.bf16", packed_gradient),
     {"sync_block();", 4, nothing, numbering}},
};

INSTANTIATE_TEST_SUITE_P(Pooling, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Pooling, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::pooling

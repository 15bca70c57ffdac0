// Attention's gradients: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::attention_gradient {
namespace {

// Attention's gradients, likewise.
constexpr char transposed[] = "device/tile/tile_transposed.h";
constexpr char gradient_rows[] = "flash_attention_bwd/attention_backward.h";
constexpr char pair_turns[] = "flash_attention_bwd/pair_turns.h";
constexpr char pair_weights[] = "flash_attention_bwd/pair_weights.h";

const Sizes many_key_blocks = {{"B", 1}, {"Sq", 70}, {"Sk", 1000}, {"Hq", 2}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}};
const Sizes two_key_blocks = {{"B", 1}, {"Sq", 133}, {"Sk", 217}, {"Hq", 2}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}};

Subject attention_gradient(const char* case_name, Sizes sizes = two_key_blocks) {
  return {root, "flash_attention_bwd", case_name, "flash_attention_bwd/backward.mma.gpu.cu", std::move(sizes)};
}
Subject plain_attention_gradient(const char* case_name, Sizes sizes = one_block) {
  return {root, "flash_attention_bwd", case_name, "flash_attention_bwd/backward.plain.gpu.cu", std::move(sizes)};
}

constexpr char wave_gradient_file[] = "flash_attention_bwd/backward.wave.gpu.cu";

Subject wave_gradient(const char* case_name, Sizes sizes = two_key_blocks) {
  return {root, "flash_attention_bwd", case_name, wave_gradient_file, std::move(sizes)};
}

const Sizes dropping = {{"B", 1}, {"Sq", 100}, {"Sk", 120}, {"Hq", 2}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}};
const Sizes a_bias_of_two_heads = {{"B", 1}, {"Sq", 70}, {"Sk", 90}, {"Hq", 2}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}, {"Bb", 1}, {"Hb", 1}};
const Sizes wide_heads = {{"B", 1}, {"Sq", 70}, {"Sk", 90}, {"Hq", 2}, {"Hkv", 1}, {"D", 256}, {"Dv", 256}};

const Mutant mutants[] = {
    {"CdnaGradientWithoutTheBarrierBeforeItsQueries", on(cdna, wave_gradient("cross.bf16")), {"sync_block();", 0, nothing}},
    {"CdnaGradientWithoutTheBarrierAfterItsQueries", on(cdna, wave_gradient("cross.bf16")), {"sync_block();", 1, nothing}},
    {"CdnaGradientWithoutTheBarrierBeforeItsKeys", on(cdna, wave_gradient("cross.bf16")), {"sync_block();", 2, nothing}},
    {"Rdna3GradientWithoutTheBarrierAfterItsKeys", on(rdna3, wave_gradient("cross.bf16")), {"sync_block();", 3, nothing}},
    {"CdnaGradientWithoutTheBarrierBeforeAHeadOfItsBias",
     on(cdna, wave_gradient("bias.bf16.f32", a_bias_of_two_heads)),
     {"sync_block();", 4, nothing}},
    {"CdnaGradientWithoutTheBarrierAfterAHeadOfItsBias",
     on(cdna, wave_gradient("bias.bf16.f32", a_bias_of_two_heads)),
     {"sync_block();", 5, nothing}},
    {"CdnaGradientWithRowsOfAnotherLane",
     on(cdna, wave_gradient("cross.bf16.causal")),
     {"SUMS * (wave_lane() / 16) + i", 0, "SUMS * i + wave_lane() / 16", matrix}},
    {"CdnaGradientWithKOfTheWrongLanes", on(cdna, wave_gradient("cross.f16")), {"first_k() * 2", 0, "0", matrix}},
    {"Rdna3GradientWithTheRowsOfRdna4",
     on(rdna3, wave_gradient("cross.bf16.causal")),
     {"2 * i + wave_lane() / 16", 0, "i + 8 * (wave_lane() / 16)", matrix}},
    {"Rdna3GradientWithTheOddRowsFirst",
     on(rdna3, wave_gradient("cross.bf16")),
     {"even = upper ? other : mine", 0, "even = upper ? mine : other", matrix}},
    {"Rdna4GradientWithTheRowsOfRdna3",
     on(rdna4, wave_gradient("cross.bf16.causal")),
     {"SUMS * (wave_lane() / 16) + i", 0, "2 * i + wave_lane() / 16", matrix}},
    {"Rdna4GradientOfTheNextTile",
     on(rdna4, wave_gradient("cross.bf16")),
     {"X_TRANSPOSED + 2 * n, dp", 0, "X_TRANSPOSED + 2 * (n ^ 16), dp"}},
    {"Rdna4GradientOfHalfItsBlocks", on(rdna4, wave_gradient("gemma.bf16", wide_heads)), {"block_x() % 2 == 0", 0, "block_x() % 4 == 0"}},
    {"CdnaGradientOfKeysWithoutDelta", on(cdna, wave_gradient("cross.bf16")), {"(by_weight - delta)", 0, "by_weight"}},
    {"CdnaGradientWithDropoutOfAnotherQuery",
     on(cdna, wave_gradient("dropout.bf16", dropping)),
     {"wave_lane() / 8 * 8 + i", 0, "wave_lane() / 8 * 8 + (i ^ 1)"}},
    {"Rdna3GradientWithDropoutOfAnotherKey",
     on(rdna3, wave_gradient("dropout.bf16", dropping)),
     {"is_kept(words, first + matrix_row(i))", 0, "is_kept(words, first + i)"}},
    {"CdnaPlainGradientOfOneKey",
     on(cdna, plain_attention_gradient("cross.f32")),
     {"shuffle(mine, j)", 0, "shuffle(mine, 0)", plain_gradient_rows}},
    {"AttentionGradientWithoutTheBarrierOfItsPlan", attention_gradient("cross.bf16"), {"sync_block();", 0, nothing}},
    {"AttentionGradientWithoutTheBarrierOfItsSteps", attention_gradient("cross.bf16"), {"sync_block();", 2, nothing}},
    {"AttentionGradientThatDoesNotWaitForWeights", attention_gradient("cross.bf16"), {"wait_pair(pair);", 0, nothing}},
    {"AttentionGradientOfAnotherStep", attention_gradient("cross.bf16"), {"(turn - 1) % 2 * Shape", 0, "turn % 2 * Shape"}},
    {"AttentionGradientWithoutTheBarrierOfItsBlocks", attention_gradient("deterministic", many_key_blocks), {"sync_block();", 4, nothing}},
    {"AttentionGradientWithoutTheBarrierOfItsQueries", attention_gradient("cross.bf16"), {"any_in_block(bad)", 0, "any_in_warp(bad)"}},
    {"AttentionGradientThatDoesNotWait", attention_gradient("cross.bf16"), {"copy_async_wait<0>", 1, "copy_async_wait<1>"}},
    {"AttentionGradientWithOnePlaceForQueries", attention_gradient("cross.bf16"), {"place(number % 2)", 0, "place(0)", pair_turns}},
    {"AttentionGradientThatSeesTheFuture",
     attention_gradient("cross.bf16.causal"),
     {"% 4 * 2 + i % 2)) s", 0, "% 4 * 2 + i % 2 - 1)) s", pair_weights}},
    {"AttentionGradientWithoutDelta", attention_gradient("cross.bf16"), {" - delta[i / 2].at[j]", 0, nothing, pair_weights}},
    {"AttentionGradientOfSwappedKeys",
     attention_gradient("cross.bf16"),
     {"i % 2 * 8 * PITCH", 0, "(1 - i % 2) * 8 * PITCH", "flash_attention_bwd/tile_store.h"}},
    {"AttentionGradientNotTransposed", attention_gradient("cross.bf16"), {"load_matrices_transposed(a", 0, "load_matrices(a", transposed}},
    {"AttentionGradientOfAnotherStepsDropout",
     attention_gradient("dropout.bf16", {{"B", 1}, {"Sq", 100}, {"Sk", 120}, {"Hq", 2}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}}),
     {"turn % 2 * Weights::KEPT_BYTES", 0, "0 * Weights::KEPT_BYTES"}},
    {"AttentionGradientWithoutItsCopies",
     attention_gradient("deterministic", many_key_blocks),
     {"copy = 1; copy < copies", 0, "copy = 2; copy < copies"}},
    {"AttentionGradientWithSequencesThatOverlap",
     attention_gradient("packed.bf16", {}),
     {"(sequence.first_query / block + sequence.index) * block", 0, "sequence.first_query / block * block", gradient_rows}},
    {"PlainAttentionGradientWithoutTheBarrierOfItsRow",
     plain_attention_gradient("cross.f32"),
     {"sync_warp();", 1, nothing, plain_gradient_rows}},
    {"PlainAttentionGradientOfOneKey",
     plain_attention_gradient("cross.f32"),
     {"shuffle(mine, j)", 0, "shuffle(mine, 0)", plain_gradient_rows}},
};

INSTANTIATE_TEST_SUITE_P(AttentionGradient, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(AttentionGradient, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::attention_gradient

// Linear recurrences and their gradients on AMD's matrix instructions: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::recurrent_amd {
namespace {

// 32 tokens at a time on AMD's matrix instructions.
constexpr char chunk_wave_rows[] = "recurrent/chunk_wave_rows.h";
constexpr char chunk_wave_pairs[] = "recurrent/chunk_wave_pairs.h";
constexpr char chunk_wave_delta[] = "recurrent/chunk_wave_delta.h";
constexpr char chunk_wave_products[] = "recurrent/chunk_wave_products.h";
const Sizes three_short_chunks = {{"B", 1}, {"T", 75}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};
Subject wave_chunks(const char* case_name) {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_wave.gpu.cu", three_short_chunks};
}

constexpr char chunk_wave_keys[] = "recurrent/chunk_wave_keys.h";
constexpr char chunk_wave_key_delta[] = "recurrent/chunk_wave_key_delta.h";
Subject wave_chunks_of_keys(const char* case_name) {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_keys_wave.gpu.cu", three_short_chunks};
}

// Gradients so: five chunks, of which four share a kept state.
const Sizes five_chunks = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};
const Sizes five_chunks_of_two_heads = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 2}, {"Hv", 2}, {"K", 32}, {"V", 72}};
constexpr char chunk_wave_walk[] = "recurrent/chunk_wave_walk.h";
constexpr char chunk_wave_flows[] = "recurrent/chunk_wave_flows.h";
constexpr char chunk_wave_gate_gradients[] = "recurrent/chunk_wave_gate_gradients.h";
constexpr char chunk_wave_finish[] = "recurrent/chunk_wave_finish.h";
Subject gradient_of_wave_chunks(const char* case_name, Sizes sizes = five_chunks) {
  return {root, "recurrent_bwd", case_name, "recurrent/backward.chunk_wave.gpu.cu", std::move(sizes)};
}

const Mutant mutants[] = {
    {"CdnaChunksWithoutTheBarrierBeforeTheirCopies", on(cdna, wave_chunks("chunks.bf16")), {"sync_block();", 0, nothing}},
    {"CdnaChunksWithoutTheBarrierBeforeTheirRows", on(cdna, wave_chunks("chunks.bf16")), {"sync_block();", 1, nothing}},
    {"Rdna3ChunksWithoutTheBarrierBeforeTheirNorms", on(rdna3, wave_chunks("chunks_normed")), {"sync_block();", 2, nothing}},
    {"CdnaChunksWhoseTokensSeeTheNextOne", on(cdna, wave_chunks("chunks.bf16")), {"s <= t ?", 0, "s <= t + 1 ?"}},
    {"CdnaChunksOfTheFirstWavesValues",
     on(cdna, wave_chunks("chunks.bf16")),
     {"(16 * wave() + matrix_column()) * TOKEN", 0, "(0 * wave() + matrix_column()) * TOKEN", chunk_wave_products}},
    {"CdnaChunksWhoseStateForgetsItsUnit", on(cdna, wave_chunks("chunks.f16")), {"scale * unit.inverse", 0, "scale"}},
    {"CdnaChunksWhosePairsHaveOneUnit",
     on(cdna, wave_chunks("chunks.f16")),
     {"inverses[c][16 * r", 0, "inverses[0][16 * r", chunk_wave_pairs}},
    {"CdnaChunksThatDecayByLaterTokens",
     on(cdna, wave_chunks("chunks.bf16")),
     {"count < token + CHUNK ? count : token + CHUNK", 0, "count", chunk_wave_rows}},
    {"Rdna3ChunksWhoseStateIsRoundedOnce",
     on(rdna3, wave_chunks("chunks.bf16")),
     {"(sums.at[i] + least.at[i])", 0, "sums.at[i]", chunk_wave_products}},
    {"Rdna4ChunksThatForgetWhatGatesLeave",
     on(rdna4, wave_chunks("chunks.bf16")),
     {"x * base + (x * rest", 0, "0 * base + (x * rest", chunk_wave_products}},
    {"Rdna4ChunksWithTheNormOfHalfARow",
     on(rdna4, wave_chunks("chunks_normed")),
     {"mask = 1; mask < 8", 0, "mask = 2; mask < 8", chunk_wave_rows}},
    {"Rdna4ChunksThatWriteByTheirQueries",
     on(rdna4, wave_chunks("chunks.bf16")),
     {"TURNED_KEYS, keys, token", 0, "TURNED_KEYS, queries, token"}},
    {"CdnaDeltaChunksWithoutTheBarrierBeforeTheirSystem", on(cdna, wave_chunks("chunks_delta.bf16")), {"sync_block();", 3, nothing}},
    {"CdnaDeltaChunksWhoseKeysReadARoundedState",
     on(cdna, wave_chunks("chunks_delta.bf16")),
     {"int piece = 0; piece < PARTS; ++piece) {\n      const Operand b", 0, "int piece = 0; piece < 1; ++piece) {\n      const Operand b",
      chunk_wave_products}},
    {"CdnaDeltaChunksThatForgetTheUnitOfWhatTheyWrite",
     on(cdna, wave_chunks("chunks_delta.f16")),
     {"rounded, written_unit.inverse", 0, "rounded, 1"}},
    {"Rdna3DeltaChunksWithoutTheBlockBelow",
     on(rdna3, wave_chunks("chunks_delta.bf16")),
     {"x[1].at[i] -= below.at[i]", 0, "x[1].at[i] -= 0 * below.at[i]", chunk_wave_delta}},
    {"Rdna3DeltaChunksWhoseInversesBeginAtTheFirstColumn",
     on(rdna3, wave_chunks("chunks_delta.bf16")),
     {"i == column ? 1 : 0", 0, "i == 0 ? 1 : 0", chunk_wave_delta}},
    {"Rdna4DeltaChunksSolvedWithOneElement",
     on(rdna4, wave_chunks("chunks_delta.bf16")),
     {"int order = 2;", 0, "int order = 0;", chunk_wave_delta}},
    {"CdnaChunksOfKeysWithoutTheBarrierBeforeTheirCopies",
     on(cdna, wave_chunks_of_keys("chunks_keys.bf16")),
     {"sync_block();", 0, nothing}},
    {"CdnaChunksOfKeysWithoutTheBarrierBeforeTheirFactors",
     on(cdna, wave_chunks_of_keys("chunks_keys.bf16")),
     {"sync_block();", 1, nothing}},
    {"CdnaChunksOfKeysWithoutTheBarrierBehindTheirFactors",
     on(cdna, wave_chunks_of_keys("chunks_keys.bf16")),
     {"sync_block();", 2, nothing}},
    {"CdnaChunksOfKeysThatWeighRowsTooEarly", on(cdna, wave_chunks_of_keys("chunks_keys.bf16")), {"sync_block();", 10, nothing}},
    {"CdnaChunksOfKeysWithoutTheBarrierBeforeTheirPairs",
     on(cdna, wave_chunks_of_keys("chunks_keys.bf16")),
     {"weigh_rows(places);\n    sync_block();", 0, "weigh_rows(places);"}},
    {"CdnaChunksOfKeysWhoseKeysAreRoundedOnce",
     on(cdna, wave_chunks_of_keys("chunks_keys.bf16")),
     {"sums.at[i] + least.at[i]", 0, "sums.at[i]", chunk_wave_keys}},
    {"CdnaChunksOfKeysWithTheUnitsOfTheFirstPart",
     on(cdna, wave_chunks_of_keys("chunks_keys.f16")),
     {"at.inverses()[c * KEYS + key]", 0, "at.inverses()[key]", chunk_wave_keys}},
    {"Rdna3ChunksOfKeysThatSumHalfTheLanes",
     on(rdna3, wave_chunks_of_keys("chunks_keys.bf16")),
     {"add_lanes<8>(sums), ", 0, nothing, chunk_wave_keys}},
    {"Rdna3ChunksOfKeysWhoseStateIsThatOfTheirMiddle",
     on(rdna3, wave_chunks_of_keys("chunks_keys.bf16")),
     {"weighed * before)", 0, "weighed)", chunk_wave_keys}},
    {"Rdna4ChunksOfKeysWhosePartsDoNotMeet",
     on(rdna4, wave_chunks_of_keys("chunks_keys.bf16")),
     {"if (part == 0) k =", 0, "if (part > 1) k =", chunk_wave_keys}},
    {"Rdna4ChunksOfKeysWhoseWritesDoNotDecay",
     on(rdna4, wave_chunks_of_keys("chunks_keys.bf16")),
     {"exp2_of(at.logs()[KEYS + key])", 0, "1.0f", chunk_wave_keys}},
    {"CdnaDeltaChunksOfKeysWithoutTheBarrierBeforeTheirSystem",
     on(cdna, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"sync_block();", 4, nothing}},
    {"CdnaDeltaChunksOfKeysWithoutTheBarrierBehindTheirSystem",
     on(cdna, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"sync_block();", 5, nothing}},
    {"CdnaDeltaChunksOfKeysWithoutTheBarrierBeforeTheyRead",
     on(cdna, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"sync_block();", 6, nothing}},
    {"CdnaDeltaChunksOfKeysThatOverwriteWhatTheyRead",
     on(cdna, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"sync_block();", 7, nothing}},
    {"CdnaDeltaChunksOfKeysWithoutTheBarrierBeforeTheLastPiece",
     on(cdna, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"sync_block();", 8, nothing}},
    {"CdnaDeltaChunksOfKeysWhoseWritesForgetTheirUnit",
     on(cdna, wave_chunks_of_keys("chunks_keys_delta.f16")),
     {"at.inverses()[c * KEYS + key] * inverse", 0, "at.inverses()[c * KEYS + key]", chunk_wave_key_delta}},
    {"Rdna3DeltaChunksOfKeysWhosePartsDoNotMeet",
     on(rdna3, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"sum * betas[t]", 0, "0 * sum", chunk_wave_key_delta}},
    {"Rdna3DeltaChunksOfKeysWithoutBetasInTheirSystem",
     on(rdna3, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"x * at.key_norm(t) * betas[t]", 0, "x * at.key_norm(t)", chunk_wave_key_delta}},
    {"Rdna3DeltaChunksOfKeysThatReadTheStateOfTheirMiddle",
     on(rdna3, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"part ? exp2_of(at.logs()[key]) : 1", 0, "1", chunk_wave_key_delta}},
    {"Rdna4DeltaChunksOfKeysThatReadARoundedState",
     on(rdna4, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"of_state + FIRST < 3", 0, "of_state < 1", chunk_wave_key_delta}},
    {"Rdna4DeltaChunksOfKeysWhoseWritesAreRoundedOnce",
     on(rdna4, wave_chunks_of_keys("chunks_keys_delta.bf16")),
     {"int piece = PARTS - 1; piece > 0", 0, "int piece = 0; piece > 0", chunk_wave_key_delta}},
    {"CdnaGradientOfChunksWithoutTheBarrierBehindItsPlan",
     on(cdna, gradient_of_wave_chunks("chunks.f32")),
     {"sync_block();", 0, nothing, chunk_wave_walk}},
    {"CdnaGradientOfChunksWithoutTheBarrierBeforeItsCopies",
     on(cdna, gradient_of_wave_chunks("chunks.f32")),
     {"sync_block();", 1, nothing, chunk_wave_walk}},
    {"CdnaGradientOfChunksWithoutTheBarrierBeforeItsPairs",
     on(cdna, gradient_of_wave_chunks("chunks.f32")),
     {"sync_block();", 2, nothing, chunk_wave_walk}},
    {"CdnaGradientOfChunksWithoutTheBarrierBehindItsPairs",
     on(cdna, gradient_of_wave_chunks("chunks.f32")),
     {"sync_block();", 3, nothing, chunk_wave_walk}},
    {"CdnaGradientOfChunksWithoutItsOwnPairs",
     on(cdna, gradient_of_wave_chunks("chunks.f32")),
     {"BACK ? s >= t", 0, "BACK ? s > t", chunk_wave_walk}},
    {"CdnaGradientOfChunksThatWalksForwardBothWays",
     on(cdna, gradient_of_wave_chunks("chunks.f32")),
     {"BACK ? chunks - 1 - step : step", 0, "step", chunk_wave_walk}},
    {"CdnaGradientOfChunksWhoseStateForgetsItsUnit",
     on(cdna, gradient_of_wave_chunks("chunks_half")),
     {"plan.read_scale() * unit.inverse", 0, "plan.read_scale()", chunk_wave_walk}},
    {"CdnaGradientOfChunksThatReadsItsStatesAsTheyLie",
     on(cdna, gradient_of_wave_chunks("chunks.f32")),
     {"data += column * (stride - 1);", 0, nothing, chunk_wave_walk}},
    {"Rdna3GradientOfChunksWhoseStateIsRoundedOnce",
     on(rdna3, gradient_of_wave_chunks("chunks.f32")),
     {"piece < READ_PARTS", 0, "piece < 1", chunk_wave_walk}},
    {"Rdna3GradientOfChunksThatIsWrittenAtItsOwnNorms",
     on(rdna3, gradient_of_wave_chunks("chunks_gamma", five_chunks_of_two_heads)),
     {"(NORMED ? norms.written[s] : 1) * plan", 0, "(NORMED ? norms.own[s] : 1) * plan", chunk_wave_walk}},
    {"Rdna3GradientOfChunksWhosePairsFlowOneWay",
     on(rdna3, gradient_of_wave_chunks("chunks.f32")),
     {"= read - written;", 0, "= read;", chunk_wave_flows}},
    {"Rdna3GradientOfChunksWhoseKeysTakeTheFlowsOfQueries",
     on(rdna3, gradient_of_wave_chunks("chunks.f32")),
     {"plan.way == OF_KEYS ? SLICES : 0", 0, "0", chunk_wave_flows}},
    {"Rdna4GradientOfChunksThatKeepsTheLastStateAlone",
     on(rdna4, gradient_of_wave_chunks("chunks.f32")),
     {"chunk % KEPT == KEPT - 1 || ", 0, nothing, chunk_wave_flows}},
    {"Rdna4GradientOfChunksThatForgetsWhatFlowsPastTheNext",
     on(rdna4, gradient_of_wave_chunks("chunks.f32")),
     {"past += shuffle(sum, 0)", 0, "past += 0 * shuffle(sum, 0)", chunk_wave_gate_gradients}},
    {"Rdna4GradientOfChunksOfTheFirstReader",
     on(rdna4, gradient_of_wave_chunks("chunks.f32")),
     {"reader < readers", 0, "reader < 1", chunk_wave_finish}},
    {"Rdna4GradientOfChunksThroughHalfTheNorm",
     on(rdna4, gradient_of_wave_chunks("chunks_gamma", five_chunks_of_two_heads)),
     {"along *= norm * norm;", 0, "along *= norm;", chunk_wave_finish}},
};

INSTANTIATE_TEST_SUITE_P(RecurrentAmd, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(RecurrentAmd, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::recurrent_amd

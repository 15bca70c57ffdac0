// Linear recurrences with gates of value features, alone and with gates of key features: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::recurrent_values {
namespace {

constexpr char chunk_value_steps[] = "recurrent/chunk_value_steps.h";
constexpr char chunk_value_delta[] = "recurrent/chunk_value_delta.h";
constexpr char chunk_value_units[] = "recurrent/chunk_value_units.h";
constexpr char chunk_prepare_keys[] = "recurrent/chunk_prepare_keys.h";

// More than two chunks, over parts of the second of which gates leave something.
const Sizes three_chunks = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};

Subject chunks_of_values(const char* case_name = "chunks_values.bf16") {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_values.gpu.cu", three_chunks};
}
Subject chunks_of_both(const char* case_name) {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_keys_values.gpu.cu", three_chunks};
}

// On AMD's matrix instructions.
const Sizes three_short_chunks = {{"B", 1}, {"T", 75}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};
Subject wave_chunks(const char* case_name) {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_values_wave.gpu.cu", three_short_chunks};
}

const Mutant mutants[] = {
    {"ChunksOfValuesWithoutTheBarrierBeforeTheirPairs", chunks_of_values(), {"sync_block();", 3, nothing}},
    {"ChunksOfValuesWhoseHalvesDoNotMeet", chunks_of_values(), {"pairs.across[row / STEP][lane()]", 0, "0"}},
    {"ChunksOfValuesWhoseEarlierHalvesStay", chunks_of_values(), {"kept[0][i] *= factors.halves[1][i / 2];", 0, nothing}},
    {"ChunksOfValuesWithoutGatesOfTokens", chunks_of_values(), {" + more.at[j]", 0, nothing, chunk_value_steps}},
    {"ChunksOfValuesWhoseWritesAreDenormalHalves",
     chunks_of_values("chunks_values_faint"),
     {"= unit_of_sums(kept);", 0, "= Unit(0x1p14f);"}},
    {"DeltaOfValuesWithoutTheBarrierBehindTheirPairs", chunks_of_values("chunks_values_delta.bf16"), {"sync_block();", 3, nothing}},
    {"DeltaOfValuesWhoseStateIsReadOnce", chunks_of_values("chunks_values_delta.bf16"), {"see<DELTA_PIECES>", 0, "see<1>"}},
    {"DeltaOfValuesWhoseWritesAreRoundedOnce",
     chunks_of_values("chunks_values_delta.bf16"),
     {"uint32_t written[${delta ? 'DELTA_PIECES' : '2'}][4];", 0, "uint32_t written[1][4];"}},
    {"DeltaOfValuesWhoseSystemsHaveNoGates",
     chunks_of_values("chunks_values_delta.bf16"),
     {"for (int s = 0; s < T; ++s) own[s] *= gate;", 0, "for (int s = 0; s < T; ++s) own[s] *= 1;", chunk_value_delta}},
    {"DeltaOfValuesWhoseEarlierHalvesStay",
     chunks_of_values("chunks_values_delta.bf16"),
     {"for (int s = 0; LATER && s < HALF; ++s) earlier[s] *= gate;", 0, nothing, chunk_value_delta}},
    {"DeltaOfValuesWhoseHalvesDoNotMeet",
     chunks_of_values("chunks_values_delta.bf16"),
     {"add_pairs<HALF>(read, keys[T], earlier), ", 0, nothing, chunk_value_delta}},
    {"DeltaOfValuesWhoseLaterHalvesSeeAllOfAState",
     chunks_of_values("chunks_values_delta.bf16"),
     {"column.left = before;", 0, nothing, chunk_value_delta}},
    {"DeltaOfValuesWithTheBetasOfTheFirstStep",
     chunks_of_values("chunks_values_delta.bf16"),
     {"all_betas + turn * CHUNK + half + row", 0, "all_betas + turn * CHUNK + half"}},
    {"DeltaOfValuesWithTheBetasOfTheChunkBefore",
     chunks_of_values("chunks_values_delta.bf16"),
     {"all_betas + (1 - turn) * CHUNK", 0, "all_betas + turn * CHUNK"}},
    {"DeltaOfValuesWithoutNormsOfPairs",
     chunks_of_values("chunks_values_delta.bf16"),
     {"NORMED ? norms_of_rows[first + t] * norms.k[first + s] : 1", 0, "1", chunk_value_delta}},
    {"DeltaOfValuesWhoseLargeStatesAreNoHalves",
     chunks_of_values("chunks_values_delta_large"),
     {"const Unit unit = unit_of_sums(state);", 0, "const Unit unit(0x1p14f);"}},
    {"DeltaOfValuesBeforeItsStepIsSeen", chunks_of_values("chunks_values_delta.bf16"), {"sync_warp();", 0, nothing}},
    {"WavesOfValuesWithoutTheBarrierBehindTheirPairs", on(cdna, wave_chunks("chunks_values.bf16")), {"sync_block();", 3, nothing}},
    {"WavesOfValuesWhoseRowsAreNotThere", on(rdna4, wave_chunks("chunks_values.bf16")), {"sync_block();", 1, nothing}},
    {"WavesOfValuesWhoseHalvesDoNotMeet",
     on(cdna, wave_chunks("chunks_values.bf16")),
     {"pairs.add_block(sums[0], operand_of<Element>(scaled(before, written_unit.of)), step, step, written_unit.inverse);", 0, nothing}},
    {"WavesOfValuesWhoseHalvesMeetTwice",
     on(rdna3, wave_chunks("chunks_values.bf16")),
     {"if (t / HALF <= s / HALF) x.at[i] = 0;", 0, nothing}},
    {"WavesOfValuesWhoseEarlierHalvesStay", on(rdna3, wave_chunks("chunks_values.bf16")), {"(t < HALF ? second : 1) * ", 0, nothing}},
    {"WavesOfValuesWhoseLaterHalvesSeeAllOfAState",
     on(cdna, wave_chunks("chunks_values.bf16")),
     {"(own < HALF ? 1 : made.halves[0][matrix_row(i)])", 0, "1"}},
    {"WavesOfValuesThatDecayByTheFirstColumn", on(rdna4, wave_chunks("chunks_values.bf16")), {"made.rest[own]", 0, "made.rest[0]"}},
    {"WavesOfValuesThatTakeInTheFirstStepTwice",
     on(rdna3, wave_chunks("chunks_values.bf16")),
     {"TURNED_KEYS + 32 * step", 0, "TURNED_KEYS"}},
    {"WavesOfValuesRoundedOnce", on(cdna, wave_chunks("chunks_values.bf16")), {"constexpr int PARTS = 2;", 0, "constexpr int PARTS = 1;"}},
    {"WavesOfValuesWithoutGatesOfTokens", on(rdna4, wave_chunks("chunks_values.bf16")), {" + more.at[j]", 0, nothing, chunk_value_steps}},
    {"WavesOfValuesWithoutNormsOfKeys", on(rdna4, wave_chunks("chunks_values_wiped.bf16")), {"(NORMED ? norms.k[row + t] : 1)", 0, "1"}},
    {"WavesOfValuesWhoseStepIsNotMade", on(cdna, wave_chunks("chunks_values.bf16")), {"sync_wave();", 0, nothing}},
    {"WavesOfValuesWhoseLargeStatesAreNoHalves",
     on(rdna3, wave_chunks("chunks_values_large")),
     {"const Unit unit = unit_of(state);", 0, "const Unit unit;"}},
    {"WavesOfValuesWhoseWritesAreDenormalHalves",
     on(rdna4, wave_chunks("chunks_values_faint")),
     {"const Unit taken_unit = unit_of(written);", 0, "const Unit taken_unit;"}},
    {"ChunksOfBothWithoutTheBarrierBeforeTheirRows",
     chunks_of_both("chunks_keys_values.bf16"),
     {"sync_block();  // the chunk is there", 0, "// the chunk is there"}},
    {"ChunksOfBothWhoseHalvesDoNotMeet", chunks_of_both("chunks_keys_values.bf16"), {"pairs.across[row / STEP][lane()]", 0, "0"}},
    {"ChunksOfBothWhosePairsAcrossAreThoseOfTheFirstStep",
     chunks_of_both("chunks_keys_values.bf16"),
     {"rows.load_a(a, PART * part, 16 * k);", 0, "rows.load_a(a, 0, 16 * k);", chunk_prepare_keys}},
    {"ChunksOfBothWhosePairsSeeTheNextToken",
     chunks_of_both("chunks_keys_values.bf16"),
     {"to.own[t / STEP][t / HALF % 2][t % HALF][s % HALF] = weight;", 0, "to.own[t / STEP][t / HALF % 2][s % HALF][t % HALF] = weight;",
      chunk_prepare_keys}},
    {"ChunksOfBothWhoseStepsDecayAlike", chunks_of_both("chunks_keys_values.bf16"), {"decays_here + row / STEP * KEYS", 0, "decays_here"}},
    {"ChunksOfBothThatDecayByTheFirstKey", chunks_of_both("chunks_keys_values.bf16"), {"x * decay.at[i % 2]", 0, "x * decay.at[0]"}},
    {"ChunksOfBothThatKeepWhatValuesForget",
     chunks_of_both("chunks_keys_values.bf16"),
     {"x * factors.base[i / 2] + (x * factors.rest[i / 2]", 0, "x + (0 * factors.rest[i / 2]"}},
    {"ChunksOfBothWhoseKeysAreRoundedOnce",
     chunks_of_both("chunks_keys_values.bf16"),
     {"multiply_two(sums[0], sums[1], written, rest);", 0, nothing}},
    {"ChunksOfBothWhoseValuesAreRoundedOnce",
     chunks_of_both("chunks_keys_values.bf16"),
     {"multiply_two(sums[0], sums[1], written_rest, b);", 0, nothing}},
    {"ChunksOfBothWhoseLaterStepsHaveNoDecays",
     chunks_of_both("chunks_keys_values.bf16"),
     {"i < DECAY_ROW; i += PREPARE_THREADS", 0, "i < KEYS; i += PREPARE_THREADS", chunk_prepare_keys}},
    {"ChunksOfBothWhoseLargeStatesAreNoHalves",
     chunks_of_both("chunks_keys_values_large"),
     {"return common_unit(sums);", 0, "return Unit(0x1p14f);", chunk_value_units}},
    {"ChunksOfBothWhosePairsKeepTheirUnit",
     chunks_of_both("chunks_keys_values_faint"),
     {"across_unit.inverse * units.of_pairs()", 0, "across_unit.inverse"}},
    {"ChunksOfBothWhoseKeysAreDenormalHalves",
     chunks_of_both("chunks_keys_values_faint"),
     {"of_keys(all_rows.keys", 0, "of_keys(0x1p14f", chunk_prepare_keys}},
};

INSTANTIATE_TEST_SUITE_P(RecurrentValues, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(RecurrentValues, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::recurrent_values

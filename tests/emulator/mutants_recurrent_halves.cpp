// Linear recurrences of f16 with the delta rule: mutants of the units that keep numbers within halves (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::recurrent_halves {
namespace {

constexpr char chunk_growth[] = "recurrent/chunk_growth.h", chunk_inverse[] = "recurrent/chunk_inverse.h";
constexpr char chunk_gradients[] = "recurrent/chunk_gradients.h", chunk_gradient_sums[] = "recurrent/chunk_gradient_sums.h";

// More than two chunks, over parts of the second of which gates leave something.
const Sizes three_chunks = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};

// Of values so many that the last slice of them lies in the first stage.
const Sizes chunks_of_more_values = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 72}};

Subject gradient_of_same_keys() {
  return {root, "recurrent_bwd", "chunks_delta_half_same_keys", "recurrent/backward.chunk.gpu.cu", chunks_of_more_values};
}
Subject chunks(const char* case_name) { return {root, "recurrent", case_name, "recurrent/forward.chunk.gpu.cu", three_chunks}; }

const Mutant mutants[] = {
    {"ChunksOfHalvesWhoseLargeStatesAreNoHalves",
     chunks("chunks_delta_large"),
     {"state_unit(largest_size(state))", 0, "state_unit(0x1p14f)"}},
    {"ChunksOfHalvesWhoseLargeWritesAreNoHalves",
     chunks("chunks_delta_large"),
     {"missing_unit(largest_size(sums)", 0, "missing_unit(0x1p14f"}},
    {"ChunksOfHalvesThatWriteNoMoreThanIsMissing",
     chunks("chunks_delta_large"),
     {"<THREADS / WARP>(growth, m)", 0, "<THREADS / WARP>(1, m)", chunk_growth}},
    {"ChunksOfHalvesThatForgetTheGrowthOfNorms",
     chunks("chunks_delta_large"),
     {"if (NORMED) growth *= larger_of(1, norms.k[row]);", 0, nothing, chunk_growth}},
    {"ChunksOfHalvesWithoutTheBarrierBeforeTheirInversesUnit",
     chunks("chunks_delta_large"),
     {"sync_block();\n  if (thread_x() == 0) unit_in", 0, "if (thread_x() == 0) unit_in", chunk_inverse}},
    {"ChunksOfHalvesWhoseStateForgetsItsUnit", chunks("chunks_delta_large"), {"held *= state_unit.inverse;", 0, nothing}},
    {"ChunksOfHalvesThatStoreAStateTimesItsUnit", chunks("chunks_delta_large"), {"' * held'", 0, "''"}},
    {"ChunksOfHalvesWhoseFaintWritesAreDenormal",
     chunks("chunks_delta_faint"),
     {"missing_unit(largest_size(sums)", 0, "missing_unit(0x1p14f"}},
    {"GradientOfHalvesOfAnInverseOfOneHalf",
     gradient_of_same_keys(),
     {"INVERSE_PARTS = 2, PAIR_PARTS", 0, "INVERSE_PARTS = 1, PAIR_PARTS"}},
    {"GradientOfHalvesWhosePairsAreTwice",
     gradient_of_same_keys(),
     {"put_pair_of(rest, slice, taken);", 0, "put_pair_of(rest, slice, scaled);", chunk_gradient_sums}},
    {"GradientOfHalvesWithoutTheBarrierBeforePairsTakeAStage",
     gradient_of_same_keys(),
     {"sync_block();  // all are done with the last stage", 0, "// all are done with the last stage", chunk_gradients}},
};

INSTANTIATE_TEST_SUITE_P(RecurrentHalves, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(RecurrentHalves, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::recurrent_halves

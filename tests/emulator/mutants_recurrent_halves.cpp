// Linear recurrences of f16 with the delta rule: mutants of the units that keep numbers within halves (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::recurrent_halves {
namespace {

constexpr char chunk_growth[] = "recurrent/chunk_growth.h", chunk_inverse[] = "recurrent/chunk_inverse.h";

// More than two chunks, over parts of the second of which gates leave something.
const Sizes three_chunks = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};

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
};

INSTANTIATE_TEST_SUITE_P(RecurrentHalves, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(RecurrentHalves, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::recurrent_halves

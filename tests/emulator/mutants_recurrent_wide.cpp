// Linear recurrences and their gradients with gates of keys and more than 128 key features: mutants of what the GPU templates do otherwise
// then (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::recurrent_wide {
namespace {

constexpr char chunk_prepare_keys[] = "recurrent/chunk_prepare_keys.h";
constexpr char chunk_prepare_passes[] = "recurrent/chunk_prepare_passes.h";
constexpr char chunk_weighed[] = "recurrent/chunk_weighed.h";
constexpr char chunk_key_states[] = "recurrent/chunk_key_states.h";

// More than two chunks; a lane has keys of both halves.
const Sizes three_chunks = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 200}, {"V", 40}};

Subject chunks_of_keys(const char* case_name = "wide_chunks_keys.bf16.k256") {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_keys.gpu.cu", three_chunks};
}
Subject delta_chunks_of_keys(const char* case_name = "wide_chunks_keys_delta.bf16.k256") { return chunks_of_keys(case_name); }
Subject gradient_of_key_chunks() {
  return {root, "recurrent_bwd", "wide_chunks_keys.bf16.k256", "recurrent/backward.chunk_keys.gpu.cu", three_chunks};
}

const Mutant mutants[] = {
    {"WideChunksOfKeysWhoseLaterKeysAreRepeated", chunks_of_keys(), {"keys += 4 * WARP, factors", 0, "factors", chunk_prepare_keys}},
    {"WideChunksOfKeysWithoutTheirLaterKeys",
     chunks_of_keys(),
     {"key < KEYS; key += 4 * WARP", 0, "key < 4 * WARP; key += 4 * WARP", chunk_prepare_keys}},
    {"WideChunksOfKeysWithoutTheLaterHalfOfTheirNearPairs",
     chunks_of_keys(),
     {"${keys > 128 ? 4 : 2} * turn", 0, "2 * turn", chunk_prepare_keys}},
    {"WideChunksOfKeysWithTheFirstPartsMiddleAlone", chunks_of_keys(), {"warp() < 6 + PARTS", 0, "warp() < 7", chunk_prepare_keys}},
    {"WideChunksOfKeysWhoseKeysAreRoundedOnce", chunks_of_keys(), {"int piece = COUNT - 1;", 0, "int piece = 0;", chunk_weighed}},
    {"WideChunksOfKeysWhosePairsKeepTheirUnit",
     chunks_of_keys("wide_chunks_keys_faint_rows"),
     {"of_pairs = units.of_pairs()", 0, "of_pairs = 1"}},
    {"WideChunksOfKeysWhoseKeysAreDenormalHalves",
     chunks_of_keys("wide_chunks_keys_faint_rows"),
     {"of_keys(all_rows.keys", 0, "of_keys(0x1p14f", chunk_prepare_keys}},
    {"WideDeltaChunksOfKeysWhosePairsAreThoseOfTheirLastKeys",
     delta_chunks_of_keys(),
     {"pairs[t * PITCH + s] += x", 0, "pairs[t * PITCH + s] = x", chunk_prepare_passes}},
    {"WideDeltaChunksOfKeysWithoutTheBarrierBetweenTheirKeys",
     delta_chunks_of_keys(),
     {"sync_block();  // all are done with the rows before", 0, "// all are done with the rows before", chunk_prepare_passes}},
    {"WideDeltaChunksOfKeysWhoseInverseOverwritesPairs",
     delta_chunks_of_keys(),
     {"sync_block();  // the inverse takes", 0, "// the inverse takes", chunk_prepare_passes}},
    {"WideDeltaChunksOfKeysWhoseNormsAreOfTheFirstKeys",
     delta_chunks_of_keys(),
     {"i < key_count && token + row < count", 0, "i < 128 && token + row < count", chunk_prepare_passes}},
    {"WideDeltaChunksOfKeysWhoseQueriesOverwriteTheirKeys", delta_chunks_of_keys(), {"sync_block();", 0, nothing}},
    {"WideDeltaChunksOfKeysWhoseKeysAreDenormalHalves",
     delta_chunks_of_keys("wide_chunks_keys_delta_faint_rows"),
     {"has_key ? largest : 0", 0, "0x1p14f", chunk_prepare_passes}},
    {"WideKeyGradientWhoseStatesTakeInKeysRoundedOnce",
     gradient_of_key_chunks(),
     {"take_in_pieces<2, false>", 0, "take_in_pieces<1, false>", chunk_key_states}},
};

INSTANTIATE_TEST_SUITE_P(RecurrentWide, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(RecurrentWide, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::recurrent_wide

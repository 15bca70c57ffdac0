// Gradients of native sparse attention on AMD's matrix instructions: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::sparse_amd {
namespace {

constexpr char gradient[] = "native_sparse_attention/backward.matrix.gpu.cu";
constexpr char gradient_tile[] = "native_sparse_attention/wave_gradient_tile.h";
constexpr char gradient_stage[] = "native_sparse_attention/wave_gradient_stage.h";
constexpr char key_columns[] = "native_sparse_attention/wave_key_columns.h";
constexpr char key_sums[] = "native_sparse_attention/key_sums.h";
constexpr char entries[] = "native_sparse_attention/gradient_entries.h";

// More heads than a wave takes at once, chunks of two pieces, tiles of keys that end in the middle of a wave's.
Subject three_branches(const char* case_name = "all_branches.bf16") {
  return {root,
          "native_sparse_attention_bwd",
          case_name,
          gradient,
          {{"B", 1}, {"T", 110}, {"Hq", 18}, {"Hkv", 1}, {"D", 32}, {"Dv", 48}, {"block_size", 16}, {"block_count", 4}}};
}
// Packed sequences, some shorter than a block, and tokens of none.
Subject packed() {
  return {root,
          "native_sparse_attention_bwd",
          "packed.bf16",
          gradient,
          {{"B", 1},
           {"N", 4},
           {"T", 110},
           {"Hq", 3},
           {"Hkv", 1},
           {"D", 32},
           {"Dv", 32},
           {"block_size", 16},
           {"block_count", 3},
           {"window_left", 20}}};
}
// Blocks of more than a tile of keys, two kv heads, blocks of an odd size.
Subject named_blocks() {
  return {root,
          "apply_native_sparse_attention_bwd",
          "groups.bf16",
          gradient,
          {{"B", 1}, {"T", 150}, {"Hq", 6}, {"Hkv", 2}, {"S", 2}, {"D", 48}, {"Dv", 32}, {"block_size", 67}}};
}
// More blocks than a word has bits.
Subject of_slices(const char* variant, Subject subject) {
  subject.variant = variant, subject.sizes["block_size"] = 1, subject.sizes["block_count"] = 5;
  return subject;
}

const Mutant mutants[] = {
    {"SparseWaveGradientWithoutDelta",
     on(cdna, three_branches()),
     {"(p.at[i] - product) * gate[0]", 0, "p.at[i] * gate[0]", gradient_tile}},
    {"SparseWaveGradientWithoutTheGate",
     on(rdna3, three_branches()),
     {"(p.at[i] - product) * gate[0]", 0, "(p.at[i] - product)", gradient_tile}},
    {"SparseWaveGradientWhoseDeltaIsOfOneLane",
     on(rdna4, three_branches()),
     {"weight = sum_of_column(weight), product = sum_of_column(product);", 0, nothing, gradient_tile}},
    {"SparseWaveGradientThatSeesTheNextKey",
     on(cdna, three_branches()),
     {"key < seen.end ? exp2_of", 0, "key < seen.end + 1 ? exp2_of", gradient_tile}},
    {"SparseWaveGradientThatSeesEarlierKeys", on(rdna3, three_branches()), {"key >= seen.first && key", 0, "key", gradient_tile}},
    {"SparseWaveGradientWithScoresOfTheFirstPiece",
     on(rdna4, three_branches()),
     {"stage.keys().at(first_row, 0)", 0, "stage.keys().at(0, 0)", gradient_tile}},
    {"SparseWaveGradientWithValuesOfTheFirstPiece",
     on(cdna, three_branches()),
     {"stage.values().at(first_row, 0)", 0, "stage.values().at(0, 0)", gradient_tile}},
    {"SparseWaveGradientWithKeysOfTheFirstPiece",
     on(rdna3, three_branches()),
     {"load(16 * f, first_row)", 0, "load(16 * f, 0)", gradient_tile}},
    {"SparseWaveGradientWithoutItsFirstHeads",
     on(rdna4, three_branches()),
     {"matrix_column() < heads ? matrix_column() : 0", 0, "0", gradient_tile}},
    {"SparseWaveGradientThatTurnsKeysTooSoon",
     on(cdna, three_branches()),
     {"if (adds_keys) store_turned", 0, "if (!adds_keys) store_turned", gradient_stage}},
    {"SparseWaveGradientThatCopiesTheFirstPieceTwice",
     on(rdna3, three_branches()),
     {"pieces[row / PIECE]", 0, "pieces[0]", gradient_stage}},
    {"SparseWaveKeysOfTheFirstWave", on(cdna, three_branches()), {"wave() * 16 + matrix_column()", 0, "matrix_column()", key_columns}},
    {"SparseWaveKeysThatSeeEarlierTokens", on(rdna3, three_branches()), {"column() < row.end ?", 0, "true ?", key_columns}},
    {"SparseWaveKeysBehindTheWindow", on(rdna4, three_branches()), {"column() >= row.begin && column()", 0, "column()", key_columns}},
    {"SparseWaveKeysWithoutDelta", on(cdna, three_branches()), {"(s.at[i] - row.delta)", 0, "s.at[i]", key_columns}},
    {"SparseWaveKeysWithRulesOfTheFirstRows", on(rdna3, three_branches()), {"rules + n, unit", 0, "rules, unit", key_columns}},
    {"SparseWaveKeysWithDoutOfTheFirstRows", on(rdna4, three_branches()), {"TURNED_DOUTS + 2 * n", 0, "TURNED_DOUTS", key_columns}},
    {"SparseWaveKeysThatReadBeforeOthersCopied",
     on(cdna, three_branches()),
     {"copy_rows(memory, in, places[i % 2]);\n      sync_block();", 0, "copy_rows(memory, in, places[i % 2]);", key_sums}},
    {"SparseWaveKeysThatCopyBeforeOthersRead",
     on(rdna3, three_branches()),
     {"sync_block();  // all have read the rows of the step before", 0, nothing, key_sums}},
    {"SparseWaveKeysWithoutTheLastStep", on(rdna4, three_branches()), {"+ ROWS - 1) / ROWS;", 0, ") / ROWS;", key_sums}},
    {"SparseWaveKeysThatMeetAStepTwice", on(cdna, three_branches()), {"(i + 2) * ROWS", 0, "(i + 1) * ROWS", key_sums}},
    {"SparseWaveKeysWithRulesOfTheStepBefore",
     on(rdna3, three_branches("all_branches.f16")),
     {"rules[i % 2], in", 0, "rules[0], in", key_sums}},
    {"SparseWaveGradientWithBitsOfAWarp",
     on(cdna, named_blocks()),
     {"bits_of(1 + ${team}()), words, block_indices_view", 0, "bits_of(1 + warp()), words, block_indices_view"}},
    {"SparseWaveKeysThatAreNotStored",
     on(rdna4, named_blocks()),
     {"if (column() >= keys) return;", 0, "if (column() >= keys - 1) return;", key_columns}},
    {"SparsePackedWaveGradientThatClearsTooFewRows", on(rdna3, packed()), {"'THREADS / WARP' : 'WARPS'", 0, "'THREADS' : 'WARPS'"}},
    {"SparseWaveSlicesThatAreAllTheFirst",
     on(rdna4, of_slices("wave_sliced", three_branches())),
     {"static_cast<int>(step * slice_words) * 32", 0, "0", entries}},
    {"SparsePackedWaveSlicesThatAreAllTheFirst",
     on(cdna, of_slices("wave_packed_sliced", packed())),
     {"static_cast<int>(step * slice_words) * 32", 0, "0", entries}},
};

INSTANTIATE_TEST_SUITE_P(SparseAmd, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(SparseAmd, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::sparse_amd

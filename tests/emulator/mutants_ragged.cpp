// Ragged batches over pages: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::ragged {
namespace {

// Ragged batches: two prefills of different lengths and a decode, whose rows share a few blocks.
constexpr char ragged_shares[] = "ragged_page_attention/ragged_shares.h";
constexpr char ragged_copies[] = "ragged_page_attention/ragged_copies.h";
constexpr char stream_rows[] = "ragged_page_attention/stream_rows.h";
constexpr char merge_rows[] = "ragged_page_attention/merge_rows.h";
constexpr char wave_row[] = "ragged_page_attention/wave_row.h";
constexpr char ragged_batch[] = "ragged_page_attention/ragged_batch.h";
constexpr char ragged_write[] = "ragged_page_attention/write.gpu.h";
constexpr char quantise_pack[] = "device/number/quantise_pack.h";

const Sizes narrow_heads = {{"T", 75}, {"N", 4}, {"Hq", 8}, {"Hkv2", 4}, {"D", 64}, {"P", 80}, {"ps", 16}, {"max_pages", 48}, {"L", 45}};

Subject batch(const char* case_name, const char* template_file = "ragged_page_attention/attend.mma.gpu.cu") {
  return {root, "ragged_page_attention", case_name, template_file, narrow_heads};
}

// One sequence alone: with more of them the boundaries of four blocks lie where a wrong count only changes who does what.
Subject one_prefill() {
  const Sizes narrow = {{"T", 40}, {"N", 2}, {"Hq", 4}, {"Hkv2", 2}, {"D", 64}, {"P", 40}, {"ps", 16}, {"max_pages", 24}};
  return {root, "ragged_page_attention", "one_prefill", "ragged_page_attention/attend.mma.gpu.cu", narrow};
}
Subject batch_v3(const char* case_name) {
  return {root, "ragged_page_attention_v3", case_name, "ragged_page_attention/attend.mma.gpu.cu", narrow_heads};
}
// A lane has packs of several rows.
Subject quantised_v3() {
  const Sizes four_packs = {{"T", 20}, {"N", 2}, {"Hq", 8}, {"Hkv2", 8}, {"D", 128}, {"P", 20}, {"ps", 16}, {"max_pages", 8}, {"L", 20}};
  return {root, "ragged_page_attention_v3", "small_quantised_bf16.i8", "ragged_page_attention/attend.mma.gpu.cu", four_packs};
}

const Mutant mutants[] = {
    {"BatchWithoutTheBarrierOfItsTiles", batch("mixed_bf16"), {"sync_block();", 0, ";"}},
    {"BatchThatDoesNotWait", batch("mixed_bf16"), {"copy_async_wait<STAGES - 2>", 0, "copy_async_wait<STAGES - 1>"}},
    {"BatchThatTakesAKeyTwice", batch("mixed_bf16"), {"sub += rows.key_warps", 0, "sub += 1"}},
    {"BatchWithoutTheBarrierBeforeItsSumsAreRead", batch("mixed_bf16"), {"sync_block();", 0, nothing, merge_rows}},
    {"BatchThatForgetsWarps", batch("mixed_bf16"), {"w += row_warps", 1, "w += WARPS", merge_rows}},
    {"BatchThatLeavesTheRest",
     batch("mixed_bf16"),
     {"int64_t{first} * ends.heads + block_x()", 0, "int64_t{tokens} * ends.heads + block_x()", merge_rows}},
    {"BatchOfTheFirstSequence", batch("mixed_bf16"), {"ahead.sequence * cache", 0, "0 * cache", ragged_copies}},
    {"BatchThatSeesTheNextKey", batch("mixed_bf16"), {"larger_of(position + 1, 0)", 0, "larger_of(position + 2, 0)", stream_rows}},
    {"BatchThatSeesHiddenTokens",
     batch("mixed_tree_bf16"),
     {"fresh < tree_mask.shape[1] && row[fresh]", 0, "fresh < tree_mask.shape[1]", stream_rows}},
    {"BatchWithWindowsThatAreLate",
     batch("mixed_window"),
     {"position - walk.shares.window", 0, "position - walk.shares.window + 1", stream_rows}},
    {"BatchThatSkipsTilesOfACutStream", batch("mixed_bf16"), {"in_pass - before - setup", 0, "in_pass - before", ragged_shares}},
    {"BatchThatCountsTilesWrongly", one_prefill(), {"(whole * (whole + 1) / 2 << log)", 0, "(whole * whole / 2 << log)", ragged_shares}},
    {"BatchThatForgetsTheFirstPart", batch("mixed_bf16"), {"block == begins", 0, "false", decode_parts}},
    // A block has more rows than its warps where sequences have more tokens than most.
    {"BatchThatForgetsRowsOfACutStream", one_prefill(), {"row += COMBINE_WARPS * grid_x()", 0, "row += COMBINE_WARPS * 1000"}},
    {"BatchThatWritesKeysAsValues", batch_v3("mixed_bf16"), {"row % 2 == 0 ? keys +", 0, "row % 2 == 1 ? keys +", ragged_write}},
    {"BatchThatWritesATokenInFour", batch_v3("mixed_bf16"), {"block_x()} * WARPS + warp()", 0, "block_x()} * WARPS"}},
    {"BatchThatReadsKeysBeforeTheyAreWritten", batch_v3("mixed_bf16"), {"grid_barrier();", 0, nothing}},
    {"BatchThatWritesToTheFirstSequence", batch_v3("mixed_bf16"), {"low += skipped", 0, "low += 0", ragged_write}},
    {"BatchThatWritesASlotTooFar", batch_v3("mixed_bf16"), {"position % page_size *", 0, "(position + 1) % page_size *", ragged_write}},
    {"BatchThatWritesAPackTwice", quantised_v3(), {"i < AT_ONCE; ++i, from.next()", 0, "i < AT_ONCE; ++i", ragged_write}},
    {"BatchThatQuantisesByTheFirstHeadsScales", quantised_v3(), {"rows.scale(to.row)", 0, "rows.scale(to.row % 2)", ragged_write}},
    {"BatchThatQuantisesANumberTwice", quantised_v3(), {"to_float(x.at[k + 1])", 0, "to_float(x.at[k])", quantise_pack}},
    {"Rdna3BatchThatSeesHiddenKeys",
     on(rdna3, batch("mixed_bf16", "ragged_page_attention/attend.wave.gpu.cu")),
     {"whole || sees.has(first + matrix_row(i))", 0, "true", wave_row}},
    {"CdnaBatchOfOtherRows",
     on(cdna, batch("mixed_bf16", "ragged_page_attention/attend.wave.gpu.cu")),
     {"row / heads_here, sequence", 0, "0 * row / heads_here, sequence"}},
    {"PlainBatchOfTheFirstSequence",
     batch("mixed_f32", "ragged_page_attention/attend.plain.gpu.cu"),
     {"sequence.number * table_stride", 0, "0 * table_stride"}},
    {"PlainBatchThatSeesHiddenTokens",
     batch("mixed_tree_f32", "ragged_page_attention/attend.plain.gpu.cu"),
     {"key >= old_keys &&", 0, "false &&", ragged_batch}},
};

INSTANTIATE_TEST_SUITE_P(Ragged, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Ragged, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::ragged

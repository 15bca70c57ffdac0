// Decoding over pages and over caches in one piece: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::decode {
namespace {

// Paged attention: a few blocks that share all keys.
constexpr char decode_shares[] = "device/attention/decode_shares.h";
constexpr char decode_copies[] = "device/attention/decode_copies.h";
constexpr char page_tile[] = "device/attention/page_tile.h";
constexpr char decode_mma[] = "device/attention/decode_mma.h";
constexpr char decode_wave[] = "device/attention/decode_wave.h";

const Sizes few_sequences = {{"N", 3}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"P", 40}, {"ps", 16}, {"max_pages", 12}};

// Streams have blocks of their own.
const Sizes one_sequence = {{"N", 1}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"P", 60}, {"ps", 16}, {"max_pages", 50}};
const Sizes one_kv_head = {{"N", 2}, {"Hq", 40}, {"Hkv", 1}, {"D", 64}, {"P", 30}, {"ps", 16}, {"max_pages", 12}};

Subject paged(const char* case_name, Sizes sizes = few_sequences) {
  return {root, "page_attention", case_name, "page_attention/decode.gpu.cu", std::move(sizes)};
}

// The same of caches in one piece; what they share with pages has its mutants there.
constexpr char ranges[] = "ragged_decode_attention/ranges.h";
constexpr char one_token[] = "ragged_decode_attention/one_token.h";

const Sizes few_rows_of_tokens = {{"B", 3}, {"S", 190}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};

Subject ragged(const char* case_name, const char* template_file = "ragged_decode_attention/decode.mma.gpu.cu") {
  return {root, "ragged_decode_attention", case_name, template_file, few_rows_of_tokens};
}
Subject wave_ragged(const char* case_name) { return ragged(case_name, "ragged_decode_attention/decode.wave.gpu.cu"); }
Subject plain_ragged(const char* case_name) { return ragged(case_name, "ragged_decode_attention/decode.plain.gpu.cu"); }

constexpr char weigh_rows[] = "device/attention/weigh_rows.h";

Subject wave_paged(const char* case_name, Sizes sizes = few_sequences) {
  return {root, "page_attention", case_name, "page_attention/decode.wave.gpu.cu", std::move(sizes)};
}

const Sizes one_long_sequence = {{"N", 1}, {"Hq", 8}, {"Hkv", 1}, {"D", 64}, {"P", 60}, {"ps", 16}, {"max_pages", 50}};

const Mutant mutants[] = {
    {"Rdna3PagedWithoutTheBarrierAfterItsOutputs",
     on(rdna3, wave_paged("small_bf16.layoutHND")),
     {"sync_block();", 1, nothing, decode_wave}},
    {"CdnaPagedThatSeesHiddenKeys",
     on(cdna, wave_paged("small_bf16.layoutHND")),
     {"keys.has(first + matrix_row(i)) ?", 0, "true ?", decode_wave}},
    {"Rdna4PagedOfOtherHeads", on(rdna4, wave_paged("small_f16.layoutNHD")), {"(head + own) *", 0, "(head + 0 * own) *", decode_wave}},
    {"Rdna3PagedWithTheRowsOfRdna4",
     on(rdna3, wave_paged("small_f16.layoutNHD")),
     {"2 * i + wave_lane() / 16", 0, "i + 8 * (wave_lane() / 16)", matrix}},
    {"CdnaPagedOfOnePart",
     on(cdna, wave_paged("small_bf16.layoutHND", one_long_sequence)),
     {"outputs[i * D + feature]", 0, "outputs[feature]", decode_wave}},
    {"CdnaPagedWithTheReferenceOfOneWave",
     on(cdna, wave_paged("small_quantised_f16.i8.layoutHND")),
     {"softmaxes[w][row], all", 0, "softmaxes[0][row], all", decode_wave}},
    {"PagedWithoutTheBarrierBeforeItsSumsAreRead", paged("small_bf16.layoutHND"), {"sync_block();", 0, nothing, decode_mma}},
    {"PagedWithoutTheBarrierAfterItsSumsAreRead", paged("small_bf16.layoutHND"), {"sync_block();", 1, nothing, decode_mma}},
    {"PagedWithoutTheBarrierOfATeam", paged("gpu_many_heads.hq32", one_kv_head), {"sync_block();", 2, ";", decode_mma}},
    {"PagedThatDoesNotWait", paged("small_bf16.layoutHND"), {"copy_async_wait<STAGES - 2>", 0, "copy_async_wait<STAGES - 1>", decode_mma}},
    {"PagedWithPartsInOneSlot",
     paged("small_bf16.layoutHND"),
     {"Parts::slot(block_x(), begins)", 0, "Parts::slot(block_x(), false)", decode_mma}},
    {"PagedWithTheLargestOfALane",
     paged("small_bf16.layoutHND"),
     {"largest_of_fragment_column(largest[r][i])", 0, "largest[r][i]", weigh_rows}},
    {"PagedThatSeesHiddenKeys", paged("small_bf16.layoutHND"), {"visible ? x : -INFINITE", 0, "x", decode_mma}},
    {"PagedThatCopiesHiddenKeys", paged("small_bf16.layoutHND"), {"static_cast<unsigned>(before + i) < visible", 0, "true", decode_copies}},
    {"PagedThatSkipsTilesOfACutStream", paged("small_bf16.layoutHND"), {"inside - setup", 0, "inside", decode_shares}},
    {"PagedThatSkipsTilesOfAStreamWithBlocksOfItsOwn",
     paged("small_bf16.layoutHND", one_sequence),
     {"inside + share", 0, "inside + share - 1", decode_shares}},
    {"PagedThatForgetsTheLastParts", paged("small_bf16.layoutHND"), {"block_of(begin + tiles - 1)", 0, "block_of(begin)", decode_shares}},
    {"PagedThatDoesNotSwizzleLaterRows", paged("small_bf16.layoutHND"), {"first ^ (i & 7) * 16", 0, "first", page_tile}},
    {"PagedThatForgetsTheFirstPart", paged("small_bf16.layoutHND"), {"block == begins", 0, "false", decode_parts}},
    {"PagedWithSwappedKeys", paged("small_f16.layoutNHD"), {"load_matrices_transposed(a", 0, "load_matrices(a", page_tile}},
    {"PagedWithBytesOfOtherKeys",
     paged("small_quantised_f16.i8.layoutHND"),
     {"swap_middle_bytes(bytes[2 * i])", 0, "bytes[2 * i]", page_tile}},
    {"RaggedThatCopiesHiddenKeys", ragged("small_bf16"), {"static_cast<unsigned>(before + i) < visible", 1, "true", decode_copies}},
    {"RaggedOfTheFirstSequence", ragged("small_bf16"), {"ahead.sequence * cache", 0, "0 * cache", decode_copies}},
    {"RaggedWithValuesOfTheFirstHead",
     ragged("small_f16"),
     {"value_base = base_of(values, kv_head)", 0, "value_base = base_of(values, 0)", decode_copies}},
    {"RaggedThatForgetsItsStart", ragged("small_bf16"), {"end - 1 - window : start", 0, "end - 1 - window : 0", ranges}},
    {"RaggedWithAWindowOfOneMore",
     ragged("window.bf16.window_left5"),
     {"> window ? end - 1 - window", 0, "> window ? end - 2 - window", ranges}},
    {"Rdna3RaggedOfTheFirstSequence", on(rdna3, wave_ragged("small_bf16")), {"key + sequence *", 0, "key + 0 *", decode_wave}},
    {"CdnaRaggedThatForgetsItsStart", on(cdna, wave_ragged("small_f16")), {"end - 1 - window : start", 0, "end - 1 - window : 0", ranges}},
    {"PlainRaggedOfTheFirstSequence", plain_ragged("small_f32"), {"block_x() / group_count", 0, "0"}},
    {"PlainRaggedThatForgetsItsStart", plain_ragged("small_f32"), {"0, start, 1, keys", 0, "0, 0, 1, keys", one_token}},
    {"CdnaPlainRaggedWithAWindowOfOneMore",
     on(cdna, plain_ragged("window.f32.window_left5")),
     {"Visibility{false, window_left", 0, "Visibility{false, window_left + 1"}},
};

INSTANTIATE_TEST_SUITE_P(Decode, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Decode, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::decode

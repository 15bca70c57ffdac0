// The kernels' GPU templates with one word changed: a barrier less, a wrong lane, an offset too far. Every one must be found, or the
// emulator and the references would not find the same mistake in a new kernel. Removals that change nothing are not listed.
#include <gtest/gtest.h>

#include "emulator/trial.hpp"
#include "tests/paths.hpp"

namespace ejk::kernel_mutants_test {
namespace {

struct Row {
  const char* name;
  Subject subject;
  Mutation mutation;
  friend void PrintTo(const Row& row, std::ostream* stream) { *stream << row.name; }
};

const std::string root = test::source_dir();
constexpr char nothing[] = "";
using Sizes = std::map<std::string, std::int64_t>;

// Pooling: forward and backward, at sizes that reach the lines in question.
constexpr char forward[] = "mean_pooling/forward.gpu.cu", backward[] = "mean_pooling/backward.gpu.cu";
constexpr char numbering[] = "mean_pooling/pooling_numbering.h", counts[] = "mean_pooling/pooling_counts.h",
               rows[] = "mean_pooling/pooling_rows.h";

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

// Attention: on matrix instructions, and row by row.
constexpr char tile[] = "device/tile/tile.h", attention_rows[] = "device/attention/attention_rows.h",
               plain_rows[] = "device/attention/attention_plain.h";
constexpr char warp_attention[] = "flash_attention/mma_attention.h", fragment[] = "device/matrix/fragment.h";

const Sizes several_blocks = {{"B", 1}, {"Sq", 133}, {"Sk", 217}, {"Hq", 6}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};
// No step looks at single keys or values, and finds them undefined.
const Sizes whole_blocks = {{"B", 1}, {"Sq", 64}, {"Sk", 192}, {"Hq", 2}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};
const Sizes one_block = {{"B", 1}, {"Sq", 9}, {"Sk", 40}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};

Subject attention(const char* case_name, Sizes sizes = several_blocks) {
  return {root, "flash_attention", case_name, "flash_attention/forward.mma.gpu.cu", std::move(sizes)};
}
Subject plain_attention(const char* case_name, Sizes sizes = one_block) {
  return {root, "flash_attention", case_name, "flash_attention/forward.plain.gpu.cu", std::move(sizes)};
}

// Few query rows: four parts of each kv head's keys on the emulator's processors, two teams of warps a block.
constexpr char split_parts[] = "flash_attention/attention_parts.h";
const Sizes few_rows = {{"B", 1}, {"Sq", 5}, {"Sk", 777}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};
const Sizes eight_parts = {{"B", 1}, {"Sq", 5}, {"Sk", 777}, {"Hq", 4}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}};
const Sizes fewer_rows = {{"B", 1}, {"Sq", 3}, {"Sk", 777}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};  // four teams of one warp
Subject split_attention(const char* case_name, Sizes sizes = few_rows) {
  return {root, "flash_attention", case_name, "flash_attention/forward.split.gpu.cu", std::move(sizes)};
}

// The same templates as AMD's GPUs run them: waves of 64, two warps each, or of 32.
constexpr char amd[] = "device/platform/amd.h";
enum Device { cdna = 1, rdna3 = 2, rdna4 = 3 };

constexpr char wave[] = "flash_attention/forward.wave.gpu.cu", matrix[] = "device/matrix/amd_matrix.h";
Subject wave_attention(const char* case_name, Sizes sizes = several_blocks) {
  return {root, "flash_attention", case_name, wave, std::move(sizes)};
}

Subject on(Device device, Subject subject) {
  subject.device = device;
  return subject;
}

// Paged attention: a few blocks that share all keys.
constexpr char decode_shares[] = "device/attention/decode_shares.h", decode_copies[] = "device/attention/decode_copies.h",
               page_tile[] = "device/attention/page_tile.h", decode_parts[] = "device/attention/decode_parts.h",
               decode_mma[] = "device/attention/decode_mma.h", decode_wave[] = "device/attention/decode_wave.h";

const Sizes few_sequences = {{"N", 3}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"P", 40}, {"ps", 16}, {"max_pages", 12}};
// Streams have blocks of their own.
const Sizes one_sequence = {{"N", 1}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"P", 60}, {"ps", 16}, {"max_pages", 50}};
const Sizes one_kv_head = {{"N", 2}, {"Hq", 40}, {"Hkv", 1}, {"D", 64}, {"P", 30}, {"ps", 16}, {"max_pages", 12}};

Subject paged(const char* case_name, Sizes sizes = few_sequences) {
  return {root, "page_attention", case_name, "page_attention/decode.gpu.cu", std::move(sizes)};
}

// The same of caches in one piece; what they share with pages has its mutants there.
constexpr char ranges[] = "ragged_decode_attention/ranges.h", one_token[] = "ragged_decode_attention/one_token.h";
const Sizes few_rows_of_tokens = {{"B", 3}, {"S", 190}, {"Hq", 8}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}};

Subject ragged(const char* case_name, const char* template_file = "ragged_decode_attention/decode.mma.gpu.cu") {
  return {root, "ragged_decode_attention", case_name, template_file, few_rows_of_tokens};
}
Subject wave_ragged(const char* case_name) { return ragged(case_name, "ragged_decode_attention/decode.wave.gpu.cu"); }
Subject plain_ragged(const char* case_name) { return ragged(case_name, "ragged_decode_attention/decode.plain.gpu.cu"); }

// Latent attention's decode: two query tokens; rows that take two turns of features; keys for several warps.
constexpr char latent_keys[] = "mla_decode/latent_keys.h";
const Sizes few_latents = {{"N", 2}, {"Sq", 2}, {"H", 2}, {"R", 272}, {"Dr", 16}, {"P", 20}, {"ps", 16}, {"max_pages", 10}};
const Sizes few_bytes = {{"N", 2}, {"Sq", 1}, {"H", 2}, {"R", 256}, {"Dr", 8}, {"P", 20}, {"ps", 16}, {"max_pages", 4}};
const Sizes few_slots = {{"N", 2}, {"Sq", 2}, {"H", 2}, {"R", 32}, {"Dr", 8}, {"P", 5}, {"ps", 16}, {"M", 60}};
Subject latents(const char* case_name, Sizes sizes = few_latents) {
  return {root, "mla_decode", case_name, "mla_decode/decode.plain.gpu.cu", std::move(sizes)};
}

// The same on matrix instructions: two parts of several tiles; more heads than a row tile has.
const Sizes latents_of_two_parts = {{"N", 4}, {"Sq", 1}, {"H", 20}, {"R", 128}, {"Dr", 16}, {"P", 40}, {"ps", 16}, {"max_pages", 30}};
const Sizes bytes_of_two_parts = {{"N", 1}, {"Sq", 1}, {"H", 3}, {"R", 256}, {"Dr", 16}, {"P", 40}, {"ps", 16}, {"max_pages", 20}};
Subject matrix_latents() { return {root, "mla_decode", "paged_bf16", "mla_decode/decode.mma.gpu.cu", latents_of_two_parts}; }
Subject matrix_bytes() { return {root, "mla_decode", "bytes.bf16", "mla_decode/decode.mma.gpu.cu", bytes_of_two_parts}; }

// Ragged batches: two prefills of different lengths and a decode, whose rows share a few blocks.
constexpr char ragged_shares[] = "ragged_page_attention/ragged_shares.h", ragged_copies[] = "ragged_page_attention/ragged_copies.h",
               stream_rows[] = "ragged_page_attention/stream_rows.h", merge_rows[] = "ragged_page_attention/merge_rows.h",
               weigh_rows[] = "device/attention/weigh_rows.h", wave_row[] = "ragged_page_attention/wave_row.h",
               ragged_batch[] = "ragged_page_attention/ragged_batch.h", ragged_write[] = "ragged_page_attention/write.gpu.h";
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

// Recurrences, a token at a time; the gradient over more tokens than a chunk has.
constexpr char recurrent_token[] = "recurrent/recurrent_token.h", recurrent_step[] = "recurrent/recurrent_step.h";
const Sizes some_steps = {{"B", 1}, {"T", 9}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 35}, {"V", 21}};
const Sizes two_chunks_of_steps = {{"B", 1}, {"T", 40}, {"Hq", 1}, {"Hk", 1}, {"Hv", 2}, {"K", 35}, {"V", 21}};
Subject recurrence(const char* case_name) { return {root, "recurrent", case_name, "recurrent/forward.step.gpu.cu", some_steps}; }
const Sizes few_steps = {{"B", 1}, {"T", 7}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 70}, {"V", 45}};
// Each block has several items.
const Sizes few_steps_of_many = {{"B", 8}, {"N", 12}, {"T", 3}, {"Hq", 8}, {"Hk", 8}, {"Hv", 8}, {"K", 70}, {"V", 48}};
Subject recurrence_of_few(const char* case_name, Sizes sizes = few_steps) {
  return {root, "recurrent", case_name, "recurrent/forward.decode.gpu.cu", std::move(sizes)};
}
Subject recurrence_gradient(const char* case_name) {
  return {root, "recurrent_bwd", case_name, "recurrent/backward.step.gpu.cu", two_chunks_of_steps};
}

// Recurrent layers: blocks that keep their weights and meet after each step; a launch a step where there are more features than those hold.
constexpr char rnn_step[] = "rnn/rnn_step.h", rnn_gates[] = "rnn/rnn_gates.h";
const Sizes two_blocks_a_direction = {{"B", 3}, {"T", 5}, {"I", 9}, {"H", 20}};
const Sizes two_parts_of_features = {{"B", 3}, {"T", 3}, {"I", 5}, {"H", 70}};
const Sizes more_than_blocks_keep = {{"B", 2}, {"T", 3}, {"I", 5}, {"H", 140}};
Subject layer(const char* case_name, Sizes sizes = two_blocks_a_direction) {
  return {root, "rnn", case_name, "rnn/forward.gpu.cu", std::move(sizes)};
}
Subject layer_gradient(const char* case_name, Sizes sizes = two_blocks_a_direction) {
  return {root, "rnn_bwd", case_name, "rnn/backward.gpu.cu", std::move(sizes)};
}

// 64 tokens at a time: more than two chunks, over parts of the second of which gates leave something.
constexpr char chunk_gates[] = "recurrent/chunk_gates.h", chunk_products[] = "recurrent/chunk_products.h",
               chunk_matrix[] = "recurrent/chunk_matrix.h", chunk_prepare[] = "recurrent/chunk_prepare.h";
const Sizes three_chunks = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};
Subject chunks(const char* case_name) { return {root, "recurrent", case_name, "recurrent/forward.chunk.gpu.cu", three_chunks}; }
Subject chunks_of_keys(const char* case_name) {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_keys.gpu.cu", three_chunks};
}

// Attention's gradients, likewise.
constexpr char transposed[] = "device/tile/tile_transposed.h", gradient_rows[] = "flash_attention_bwd/attention_backward.h";
constexpr char plain_gradient_rows[] = "flash_attention_bwd/attention_backward_plain.h", pair_turns[] = "flash_attention_bwd/pair_turns.h";
constexpr char pair_weights[] = "flash_attention_bwd/pair_weights.h";

const Sizes many_key_blocks = {{"B", 1}, {"Sq", 70}, {"Sk", 1000}, {"Hq", 2}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}};
const Sizes two_key_blocks = {{"B", 1}, {"Sq", 133}, {"Sk", 217}, {"Hq", 2}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}};

Subject attention_gradient(const char* case_name, Sizes sizes = two_key_blocks) {
  return {root, "flash_attention_bwd", case_name, "flash_attention_bwd/backward.mma.gpu.cu", std::move(sizes)};
}
Subject plain_attention_gradient(const char* case_name, Sizes sizes = one_block) {
  return {root, "flash_attention_bwd", case_name, "flash_attention_bwd/backward.plain.gpu.cu", std::move(sizes)};
}

constexpr char wave_gradient_file[] = "flash_attention_bwd/backward.wave.gpu.cu", wave_rows[] = "device/matrix/wave_rows.h";
Subject wave_gradient(const char* case_name, Sizes sizes = two_key_blocks) {
  return {root, "flash_attention_bwd", case_name, wave_gradient_file, std::move(sizes)};
}
Subject wave_paged(const char* case_name, Sizes sizes = few_sequences) {
  return {root, "page_attention", case_name, "page_attention/decode.wave.gpu.cu", std::move(sizes)};
}
const Sizes one_long_sequence = {{"N", 1}, {"Hq", 8}, {"Hkv", 1}, {"D", 64}, {"P", 60}, {"ps", 16}, {"max_pages", 50}};
const Sizes dropping = {{"B", 1}, {"Sq", 100}, {"Sk", 120}, {"Hq", 2}, {"Hkv", 1}, {"D", 64}, {"Dv", 64}};
const Sizes a_bias_of_two_heads = {{"B", 1}, {"Sq", 70}, {"Sk", 90}, {"Hq", 2}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}, {"Bb", 1}, {"Hb", 1}};
const Sizes wide_heads = {{"B", 1}, {"Sq", 70}, {"Sk", 90}, {"Hq", 2}, {"Hkv", 1}, {"D", 256}, {"Dv", 256}};

// A mask of blocks: runs of several and of single blocks, steps that they do not fill, rows without any; more blocks than a warp has lanes.
constexpr char block_steps[] = "blocksparse_attention/block_steps.h", key_blocks[] = "blocksparse_attention/key_blocks.h",
               block_rows[] = "blocksparse_attention/block_rows.h";
const Sizes some_blocks = {{"B", 1}, {"Sq", 133}, {"Sk", 217}, {"Hq", 4}, {"Hkv", 2}, {"Hm", 4}, {"D", 64}, {"Dv", 64}};
const Sizes many_blocks = {{"B", 1}, {"Sq", 40}, {"Sk", 650}, {"Hq", 2}, {"Hkv", 2}, {"Hm", 2}, {"D", 64}, {"Dv", 64}};
Subject blocks(const char* case_name, Sizes sizes = some_blocks, const char* template_file = "flash_attention/forward.mma.gpu.cu") {
  return {root, "blocksparse_attention", case_name, template_file, std::move(sizes)};
}
Subject wave_blocks(const char* case_name) { return blocks(case_name, some_blocks, wave); }
Subject gradient_of_blocks(const char* case_name) {
  return {root, "blocksparse_attention_bwd", case_name, "flash_attention_bwd/backward.plain.gpu.cu", some_blocks};
}
Subject plain_blocks(const char* case_name) { return blocks(case_name, some_blocks, "blocksparse_attention/forward.plain.gpu.cu"); }

const Row mutants[] = {
    {"LayerWithoutTheGridBarrier", layer("cells.f32.cell_typelstm"), {"grid_barrier();", 0, nothing}},
    {"LayerWithOnePlaceForStates", layer("cells.f32.cell_typelstm"), {"(number + 1) % 2", 0, "number % 2"}},
    {"LayerWhoseSecondDirectionIsTheFirst", layer("cells.f32.cell_typelstm"), {"layer.tokens - 1 - number : number", 0, "number : number"}},
    {"LayerThatLeavesStatesPastTheLength", layer("cells.f32.cell_typelstm"), {"valid ? state : 0.0f", 0, "state"}},
    {"LayerThatGoesPastTheLength", layer("cells.f32.cell_typelstm"), {"token < lengths[row]", 0, "true"}},
    {"LayerThatForgetsByTheInputGate", layer("cells.f32.cell_typelstm"), {"in[1] + back[1]", 0, "in[0] + back[0]", rnn_gates}},
    {"LayerWhoseResetGateSparesTheBias",
     layer("cells.f32.cell_typegru"),
     {"(back[2] + recurrent_bias)", 0, "back[2] + recurrent_bias", rnn_gates}},
    {"LayerWithTheBiasOfNTwice", layer("cells.f32.cell_typegru"), {"!(GRU && column >= 2 * features)", 0, "true"}},
    {"LayerThatSumsHalfTheLanes", layer("small.f32"), {"mask < PARTS", 0, "mask < PARTS / 2", rnn_step}},
    {"LayerWithoutTheBarrierBeforeItsTile", layer("small.f32", two_parts_of_features), {"sync_block();", 0, nothing, rnn_step}},
    {"LayerWithoutTheBarrierBehindItsTile", layer("small.f32", two_parts_of_features), {"sync_block();", 1, nothing, rnn_step}},
    {"LayerThatBringsWeightsTooEarly", layer("small.f32", more_than_blocks_keep), {"sync_block();", 0, nothing, rnn_step}},
    {"LayerGradientOfTheTokenItself",
     layer_gradient("cells.f32.cell_typelstm"),
     {"token - 1 : token + 1;\n    multiply", 0, "token : token;\n    multiply"}},
    {"LayerGradientThatKeepsGatesPastTheLength", layer_gradient("cells.f32.cell_typelstm"), {"gate[g * features] = 0;", 0, nothing}},
    {"LayerGradientOfTheMemoryAfter", layer_gradient("small.f32"), {"token - 1;\n  if", 0, "token;\n  if"}},
    {"LayerGradientWhoseSecondDirectionIsTheFirst",
     layer_gradient("cells.f32.cell_typegru"),
     {"d == 1 ? token + 1 : token - 1", 0, "token - 1"}},
    {"LayerGradientWithoutWhatTheUpdateGateLeaves", layer_gradient("cells.f32.cell_typegru"), {"past = dstate * update;", 0, nothing}},
    {"LayerGradientWhoseResetGateSparesTheProduct", layer_gradient("cells.f32.cell_typegru"), {"= dn * reset;", 0, "= dn;"}},
    {"LayerGradientThatAddsUpBiasesTooEarly", layer_gradient("cells.f32.cell_typelstm"), {"sync_block();", 0, nothing}},
    {"LayerGradientWithBiasesOverwritten", layer_gradient("cells.f32.cell_typegru"), {"sync_block();", 1, nothing}},
    {"LayerThatBringsWeightsOfOneFeature", layer("small.f32", more_than_blocks_keep), {"number % FEATURES", 0, "0"}},
    {"BlocksWhoseRunsBeginOneEarly", blocks("cross.bf16"), {"(mine * size)", 0, "((mine - 1) * size)", block_steps}},
    {"BlocksWhoseRunsEndOneLate", blocks("cross.bf16"), {"(mine * size)", 1, "((mine + 1) * size)", block_steps}},
    {"BlocksWhoseRunsEndWithTheWarp", blocks("small_blocks.bf16", many_blocks), {"? before :", 0, "? false :", block_steps}},
    {"BlocksNumberedFromZeroInEachWarp", blocks("small_blocks.bf16", many_blocks), {"begun += shuffle", 0, "begun = shuffle", block_steps}},
    {"BlocksCopiedTwice", blocks("cross.bf16"), {"kv_head, ahead);", 0, "kv_head, keys);"}},
    {"BlocksWhosePartialStepsAreWhole", blocks("cross.bf16"), {"keys.end - keys.first == BLOCK_N && ", 0, nothing}},
    {"BlocksThatSeeKeysAfterThem", blocks("cross.bf16"), {"both(rows.range[at], of)", 0, "rows.range[at]", block_steps}},
    {"BlocksThatSeeKeysAfterTheQuery", blocks("cross.bf16.causal"), {"both(rows.range[at], of)", 0, "of", block_steps}},
    {"BlocksOfTheFirstHead", blocks("cross.bf16"), {"mask.shape[1] == 1 ? 0 : head", 0, "0", block_steps}},
    {"BlocksOfTheNextQueries", blocks("cross.bf16"), {"item % parts * BLOCK_M", 0, "(item % parts + 1) * BLOCK_M"}},
    {"PlainBlocksThatSeeAllWhereNoneIsLeft", plain_blocks("cross.f32"), {"return {end, end};", 0, "return {first, end};", key_blocks}},
    {"PlainBlocksThatSeeKeysAfterThem", plain_blocks("cross.f32"), {"static_cast<int>(run.end)}", 0, "seen[r].end}", block_rows}},
    {"PlainBlocksInChunksOfOne", plain_blocks("chunks.f32"), {"position - position % chunk", 0, "position", key_blocks}},
    {"PlainBlocksGradientThatSeesAllBlocks",
     gradient_of_blocks("cross.f32"),
     {"if (!visibility.has_block(", 0, "if (false && !visibility.has_block(", plain_gradient_rows}},
    {"PlainBlocksGradientOfAnotherBlock", gradient_of_blocks("cross.f32"), {"key / block_k", 0, "key / (block_k + 1)", key_blocks}},
    {"CdnaBlocksThatSeeKeysAfterThem", on(cdna, wave_blocks("cross.bf16")), {"both(here.range, of)", 0, "here.range"}},
    {"Rdna4BlocksThatSkipTheSecondStep", on(rdna4, wave_blocks("cross.bf16")), {"at = keys.end;", 0, "at = keys.end + KEYS;", block_steps}},
    {"LatentsOfTheNextTableEntry", latents("paged"), {"table[key / cache", 0, "table[(key + 1) / cache", latent_keys}},
    {"LatentsWhoseValuesAreRope",
     latents("paged"),
     {"latent_of(value.latent, turn + WARP * k + lane(), dim)", 0, "rope_of(value.rope, lane() % 16)"}},
    {"LatentsWhoseFirstQuerySeesTheLastKey", latents("paged"), {"length - queries + 1 + i", 0, "length", latent_keys}},
    {"LatentsByTheScaleOfTheOtherHalf", latents("bytes.f32", few_bytes), {"d / 128 * 4", 0, "(d / 128 ^ 1) * 4", latent_keys}},
    {"LatentsWithRopeBytesSwapped", latents("bytes.f32", few_bytes), {"rope[2 * d]) << 16", 0, "rope[2 * d]) << 8", latent_keys}},
    {"LatentsThatMergeWithoutReferences",
     latents("paged"),
     {"sums[w][feature] * factor_of(softmaxes[w], all.reference)", 0, "sums[w][feature]"}},
    {"LatentsThatMergeTooEarly", latents("paged"), {"sync_block();", 0, nothing}},
    {"LatentsOverwrittenBeforeTheyAreMerged", latents("paged"), {"sync_block();", 1, nothing}},
    {"LatentsWhoseMissingSlotIsTheFirst",
     latents("sparse", few_slots),
     {"LatentRow{nullptr, nullptr} : cache", 0, "cache.slot(0) : cache", latent_keys}},
    {"MatrixLatentsWithoutTheBarrierOfTheirTile", matrix_latents(), {"sync_block();", 0, nothing}},
    {"MatrixLatentsWithoutTheBarrierOfTheirScores", matrix_latents(), {"sync_block();", 1, nothing}},
    {"MatrixLatentsWithoutTheBarrierOfTheirWeights", matrix_latents(), {"sync_block();", 2, nothing}},
    {"MatrixLatentsOverwrittenTooEarly", matrix_latents(), {"sync_block();", 3, nothing}},
    {"MatrixLatentsThatDoNotWait", matrix_latents(), {"copy_async_wait<STAGES - 1>", 0, "copy_async_wait<STAGES>"}},
    {"MatrixLatentsWhoseFirstRowsKeepTheirReference", matrix_latents(), {"o[m][f][2 * half_rows] *= factor, ", 0, nothing}},
    {"MatrixLatentsWhoseValuesAreRope", matrix_latents(), {"warp() * FEATURES + f * 16", 0, "warp() * FEATURES + f * 16 + ROPE"}},
    {"MatrixLatentsThatAddPartsUpAsTheyAre", matrix_latents(), {" * factor_of(softmaxes[part], all.reference);", 1, ";"}},
    {"MatrixLatentsByTheFirstScale", matrix_bytes(), {"% 2) * BLOCKS + block]", 0, "% 2) * BLOCKS]"}},
    {"MatrixLatentsWhoseValuesHaveTheFirstScale", matrix_bytes(), {"warp() * FEATURES / (R / BLOCKS)", 0, "0"}},
    {"RecurrenceThatSumsHalfTheKeys", recurrence("all.f32"), {"mask < WARP;", 0, "mask < WARP / 2;", recurrent_token}},
    {"RecurrenceOfTheSameKeysInEachPart", recurrence("all.f32"), {"j * PARTS + part", 0, "j * PARTS", recurrent_token}},
    {"RecurrenceThatWritesPastTheLastFeature", recurrence("all.f32"), {"left < VEC ? static_cast<int>(left) : VEC", 0, "VEC"}},
    {"RecurrenceThatGoesForwardInReverse", recurrence("plain.f32.reverse"), {"reverse ? place - 1 : place + 1", 0, "place + 1"}},
    {"RecurrenceThatForgetsWhatAGateLeaves", recurrence("all.f32"), {"x * base + x * rest", 0, "x * rest", recurrent_step}},
    {"RecurrenceThatAddsWhatTheKeyReads", recurrence("all.f32"), {"x.beta * (w - sum", 0, "x.beta * (w + sum"}},
    {"RecurrenceWhoseFactorsOverKeysAreFirstOnes", recurrence("all.f32"), {"x.gate + x.gk[j]", 0, "x.gate + x.gk[0]", recurrent_token}},
    {"DecodeThatReadsRowsTooEarly", recurrence_of_few("all.f32"), {"sync_block();", 0, nothing}},
    {"DecodeThatAddsUpWhatKeysReadTooEarly", recurrence_of_few("all.f32"), {"sync_block();", 1, nothing}},
    {"DecodeThatAddsUpTheLastTokenTooEarly", recurrence_of_few("all.f32"), {"sync_block();", 2, nothing}},
    {"DecodeWithOnePlaceForPreparedRows", recurrence_of_few("value_gates"), {"memory.rows[turn]", 0, "memory.rows[0]"}},
    {"DecodeWithOnePlaceForWhatQueriesRead", recurrence_of_few("value_gates"), {"memory.parts.read[turn]", 0, "memory.parts.read[0]"}},
    {"DecodeThatDoesNotWaitForTheState", recurrence_of_few("decode.f32.b1", few_steps_of_many), {"copy_async_wait<0>();", 0, nothing}},
    {"DecodeOfEveryOtherItem",
     recurrence_of_few("decode.f32.b1", few_steps_of_many),
     {"number += grid_x();\n      more", 0, "number += 2 * grid_x();\n      more"}},
    {"DecodeThatForgetsEmptySequences", recurrence_of_few("packed.f32", few_steps_of_many), {"item.after && !IN_PLACE", 0, "false"}},
    {"DecodeThatSumsHalfTheKeys", recurrence_of_few("all.f32"), {"mask = GROUPS; mask < 32", 0, "mask = GROUPS; mask < 16"}},
    {"DecodeWithTheGatesOfAnotherKey", recurrence_of_few("all.f32"), {"key_of(rows.rest, first, j)", 0, "key_of(rows.rest, first, 0)"}},
    {"DecodeThatWritesPastTheLastFeature", recurrence_of_few("all.f32"), {"left < VEC ? static_cast<int>(left) : VEC", 0, "VEC"}},
    {"ChunksWithoutTheBarrierBeforeTheirRows", chunks("chunks.bf16"), {"sync_block();", 1, nothing}},
    {"ChunksWithoutTheBarrierBeforeTheirPairs", chunks("chunks.bf16"), {"sync_block();", 3, nothing}},
    {"ChunksWhoseTokensSeeTheNextOne", chunks("chunks.bf16"), {"s <= t ?", 0, "s <= t + 1 ?"}},
    {"ChunksWhoseStateIsRoundedOnce", chunks("chunks.bf16"), {"(sums[n][i] + sums[2 + n][i])", 0, "sums[n][i]", chunk_products}},
    {"ChunksThatForgetWhatGatesLeave", chunks("chunks.bf16"), {"x * base + (x * rest", 0, "0 * base + (x * rest", chunk_products}},
    {"ChunksWhoseGatesAreThoseOfTheTokenBefore", chunks("chunks.bf16"), {"i ? sum : first", 0, "first", chunk_gates}},
    {"ChunksWhoseInverseIsOfItsDiagonal", chunks("chunks_delta.bf16"), {"= -sum;", 0, "= 0 * sum;", chunk_matrix}},
    {"ChunksWhoseInverseIsRoundedOnce", chunks("chunks_delta.bf16"), {"product == 1 ? Square::BYTES : 0", 0, "0", chunk_products}},
    {"ChunksThatInvertWithoutABarrier", chunks("chunks_delta.bf16"), {"sync_block();", 0, nothing, chunk_matrix}},
    {"ChunksOfKeysWithoutTheBarrierBeforeTheirRows", chunks_of_keys("chunks_keys.bf16"), {"sync_block();", 1, nothing}},
    {"ChunksOfKeysThatSkipAPart",
     chunks_of_keys("chunks_keys.bf16"),
     {"part = from + 1; part < to", 0, "part = from; part < to", chunk_prepare}},
    {"ChunksOfKeysThatDecayByTheFirstKey", chunks_of_keys("chunks_keys.bf16"), {"decay.at[i % 2]", 0, "decay.at[0]"}},
    {"ChunksOfKeysWithoutTheBarrierOfTheirPairs", chunks_of_keys("chunks_keys.bf16"), {"sync_block();", 2, nothing, chunk_prepare}},
    {"ChunksOfKeysWhoseEarlyKeysAreRoundedOnce",
     chunks_of_keys("chunks_keys_delta.f16"),
     {"add_seen<false>(seen, state, KeyTile{stage + EARLY_KEYS + KeyTile::BYTES}, unit);", 0, nothing}},
    {"ChunksOfKeysWhosePairsOfPartsAreRoundedOnce",
     chunks_of_keys("chunks_keys_delta.f16"),
     {"multiply_two(of_keys[0], of_keys[1], a, b_rest);", 0, nothing, chunk_prepare}},
    {"RecurrentGradientThatAddsUpTooEarly", recurrence_gradient("all.f32"), {"sync_block();", 0, nothing}},
    {"RecurrentGradientOverwrittenBeforeItIsAddedUp", recurrence_gradient("all.f32"), {"sync_block();", 1, nothing}},
    {"RecurrentGradientWithOneStateAChunk", recurrence_gradient("all.f32"), {"keep_state(recent + t * PART", 0, "keep_state(recent"}},
    {"RecurrentGradientThatKeepsTheFirstChunk", recurrence_gradient("all.f32"), {"t % CHUNK == 0", 0, "t == 0"}},
    {"RecurrentGradientWithoutTheReadByTheKey", recurrence_gradient("all.f32"), {"d.k[j] -= state[j][c] * d.v[c], ", 0, nothing}},
    {"RecurrentGradientThroughHalfTheNorm",
     recurrence_gradient("all.f32"),
     {"sum_over_parts(dot) * inverse * inverse", 0, "sum_over_parts(dot) * inverse"}},
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
    {"CdnaAttentionWithoutTheBarrierBeforeItsTiles", on(cdna, wave_attention("cross.bf16", whole_blocks)), {"sync_block();", 0, nothing}},
    {"CdnaAttentionWithoutTheBarrierAfterItsTiles", on(cdna, wave_attention("cross.bf16", whole_blocks)), {"sync_block();", 1, nothing}},
    {"CdnaAttentionWithRowsOfAnotherLane",
     on(cdna, wave_attention("cross.bf16.causal")),
     {"SUMS * (wave_lane() / 16) + i", 0, "SUMS * i + wave_lane() / 16", matrix}},
    {"CdnaAttentionWithTheLargestOfHalfTheColumn",
     on(cdna, wave_attention("cross.bf16")),
     {"mask = 16; mask < WAVE", 0, "mask = 32; mask < WAVE", matrix}},
    {"CdnaAttentionWithTheSumOfHalfTheColumn",
     on(cdna, wave_attention("cross.bf16")),
     {"mask = 16; mask < WAVE", 1, "mask = 32; mask < WAVE", matrix}},
    {"CdnaAttentionWithKOfTheWrongLanes", on(cdna, wave_attention("cross.f16")), {"first_k() * 2", 0, "0", matrix}},
    {"Rdna3AttentionWithTheOddRowsFirst",
     on(rdna3, wave_attention("cross.bf16")),
     {"even = upper ? other : mine", 0, "even = upper ? mine : other", matrix}},
    {"Rdna3AttentionWithTheRowsOfRdna4",
     on(rdna3, wave_attention("cross.bf16.causal")),
     {"2 * i + wave_lane() / 16", 0, "i + 8 * (wave_lane() / 16)", matrix}},
    {"Rdna4AttentionWithTheRowsOfRdna3",
     on(rdna4, wave_attention("cross.bf16.causal")),
     {"SUMS * (wave_lane() / 16) + i", 0, "2 * i + wave_lane() / 16", matrix}},
    {"Rdna4AttentionWithTheKeysOfTheNextTile", on(rdna4, wave_attention("cross.bf16")), {"32 * n, V_PITCH", 0, "32 * (n ^ 1), V_PITCH"}},
    {"CdnaAttentionWithFeaturesOfAnotherRow",
     on(cdna, wave_attention("cross.bf16")),
     {"(feature + j) * TRANSPOSED", 0, "(feature + (j ^ 1)) * TRANSPOSED", wave_rows}},
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
    {"CdnaPlainGradientOfOneKey",
     on(cdna, plain_attention_gradient("cross.f32")),
     {"shuffle(mine, j)", 0, "shuffle(mine, 0)", plain_gradient_rows}},
    {"CdnaPlainAttentionWithOneWeight",
     on(cdna, plain_attention("cross.f32")),
     {"shuffle(weight[r], j)", 0, "shuffle(weight[r], 0)", plain_rows}},
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
    {"AttentionWithoutTheBarrierOfItsSteps", attention("cross.bf16"), {"sync_block();", 2, nothing}},
    {"AttentionThatDoesNotWait", attention("cross.bf16", whole_blocks), {"copy_async_wait<0>", 1, "copy_async_wait<1>"}},
    {"AttentionThatDoesNotCommit", attention("cross.bf16", whole_blocks), {"copy_async_commit();", 1, ";"}},
    {"AttentionWithOnePlaceForKeys", attention("cross.bf16"), {"(step & (STAGES - 1)) * KTile", 0, "0 * KTile"}},
    {"AttentionWithoutTheBarrierOfItsRanges", attention("cross.bf16.causal"), {"sync_block();", 0, nothing, attention_rows}},
    {"AttentionWithoutTheBarrierBeforeItsStores", attention("cross.bf16"), {"sync_warp();", 1, nothing, warp_attention}},
    {"AttentionWithTheLargestOfHalfTheRow", attention("cross.bf16"), {"shuffle_xor(x, 2)", 0, "shuffle_xor(x, 1)", fragment}},
    {"AttentionWithTheSumOfHalfTheRow", attention("cross.bf16"), {"shuffle_xor(sum, 2)", 0, "shuffle_xor(sum, 1)", warp_attention}},
    {"AttentionThatSeesTheFuture", attention("cross.bf16.causal"), {"lane() % 4 * 2 + i);", 0, "lane() % 4 * 2 + i - 1);", warp_attention}},
    {"AttentionWithSwappedKeys",
     attention("cross.f16"),
     {"lane() % 8 + lane() / 16 * 8, lane() / 8 % 2 * 8", 0, "lane() % 16, lane() / 16 * 8", tile}},
    {"AttentionWithValuesNotTransposed", attention("cross.f16"), {"load_matrices_transposed(b", 0, "load_matrices(b", tile}},
    {"AttentionWithAnotherSequencesItems",
     attention("packed.bf16", {{"N", 3}, {"Tq", 700}, {"Tk", 400}, {"Hq", 4}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}}),
     {"shuffle(here, found) - items", 0, "shuffle(here, 0) - items", attention_rows}},
    {"SplitWithoutTheBarrierOfATeam", split_attention("cross.bf16"), {"sync_block();", 1, ";"}},
    {"SplitThatAgreesWithoutABarrier", split_attention("cross.bf16"), {"sync_block();", 0, nothing}},
    {"SplitWithoutTheBarrierAfterItsWeightsChange", split_attention("cross.bf16"), {"sync_block();", 2, nothing}},
    {"SplitWithoutTheBarrierBeforeItsSumsAreRead", split_attention("cross.bf16"), {"sync_block();", 3, nothing}},
    {"SplitThatVotesByWarp", split_attention("cross.bf16"), {"any_in_block(grows)", 0, "any_in_warp(grows)"}},
    {"SplitWithOnePlaceForWeights", split_attention("cross.bf16", fewer_rows), {"step % 2 * WEIGHTS_BYTES", 0, "0 * WEIGHTS_BYTES"}},
    {"SplitWithWeightsOfItsOwnTeam", split_attention("cross.bf16"), {"weights(fellow(team)", 0, "weights(warp()"}},
    {"SplitThatAddsUpWithoutABarrier", split_attention("cross.bf16"), {"sync_block();", 0, nothing, split_parts}},
    {"SplitThatAddsUpPartsOfOneWarp", split_attention("cross.bf16", eight_parts), {"number, ROW_WARPS", 0, "0, ROW_WARPS", split_parts}},
    {"SplitThatDoesNotWaitForKeys", split_attention("cross.bf16"), {"(TEAMS == 1 ? 4 : 3)", 0, "(TEAMS == 1 ? 4 : 2)"}},
    {"SplitThatDoesNotWaitForValues", split_attention("cross.bf16"), {"<2 * STAGES - 3>", 0, "<2 * STAGES - 2>"}},
    {"SplitThatSeesTheFuture", split_attention("cross.bf16.causal"), {"8 * h + lane() / 4)", 0, "8 * h + lane() / 4 - 1)"}},
    {"SplitThatForgetsATile", split_attention("cross.bf16"), {"part < longer ? 1 : 0", 0, "0"}},
    {"SplitWithTheLargestOfALane",
     split_attention("cross.bf16"),
     {"largest_of_fragment_column(largest_of_row(s, r, i))", 0, "largest_of_row(s, r, i)"}},
    {"SplitWithValuesOfAnotherKey", split_attention("cross.f16"), {"load_matrices_transposed(a", 0, "load_matrices(a"}},
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
    {"BatchThatWritesKeysAsValues", batch_v3("mixed_bf16"), {"row % 2 == 0 ? keys[", 0, "row % 2 == 1 ? keys[", ragged_write}},
    {"BatchThatWritesASlotTooFar", batch_v3("mixed_bf16"), {"position % page_size *", 0, "(position + 1) % page_size *", ragged_write}},
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
    {"PlainAttentionWithoutTheBarrierOfItsQueries", plain_attention("cross.f32"), {"sync_warp();", 0, nothing, plain_rows}},
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
    {"PlainAttentionWithOneWeight", plain_attention("cross.f32"), {"shuffle(weight[r], j)", 0, "shuffle(weight[r], 0)", plain_rows}},
};

class KernelMutant : public ::testing::TestWithParam<Row> {};

TEST_P(KernelMutant, IsFound) {
  const auto mutant = try_template(GetParam().subject, GetParam().mutation);
  EXPECT_NE(mutant.verdict, Verdict::right) << "no call shows the change";
  EXPECT_NE(mutant.verdict, Verdict::broken) << mutant.words;
}

// What is changed is right before: else any mutant would be found. Named by the first mutant of its subject.
class KernelMutantsOriginal : public ::testing::TestWithParam<Row> {};

TEST_P(KernelMutantsOriginal, IsRight) {
  const auto original = try_template(GetParam().subject, std::nullopt);
  EXPECT_EQ(original.verdict, Verdict::right) << original.words;
}

std::string name_of(const ::testing::TestParamInfo<Row>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(All, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(All, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Row>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants_test

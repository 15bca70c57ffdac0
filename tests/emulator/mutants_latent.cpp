// Latent attention: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::latent {
namespace {

// Latent attention's decode: two query tokens; rows that take two turns of features; keys for several warps.
constexpr char latent_keys[] = "mla_decode/latent_keys.h", finish_parts[] = "mla_decode/finish_parts.h";

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

// Bytes that become halves in registers: two parts of more tiles than there is room for, listed, some of them none, scores far apart; heads
// of one row tile, and of more.
constexpr char byte_rows[] = "mla_decode/mma_bytes_rows.h", byte_scores[] = "mla_decode/mma_bytes_scores.h",
               byte_weights[] = "mla_decode/mma_bytes_weights.h", byte_values[] = "mla_decode/mma_bytes_values.h";

Subject few_heads_of_bytes() {
  return {root,
          "mla_decode",
          "steep_bytes",
          "mla_decode/decode_mma_bytes.gpu.cu",
          {{"N", 1}, {"Sq", 1}, {"H", 3}, {"R", 512}, {"Dr", 64}, {"P", 40}, {"ps", 16}, {"M", 330}}};
}
Subject pages_of_bytes() {
  return {root,
          "mla_decode",
          "seven_tiles.u8.h16",
          "mla_decode/decode_mma_bytes.gpu.cu",
          {{"N", 1}, {"Sq", 1}, {"H", 3}, {"R", 512}, {"Dr", 64}, {"P", 8}, {"ps", 64}, {"max_pages", 7}}};
}
Subject many_heads_of_bytes() {
  return {root,
          "mla_decode",
          "heads_of_two_tiles.u8.h64",
          "mla_decode/decode_mma_bytes.gpu.cu",
          {{"N", 1}, {"Sq", 1}, {"H", 40}, {"R", 512}, {"Dr", 64}, {"P", 20}, {"ps", 16}, {"max_pages", 12}}};
}

// Latent attention whole: latent features that take two turns.
constexpr char latent_call[] = "mla_attention/latent_call.h", latent_products[] = "mla_attention/plain_products_gpu.h";

Subject windowed_attention() {
  return {root,
          "mla_attention",
          "windowed",
          "mla_attention/attend.plain.gpu.cu",
          {{"B", 2}, {"Sq", 5}, {"Sk", 60}, {"H", 2}, {"Dn", 20}, {"Dr", 8}, {"R", 272}, {"Dv", 20}}};
}
Subject paged_attention() {
  return {root,
          "mla_attention",
          "paged.f32",
          "mla_attention/attend.plain.gpu.cu",
          {{"N", 2}, {"H", 2}, {"Dn", 20}, {"Dr", 8}, {"R", 272}, {"Dv", 20}, {"P", 20}, {"ps", 16}, {"max_pages", 10}}};
}

// The same on matrix instructions: keys made for a head, by flash_attention's tiles; and absorbed queries, by mla_decode's, in two parts.
constexpr char expand_entries[] = "mla_attention/expand_entries.h", join_entry[] = "mla_attention/join_entry.h",
               absorbed_entries[] = "mla_attention/absorbed_entries.h";

Subject expanded_attention() {
  return {root,
          "mla_attention",
          "windowed",
          "flash_attention/forward.mma.gpu.cu",
          {{"B", 2}, {"Sq", 7}, {"Sk", 60}, {"H", 3}, {"Dn", 16}, {"Dr", 16}, {"R", 40}, {"Dv", 24}}};
}
Subject absorbed_attention() {
  return {root,
          "mla_attention",
          "decode.bf16",
          "mla_decode/decode.mma.gpu.cu",
          {{"B", 2}, {"Sq", 1}, {"Sk", 300}, {"H", 3}, {"Dn", 16}, {"Dr", 16}, {"R", 128}, {"Dv", 16}}};
}

Subject latent_gradients() {
  return {root,
          "mla_attention_bwd",
          "windowed",
          "mla_attention_bwd/backward.plain.gpu.cu",
          {{"B", 2}, {"Sq", 4}, {"Sk", 11}, {"H", 2}, {"Dn", 5}, {"Dr", 3}, {"R", 40}, {"Dv", 6}}};
}

// The same by expanded keys: keys in two blocks, several steps of rows and of products; keys that no query sees.
constexpr char prepared_rows[] = "mla_attention_bwd/prepare_entry.h", gradient_products[] = "mla_attention_bwd/product_entries.h",
               gradient_rows[] = "mla_attention_bwd/row_entries.h";

Subject expanded_gradients() {
  return {root,
          "mla_attention_bwd",
          "windowed",
          "flash_attention_bwd/backward.mma.gpu.cu",
          {{"B", 2}, {"Sq", 40}, {"Sk", 100}, {"H", 2}, {"Dn", 16}, {"Dr", 16}, {"R", 72}, {"Dv", 24}}};
}

const Mutant mutants[] = {
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
    {"MatrixLatentsThatAddPartsUpAsTheyAre", matrix_latents(), {"? factors[of(u)]", 0, "? 1", finish_parts}},
    {"MatrixLatentsOfUnfinishedFactors", matrix_latents(), {"  sync_block();", 0, nothing, finish_parts}},
    {"MatrixLatentsByTheFirstScale", matrix_bytes(), {"% 2) * BLOCKS + block]", 0, "% 2) * BLOCKS]"}},
    {"MatrixLatentsWhoseValuesHaveTheFirstScale", matrix_bytes(), {"warp() * FEATURES / (R / BLOCKS)", 0, "0"}},
    {"ByteLatentsWithoutTheBarrierOfTheirRows", few_heads_of_bytes(), {"sync_block();", 0, nothing}},
    {"ByteLatentsWithoutTheBarrierOfTheirTile", few_heads_of_bytes(), {"sync_block();", 1, nothing}},
    {"ByteLatentsWithoutTheBarrierOfTheirScores", few_heads_of_bytes(), {"sync_block();", 2, nothing}},
    {"ByteLatentsWithoutTheBarrierOfTheirLastFactors", few_heads_of_bytes(), {"sync_block();", 3, nothing}},
    {"ByteLatentsThatDoNotWait", few_heads_of_bytes(), {"copy_async_wait<STAGES - 3>", 0, "copy_async_wait<STAGES - 2>"}},
    {"ByteLatentsOfSlotsThatAreNone", few_heads_of_bytes(), {"slot < 0", 0, "false", byte_rows}},
    {"ByteLatentsWhoseScoresHaveTheFirstScale",
     few_heads_of_bytes(),
     {"at.scales(tile, key)[block()]", 0, "at.scales(tile, key)[0]", byte_scores}},
    {"ByteLatentsOfTheFirstBlocksRope", few_heads_of_bytes(), {"block() * (2 * ROPE / BLOCKS)", 0, "0", byte_scores}},
    {"ByteLatentsWhoseQueriesKeepTheirPowerOfTwo", few_heads_of_bytes(), {"inverse[n][e / 2] * scale", 0, "scale", byte_scores}},
    {"ByteLatentsWhoseUnitsAreForgotten", pages_of_bytes(), {"last / at.units(head())[i]", 0, "last", byte_weights}},
    {"ByteLatentsWhoseFactorsLackTheUnits", pages_of_bytes(), {"change * (now / unit)", 0, "change", byte_weights}},
    {"ByteLatentsWhoseWeightsHaveTheSecondScale", few_heads_of_bytes(), {"(first.at[i] * units", 0, "(second.at[i] * units", byte_weights}},
    {"ByteLatentsWhoseOddFeaturesAreEven",
     few_heads_of_bytes(),
     {"swap_middle_bytes(bytes[2 * k + i])", 0, "bytes[2 * k + i]", byte_values}},
    {"ByteLatentsThatFollowNoReference", few_heads_of_bytes(), {"    multiply(tile);", 0, nothing, byte_values}},
    {"ByteLatentsByTheQueriesOfTheFirstRowTile",
     many_heads_of_bytes(),
     {"load_operand(a[n][0], n, c)", 0, "load_operand(a[n][0], 0, c)", byte_scores}},
    {"ByteLatentsByTheWeightsOfTheFirstRowTile",
     many_heads_of_bytes(),
     {"(n * 16 + l % 16) * Places", 0, "(l % 16) * Places", byte_values}},
    {"LatentAttentionThatAbsorbsTooEarly", paged_attention(), {"sync_block();", 0, nothing, latent_products}},
    {"LatentAttentionOfAnUnfinishedQuery", paged_attention(), {"sync_block();", 1, nothing, latent_products}},
    {"LatentAttentionThatMergesTooEarly", paged_attention(), {"sync_block();", 0, nothing}},
    {"LatentAttentionOverwrittenBeforeItIsMerged", paged_attention(), {"sync_block();", 1, nothing}},
    {"LatentAttentionWithoutTheNewestKey", paged_attention(), {"0, length - 1, length", 0, "0, length - 2, length", latent_call}},
    {"LatentAttentionByTheFirstHeadsValues",
     paged_attention(),
     {"weight_row<Element>(w, r, head)", 1, "weight_row<Element>(w, r, 0)", latent_products}},
    {"LatentAttentionByTheFirstHeadsKeys",
     paged_attention(),
     {"weight_row<Element>(w, r, head)", 0, "weight_row<Element>(w, r, 0)", latent_products}},
    {"LatentAttentionThatSeesOtherSegments", windowed_attention(), {"key < end && seen.sees(key)", 0, "key < end"}},
    {"LatentAttentionWhoseWindowStartsAtTheFirstKey", windowed_attention(), {"offset : tokens - queries", 0, "offset : 0", latent_call}},
    {"LatentGradientsByUnfinishedSoftmaxes", latent_gradients(), {"sync_block();", 0, nothing}},
    {"LatentGradientsThatAddUpOutputsTooEarly", latent_gradients(), {"sync_block();", 1, nothing}},
    {"LatentGradientsOfAnUnfinishedOutput", latent_gradients(), {"sync_block();", 2, nothing}},
    {"LatentGradientsThatAddUpTooEarly", latent_gradients(), {"sync_block();", 3, nothing}},
    {"LatentGradientsOfAnUnfinishedQuery", latent_gradients(), {"sync_block();", 4, nothing}},
    {"LatentGradientsThatAddUpKeysTooEarly", latent_gradients(), {"sync_block();", 5, nothing}},
    {"LatentGradientsOfQueriesWithoutTheMean", latent_gradients(), {"(pair.dvalue - saved.softmax[2])", 0, "pair.dvalue"}},
    {"LatentGradientsOfKeysWithoutTheMean", latent_gradients(), {"(pair.dvalue - saved.softmax[2])", 1, "pair.dvalue"}},
    {"LatentGradientsWithoutTheCapsSlope", latent_gradients(), {"1 - bent * bent", 0, "1"}},
    {"ExpandedQueriesWhoseRopeIsFromElsewhere", expanded_attention(), {"d < NOPE ? d : d - NOPE", 0, "d % NOPE ^ 8", join_entry}},
    {"ExpandedKeysWithTheFirstRopeFeaturesTwice", expanded_attention(), {"token * rope_inner + d)", 0, "token * rope_inner)", join_entry}},
    {"ExpandedKeysOfTheFirstHead", expanded_attention(), {"head * weights.strides[1] + column", 0, "column", expand_entries}},
    {"ExpandedKeysOfTheFirstRowOfTheBatch", expanded_attention(), {"block_z() * latent_outer", 0, "0 * latent_outer", expand_entries}},
    {"AbsorbedQueriesOfTheFirstHead", absorbed_attention(), {"head * w_kc_view.strides[1]", 0, "0", absorbed_entries}},
    {"AbsorbedOutputsByTheFirstHeadsValues", absorbed_attention(), {"head * w_vc_view.strides[1]", 0, "0", absorbed_entries}},
    {"AbsorbedOutputsOfTheFirstHead",
     absorbed_attention(),
     {"(row * all_heads + head) * R, all_heads", 0, "row * all_heads * R, all_heads", absorbed_entries}},
    {"ExpandedGradientsByTheFirstHeadsResults",
     expanded_gradients(),
     {"sequence, block_y(), first", 0, "sequence, 0, first", prepared_rows}},
    {"ExpandedGradientsOfTheFirstRowOfTheBatch",
     expanded_gradients(),
     {"(block_z() * turn.count + block_y())", 0, "block_y()", prepared_rows}},
    {"ExpandedGradientsOfLatentsOverwrittenTooEarly",
     expanded_gradients(),
     {"sync_block();  // the last step has been read", 0, nothing, gradient_products}},
    {"ExpandedGradientsOfWeightsOfTheFirstHead", expanded_gradients(), {"slot * width + column", 0, "column", gradient_products}},
    {"ExpandedGradientsOfRopeByOtherFeatures", expanded_gradients(), {"* D + NOPE + d)", 0, "* D + d)", gradient_rows}},
    {"ExpandedGradientsOfWeightsByUnseenTokens", expanded_gradients(), {"* 0 != 0) x", 0, "* 0 > 0) x", gradient_rows}},
    {"ExpandedGradientsOfLatentsByTheFirstHeadsKeys", expanded_gradients(), {"head * w_kc_view.strides[1]", 0, "0", gradient_products}},
    {"LatentAttentionWithoutRope", windowed_attention(), {"rope[d] * to_float(key.rope[d])", 0, "0"}},
};

INSTANTIATE_TEST_SUITE_P(Latent, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Latent, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::latent

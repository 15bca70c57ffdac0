// Linear recurrences and their gradients: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::recurrent {
namespace {

// Recurrences, a token at a time; the gradient over more tokens than a chunk has.
constexpr char recurrent_token[] = "recurrent/recurrent_token.h";
constexpr char recurrent_step[] = "recurrent/recurrent_step.h";

const Sizes some_steps = {{"B", 1}, {"T", 9}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 35}, {"V", 21}};
const Sizes two_chunks_of_steps = {{"B", 1}, {"T", 40}, {"Hq", 1}, {"Hk", 1}, {"Hv", 2}, {"K", 35}, {"V", 21}};

Subject recurrence(const char* case_name) { return {root, "recurrent", case_name, "recurrent/forward.step.gpu.cu", some_steps}; }

const Sizes few_steps = {{"B", 1}, {"T", 7}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 70}, {"V", 45}};

// Each block has several items.
const Sizes few_steps_of_many = {{"B", 8}, {"N", 12}, {"T", 3}, {"Hq", 8}, {"Hk", 8}, {"Hv", 8}, {"K", 70}, {"V", 48}};

Subject recurrence_of_few(const char* case_name, Sizes sizes = few_steps, const char* kernel = "recurrent") {
  return {root, kernel, case_name, "recurrent/forward.decode.gpu.cu", std::move(sizes)};
}
// One token of two heads that share a query, in blocks of several warps.
const Sizes one_token = {{"B", 2}, {"T", 1}, {"Hq", 1}, {"Hk", 2}, {"Hv", 2}, {"K", 128}, {"V", 32}};

Subject recurrence_of_one(const char* kernel, const char* case_name) {
  return {root, kernel, case_name, "recurrent/forward.decode_one.gpu.cu", one_token};
}
Subject recurrence_gradient(const char* case_name) {
  return {root, "recurrent_bwd", case_name, "recurrent/backward.step.gpu.cu", two_chunks_of_steps};
}

// 64 tokens at a time: more than two chunks, over parts of the second of which gates leave something.
constexpr char chunk_gates[] = "recurrent/chunk_gates.h";
constexpr char chunk_products[] = "recurrent/chunk_products.h";
constexpr char chunk_matrix[] = "recurrent/chunk_matrix.h";
constexpr char chunk_prepare[] = "recurrent/chunk_prepare.h";
constexpr char chunk_prepare_keys[] = "recurrent/chunk_prepare_keys.h";
constexpr char chunk_weighed[] = "recurrent/chunk_weighed.h";

const Sizes three_chunks = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};

Subject chunks(const char* case_name) { return {root, "recurrent", case_name, "recurrent/forward.chunk.gpu.cu", three_chunks}; }
// Keys of few features overlap much: three elements a number.
const Sizes chunks_of_few_keys = {{"B", 1}, {"T", 500}, {"Hq", 1}, {"Hk", 1}, {"Hv", 1}, {"K", 8}, {"V", 16}};
const Sizes chunks_of_more_keys = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 48}, {"V", 32}};
Subject delta_chunks(const Sizes& sizes) { return {root, "recurrent", "chunks_delta.bf16", "recurrent/forward.chunk.gpu.cu", sizes}; }
Subject chunks_of_keys(const char* case_name) {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_keys.gpu.cu", three_chunks};
}

constexpr char chunk_keep[] = "recurrent/chunk_keep.h";
constexpr char chunk_states[] = "recurrent/chunk_states.h";
constexpr char chunk_gradients[] = "recurrent/chunk_gradients.h";
constexpr char chunk_gradient_sums[] = "recurrent/chunk_gradient_sums.h";
constexpr char chunk_delta[] = "recurrent/chunk_delta.h";
constexpr char chunk_delta_prepare[] = "recurrent/chunk_delta_prepare.h";
constexpr char chunk_delta_products[] = "recurrent/chunk_delta_products.h";
constexpr char chunk_finish[] = "recurrent/chunk_finish.h";
constexpr char chunk_gamma_sum[] = "recurrent/chunk_gamma_sum.h";
constexpr char chunk_key_states[] = "recurrent/chunk_key_states.h";
constexpr char chunk_key_delta_states[] = "recurrent/chunk_key_delta_states.h";
constexpr char chunk_key_gradients[] = "recurrent/chunk_key_gradients.h";
constexpr char chunk_key_gradient_rows[] = "recurrent/chunk_key_gradient_rows.h";
constexpr char chunk_key_gradient_ends[] = "recurrent/chunk_key_gradient_ends.h";
constexpr char chunk_place[] = "recurrent/chunk_place.h";
constexpr char chunk_unit[] = "recurrent/chunk_unit.h";
constexpr char chunk_units[] = "recurrent/chunk_units.h";
constexpr char chunk_key_units[] = "recurrent/chunk_key_units.h";
constexpr char chunk_delta_units[] = "recurrent/chunk_delta_units.h";

// Heads of their own, and such as share q, k or v.
const Sizes three_chunks_of_two_heads = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 2}, {"Hv", 2}, {"K", 32}, {"V", 72}};
const Sizes three_chunks_of_few_values = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 24}};

Subject gradient_of_chunks(const char* case_name, Sizes sizes = three_chunks_of_two_heads) {
  return {root, "recurrent_bwd", case_name, "recurrent/backward.chunk.gpu.cu", std::move(sizes)};
}

constexpr char chunk_value_columns[] = "recurrent/chunk_value_columns.h";
const Sizes three_chunks_of_more_keys = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 2}, {"Hv", 2}, {"K", 72}, {"V", 32}};

Subject gradient_of_value_chunks() {
  return {root, "recurrent_bwd", "chunks_values.f32", "recurrent/backward.chunk_values.gpu.cu", three_chunks_of_more_keys};
}
Subject gradient_of_key_chunks(const char* case_name, Sizes sizes = three_chunks_of_two_heads) {
  return {root, "recurrent_bwd", case_name, "recurrent/backward.chunk_keys.gpu.cu", std::move(sizes)};
}

const Sizes packed_chunks = {{"N", 2}, {"T", 200}, {"Hq", 2}, {"Hk", 2}, {"Hv", 2}, {"K", 32}, {"V", 48}};
Subject parallel_chunks(const char* case_name, Sizes sizes = three_chunks) {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_parallel.gpu.cu", std::move(sizes)};
}

const Mutant mutants[] = {
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
    {"DecodeThatDoesNotWaitForTheState",
     recurrence_of_few("decode.f32.b1", few_steps_of_many),
     {"copy_async_wait<AHEAD - 1>();", 0, nothing}},
    {"DecodeOfEveryOtherItem",
     recurrence_of_few("decode.f32.b1", few_steps_of_many),
     {"more ? grid_x() : 0", 0, "more ? 2 * grid_x() : 0"}},
    {"DecodeThatForgetsEmptySequences", recurrence_of_few("packed.f32", few_steps_of_many), {"item.after && !IN_PLACE", 0, "false"}},
    {"DecodeThatSumsHalfTheKeys", recurrence_of_few("all.f32"), {"mask = GROUPS; mask < 32", 0, "mask = GROUPS; mask < 16"}},
    {"DecodeWithTheGatesOfAnotherKey", recurrence_of_few("all.f32"), {"key_of(rows.rest, first, j)", 0, "key_of(rows.rest, first, 0)"}},
    {"DecodeThatWritesPastTheLastFeature", recurrence_of_few("all.f32"), {"left < VEC ? static_cast<int>(left) : VEC", 0, "VEC"}},
    {"DecodeOfANarrowStateThatTakesHalfOfIt",
     recurrence_of_few("bf16_state.b1", few_steps_of_many, "recurrent_update"),
     {"to_float(row.at[c])", 0, "to_float(row.at[c % 4])"}},
    {"DecodeOfANarrowStateThatWritesHalfOfItTwice",
     recurrence_of_few("bf16_state.b1", few_steps_of_many, "recurrent_update"),
     {"from_float<Stored>(state[j][c])", 0, "from_float<Stored>(state[j][c % 4])"}},
    {"DecodeOfOneThatAddsUpTooEarly", recurrence_of_one("recurrent_update", "one"), {"sync_block();", 0, nothing}},
    {"DecodeOfOneThatForgetsWhatItWrites",
     recurrence_of_one("recurrent_update", "one"),
     {"all_rows[0] * written[i + c]", 0, "0 * written[i + c]"}},
    {"DecodeOfOneWithoutTheNormOfItsKey", recurrence_of_one("recurrent_update", "one"), {"written[c] *= key_norm;", 0, nothing}},
    {"DecodeOfOneOfTheFirstQuery", recurrence_of_one("recurrent_update", "one"), {"head / (all / own)", 0, "head"}},
    {"DecodeOfOneNarrowStateThatDecaysForItsSumsAlone",
     recurrence_of_one("recurrent_update", "bf16_state_of_one"),
     {"left.of(to_float(s[j].at[c])) + key", 0, "to_float(s[j].at[c]) + key"}},
    {"DecodeOfOneNarrowStateThatDecaysByTheLastKey",
     recurrence_of_one("recurrent_update", "bf16_state_of_one"),
     {"left = split_exp(gate + key_gates[j]);", 1, ";"}},
    {"DecodeOfOneNarrowStateOfHalfItsColumns",
     recurrence_of_one("recurrent_update", "bf16_state_of_one"),
     {"all_read[i + c]", 0, "all_read[c]"}},
    {"DecodeOfOneWithTheGatesOfAnotherKey",
     recurrence_of_one("recurrent", "decode_one"),
     {"gate + key_gates[j]", 0, "gate + key_gates[0]"}},
    {"ChunksWithoutTheBarrierBeforeTheirRows", chunks("chunks.bf16"), {"sync_block();", 1, nothing}},
    {"ChunksWithoutTheBarrierBeforeTheirPairs", chunks("chunks.bf16"), {"sync_block();", 3, nothing}},
    {"ChunksWhoseTokensSeeTheNextOne", chunks("chunks.bf16"), {"s <= t ?", 0, "s <= t + 1 ?"}},
    {"ChunksWhoseStateIsRoundedOnce", chunks("chunks.bf16"), {"(sums[n][i] + sums[2 + n][i])", 0, "sums[n][i]", chunk_products}},
    {"ChunksThatForgetWhatGatesLeave", chunks("chunks.bf16"), {"x * base + (x * rest", 0, "0 * base + (x * rest", chunk_products}},
    {"ChunksWhoseGatesAreThoseOfTheTokenBefore", chunks("chunks.bf16"), {"sums[1] = sum;", 0, "sums[1] = first;", chunk_gates}},
    {"ChunksWhoseInverseIsOfItsDiagonal", chunks("chunks_delta.bf16"), {"= -sums[n][i];", 0, "= 0;", chunk_matrix}},
    {"ChunksOfFewKeysWhoseInverseIsTwoElements",
     delta_chunks(chunks_of_few_keys),
     {"of_left + of_square < INVERSE_PARTS", 0, "of_left + of_square < 2", "recurrent/chunk_delta_products.h"}},
    {"ChunksWhoseInverseIsRoundedOnce",
     delta_chunks(chunks_of_more_keys),
     {"product % 2 == 0 ? Square::BYTES : 0", 0, "0", chunk_products}},
    {"ChunksWhoseInverseHasTheDigitsOfOneElement", chunks("chunks_delta.bf16"), {"int order = 2;", 0, "int order = 0;", chunk_matrix}},
    {"ChunksWhoseInverseSkipsAColumn", chunks("chunks_delta.bf16"), {"if (k >= column)", 0, "if (k > column)", chunk_matrix}},
    {"ChunksThatInvertBeforeAFactorIsThere",
     chunks("chunks_delta.bf16"),
     {"sync_block();  // (system below)", 0, "// (system below)", chunk_matrix}},
    {"ChunksThatInvertWithoutABarrier", chunks("chunks_delta.bf16"), {"sync_block();", 1, nothing, chunk_matrix}},
    {"ChunksOfKeysWithoutTheBarrierBeforeTheirRows",
     chunks_of_keys("chunks_keys.bf16"),
     {"sync_block();  // the chunk is there", 0, "// the chunk is there"}},
    {"ChunksOfKeysThatSkipAPart",
     chunks_of_keys("chunks_keys.bf16"),
     {"part = from + 1; part < to", 0, "part = from; part < to", chunk_prepare}},
    {"ChunksOfKeysThatDecayByTheFirstKey", chunks_of_keys("chunks_keys.bf16"), {"decay.at[i % 2]", 0, "decay.at[0]", chunk_weighed}},
    {"ChunksOfKeysWhoseSecondColumnsBeginAtTheFirst",
     chunks_of_keys("chunks_keys.bf16"),
     {"if (i > S) sums[NEAR + i] += left[1][j] * q;", 0, "if (i > S) sums[NEAR + i] += left[0][j] * q;", chunk_prepare_keys}},
    {"ChunksOfKeysWithoutTheBarrierOfTheirPairs",
     chunks_of_keys("chunks_keys.bf16"),
     {"sync_block();  // all are done with what gates leave", 0, "// all are done with what gates leave", chunk_prepare_keys}},
    {"ChunksOfKeysWithoutPairsAcrossTheMiddle",
     chunks_of_keys("chunks_keys.bf16"),
     {"put_pair(memory, t + NEAR, s + i, sums[0][2 + i])", 0, "put_pair(memory, t + NEAR, s + i, 0)", chunk_prepare_keys}},
    {"ChunksOfKeysWhoseMiddleForgetsItsGates",
     chunks_of_keys("chunks_keys.bf16"),
     {"to_middle[0] *= factors[i][0]", 0, "to_middle[0] *= 1", chunk_prepare_keys}},
    {"DeltaChunksOfKeysWhoseSecondColumnsBeginAtTheFirst",
     chunks_of_keys("chunks_keys_delta.bf16"),
     {"t == s + c ?", 0, "t == s ?", chunk_prepare}},
    {"ChunksOfKeysWhoseEarlyKeysAreRoundedOnce",
     chunks_of_keys("chunks_keys_delta.f16"),
     {"int piece = ROW_PIECES - 1", 0, "int piece = 0", chunk_weighed}},
    {"ChunksOfKeysWhosePairsOfPartsAreRoundedOnce",
     chunks_of_keys("chunks_keys_delta.f16"),
     {"int other = ROW_PIECES - 1 - piece", 0, "int other = 0", chunk_prepare}},
    {"ChunksOfKeysWhoseKeysAreDenormalHalves",
     chunks_of_keys("chunks_keys_faint_rows"),
     {"of_keys(all_rows.keys", 0, "of_keys(0x1p14f", chunk_prepare_keys}},
    {"ChunksOfKeysWhoseStateTakesInKeysWithTheirUnit", chunks_of_keys("chunks_keys_faint_rows"), {"', units.keys'", 0, "', 1'"}},
    {"ChunksOfKeysWhosePairsKeepTheirUnit", chunks_of_keys("chunks_keys_faint_rows"), {"of_pairs = units.of_pairs()", 0, "of_pairs = 1"}},
    {"ChunksOfKeysWhoseKeysBeforeTheyWriteKeepTheirUnit",
     chunks_of_keys("chunks_keys_delta_faint_rows"),
     {"(unit.inverse * units.keys)", 0, "unit.inverse"}},
    {"DeltaChunksOfKeysWhoseKeysAreDenormalHalves",
     chunks_of_keys("chunks_keys_delta_faint_rows"),
     {"key_unit = unit_of_block<PREPARE_THREADS / WARP>(largest_key", 0, "key_unit = unit_of_block<PREPARE_THREADS / WARP>(0x1p14f",
      chunk_prepare}},
    {"DeltaChunksOfKeysWhoseLargeWritesAreNoHalves",
     chunks_of_keys("chunks_keys_delta_large"),
     {"written_unit(largest_weighed(sums, [&](int t) { return betas[t]; })", 0, "written_unit(0x1p14f"}},
    {"ChunksOfKeysWhoseBf16KeysAreTwo",
     chunks_of_keys("chunks_keys_delta.bf16"),
     {"if (RESTS && piece + 1 < COUNT)", 0, "if (false)", chunk_weighed}},
    {"ParallelChunksWithoutTheBarrierBeforeASlice",
     parallel_chunks("chunks.bf16"),
     {"sync_block();  // the slice is there", 0, "// the slice is there"}},
    {"ParallelChunksWhoseStatesAreThoseOfTheLastHead", parallel_chunks("chunks.bf16"), {"(item.head * WAYS", 0, "(0 * WAYS", chunk_states}},
    {"ParallelChunksThatForgetTheirNorms", parallel_chunks("chunks_normed"), {"return norms.q[t];", 0, "return 1;", chunk_place}},
    {"ParallelChunksThatLeaveTheRestAsItWas", parallel_chunks("chunks_packed", packed_chunks), {"= from_float<Element>(0.0f);", 0, ";"}},
    {"ParallelChunksWhosePairsSkipAPart", parallel_chunks("chunks.bf16"), {"s <= row_slice(); ++s", 0, "s < row_slice(); ++s"}},
    {"RecurrentGradientThatAddsUpTooEarly", recurrence_gradient("all.f32"), {"sync_block();", 0, nothing}},
    {"RecurrentGradientOverwrittenBeforeItIsAddedUp", recurrence_gradient("all.f32"), {"sync_block();", 1, nothing}},
    {"RecurrentGradientWithOneStateAChunk", recurrence_gradient("all.f32"), {"keep_state(recent + t * PART", 0, "keep_state(recent"}},
    {"RecurrentGradientThatKeepsTheFirstChunk", recurrence_gradient("all.f32"), {"t % CHUNK == 0", 0, "t == 0"}},
    {"RecurrentGradientWithoutTheReadByTheKey", recurrence_gradient("all.f32"), {"d.k[j] -= state[j][c] * d.v[c], ", 0, nothing}},
    {"RecurrentGradientThroughHalfTheNorm",
     recurrence_gradient("all.f32"),
     {"sum_over_parts(dot) * inverse * inverse", 0, "sum_over_parts(dot) * inverse"}},
    {"ChunkGradientWithoutTheBarrierBeforeItsStatesRows",
     gradient_of_chunks("chunks.f32"),
     {"sync_block();  // the chunk's rows", 0, "// the chunk's rows", chunk_states}},
    {"ChunkGradientThatReadsAStateBeforeItIsThere", gradient_of_chunks("chunks.f32"), {"sync_warp();", 0, nothing, chunk_keep}},
    {"ChunkGradientWhoseStatesAreRoundedOnce",
     gradient_of_chunks("chunks.f32"),
     {"if (PARTS > 1) multiply_two(sums[1][0]", 0, "if (false) multiply_two(sums[1][0]", chunk_keep}},
    {"ChunkGradientWhoseKeptStatesAreRoundedOnce",
     gradient_of_chunks("chunks.f32"),
     {"rounding_of(state[n][2 * h], state[n][2 * h + 1], word)", 0, "0", chunk_keep}},
    {"ChunkGradientThatWalksForwardBothWays",
     gradient_of_chunks("chunks.f32"),
     {"(back ? chunk_count - 1 - step : step)", 0, "step", chunk_states}},
    {"ChunkGradientWithoutTheBarrierBeforeASlice",
     gradient_of_chunks("chunks.f32"),
     {"sync_block();  // the slice is there", 0, "// the slice is there", chunk_gradients}},
    {"ChunkGradientThatOverwritesASlice",
     gradient_of_chunks("chunks_gamma"),
     {"if (STAGES == 1 && x > 0) {\n      sync_block();", 0, "if (STAGES == 1 && x > 0) {", chunk_gradients}},
    {"ChunkGradientThatOverwritesItsRows",
     gradient_of_chunks("lightning.bf16.b1"),
     {"sync_block();  // all are done with the rows", 0, "// all are done with the rows", chunk_gradients}},
    {"ChunkGradientWithoutWhatAStateHoldsForTheEnd",
     gradient_of_chunks("chunks.f32"),
     {"sum * (gates.base + gates.rest)", 0, "0 * sum", chunk_gradients}},
    {"ChunkGradientOfGatesWithoutTheTokensBetween",
     gradient_of_chunks("chunks.f32"),
     {"change[i] -= flows.read_here[r][t];", 0, nothing, chunk_gradients}},
    {"ChunkGradientOfGatesThatForgetsLaterTokens",
     gradient_of_chunks("chunks.f32"),
     {"lane() + by < WARP", 0, "lane() + 2 * by < WARP", chunk_gradients}},
    {"ChunkGradientAlongItsRow",
     gradient_of_chunks("chunks_gamma"),
     {"along[h] *= norms[t] * norms[t];", 0, "along[h] = 0;", chunk_gradient_sums}},
    {"ChunkGradientOfValuesWithWhatIsLeftBefore",
     gradient_of_chunks("chunks.f32"),
     {"y *= gates.after[s]", 0, "y *= gates.before[s]", chunk_gradients}},
    {"ChunkGradientOfTheFirstSharedHead",
     gradient_of_chunks("chunks.f32", three_chunks_of_few_values),
     {"sum += at[reader * features];", 0, "sum += at[0];", chunk_finish}},
    {"ChunkGradientOfGammaOfTheFirstChunks",
     gradient_of_chunks("chunks_gamma"),
     {"chunk < chunks; chunk += 256", 0, "chunk < chunks - 1; chunk += 256", chunk_gamma_sum}},
    {"ChunkGradientWhoseThirdElementsTakeThePlaceOfTheSecond",
     gradient_of_chunks("chunks_gamma"),
     {"put_kept(tile + 2 * KeptTile::BYTES", 0, "put_kept(tile + KeptTile::BYTES", chunk_keep}},
    {"ChunkGradientWithDeltaWhoseThirdElementsHaveTheFirstTwice",
     gradient_of_chunks("chunks_delta_gamma"),
     {"x[0] -= low_of(all[i])", 0, "x[0] += low_of(all[i])", chunk_products}},
    {"GradientWithDeltaWhoseGivenGradientIsReadTwice",
     gradient_of_chunks("chunks_delta.f32"),
     {"add_least_seen(seen, state, key_tile);", 1, "add_seen<true>(seen, state, key_tile, 1);", chunk_delta}},
    {"ChunkGradientWithDeltaOfUntransposedInverse",
     gradient_of_chunks("chunks_delta.f32"),
     {"if constexpr (BACK) part.load_b_transposed(b, 16 * c, 16 * r);\n        else ", 0, nothing, chunk_delta_products}},
    {"ChunkGradientWithDeltaWhoseInverseIsOfTwoParts",
     gradient_of_chunks("chunks_delta.f32"),
     {"of_left + of_square < INVERSE_PARTS", 0, "of_left + of_square < 2", chunk_delta_products}},
    {"ChunkGradientWithDeltaThatForgetsWhatKeysRead",
     gradient_of_chunks("chunks_delta.f32"),
     {"dk[j][n][i] += read_by_keys[j][n][i];", 0, ";", chunk_gradients}},
    {"ChunkGradientWithDeltaOfBetaTimesBeta", gradient_of_chunks("chunks_delta.f32"), {"' / gates.beta[t]'", 0, "''", chunk_gradients}},
    {"ChunkGradientWithDeltaThatMultipliesRowsTooEarly",
     gradient_of_chunks("chunks_delta.f32"),
     {"copy_async_wait<0>();\n  sync_block();", 0, "copy_async_wait<0>();", chunk_delta_prepare}},
    {"ChunkGradientWithDeltaThatTakesNormsTooEarly",
     gradient_of_chunks("chunks_delta.f32"),
     {"numbers.norms);\n  sync_block();", 0, "numbers.norms);", chunk_delta_prepare}},
    {"ChunkGradientWithDeltaThatInvertsTooEarly",
     gradient_of_chunks("chunks_delta.f32"),
     {"sync_block();\n  invert_system", 0, "invert_system", chunk_delta_prepare}},
    {"ChunkGradientWithDeltaOfABetaOfZero",
     gradient_of_chunks("chunks_delta.f32"),
     {"(beta < 0 ? -LEAST : LEAST)", 0, "0", chunk_delta_products}},
    {"ChunkGradientWithDeltaWithoutTheBarrierBeforeItsRows",
     gradient_of_chunks("chunks_delta.f32"),
     {"sync_block();  // the chunk is there", 0, "// the chunk is there", chunk_delta}},
    {"ChunkGradientWithDeltaWhoseKeysGetHalfOfTheirPairs",
     gradient_of_chunks("chunks_delta.f32"),
     {"add_rows(dk, a, key_tile, 16 * s);", 0, nothing, chunk_gradients}},
    {"HalfGradientWhoseStatesAreTooLarge",
     gradient_of_chunks("chunks_half_large"),
     {"const Unit unit = common_unit(state);", 0, "const Unit unit(8192.0f);", chunk_states}},
    {"HalfGradientWhoseWritesAreTooSmall",
     gradient_of_chunks("chunks_half_large"),
     {"const Unit written_unit(largest_of_warp(largest));", 0, "const Unit written_unit(8192.0f);", chunk_states}},
    {"HalfGradientOfAUnitOfHalfAWarp", gradient_of_chunks("chunks_half_large"), {"mask < WARP", 0, "mask < 16", chunk_unit}},
    {"HalfGradientWhoseStateOfZerosHasASign", gradient_of_chunks("chunks_half"), {"<< 1 >> 24", 0, ">> 23", chunk_unit}},
    {"HalfGradientWhosePairsAreTooLarge",
     gradient_of_chunks("chunks_half_pairs"),
     {"const Unit unit = common_unit(sums);", 0, "const Unit unit(8192.0f);", chunk_units}},
    {"HalfGradientWhosePairsOfValuesAreTooLarge",
     gradient_of_chunks("chunks_half_values"),
     {"const Unit unit = common_unit(sums);", 0, "const Unit unit(8192.0f);", chunk_units}},
    {"HalfGradientWithTheUnitsOfOtherPairs",
     gradient_of_chunks("chunks_half_values"),
     {"flows.value_units.inverses[t][row_slice()]", 0, "flows.value_units.inverses[row_slice()][t]", chunk_gradients}},
    {"HalfGradientOfKeysWithTheUnitsOfStates",
     gradient_of_chunks("chunks_half_large"),
     {"after_tile, 16 * k, plan.unit(1, x, k));", 0, "after_tile, 16 * k, plan.unit(0, x, k));", chunk_gradients}},
    {"HalfGradientOfGatesWithoutAUnit",
     gradient_of_chunks("chunks_half_large"),
     {"own * inverse(i / (KEYS / 8) / 16)", 0, "own * inverse(0)", chunk_gradient_sums}},
    {"HalfGradientWithDeltaWithoutTheUnitOfPairs",
     gradient_of_chunks("chunks_half_delta"),
     {"return numbers.pair_unit; });", 0, "return 1; });", chunk_delta}},
    {"HalfGradientWithDeltaWhoseWritesHaveTheUnitsOfStates",
     gradient_of_chunks("chunks_half_delta"),
     {"unit_place[2 * (plan.padded_values / 16)]", 0, "unit_place[0]", chunk_delta}},
    {"HalfGradientWithDeltaOfAnInverseWithItsDiagonal",
     gradient_of_chunks("chunks_half_delta"),
     {"column + j < row ?", 0, "column + j <= row ?", chunk_delta_units}},
    {"HalfGradientWithDeltaOfAnInverseTimesBetas",
     gradient_of_chunks("chunks_half_delta"),
     {"/ betas[row] * unit.of", 0, "* unit.of", chunk_delta_units}},
    {"HalfGradientWithDeltaWithoutTheBarrierBeforeAUnit",
     gradient_of_chunks("chunks_half_delta"),
     {"sync_block();", 0, nothing, chunk_delta_units}},
    {"HalfGradientWithDeltaWhoseValuesForgetTheirUnit",
     gradient_of_chunks("chunks_half_delta"),
     {"gates.beta[t] * plan.unit(3, x, column / 16)", 0, "gates.beta[t] * plan.unit(3, x, 0)", chunk_gradients}},
    {"HalfKeyGradientWhosePairsAreTooLarge",
     gradient_of_key_chunks("chunks_half_keys_pairs"),
     {"PAIR_FACTOR = ${keys > 128 ? '0x1p-22f' : '0x1p-21f'}", 0, "PAIR_FACTOR = 1", chunk_key_units}},
    {"HalfKeyGradientWhoseFlowsAreTooLarge",
     gradient_of_key_chunks("chunks_half_keys_values"),
     {"const Unit unit = common_unit(pairs[j]);", 0, "const Unit unit(8192.0f);", chunk_key_gradients}},
    {"HalfKeyGradientWithTheUnitsOfOtherFlows",
     gradient_of_key_chunks("chunks_half_keys_values"),
     {"flows.pair_units.inverses[part][row_slice()]", 0, "flows.pair_units.inverses[row_slice()][part]", chunk_key_gradients}},
    {"HalfKeyGradientOfValuesWithoutTheUnitOfStates",
     gradient_of_key_chunks("chunks_half_keys_large"),
     {"flows.row_units.keys * plan.unit(1, x, slice)", 0, "flows.row_units.keys", chunk_key_gradients}},
    {"HalfKeyGradientOfGatesWithoutAUnit",
     gradient_of_key_chunks("chunks_half_keys_large"),
     {"inverse(row / 16)", 0, "inverse(0)", chunk_key_gradients}},
    {"HalfKeyGradientWithDeltaOfASystemInUnits",
     gradient_of_key_chunks("chunks_half_keys_delta.f32"),
     {"' * key_unit.inverse * key_unit.inverse'", 0, "' * key_unit.inverse'", chunk_prepare}},
    {"HalfKeyGradientWithDeltaWithoutTheBarrierBetweenUnits",
     gradient_of_key_chunks("chunks_half_keys_delta_large"),
     {"largest_query, m);\n  sync_block();", 0, "largest_query, m);", chunk_prepare}},
    {"HalfKeyGradientWithDeltaWithoutTheUnitOfPairs",
     gradient_of_key_chunks("chunks_half_keys_delta.f32"),
     {"return row_units_here.of_pairs(); });", 0, "return 1; });", chunk_key_delta_states}},
    {"HalfKeyGradientWithDeltaWhoseWritesHaveTheUnitsOfStates",
     gradient_of_key_chunks("chunks_half_keys_delta.f32"),
     {"unit_place[2 * (plan.padded_values / 16)]", 0, "unit_place[0]", chunk_key_delta_states}},
    {"HalfKeyGradientWithDeltaOfWritesOverTheirBetas",
     gradient_of_key_chunks("chunks_half_keys_delta.f32"),
     {"x *= scale * flows.betas[s];", 0, "x *= scale;", chunk_key_gradients}},
    {"HalfValueGradientWithTheUnitOfKeys",
     {root, "recurrent_bwd", "chunks_half_values_gates_large", "recurrent/backward.chunk_values.gpu.cu", three_chunks_of_more_keys},
     {"reads ? row_units.scaled_queries : row_units.keys", 0, "row_units.keys", chunk_value_columns}},
    {"HalfValueGradientWithTheUnitOfTheOtherState",
     {root, "recurrent_bwd", "chunks_half_values_gates_large", "recurrent/backward.chunk_values.gpu.cu", three_chunks_of_more_keys},
     {"plan.unit(reads ? 0 : 1, x", 0, "plan.unit(0, x", chunk_value_columns}},
    {"ValueGradientWhoseQueriesReadByWhatIsKept",
     gradient_of_value_chunks(),
     {"reads ? At::QUERIES_BEFORE : At::KEYS_AFTER", 0, "At::KEYS_AFTER", chunk_value_columns}},
    {"ValueGradientWhoseQueriesReadTheStateAfter",
     gradient_of_value_chunks(),
     {"reads ? At::BEFORE : At::AFTER", 0, "At::AFTER", chunk_value_columns}},
    {"ValueGradientWhoseQueriesReadOnePart",
     gradient_of_value_chunks(),
     {"first = reads ? 0 : row_slice()", 0, "first = row_slice()", chunk_value_columns}},
    {"ValueGradientWhoseKeysAreReadByEarlierTokens",
     gradient_of_value_chunks(),
     {"else load_a_transposed(a, weights, 16 * part, row);", 0, "else weights.load_a(a, row, 16 * part);", chunk_value_columns}},
    {"ValueGradientOfATransposedState",
     gradient_of_value_chunks(),
     {"StateInMemory<${exchanged}> first", 0, "StateMemory first", chunk_key_states}},
    {"KeyGradientWithoutTheBarrierBeforeASlice",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"sync_block();  // the slice is there", 0, "// the slice is there", chunk_key_gradients}},
    {"KeyGradientThatOverwritesTheLastSlice",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"sync_block();  // all are done with the last slice", 0, "// all are done with the last slice", chunk_key_gradients}},
    {"KeyGradientThatOverwritesItsRows",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"sync_block();  // all are done with the rows: sums", 0, "// all are done with the rows: sums", chunk_key_gradients}},
    {"KeyGradientOfQueriesThatForgetsWhatPartsLeave",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"decay_sums(dq, flows.leaves[part]);", 0, nothing, chunk_key_gradients}},
    {"KeyGradientOfKeysThatForgetsWhatPartsLeave",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"decay_sums(dk, flows.leaves[part]);", 0, nothing, chunk_key_gradients}},
    {"KeyGradientWhosePairsAreRoundedOnce",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"other < PIECES; ++other) add_rows(sums, a, KeyTile", 0, "other < 1; ++other) add_rows(sums, a, KeyTile", chunk_key_gradients}},
    {"KeyGradientWhoseNearPairsForgetTheTokensBetween",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"product *= factor[t];", 0, "product = factor[t];", chunk_key_gradient_rows}},
    {"KeyGradientWithoutATokenItself",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"dq[i] += itself * k[i]", 0, "dq[i] += 0", chunk_key_gradient_rows}},
    {"KeyGradientOfGatesWithoutWhatFlowsThrough",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"sum += flows.through[group][key];", 0, ";", chunk_key_gradient_rows}},
    {"KeyGradientOfGatesWithoutLaterParts",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"if (part > own.part) sum", 0, "if (part > own.part + 1) sum", chunk_key_gradient_rows}},
    {"KeyGradientOfGatesThatForgetsWhatPartsLeave",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"left = left * flows.leaves[part][key]", 0, "left = left", chunk_key_gradient_rows}},
    {"KeyGradientAlongItsRow",
     gradient_of_key_chunks("chunks_keys_normed"),
     {"along = sum_of_lanes(along) * norm * norm;", 0, "along = 0;", chunk_key_gradient_ends}},
    {"KeyGradientOfGatesWithoutWhatKeysGive",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"left[i] += shuffle_xor(left[i], mask)", 0, ";", chunk_key_gradients}},
    {"KeyGradientThatStoresRowsTooEarly",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"sync_block();  // gradients of rows are there for all", 0, "// gradients of rows are there for all", chunk_key_gradient_ends}},
    {"KeyGradientThatStoresGatesTooEarly",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"sync_block();  // gradients of gates are there for all", 0, "// gradients of gates are there for all", chunk_key_gradient_ends}},
    {"KeyGradientOfGatesThatOverwritesThoseOfQueries",
     gradient_of_key_chunks("chunks_keys_normed"),
     {"if (!CHANGES_IN_MEMORY) sync_block();", 0, nothing, chunk_key_gradient_ends}},
    {"KeyGradientThatOverwritesItsKeys",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"sync_block();  // all are done with keys times r", 0, "// all are done with keys times r", chunk_key_gradients}},
    {"KeyGradientOfPastTokensLeftAsItWas",
     gradient_of_key_chunks("chunks_keys_packed", packed_chunks),
     {"GradientRow(dgk_view, gk_type, row, token, i / q_view.shape[3]).store(i % q_view.shape[3], 0);", 0, ";", chunk_finish}},
    {"KeyGradientThatWalksForwardBothWays",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"(back ? chunk_count - 1 - step : step)", 0, "step", chunk_key_states}},
    {"KeyGradientWithoutTheBarrierBeforeItsChunk",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"sync_block();  // the chunk is there", 0, "// the chunk is there", chunk_key_states}},
    {"KeyGradientWhoseStatesAreRoundedOnce",
     gradient_of_key_chunks("chunks_keys.f32"),
     {"'sums[n][i] + sums[2 + n][i]'", 0, "'sums[n][i]'", chunk_weighed}},
    {"KeyGradientWithDeltaWhoseKeysAddWhatTheyRead",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"x *= -flows.betas[t];", 0, "x *= flows.betas[t];", chunk_key_gradients}},
    {"KeyGradientWithDeltaOfBetaTimesBeta",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"' / flows.betas[t]'", 0, "''", chunk_key_gradients}},
    {"KeyGradientWithDeltaThatOverwritesItsKeys",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"sync_block();  // all are done with keys times r", 0, "// all are done with keys times r", chunk_key_gradients}},
    {"KeyGradientWithDeltaWithoutPairsOfKeys",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"add_part<true>(dk, shared + At::FLOWS_OF_KEYS, shared + At::READ_KEYS, part", 0,
      "if (false) add_part<true>(dk, shared + At::FLOWS_OF_KEYS, shared + At::READ_KEYS, part", chunk_key_gradients}},
    {"KeyGradientWithDeltaWhoseGivenGradientIsReadTwice",
     gradient_of_key_chunks("chunks_keys_delta.f32", three_chunks_of_more_keys),
     {"add_least_seen(seen, state, KeyTile{stage});", 0, "add_seen_of_pieces(seen, state, stage);", chunk_key_delta_states}},
    {"KeyGradientWithDeltaThatAddsWhatKeysRead",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"return -betas[t];", 0, "return betas[t];", chunk_key_delta_states}},
    {"KeyGradientWithDeltaOfABetaOfZero",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"(beta < 0 ? -LEAST : LEAST)", 0, "0", chunk_delta_products}},
    {"KeyGradientWithDeltaWhoseStatesAreReadRoundedOnce",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"if (piece + 1 < ROW_PIECES) multiply_two", 0, "if (false) multiply_two", chunk_weighed}},
    {"KeyGradientWithDeltaWhosePairsAreRoundedOnce",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"int other = PAIR_PIECES - 1 - piece; other >= 0", 0, "int other = 0; other >= 0", chunk_prepare}},
    {"KeyGradientWithDeltaWithoutTheBarrierBeforeItsChunk",
     gradient_of_key_chunks("chunks_keys_delta.f32"),
     {"sync_block();  // the chunk is there", 0, "// the chunk is there", chunk_key_delta_states}},
};

INSTANTIATE_TEST_SUITE_P(Recurrent, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Recurrent, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::recurrent

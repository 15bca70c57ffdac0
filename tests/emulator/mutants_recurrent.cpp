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

Subject recurrence_of_few(const char* case_name, Sizes sizes = few_steps) {
  return {root, "recurrent", case_name, "recurrent/forward.decode.gpu.cu", std::move(sizes)};
}
Subject recurrence_gradient(const char* case_name) {
  return {root, "recurrent_bwd", case_name, "recurrent/backward.step.gpu.cu", two_chunks_of_steps};
}

// 64 tokens at a time: more than two chunks, over parts of the second of which gates leave something.
constexpr char chunk_gates[] = "recurrent/chunk_gates.h";
constexpr char chunk_products[] = "recurrent/chunk_products.h";
constexpr char chunk_matrix[] = "recurrent/chunk_matrix.h";
constexpr char chunk_prepare[] = "recurrent/chunk_prepare.h";

const Sizes three_chunks = {{"B", 1}, {"T", 150}, {"Hq", 2}, {"Hk", 1}, {"Hv", 2}, {"K", 32}, {"V", 48}};

Subject chunks(const char* case_name) { return {root, "recurrent", case_name, "recurrent/forward.chunk.gpu.cu", three_chunks}; }
Subject chunks_of_keys(const char* case_name) {
  return {root, "recurrent", case_name, "recurrent/forward.chunk_keys.gpu.cu", three_chunks};
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
};

INSTANTIATE_TEST_SUITE_P(Recurrent, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Recurrent, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::recurrent

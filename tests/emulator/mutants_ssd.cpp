// State space duals (ssd, ssd_update) and their gradients: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::ssd {
namespace {

constexpr char recurrent_token[] = "recurrent/recurrent_token.h";
constexpr char chunk_gradients[] = "recurrent/chunk_gradients.h";
constexpr char chunk_place[] = "recurrent/chunk_place.h";

// In recurrent's step forms.
constexpr char dual_step[] = "ssd/dual_step.h";
constexpr char finish_gpu[] = "ssd/finish_gpu.h";
constexpr char sum_head[] = "ssd/sum_head.h";

Subject dual(const char* case_name) {
  return {root, "ssd", case_name, "recurrent/forward.step.gpu.cu", {{"B", 1}, {"T", 9}, {"H", 4}, {"G", 2}, {"N", 35}, {"P", 21}}};
}
Subject dual_rows(const char* case_name, const char* kernel = "ssd_update") {
  return {root, kernel, case_name, "ssd/forward.rows.gpu.cu", {{"B", 2}, {"S", 3}, {"T", 5}, {"H", 4}, {"G", 2}, {"N", 48}, {"P", 21}}};
}
Subject dual_gradient(const char* case_name) {
  return {root, "ssd_bwd", case_name, "recurrent/backward.step.gpu.cu", {{"B", 1}, {"T", 19}, {"H", 4}, {"G", 2}, {"N", 35}, {"P", 21}}};
}
constexpr char dual_chunk[] = "ssd/dual_chunk.h", dual_numbers[] = "ssd/dual_numbers.h";
const Sizes three_dual_chunks = {{"B", 1}, {"T", 150}, {"H", 2}, {"G", 1}, {"N", 32}, {"P", 48}};
Subject dual_chunks() { return {root, "ssd", "chunks.f16", "recurrent/forward.chunk.gpu.cu", three_dual_chunks}; }
Subject parallel_dual_chunks() { return {root, "ssd", "chunks.bf16", "recurrent/forward.chunk_parallel.gpu.cu", three_dual_chunks}; }

constexpr char step_gradients[] = "ssd/step_gradients.h";
constexpr char finish_chunks[] = "ssd/finish_chunks.h";
Subject gradient_of_dual_chunks(const char* case_name = "chunks") {
  return {root, "ssd_bwd", case_name, "recurrent/backward.chunk.gpu.cu", three_dual_chunks};
}

const Mutant mutants[] = {
    {"DualWithoutItsSkip", dual("all.f32"), {"row[c] += skip", 0, "row[c] += 0 * skip"}},
    {"DualWithoutItsBias", dual("all.f32"), {"dt.at(token, 0) + bias", 0, "dt.at(token, 0)", dual_step}},
    {"DualWithoutSoftplus", dual("all.f32"), {"softplus ? softplus_of(z) : z", 0, "z", dual_step}},
    {"DualWhoseSoftplusForgetsTheStep", dual("all.f32"), {"(z > 0 ? z : 0) + log1p", 0, "log1p", dual_step}},
    {"DualWhoseStepsDoNotWrite", dual("all.f32"), {"x.k[j] *= step", 0, "x.k[j] *= 1", recurrent_token}},
    {"DualWhoseStepsDoNotDecay", dual("all.f32"), {"step * steps.rate", 0, "steps.rate", recurrent_token}},
    {"DualThatWritesPastTheLastColumn", dual("all.f32"), {"if (i < keys && c < columns) data", 0, "if (c < columns) data", dual_step}},
    {"DualRowsOfANarrowStateThatWriteHalfOfBm", dual_rows("bf16_state_of_few.f32"), {"t.b[k * PARTS + j / 4]", 0, "t.b[k * PARTS]"}},
    {"DualRowsOfANarrowStateThatReadHalfOfC", dual_rows("bf16_state_of_few.f32"), {"t.c[k * PARTS + j / 4]", 0, "t.c[k * PARTS]"}},
    {"DualRowsThatSumHalfTheColumns", dual_rows("one.f32"), {"mask = LANES / ROWS / 2", 0, "mask = 0"}},
    {"DualRowsWhoseHalvesKeepTheSameRows", dual_rows("one.f32"), {"upper ? x[i] : other", 0, "upper ? other : x[i]"}},
    {"DualRowsThatWritePastTheLastRow", dual_rows("one.f32"), {"row + i * GROUPS < features", 0, "true"}},
    {"DualRowsThatReadPastTheLastColumn", dual_rows("one.f32"), {"column(k) < columns", 0, "true"}},
    {"DualRowsWithoutTheirSkip", dual_rows("one.f32"), {"skip * x : 0", 0, "0 * x : 0"}},
    {"DualRowsThatAddTheSkipInEachLane", dual_rows("one.f32"), {"lane() % LANES == 0 ? skip", 0, "true ? skip"}},
    {"DualRowsOfTheFirstGroup", dual_rows("one.f32"), {"head / static_cast<int>(heads_a_group)", 0, "0"}},
    {"DualRowsOfTheTokenBefore", dual_rows("one.f32"), {"token(t + 1)", 0, "token(t)"}},
    {"DualRowsWhoseStepsDoNotWrite", dual_rows("one.f32"), {"weight = step.size * x", 0, "weight = x"}},
    {"DualRowsWithTheFirstTokensStep", dual_rows("one.f32"), {"shuffle(steps.size, from)", 0, "steps.size"}},
    {"DualRowsWithoutZerosBehindTheLastSequence",
     dual_rows("packed.f32"),
     {"to[t * heads * features] = from_float<Element>(0.0f)", 0, "(void)0"}},
    {"DualRowsOfAllTokens", dual_rows("packed.f32"), {"cum_seqlens[sequence + 1] : T", 0, "T : T"}},
    {"DualRowsThatForgetEmptySequences",
     dual_rows("few_tokens.f32", "ssd"),
     {"place.store(after, s)", 0, "if (count > 0) place.store(after, s)"}},
    {"DualGradientWithoutTheSlopeOfSoftplus", dual_gradient("all.f32"), {"* steps.slope(token)", 0, nothing, finish_gpu}},
    {"DualGradientWithoutTheRate", dual_gradient("all.f32"), {"d_step + steps.rate * d_log", 0, "d_step + d_log", finish_gpu}},
    {"DualGradientOfTheFirstHeadOfAGroup",
     dual_gradient("all.f32"),
     {"head < (shared + 1) * readers", 0, "head < shared * readers + 1", finish_gpu}},
    {"DualGradientWithoutTheSkip", dual_gradient("all.f32"), {"of_values[p] + skip * dy", 0, "of_values[p]", finish_gpu}},
    {"DualGradientOfStepsOfOne", dual_gradient("all.f32"), {"steps.at(token) * d_log", 0, "d_log", finish_gpu}},
    {"DualGradientAddedUpWithoutABarrier", dual_gradient("all.f32"), {"sync_block();", 0, nothing, sum_head}},
    {"DualChunksWhosePairsForgetTheStep", dual_chunks(), {"x *= gates.beta[s], y", 0, "y"}},
    {"DualChunksWhoseStepsDoNotWrite", dual_chunks(), {"dual ? 'gates.beta[t]'", 0, "dual ? '1'"}},
    {"DualChunksWithoutTheirSkip", dual_chunks(), {"+= skip * own", 0, "+= 0 * own", dual_chunk}},
    {"DualChunksThatStepPastTheLastToken",
     dual_chunks(),
     {"+ i < count ? softplus_of(steps[i]) : 0", 0, "+ i < count + 64 ? softplus_of(steps[i]) : 0", dual_numbers}},
    {"DualChunksOfTransposedStates",
     dual_chunks(),
     {"use(n, 2 * h + i, at + i)", 0, "use(n, h + 2 * i, at + i)", "recurrent/chunk_state_memory.h"}},
    {"ParallelDualChunksWithoutSteps", parallel_dual_chunks(), {"return gates.beta[t];", 0, "return 1;", chunk_place}},
    {"ParallelDualChunksWithoutTheirSkip", parallel_dual_chunks(), {"sums[j][n][2 * h + 1] += skip", 0, "sums[j][n][2 * h + 1] += 0"}},
    {"DualChunkGradientWithoutTheSkip",
     gradient_of_dual_chunks("mamba2.bf16.b1"),
     {"+= skip * low_of(dout)", 0, "+= 0 * low_of(dout)", chunk_gradients}},
    {"DualChunkGradientOfASkipOfZero",
     gradient_of_dual_chunks(),
     {"if (s == t) flows.skip[t] = x;", 0, "if (s == t) flows.skip[t] = 0;", chunk_gradients}},
    {"DualChunkGradientWhoseKeysForgetTheStep",
     gradient_of_dual_chunks(),
     {"{ x *= numbers.key_norm(s); }); });", 0, "{ x *= 1; }); });", chunk_gradients}},
    {"DualChunkGradientWhosePairsForgetTheStep",
     gradient_of_dual_chunks(),
     {"put_pair_of(memory + VALUE_PAIRS, slice, stepped);", 0, "put_pair_of(memory + VALUE_PAIRS, slice, value_pairs[j]);",
      chunk_gradients}},
    {"DualChunkGradientWithoutTheTimesOfPairs",
     gradient_of_dual_chunks(),
     {"stepped * flows.between(s, t)", 0, "stepped * 0", chunk_gradients}},
    {"DualChunkGradientOfStepsThatDoNotWrite", gradient_of_dual_chunks(), {"own + flows.own[t]", 0, "own", step_gradients}},
    {"DualChunkGradientOfStepsThatDoNotDecay", gradient_of_dual_chunks(), {"steps.rate * log", 0, "0 * log", step_gradients}},
    {"DualChunkGradientWhoseTimesEndAtTheirToken", gradient_of_dual_chunks(), {"sum = sum + earlier;", 0, "sum = sum;", step_gradients}},
    {"DualChunkGradientWithoutWhatFlowsThrough",
     gradient_of_dual_chunks(),
     {"+ flows.through[lane()] * flows.time[CHUNK - 1].high", 0, nothing, step_gradients}},
    {"DualChunkGradientOfTheFirstHeadOfAGroup", gradient_of_dual_chunks(), {"reader < readers", 0, "reader < 1", finish_chunks}},
    {"DualChunkGradientAddedUpWithoutABarrier", gradient_of_dual_chunks(), {"sync_block();", 0, nothing, sum_head}},
};

INSTANTIATE_TEST_SUITE_P(Ssd, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Ssd, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::ssd

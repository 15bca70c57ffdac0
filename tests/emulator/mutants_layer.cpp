// Recurrent layers and their gradients: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::layer {
namespace {

// Recurrent layers: blocks that keep their weights and meet after each step; a launch a step where there are more features than those hold.
constexpr char rnn_step[] = "rnn/rnn_step.h";
constexpr char rnn_gates[] = "rnn/rnn_gates.h";

const Sizes two_blocks_a_direction = {{"B", 3}, {"T", 5}, {"I", 9}, {"H", 20}};
const Sizes two_parts_of_features = {{"B", 3}, {"T", 3}, {"I", 5}, {"H", 70}};
const Sizes more_than_blocks_keep = {{"B", 2}, {"T", 3}, {"I", 5}, {"H", 140}};

Subject layer(const char* case_name, Sizes sizes = two_blocks_a_direction) {
  return {root, "rnn", case_name, "rnn/forward.gpu.cu", std::move(sizes)};
}
Subject layer_gradient(const char* case_name, Sizes sizes = two_blocks_a_direction) {
  return {root, "rnn_bwd", case_name, "rnn/backward.gpu.cu", std::move(sizes)};
}

// On matrix instructions: states pass from block to block word by word. 35 tokens are more than the exchange has places for.
constexpr char exchange[] = "device/tile/exchange.h", rnn_fragments[] = "rnn/rnn_fragments.h", rnn_panels[] = "rnn/rnn_panels.h";
constexpr char rnn_steps[] = "rnn/rnn_steps.h", rnn_sweep[] = "rnn/rnn_sweep.h", rnn_sums[] = "rnn/rnn_sums.h",
               rnn_floats[] = "rnn/rnn_floats.h";
constexpr char float_product[] = "device/matrix/float_product.h";
const Sizes more_than_the_exchange_holds = {{"B", 3}, {"T", 35}, {"I", 8}, {"H", 24}};

Subject matrix_layer(const char* case_name) { return {root, "rnn", case_name, "rnn/forward.mma.gpu.cu", more_than_the_exchange_holds}; }
Subject matrix_layer_gradient(const char* case_name) {
  return {root, "rnn_bwd", case_name, "rnn/backward.mma.gpu.cu", more_than_the_exchange_holds};
}

// The same exchange of f32, whose products are fused multiply-adds.
Subject float_layer(const char* case_name) { return {root, "rnn", case_name, "rnn/forward.fma.gpu.cu", more_than_the_exchange_holds}; }
Subject float_layer_gradient(const char* case_name) {
  return {root, "rnn_bwd", case_name, "rnn/backward.fma.gpu.cu", more_than_the_exchange_holds};
}

// The same of parts of f32 on matrix instructions, for more than eight rows of the batch.
constexpr char part_fragments[] = "rnn/rnn_part_fragments.h";
Subject part_layer(const char* case_name) {
  return {root, "rnn", case_name, "rnn/forward.fma.gpu.cu", {{"B", 12}, {"T", 4}, {"I", 8}, {"H", 24}}};
}

const Mutant mutants[] = {
    {"MatrixLayerThatLooksTooEarly",
     matrix_layer("eights.f16.cell_typelstm"),
     {"const GridBarrier& barrier) { barrier(); }", 0, "const GridBarrier&) {}", exchange}},
    {"MatrixLayerThatNeverClears", matrix_layer("eights.f16.cell_typelstm"), {"return step >= 2", 0, "return false", rnn_panels}},
    {"MatrixLayerThatClearsOneTooFew", matrix_layer("eights.f16.cell_typelstm"), {"return step >= 2", 0, "return step >= 3", rnn_panels}},
    {"MatrixLayerWithoutTheBarrierBehindItsSums", matrix_layer("eights.f16.cell_typelstm"), {"sync_steps();", 0, nothing, rnn_steps}},
    {"MatrixLayerWithFeaturesInAnotherOrder",
     matrix_layer("eights.f16.cell_typelstm"),
     {"2 * (place - PAIRS) + 1", 0, "2 * (place - PAIRS)", rnn_sums}},
    {"MatrixLayerWithTheNextOperandFirst",
     matrix_layer("eights.f16.cell_typegru"),
     {"states[c].of[n].at[i + 1]", 0, "states[c].of[n].at[i]", rnn_fragments}},
    {"MatrixLayerThatLeavesStatesPastTheLength",
     matrix_layer("eights.f16.cell_typelstm"),
     {"valid ? state[0] : 0.0f", 0, "state[0]", rnn_steps}},
    {"MatrixLayerGradientThatNeverClears",
     matrix_layer_gradient("eights.f16.cell_typelstm"),
     {"return step >= 2", 0, "return false", rnn_panels}},
    {"MatrixLayerGradientWithoutTheBarrierBehindItsSums",
     matrix_layer_gradient("eights.f16.cell_typelstm"),
     {"sync_steps();", 0, nothing, rnn_sweep}},
    {"MatrixLayerGradientOfTheInputsNForTheState",
     matrix_layer_gradient("eights.f16.cell_typegru"),
     {"GRU && g == 2 ? 3 : g", 0, "g", rnn_sweep}},
    {"MatrixLayerGradientOfTheMemoryAfter",
     matrix_layer_gradient("eights.f16.cell_typelstm"),
     {"token + 1 : token - 1;\n      two(", 0, "token : token;\n      two(", rnn_sweep}},
    {"MatrixLayerGradientWithoutTheBarrierBetweenItsProducts",
     matrix_layer_gradient("eights.f16.cell_typelstm"),
     {"sync_block();\n  if (of_state)", 0, "if (of_state)"}},
    {"MatrixLayerGradientOfTheSameTokenTwice",
     matrix_layer_gradient("eights.f16.cell_typegru"),
     {"bring(number + 1)", 0, "bring(number)", rnn_sweep}},
    {"MatrixLayerGradientThatForgetsByTheState",
     matrix_layer_gradient("eights.f16.cell_typelstm"),
     {"dmemory = dc * bends.kept", 0, "dmemory = dmemory * bends.kept", rnn_sweep}},
    {"MatrixLayerThatKeepsGatesPastTheLength", matrix_layer("eights.f16.cell_typelstm"), {"valid ? of[0] : 0.0f", 0, "of[0]", rnn_steps}},
    {"MatrixLayerGradientOfAKeptGateForTheMemory",
     matrix_layer_gradient("saved.f16.cell_typelstm"),
     {"(KEPT - 1) * features);\n      else", 0, "0 * features);\n      else", rnn_sweep}},
    {"FloatLayerWithoutTheBarrierBehindItsSums",
     float_layer("eights.f32.cell_typelstm"),
     {"sync_steps() { sync_block(); }", 0, "sync_steps() {}", rnn_floats}},
    {"FloatLayerWhoseLanesDoNotWaitForStates", float_layer("eights.f32.cell_typegru"), {"sync_warp();", 0, nothing, rnn_floats}},
    {"FloatLayerThatSendsOneOfTwoFeatures",
     float_layer("eights.f32.cell_typelstm"),
     {"sendable(word_of(second, second))", 0, "sendable(word_of(first, first))", rnn_panels}},
    {"FloatLayerThatClearsOneOfTwoFeatures",
     float_layer("eights.f32.cell_typelstm"),
     {"clear(at + PanelPlace::of(0, 1))", 0, "clear(at)", rnn_panels}},
    {"PartLayerThatLosesABatch", part_layer("rows.f32.cell_typegru"), {"first + b);", 0, "first);", part_fragments}},
    {"PartLayerWithRowsInAnotherOrder", part_layer("rows.f32.cell_typelstm"), {"lane() / 4 * TILE_ROWS", 0, "lane() / 4", part_fragments}},
    {"PartLayerOfTheLargestPartsAlone",
     part_layer("rows.f32.cell_typelstm"),
     {"int i = 0; i < PART_PRODUCTS; ++i", 0, "int i = 5; i < PART_PRODUCTS; ++i", part_fragments}},
    {"FloatLayerGradientOfHalfItsProducts", float_layer_gradient("eights.f32.cell_typegru"), {"if (of_state)", 0, "if (false)"}},
    {"FloatLayerGradientWithoutTheBarrierBetweenItsProducts",
     float_layer_gradient("eights.f32.cell_typelstm"),
     {"sync_block();\n  if (of_state)", 0, "if (of_state)"}},
    {"FloatLayerWhoseProductsDoNotWaitForTiles",
     float_layer("eights.f32.cell_typelstm"),
     {"sync_block();  // the step is there", 0, "// the step is there", float_product}},
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
    {"LayerGradientOfAKeptProductLeftOut",
     layer_gradient("saved.f32.cell_typegru"),
     {"if (saved) recurrent[2 * features] = from[3 * features];", 0, nothing}},
    {"LayerThatBringsWeightsOfOneFeature", layer("small.f32", more_than_blocks_keep), {"number % FEATURES", 0, "0"}},
};

INSTANTIATE_TEST_SUITE_P(Layer, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Layer, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::layer

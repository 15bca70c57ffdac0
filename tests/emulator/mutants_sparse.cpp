// Attention behind a mask of blocks: mutants of the GPU templates (kernel_mutants.hpp).
#include "emulator/kernel_mutants.hpp"

namespace ejk::kernel_mutants::sparse {
namespace {

// A mask of blocks: runs of several and of single blocks, steps that they do not fill, rows without any; more blocks than a warp has lanes.
constexpr char block_steps[] = "blocksparse_attention/block_steps.h";
constexpr char key_blocks[] = "blocksparse_attention/key_blocks.h";
constexpr char block_rows[] = "blocksparse_attention/block_rows.h";
constexpr char step_list[] = "blocksparse_attention/step_list.h";
constexpr char turns[] = "flash_attention_bwd/pair_turns.h";
constexpr char gradient_rows[] = "flash_attention_bwd/attention_backward.h";

const Sizes some_blocks = {{"B", 1}, {"Sq", 133}, {"Sk", 217}, {"Hq", 4}, {"Hkv", 2}, {"Hm", 4}, {"D", 64}, {"Dv", 64}};
const Sizes many_blocks = {{"B", 1}, {"Sq", 40}, {"Sk", 650}, {"Hq", 2}, {"Hkv", 2}, {"Hm", 2}, {"D", 64}, {"Dv", 64}};

Subject blocks(const char* case_name, Sizes sizes = some_blocks, const char* template_file = "flash_attention/forward.mma.gpu.cu") {
  return {root, "blocksparse_attention", case_name, template_file, std::move(sizes)};
}
Subject wave_blocks(const char* case_name) { return blocks(case_name, some_blocks, wave); }
Subject gradient_of_blocks(const char* case_name) {
  return {root, "blocksparse_attention_bwd", case_name, "flash_attention_bwd/backward.plain.gpu.cu", some_blocks};
}
const Sizes many_query_blocks = {{"B", 1}, {"Sq", 1100}, {"Sk", 40}, {"Hq", 2}, {"Hkv", 2}, {"Hm", 2}, {"D", 64}, {"Dv", 64}};
Subject matrix_gradient(const char* case_name, Sizes sizes = some_blocks) {
  return {root, "blocksparse_attention_bwd", case_name, "flash_attention_bwd/backward.mma.gpu.cu", std::move(sizes)};
}
// Packed sequences, some longer than the mask.
constexpr char packed_blocks[] = "blocksparse_attention/packed_blocks.h";
const Sizes packed_sizes = {{"N", 3},  {"Tq", 210}, {"Tk", 290}, {"Mq", 2}, {"Mk", 2},
                            {"Hq", 4}, {"Hkv", 2},  {"Hm", 4},   {"D", 64}, {"Dv", 64}};
Subject packed_plain(const char* case_name) { return blocks(case_name, packed_sizes, "blocksparse_attention/forward.plain.gpu.cu"); }
Subject packed_gradient(const char* case_name) {
  return {root, "blocksparse_attention_bwd", case_name, "flash_attention_bwd/backward.plain.gpu.cu", packed_sizes};
}

Subject wave_gradient(const char* case_name) {
  return {root, "blocksparse_attention_bwd", case_name, "flash_attention_bwd/backward.wave.gpu.cu", some_blocks};
}
Subject plain_blocks(const char* case_name) { return blocks(case_name, some_blocks, "blocksparse_attention/forward.plain.gpu.cu"); }

// Laws of NaN that only some calls can break.
const Sizes with_sinks = {{"B", 1}, {"Sq", 70}, {"Sk", 64}, {"Hq", 2}, {"Hkv", 2}, {"Hm", 2}, {"D", 128}, {"Dv", 128}, {"A", 2}};
const Sizes with_bias = {{"B", 1}, {"Bb", 1}, {"Hb", 2}, {"Sq", 40}, {"Sk", 50}, {"Hq", 2}, {"Hkv", 1}, {"Hm", 2}, {"D", 64}, {"Dv", 64}};
Subject nan_without_keys(const char* template_file) {
  return {root,       "blocksparse_attention_bwd",
          "lengths",  template_file,
          with_sinks, "a NaN in dout of a query without keys reaches the gradient of its sinks and no other"};
}
Subject nan_beside_minus_infinity(const char* template_file) {
  return {root,        "blocksparse_attention_bwd",
          "bias.bf16", template_file,
          with_bias,   "a NaN in a key reaches the gradient of a bias of minus infinity in its row"};
}
const Mutation unseen_sinks{"+= to_float(x.at[i]) * to_float(y.at[i])", 0,
                            "+= to_float(x.at[i]) == 0 ? 0 : to_float(x.at[i]) * to_float(y.at[i])", gradient_rows};
const Mutation unseen_bias{"return visible ? log : score;", 0, "return score;", gradient_rows};
constexpr char plain_gradient[] = "flash_attention_bwd/backward.plain.gpu.cu", mma_gradient[] = "flash_attention_bwd/backward.mma.gpu.cu",
               waves_gradient[] = "flash_attention_bwd/backward.wave.gpu.cu";
// native_sparse_attention: more blocks than a warp has lanes, of which few are selected; more heads than a warp takes at once.
constexpr char select_blocks[] = "native_sparse_attention/select_blocks_gpu.h";
constexpr char selected_blocks[] = "native_sparse_attention/selected_blocks.h";
const Sizes native_sizes = {{"B", 1}, {"T", 90}, {"Hq", 5}, {"Hkv", 1}, {"D", 16}, {"Dv", 16}, {"block_size", 2}, {"block_count", 7}};
Subject native() {
  return {root, "native_sparse_attention", "all_branches.f32", "native_sparse_attention/forward.plain.gpu.cu", native_sizes};
}
Subject native_ties() {
  Subject subject = native();
  subject.law = "of blocks that are as important the first are selected";
  return subject;
}
constexpr char token_tile[] = "native_sparse_attention/token_tile.h";
constexpr char chunk_walk[] = "native_sparse_attention/chunk_walk.h";
constexpr char select_tile[] = "native_sparse_attention/select_tile.h";
constexpr char gradient_tile[] = "native_sparse_attention/gradient_tile.h";
constexpr char key_sums[] = "native_sparse_attention/key_sums.h";
constexpr char token_lists[] = "native_sparse_attention/token_lists.h";
const Sizes native_tile_sizes = {{"B", 1},  {"T", 110}, {"Hq", 18},         {"Hkv", 1},
                                 {"D", 32}, {"Dv", 32}, {"block_size", 16}, {"block_count", 4}};
Subject native_tile() {
  return {root, "native_sparse_attention", "all_branches.bf16", "native_sparse_attention/forward.matrix.gpu.cu", native_tile_sizes};
}
Subject native_tile_of_nan() {
  Subject subject = native_tile();
  subject.law = "tokens after a query do not matter, even NaN";
  return subject;
}
Subject native_tile_gradient() {
  return {root, "native_sparse_attention_bwd", "all_branches.bf16", "native_sparse_attention/backward.matrix.gpu.cu", native_tile_sizes};
}
// Lists of more tokens than a part has.
Subject native_parts() {
  return {root,
          "native_sparse_attention_bwd",
          "blocks_and_window.bf16",
          "native_sparse_attention/backward.matrix.gpu.cu",
          {{"B", 1}, {"T", 170}, {"Hq", 2}, {"Hkv", 1}, {"D", 16}, {"Dv", 16}, {"block_size", 80}, {"block_count", 2}}};
}
// Packed sequences, some shorter than a block, of means, blocks and a window.
constexpr char packed_tokens[] = "native_sparse_attention/packed_tokens.h";
const Sizes native_packed_sizes = {{"B", 1},  {"N", 4},   {"T", 110},         {"Hq", 3},          {"Hkv", 1},
                                   {"D", 32}, {"Dv", 32}, {"block_size", 16}, {"block_count", 3}, {"window_left", 20}};
Subject native_packed() {
  return {root, "native_sparse_attention", "packed.bf16", "native_sparse_attention/forward.matrix.gpu.cu", native_packed_sizes};
}
Subject native_packed_gradient() {
  return {root, "native_sparse_attention_bwd", "packed.bf16", "native_sparse_attention/backward.matrix.gpu.cu", native_packed_sizes};
}
// Lists of blocks and slices of them, as calls of many tokens have: more blocks than a word has bits.
constexpr char block_lists[] = "native_sparse_attention/block_lists_gpu.h";
Subject of_variant(const char* variant, Subject subject) {
  subject.variant = variant, subject.sizes["block_size"] = 1, subject.sizes["block_count"] = 5;
  return subject;
}
Subject native_lists() { return of_variant("mma_lists", native_tile()); }
Subject native_slices() { return of_variant("mma_sliced", native_tile_gradient()); }
Subject native_packed_slices() { return of_variant("mma_packed_sliced", native_packed_gradient()); }
// On matrix instructions of a wave.
constexpr char wave_token_tile[] = "native_sparse_attention/wave_token_tile.h";
constexpr char wave_select_tile[] = "native_sparse_attention/wave_select_tile.h";
constexpr char wave_values[] = "native_sparse_attention/wave_values.h";
Subject native_f16_tile() {
  Subject subject = native_tile();
  subject.case_name = "all_branches.f16";
  return subject;
}
Subject native_named_tile() {
  return {root,
          "apply_native_sparse_attention",
          "groups.bf16",
          "native_sparse_attention/apply.matrix.gpu.cu",
          {{"B", 1}, {"T", 90}, {"Hq", 18}, {"Hkv", 1}, {"S", 2}, {"D", 48}, {"Dv", 32}, {"block_size", 11}}};
}
Subject native_gradient() {
  return {root,
          "native_sparse_attention_bwd",
          "all_branches.f32",
          "native_sparse_attention/backward.plain.gpu.cu",
          {{"B", 1}, {"T", 50}, {"Hq", 4}, {"Hkv", 2}, {"D", 8}, {"Dv", 8}, {"block_size", 7}, {"block_count", 3}}};
}

const Mutant mutants[] = {
    {"NativeSparseThatSelectsOneBlockLess", native(), {"count > 1 ? 2 : 1", 0, "count > 1 ? 3 : 1", selected_blocks}},
    {"NativeSparseThatSelectsTheLastOfEqualBlocks",
     native_ties(),
     {"ones_in(same & ((1u << lane()) - 1)) < equal", 0, "ones_in(same >> lane()) <= equal", select_blocks}},
    {"NativeSparseThatEndsBeforeTheNumberIsExact", native(), {"exact = reach == room", 0, "exact = reach >= room", select_blocks}},
    {"NativeSparseThatSearchesFromTheSecondBitThatDiffers",
     native(),
     {"bit = apart - apart / 2", 0, "bit = apart / 2 - apart / 4", select_blocks}},
    {"NativeSparseThatForgetsTiesOfEarlierLanes", native_ties(), {"equal -= ones_in(same);", 0, nothing, select_blocks}},
    {"NativeSparseThatSeesTheBlockOfTheQueryAsAMean", native(), {"past = (token + 1) /", 0, "past = (token + 2) /"}},
    {"NativeSparseWhoseImportanceLacksAHead",
     native(),
     {"int head = 0; head < heads", 0, "int head = 1; head < heads", "native_sparse_attention/head_rows.h"}},
    {"NativeSparseThatDoesNotWaitForImportance",
     native(),
     {"    sync_block();\n  }\n  if (warp() == 0) {", 0, "  }\n  if (warp() == 0) {"}},
    {"NativeSparseWhoseRunsBeginTooEarly", native(), {"{begin > first ? begin : first, block", 0, "{first, block", selected_blocks}},
    {"NativeSparseTileThatSkipsAKey",
     native_tile(),
     {"at += piece.count;", 0, "at += piece.count + 1;", "native_sparse_attention/piece_walk.h"}},
    {"NativeSparseTileThatDoesNotWaitForKeys",
     native_tile(),
     {"copy_async_wait<STAGES - 2>()", 0, "copy_async_wait<STAGES - 1>()", chunk_walk}},
    {"NativeSparseTileThatReadsBeforeOthersCopied",
     native_tile(),
     {"    sync_block();\n    const Piece* const pieces", 0, "    const Piece* const pieces", chunk_walk}},
    {"NativeSparseTileThatSeesBlocksOfOtherTokens", native_tile(), {"(!bits || has_block(bits, piece.block))", 0, "true", chunk_walk}},
    {"NativeSparseTileThatSeesTheNextKey", native_tile(), {"key < seen.end) ? score", 0, "key < seen.end + 1) ? score", token_tile}},
    {"NativeSparseTileThatMeetsUnseenValues", native_tile_of_nan(), {"b[0] & kept[0]", 0, "b[0]", token_tile}},
    {"NativeSparseTileWithoutTheGateOfMeans", native_tile(), {"[2 * r + i % 2] *= sum[r];", 0, "[2 * r + i % 2] *= 1;", token_tile}},
    {"NativeSparseSelectionByOneTerm", native_tile(), {"rest[i] * (1 / FACTOR)", 0, "rest[i] * 0", select_tile}},
    {"NativeSparseSelectionThatForgetsEarlierHeads", native_tile(), {"are_first ? sum", 0, "true ? sum", select_tile}},
    {"NativeSparseSelectionWhoseSumsAreOfOneLane", native_tile(), {"all += shuffle_xor(all, 2);", 0, nothing, select_tile}},
    {"NativeSparseTileGradientWithoutDelta",
     native_tile_gradient(),
     {"sums[n][i] -= rest * weighed[n][i]", 0, "sums[n][i] -= 0", gradient_tile}},
    {"NativeSparseTileGradientOfAnotherGate", native_tile_gradient(), {"return about[r] + rest;", 0, "return rest;", gradient_tile}},
    {"NativeSparseTileGradientThatSeesTheNextKey",
     native_tile_gradient(),
     {"key < end ? exp2_of", 0, "key < end + 1 ? exp2_of", gradient_tile}},
    {"NativeSparseKeysThatSeeEarlierTokens", native_tile_gradient(), {"key >= row.begin && key < row.end", 0, "true", key_sums}},
    {"NativeSparseKeysWithoutTheLastStep", native_tile_gradient(), {"+ ROWS - 1) / ROWS, first", 0, ") / ROWS, first", key_sums}},
    {"NativeSparseKeysThatDoNotWaitForRows",
     native_tile_gradient(),
     {"copy_async_wait<0>();\n      sync_block();", 0, "sync_block();", key_sums}},
    {"NativeSparseKeysWithRulesOfTheStepBefore",
     native_tile_gradient(),
     {"rules[i % RULE_RING]", 0, "rules[(i + 2) % RULE_RING]", key_sums}},
    {"NativeSparseListsOfOneWarpOnly", native_tile_gradient(), {"found += ones_in(all);", 0, "found = ones_in(all);", token_lists}},
    {"NativeSparseListsWhosePartsOverlap", native_parts(), {"before + first, count", 0, "before, count", token_lists}},
    {"NativeSparseListsWithoutTheirLaterParts", native_parts(), {"= {parts_before, own_parts}", 0, "= {parts_before, 1}", token_lists}},
    {"NativeSparseGradientOfMeansNotShared", native_gradient(), {"1 / static_cast<float>(block_size)", 0, "1"}},
    {"NativeSparseGradientWithoutDelta", native_gradient(), {"(product - of_gate)", 0, "product"}},
    {"NativeSparseGradientThatSeesOneMoreInTheWindow",
     native_gradient(),
     {"token - key <= window_left", 0, "token - key <= window_left + 1"}},
    {"NativeSparsePackedWhoseFirstTokenIsOfTheSequenceBefore",
     native_packed(),
     {"(offsets[middle] <= token ?", 0, "(offsets[middle] < token ?", packed_tokens}},
    {"NativeSparsePackedWhoseTilesAreSkipped", native_packed(), {"size - (also_parts ? low : 0)", 0, "size", packed_tokens}},
    {"NativeSparsePackedWhoseMeansAreOfAnotherSequence", native_packed(), {"return first / block_size;", 0, "return 0;", packed_tokens}},
    {"NativeSparsePackedKeysOfAnotherSequence",
     native_packed_gradient(),
     {"{{offsets[low], end - offsets[low]}", 0, "{{offsets[low], tokens - offsets[low]}", packed_tokens}},
    {"NativeSparsePackedWindowSumsOfAnotherTile",
     native_packed_gradient(),
     {"(of.first / size + sequence) * size", 0, "of.first / size * size", packed_tokens}},
    {"NativeSparseListsInWhichWordsOverlap", native_lists(), {"(lane() & mask) != 0 ? other", 0, "false ? other", block_lists}},
    {"NativeSparseListsOfTheFirstWord", native_lists(), {"% WARP == lane()) bits", 0, "% WARP == 0) bits", block_lists}},
    {"NativeSparseSlicesThatAreAllTheFirst",
     native_slices(),
     {"static_cast<int>(step * slice_words) * 32", 0, "0", "native_sparse_attention/gradient_entries.h"}},
    {"NativeSparseSlicesThatMarkEarlierBlocks", native_slices(), {"at >= 0 && at / 32", 0, "at / 32", token_lists}},
    {"NativeSparsePackedSlicesOfAnotherSequence",
     native_packed_slices(),
     {"static_cast<int>(place.first_in_parts(size) / size)", 0, "static_cast<int>(place.of.first / size)", token_lists}},
    {"NativeSparseWaveThatSeesTheNextKey",
     on(rdna4, native_tile()),
     {"key < seen.end) ? scores", 0, "key < seen.end + 1) ? scores", wave_token_tile}},
    {"NativeSparseWaveThatMeetsUnseenValues", on(cdna, native_tile_of_nan()), {"a.words[i] &= kept[i];", 0, ";", wave_token_tile}},
    {"NativeSparseWaveWithoutTheGateOfMeans", on(rdna3, native_tile()), {"- reference) * sum;", 0, "- reference);", wave_token_tile}},
    {"NativeSparseWaveWhoseSumIsOfOneLane", on(cdna, native_tile()), {"sum = sum_of_column(sum);", 0, ";", wave_token_tile}},
    {"NativeSparseWaveWhoseReferenceIsOfOneLane",
     on(rdna4, native_tile()),
     {"largest = largest_of_column(largest);", 0, nothing, wave_token_tile}},
    {"NativeSparseWaveThatScalesWhileItFindsSums",
     on(cdna, native_tile()),
     {"if (mode == WEIGH) scale(by);", 0, "scale(by);", wave_token_tile}},
    {"NativeSparseWaveWithValuesOfTheFirstPiece",
     on(rdna3, native_tile()),
     {"PITCH + (first + key) * 2", 0, "PITCH + key * 2", wave_values}},
    {"NativeSparseWaveWithKeysOfTheFirstPiece", on(cdna, native_tile()), {"at(first_row, 0)", 0, "at(0, 0)", wave_token_tile}},
    {"NativeSparseWaveSelectionByOneTerm", on(cdna, native_tile()), {"rest.at[i] * (1 / FACTOR)", 0, "rest.at[i] * 0", wave_select_tile}},
    {"NativeSparseWaveSelectionThatForgetsTheFactor",
     on(rdna3, native_f16_tile()),
     {"rest.at[i] * (1 / FACTOR)", 0, "rest.at[i]", wave_select_tile}},
    {"NativeSparseWaveSelectionThatForgetsEarlierHeads", on(rdna4, native_tile()), {"are_first ? sum", 0, "true ? sum", wave_select_tile}},
    {"NativeSparseWaveSelectionWhoseSumsAreOfTwoLanes",
     on(rdna4, native_tile()),
     {"mask = 1; mask < 16", 1, "mask = 1; mask < 2", wave_select_tile}},
    {"NativeSparseWaveSelectionOfHeadsThatAreNotThere",
     on(cdna, native_tile()),
     {"matrix_row(i) < heads ?", 0, "true ?", wave_select_tile}},
    {"NativeSparseWaveThatDoesNotWaitForImportance",
     on(rdna3, native_tile()),
     {"sync_${team}();", 0, nothing, "native_sparse_attention/select_entry.h"}},
    {"NativeSparsePackedWavesThatGoBeyondTheSequence",
     on(cdna, native_packed()),
     {"there = first_token + ${team}() <= last", 0, "there = true", chunk_walk}},
    {"NativeSparseWaveWithBitsOfAWarp",
     on(cdna, native_named_tile()),
     {"load_named_bits(bits_of(1 + ${team}())", 0, "load_named_bits(bits_of(1 + warp())"}},
    {"NativeSparseWaveOfNamedBlocksOfOtherTokens",
     on(rdna4, native_named_tile()),
     {"(!bits || has_block(bits, piece.block))", 0, "true", chunk_walk}},
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
    {"BlocksGradientListedFromZeroInEachWarp",
     matrix_gradient("cross.bf16", many_query_blocks),
     {"found += shuffle", 0, "found = shuffle", step_list}},
    {"BlocksGradientListedByTheFirstHead", matrix_gradient("cross.bf16"), {"mask.shape[1] == 1 ? 0 : head", 0, "0", step_list}},
    {"BlocksGradientWhoseHeadsGoByTheFirst",
     matrix_gradient("cross.bf16"),
     {"first_head + list_head, first_key", 0, "first_head, first_key", turns}},
    {"BlocksGradientWithPlacesForTwoTurns", matrix_gradient("cross.bf16"), {"turn_step[number % 4]", 0, "turn_step[number % 2]", turns}},
    {"BlocksGradientThatFindsTurnsTooLate", matrix_gradient("cross.bf16"), {"find_turn(list, turn + 2)", 0, "find_turn(list, turn + 1)"}},
    {"BlocksGradientThatSeesTheNextChunk",
     matrix_gradient("chunks.bf16"),
     {"j - j % rule.chunk + rule.chunk", 0, "j + rule.chunk", gradient_rows}},
    {"PackedBlocksOfTheFirstSequence", blocks("packed.bf16", packed_sizes), {"s.past_the_end ? 0 : s.index", 0, "0", packed_blocks}},
    {"PackedBlocksCopiedFromTheFirstSequence",
     blocks("packed.bf16", packed_sizes),
     {"${packed ? 'sequence.first_key + ' : ''}of.first", 0, "of.first"}},
    {"PackedBlocksThatSeeKeysPastTheMask", packed_plain("packed.f32"), {"if (s.keys > keys) s.keys = keys;", 0, nothing, packed_blocks}},
    {"PackedBlocksWhoseLastRowsAreRepeated", packed_plain("packed.f32"), {"if (s.queries > queries)", 0, "if (false)", packed_blocks}},
    {"PackedBlocksGradientOfTheFirstSequence",
     packed_gradient("packed.f32"),
     {"${packed ? 'index' : 'batch'}", 0, "batch", plain_gradient_rows}},
    {"PackedBlocksGradientListedByTheFirstSequence",
     matrix_gradient("packed.bf16", packed_sizes),
     {"${packed ? 'index' : 'batch'}", 0, "batch", turns}},
    {"CdnaBlocksGradientOfKeysThatSeesAllBlocks",
     on(cdna, wave_gradient("cross.bf16")),
     {"if (!has_tile(in, sequence, head, first + n", 0, "if (false && !has_tile(in, sequence, head, first + n"}},
    {"Rdna4BlocksGradientOfQueriesThatSeesAllBlocks",
     on(rdna4, wave_gradient("cross.bf16")),
     {"if (!has_tile(in, sequence, head, first_own", 0, "if (false && !has_tile(in, sequence, head, first_own"}},
    {"BlocksGradientWhoseNanReachesNoSink", nan_without_keys(mma_gradient), unseen_sinks},
    {"PlainBlocksGradientWhoseNanReachesNoSink", nan_without_keys(plain_gradient), unseen_sinks},
    {"BlocksGradientWhoseNanMissesABias", nan_beside_minus_infinity(mma_gradient), unseen_bias},
    {"PlainBlocksGradientWhoseNanMissesABias", nan_beside_minus_infinity(plain_gradient), unseen_bias},
    {"CdnaBlocksGradientWhoseNanMissesABias", on(cdna, nan_beside_minus_infinity(waves_gradient)), unseen_bias},
    {"Rdna4BlocksGradientThatSeesOtherChunks",
     on(rdna4, wave_gradient("chunks.bf16")),
     {"${by_blocks ? 'sequence, own' : 'own, sequence.offset, sequence.keys'}", 0, "own, sequence.offset, sequence.keys"}},
    {"CdnaBlocksThatSeeKeysAfterThem", on(cdna, wave_blocks("cross.bf16")), {"both(here.range, of)", 0, "here.range"}},
    {"Rdna4BlocksThatSkipTheSecondStep", on(rdna4, wave_blocks("cross.bf16")), {"at = keys.end;", 0, "at = keys.end + KEYS;", block_steps}},
};

INSTANTIATE_TEST_SUITE_P(Sparse, KernelMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Sparse, KernelMutantsOriginal, ::testing::ValuesIn(first_of_each_subject<Mutant>(mutants)), name_of);

}  // namespace
}  // namespace ejk::kernel_mutants::sparse

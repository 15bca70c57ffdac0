// Hopper's templates with one word changed: a wait less, bytes too few, a wrong swizzle. Every one must be found, or the emulator would not
// find the same mistake in a new kernel. `shown`: by which paces. What the emulator does not see is not listed: fences of proxies
// (fence_async), wgmma_fence, CTAs of a cluster that leave too early; a store's buffer that is written again much later.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/day.hpp"
#include "tests/paths.hpp"
#include "tests/ptx/hopper_trial.hpp"

namespace ejk::hopper_trial {
namespace {

struct Mutant {
  const char* name;
  Subject subject;
  Change change;
  Shown shown;
  friend void PrintTo(const Mutant& mutant, std::ostream* stream) { *stream << mutant.name; }
};

// Tiles of several steps, more of them than the ring holds, and more than one tile for a CTA. Attention's steps are whole: else it would
// compute outputs that are not finite again, slowly and right.
const Subject attention{
    "flash_attention", "cross.bf16", "hopper", {{"B", 1}, {"Sq", 130}, {"Sk", 512}, {"Hq", 6}, {"Hkv", 2}, {"D", 64}, {"Dv", 64}}};
const Subject packed_blocks{
    "blocksparse_attention",
    "packed_128.bf16",
    "hopper_packed",
    {{"N", 3}, {"Tq", 400}, {"Tk", 520}, {"Mq", 2}, {"Mk", 3}, {"Hq", 2}, {"Hkv", 2}, {"Hm", 2}, {"D", 128}, {"Dv", 128}, {"A", 2}}};
const Subject packed_block_gradients{
    "blocksparse_attention_bwd",
    "packed_128.bf16",
    "hopper_packed",
    {{"N", 3}, {"Tq", 400}, {"Tk", 520}, {"Mq", 1}, {"Mk", 1}, {"Hq", 2}, {"Hkv", 2}, {"Hm", 2}, {"D", 128}, {"Dv", 128}, {"A", 2}}};
const Subject gradients_in_chunks{"blocksparse_attention_bwd",
                                  "chunks_d128.bf16.block_k128",
                                  "hopper_chunks",
                                  {{"B", 1}, {"Sq", 200}, {"Sk", 300}, {"Hq", 2}, {"Hkv", 1}, {"Hm", 1}, {"D", 128}, {"Dv", 128}}};
// Enough blocks of keys for each query that sums in another order have other bits.
const Subject gradients_in_turn{"blocksparse_attention_bwd",
                                "in_turn.f16.window_leftm1.block_k64",
                                "hopper_ordered",
                                {{"B", 1}, {"Sq", 200}, {"Sk", 620}, {"Hq", 4}, {"Hkv", 2}, {"Hm", 1}, {"D", 128}, {"Dv", 128}}};
const Subject windows_in_turn{"blocksparse_attention_bwd",
                              "in_turn.f16.window_left100.block_k256",
                              "hopper_ordered",
                              {{"B", 1}, {"Sq", 300}, {"Sk", 620}, {"Hq", 2}, {"Hkv", 1}, {"Hm", 2}, {"D", 128}, {"Dv", 128}}};
// Sequences of several blocks, more groups of tokens than CTAs, and tokens of no sequence.
const Subject packed_tokens{"native_sparse_attention",
                            "packed_equal_tiles",
                            "hopper_packed",
                            {{"B", 1}, {"N", 3}, {"T", 670}, {"Hq", 16}, {"Hkv", 1}, {"D", 128}, {"Dv", 128}}};
const Subject packed_slopes{"native_sparse_attention_bwd",
                            "packed_tiles.bf16",
                            "hopper_packed",
                            {{"B", 1}, {"N", 4}, {"T", 300}, {"Hq", 16}, {"Hkv", 1}, {"D", 128}, {"Dv", 128}}};
const Subject products{"grouped_matmul", "small_bf16", "hopper", {{"M", 300}, {"K", 600}, {"N", 128}, {"G", 3}, {"L", 3}}};
// Chunks enough to go round the ring of stages; two heads of a group.
const Subject states{"ssd", "chunks.bf16", "chunk_hopper", {{"B", 1}, {"T", 330}, {"H", 2}, {"G", 1}, {"N", 32}, {"P", 48}}};
const Subject flows{"ssd_bwd", "chunks", "chunk_hopper", {{"B", 1}, {"T", 330}, {"H", 2}, {"G", 1}, {"N", 128}, {"P", 48}}};
// Two heads of three pairs of chunks, the last of which ends early: more of them than CTAs.
const Subject delta{"recurrent_bwd",
                    "chunks_delta_alike",
                    "chunk_delta_hopper",
                    {{"B", 1}, {"T", 300}, {"Hq", 2}, {"Hk", 2}, {"Hv", 2}, {"K", 128}, {"V", 72}}};
// Gates of any size, so that pairs go level by level; walks of more chunks than values have places.
const Subject levels{
    "recurrent", "kda.bf16.b1", "chunk_keys_delta_hopper", {{"B", 1}, {"T", 130}, {"Hq", 1}, {"Hk", 1}, {"Hv", 1}, {"K", 72}, {"V", 40}}};
const Subject walks{"recurrent_bwd",
                    "kda_mild.b1",
                    "chunk_keys_delta_hopper",
                    {{"B", 1}, {"T", 260}, {"Hq", 1}, {"Hk", 1}, {"Hv", 1}, {"K", 80}, {"V", 88}}};
// States of bf16, more of them a CTA than there are stages.
const Subject decoded{"recurrent_update",
                      "bf16_state_of_many.bf16",
                      "gpu_decode_hopper",
                      {{"B", 4}, {"T", 1}, {"Hq", 8}, {"Hk", 8}, {"Hv", 8}, {"K", 128}, {"V", 128}}};
// Sequences that end within boxes of 64 tokens.
const Subject packed{"recurrent_bwd",
                     "chunks_delta_alike_packed",
                     "chunk_delta_hopper_packed",
                     {{"N", 3}, {"T", 300}, {"Hq", 1}, {"Hk", 1}, {"Hv", 1}, {"K", 72}, {"V", 72}}};
// From the last token on: keys with the delta rule, sequences that end within boxes.
const Subject backwards{"recurrent_bwd",
                        "chunks_keys_delta_alike_packed_reversed",
                        "chunk_keys_delta_hopper_packed",
                        {{"N", 2}, {"T", 150}, {"Hq", 1}, {"Hk", 1}, {"Hv", 1}, {"K", 72}, {"V", 72}}};
const Subject strong_keys{"recurrent_bwd",
                          "strong_keys.bf16",
                          "chunk_keys_hopper",
                          {{"B", 1}, {"T", 130}, {"Hq", 1}, {"Hk", 1}, {"Hv", 1}, {"K", 128}, {"V", 72}}};
const Subject pairs{"grouped_matmul", "small_bf16", "hopper", {{"M", 150}, {"K", 640}, {"N", 192}, {"G", 2}, {"L", 2}}};

constexpr char consumer[] = "flash_attention/forward_sm90_consumer.h", producer[] = "flash_attention/forward_sm90_producer.h";
constexpr char decode[] = "recurrent/forward.decode.sm90.cu";
constexpr char chunk_rules[] = "blocksparse_attention/sm90_chunks.h", turn_ranks[] = "blocksparse_attention/sm90_turn_ranks.h";
constexpr char token_items[] = "native_sparse_attention/sm90_token_items.h", tile_ring[] = "native_sparse_attention/sm90_tile_ring.h";
constexpr char select_groups[] = "native_sparse_attention/sm90_select_groups.h",
               select_means[] = "native_sparse_attention/sm90_select_entry.h";
constexpr char find_means[] = "native_sparse_attention/sm90_mean_entry.h", attend[] = "native_sparse_attention/forward.sm90.cu";
constexpr char slopes[] = "native_sparse_attention/backward.sm90.cu", key_slopes[] = "native_sparse_attention/sm90_key_entries.h";
constexpr char grouped[] = "grouped_matmul/forward.sm90.cu", stores[] = "device/sm90/sm90_store.h";
constexpr char carrier[] = "recurrent/chunk_sm90_carrier.h";
constexpr char flow_weigher[] = "recurrent/chunk_sm90_gradient_weigher.h", flow_carrier[] = "recurrent/chunk_sm90_gradient_carrier.h";
constexpr char inverses[] = "recurrent/chunk_sm90_delta_prepare.h", systems[] = "recurrent/chunk_sm90_delta_system.h",
               delta_states[] = "recurrent/chunk_sm90_delta_states.h";
constexpr char triangles[] = "recurrent/chunk_sm90_delta_triangles.h";
constexpr char turns[] = "recurrent/chunk_sm90_delta_gradient_turns.h", turn_parts[] = "recurrent/chunk_sm90_delta_gradient_parts.h";
constexpr char turn_gates[] = "recurrent/chunk_sm90_delta_gates.h";
constexpr char key_walk[] = "recurrent/chunk_sm90_key_delta_states.h";
constexpr char key_levels[] = "recurrent/chunk_sm90_key_delta_prepare_levels.h",
               walk_parts[] = "recurrent/chunk_sm90_key_delta_state_parts.h";
constexpr char key_rows[] = "recurrent/chunk_sm90_key_delta_rows.h", flat[] = "recurrent/chunk_sm90_key_delta_flat.h";
constexpr char key_sums[] = "recurrent/chunk_sm90_key_gradient_sums.h";
constexpr char ends[] = "recurrent/chunk_sm90_packed.h";
constexpr char values[] = "ssd/sm90_value_gradient.h", step_gradients[] = "ssd/sm90_step_gradients.h";

const Mutant mutants[] = {
    {"DecodeChangesAStateThatHasNotCome", decoded, {decode, "barrier_wait_all(full(stage), step / STAGES % 2);", 0, ""}, Shown::by_lazy},
    {"DecodeWritesAStateThatIsNotChanged", decoded, {decode, "barrier_wait(changed(stage), step / STAGES % 2);", 0, ""}, Shown::by_both},
    {"DecodeOverwritesAStateOnItsWay", decoded, {decode, "store_wait_read<0>();", 0, ""}, Shown::by_lazy},
    {"AttentionReadsScoresBeforeTheyAreMade", attention, {consumer, "wgmma_wait<1>();", 0, ""}, Shown::by_both},
    {"AttentionReleasesValuesThatAreStillMultiplied",
     attention,
     {consumer, "wgmma_wait<0>();\n      keep_in_place(o);\n      release_values", 0, "release_values"},
     Shown::by_lazy},
    {"AttentionMultipliesKeysThatHaveNotCome",
     attention,
     {consumer, "barrier_wait_all(at.k_full(keys.at), keys.parity);\n        wait_values(values);", 0, "wait_values(values);"},
     Shown::by_lazy},
    {"AttentionMultipliesValuesThatHaveNotCome",
     attention,
     {consumer, "barrier_wait_all(at.v_full(values.at), values.parity);", 0, ""},
     Shown::by_both},
    {"AttentionOverwritesKeys", attention, {producer, "barrier_wait(empty(full), keys.parity ^ 1);", 0, ""}, Shown::by_both},
    {"AttentionWaitsForTheWrongParity",
     attention,
     {producer, "barrier_wait(empty(full), values.parity ^ 1);", 0, "barrier_wait(empty(full), values.parity);"},
     Shown::by_both},
    {"AttentionExpectsBytesThatDoNotCome", attention, {producer, "K_BYTES);", 0, "K_BYTES + 16);"}, Shown::by_both},
    {"AttentionReadsValuesByAnotherSwizzle", attention, {consumer, "row_major<128>", 0, "row_major<64>"}, Shown::by_both},
    {"PackedBlocksCopiedFromTheFirstSequence",
     packed_blocks,
     {producer, "${packed ? 'tile.first_key + ' : ''}next_number", 0, "next_number"},
     Shown::by_both},
    {"PackedBlocksOfTheFirstSequence",
     packed_blocks,
     {"flash_attention/forward.sm90.cu", "(packed ? 'true' : 'PACKED && DROPPED')", 0, "'PACKED && DROPPED'"},
     Shown::by_both},
    {"PackedGradientsOfTheFirstSequencesBlocks",
     packed_block_gradients,
     {"blocksparse_attention/sm90_listed_turns.h", "packed ? 'index' : 'batch'", 0, "'batch'"},
     Shown::by_both},
    {"PackedGradientsOfBlocksThatTheMaskLacks",
     packed_block_gradients,
     {"flash_attention_bwd/sm90_attention_keys.h", "sequence = sequences.cut(sequence);", 0, ""},
     Shown::by_both},
    {"PackedGradientsPreparedOfTheFirstSequence",
     packed_block_gradients,
     {"blocksparse_attention/sm90_prepare_rows.h", "packed ? 'sequence.first_query + ' : ''", 0, "''"},
     Shown::by_both},
    {"PackedGradientsOfTheSequenceBefore",
     packed_block_gradients,
     {"blocksparse_attention/sm90_packed_rows.h", "first_tile(middle) <= tile", 0, "first_tile(middle) < tile"},
     Shown::by_both},
    {"PackedGradientsStoredInTheNextSequence",
     packed_block_gradients,
     {"blocksparse_attention/sm90_packed_rows.h", "left < ROWS ? left : ROWS", 0, "ROWS"},
     Shown::by_both},
    {"ChunkGradientsOfQueriesBeforeTheKey", gradients_in_chunks, {chunk_rules, "from = key - offset", 0, "from = -offset"}, Shown::by_both},
    {"ChunkGradientsOfTheNextChunksQueries",
     gradients_in_chunks,
     {chunk_rules, "+ rule.chunk - offset", 0, "+ 2 * rule.chunk - offset"},
     Shown::by_both},
    {"OrderedGradientsTellOfHalfTheirFeatures",
     gradients_in_turn,
     {"flash_attention_bwd/backward_sm90_consumer.h", "if (ONE_BOX || first_box == 1) ", 0, ""},
     Shown::by_both},
    {"OrderedGradientsOfABlocksKeysAtOnce",
     windows_in_turn,
     {"blocksparse_attention/sm90_listed_turns.h", "among = of.first_key % list.block / Block::COUNT", 0, "among = 0"},
     Shown::by_both},
    {"OrderedGradientsWaitForBlocksThatTheWindowHides",
     windows_in_turn,
     {turn_ranks, "counts[i] = ranks.unseen", 0, "counts[i] = 0 * ranks.unseen"},
     Shown::by_both},
    {"OrderedGradientsWaitForBlocksOfOneHalf", windows_in_turn, {turn_ranks, "PARTS == 2 ? 0x10001 : 1", 0, "1"}, Shown::by_both},
    {"PackedTokensOfTwoSequencesTogether",
     packed_tokens,
     {token_items, "TOKENS, true, tokens)", 0, "TOKENS, false, tokens)"},
     Shown::by_both},
    {"PackedTokensSeeKeysOfTheFirstSequence",
     packed_tokens,
     {tile_ring, "${packed ? 'start + first' : 'first'}", 0, "first"},
     Shown::by_both},
    {"PackedTokensSeeMeansOfTheSequenceBefore",
     packed_tokens,
     {attend, "${packed ? 'end' : '(token + 1)'}", 0, "(token + 1)"},
     Shown::by_both},
    {"PackedMeansLieInOneTile",
     packed_tokens,
     {find_means, "first_tile_of_means(block.sequence", 0, "first_tile_of_means(0"},
     Shown::by_both},
    {"PackedMeansStayInTheRing", packed_tokens, {select_means, "ring.leave(turn, kept);", 0, ""}, Shown::by_both},
    {"PackedGroupsBeginWithTheirSequence",
     packed_tokens,
     {select_groups, "first_group = group - static_cast<int>(part.number)", 0, "first_group = group"},
     Shown::by_both},
    {"PackedTokensOfNoSequenceHaveSums", packed_tokens, {attend, "${packed ? ' || end == 0' : ''}", 0, ""}, Shown::by_both},
    {"PackedTokensOfNoSequenceHaveBlocks", packed_tokens, {attend, "there = exists && !item.of_none", 0, "there = exists"}, Shown::by_both},
    {"PackedSlopesOfKeysOfTheSequenceBefore",
     packed_slopes,
     {slopes, "i + 1${packed ? ' - start' : ''}; })", 0, "i + 1; })"},
     Shown::by_both},
    {"PackedSlopesOfQueriesOfTheFirstSequence",
     packed_slopes,
     {tile_ring, "${packed ? 'start + first_token' : 'first_token'}", 0, "first_token"},
     Shown::by_both},
    {"PackedSlopesOfMeansThatAreLater",
     packed_slopes,
     {key_slopes, "(token + 1${packed ? ' - start' : ''})", 0, "(token + 1)"},
     Shown::by_both},
    {"PackedSlopesOfMeansOfTheFirstSequence",
     packed_slopes,
     {key_slopes, "${packed ? 'own.of.first_mean(block_size) + ' : ''}first", 0, "first"},
     Shown::by_both},
    {"ProductsExpectABoxLess",
     products,
     {grouped, "barrier_arrive_expect(full, bytes);", 0, "barrier_arrive_expect(full, bytes - RHS_BOX);"},
     Shown::by_both},
    {"ProductsWithoutTheWaitForASlot", products, {grouped, "barrier_wait(at.empty(slot), oldest / SLOTS % 2);", 0, ""}, Shown::by_both},
    {"ProductsReleasedByOneWarpgroup",
     products,
     {grouped, "barrier_init(at.empty(slot), 2 * BLOCKS);", 0, "barrier_init(at.empty(slot), BLOCKS);"},
     Shown::by_both},
    {"ProductsOfOneReleaseTooMany",
     products,
     {grouped, "barrier_init(at.empty(slot), 2 * BLOCKS);", 0, "barrier_init(at.empty(slot), 3 * BLOCKS);"},
     Shown::by_both},
    {"ProductsReleasedWhileTheyRun", products, {grouped, "wgmma_wait<1>();", 0, ""}, Shown::by_both},
    {"ProductsWithoutTheLastWait", products, {grouped, "wgmma_wait<0>();", 0, ""}, Shown::by_both},
    {"ProductsWithoutTheWaitForStores", products, {stores, "store_wait_read<BUFFERS - 1>();", 0, ";"}, Shown::by_lazy},
    {"ProductsStoredBeforeTheyAreThere", products, {stores, "sync_some(barrier, WARPGROUP);", 1, ""}, Shown::by_both},
    {"ProductsWithoutCommit", products, {grouped, "wgmma_commit();", 0, ""}, Shown::by_both},
    {"PairsCopyToOneBlockAlone", pairs, {grouped, "{k, row}, (1 << BLOCKS) - 1", 0, "{k, row}, 1"}, Shown::by_both},
    {"PairsReleaseTheirOwnSlotsAlone",
     pairs,
     {grouped, "barrier_release<BLOCKS>(at.empty(slot), thread)", 0, "barrier_release<BLOCKS>(at.empty(slot), cluster_rank())"},
     Shown::by_eager},
    {"StatesReadPairsThatAreNotWeighed", states, {carrier, "barrier_wait_all(at.weighed(slot), pairs.parity);", 0, ""}, Shown::by_both},
    {"StatesTakeInRowsThatAreNotMade", states, {carrier, "wgmma_wait<1>();", 0, ""}, Shown::by_lazy},
    {"FlowsOfRowsThatHaveNotCome", flows, {flow_weigher, "barrier_wait_all(at.full(turn.at), turn.parity);", 0, ""}, Shown::by_both},
    {"FlowsOverwriteRowsThatAreRead",
     flows,
     {flow_weigher, "barrier_wait_all(at.empty(turn.at), turn.parity ^ 1);\n    if (lane() == 0)", 0, "if (lane() == 0)"},
     Shown::by_eager},
    {"FlowsReadPairsThatAreNotWeighed",
     flows,
     {flow_carrier, "barrier_wait_all(at.weighed(slot.at), slot.parity);", 0, ""},
     Shown::by_lazy},
    {"FlowsOfPairsThatAreLater", flows, {flow_weigher, "direction * (own + 8 * h - s - i) : 1", 0, "1 : 1"}, Shown::by_both},
    {"FlowsAddTakenRowsThatAreNotMade",
     flows,
     {flow_carrier, "wgmma_wait<1>();\n    keep_in_place(taken);", 0, "keep_in_place(taken);"},
     Shown::by_lazy},
    {"FlowsOfHalfTheState", flows, {values, "k / 4 * (VALUE_BOXES * BOX)", 0, "0"}, Shown::by_both},
    {"FlowsScaleRowsThatAreNotMade", flows, {values, "wgmma_wait<0>();", 0, ""}, Shown::by_lazy},
    {"InversesOfRowsThatHaveNotCome", delta, {inverses, "barrier_wait_all(at.full(), 0);", 0, ""}, Shown::by_lazy},
    {"InversesOfDiagonalsThatAreNotMade", delta, {systems, "sync_block();  // blocks on the diagonal are there", 0, ""}, Shown::by_both},
    {"InversesWithoutTheSecondBlock", delta, {systems, "sync_block();  // the second block's neighbour is there", 0, ""}, Shown::by_both},
    {"InversesWithoutTheThirdBlock", delta, {systems, "sync_block();  // the third's products are there", 0, ""}, Shown::by_both},
    {"DeltaStatesOfOtherChunksAreKept", delta, {delta_states, "number % 2 == BACK", 0, "number % 2 != BACK"}, Shown::by_both},
    {"DeltaStatesTakeWhatIsLeftForWhatIsRead",
     delta,
     {delta_states, "BACK ? own.reads : own.after", 0, "BACK ? own.reads : own.before"},
     Shown::by_both},
    {"DeltaStatesTakeProductsThatAreNotMade",
     delta,
     {delta_states, "wgmma_wait<0>();\n      keep_in_place(taken);", 0, "keep_in_place(taken);"},
     Shown::by_both},
    {"DeltaStatesOfAQuarterInAnotherPlace", delta, {triangles, "(i < 2 ? i : 3)", 0, "i"}, Shown::by_both},
    {"DeltaStatesOfAQuarterThatIsNotCleared", delta, {triangles, "matrix + LAST_COLUMNS) + 4", 0, "matrix) + 4"}, Shown::by_both},
    {"DeltaGradientsOfStatesThatHaveNotCome",
     delta,
     {turn_parts, "barrier_wait_all(at.full(stage), stage_parity(number, turn, step));", 0, ""},
     Shown::by_both},
    {"DeltaGradientsOfPairsThatAreNotWeighed",
     delta,
     {turns, "barrier_wait(at.meeting(PAIRS_THERE), turn_parity(step, turn));", 0, ""},
     Shown::by_both},
    {"DeltaGradientsOfFlowsThatAreNotThere",
     delta,
     {turn_gates, "barrier_wait(at.meeting(FLOWS_THERE), (step * TURNS + turn) % 2);", 0, ""},
     Shown::by_both},
    {"DeltaGradientsWithoutPairsAcross", delta, {turns, "if (!late) add_across(dk, across);", 0, ""}, Shown::by_both},
    {"PackedEndsHaveRowsOfTheNextSequence",
     packed,
     {ends, "row < end) token = of.first + of.count - end + row", 0, "true) token = of.first + of.count - end + row"},
     Shown::by_both},
    {"PackedEndsGoToTheNextSequence", packed, {ends, "token + CHUNK <= count", 0, "token < count"}, Shown::by_both},
    {"PackedEndsAreNotPut", packed, {ends, "if (row.token < 0) return;", 0, "return;"}, Shown::by_both},
    {"PackedPairsOfTheSequenceBefore", packed, {ends, "TOKENS + middle <= group", 0, "TOKENS + middle < group"}, Shown::by_both},
    {"LevelsOfEightTakeThoseOfFour",
     levels,
     {key_levels, "put_near_level<8>(own.first, near_sums + LEVEL_SUMS", 0, "put_near_level<8>(own.first, near_sums"},
     Shown::by_both},
    {"LevelsWithoutWhatOtherPartsLeave", levels, {key_levels, "left[0] = other[0], left[1] = other[1];", 0, ""}, Shown::by_both},
    {"WalksReadNumbersOfTheNextPlace", walks, {key_walk, "memory + at.numbers(step)", 0, "memory + at.numbers(step + 1)"}, Shown::by_both},
    {"WalksWaitForTheWrongPlace", walks, {walk_parts, "return step / places(copied) % 2;", 0, "return step % 2;"}, Shown::by_both},
    {"ReversedRowsAreMetForwards",
     backwards,
     {key_rows, "at += reversed ? -rows.stride : rows.stride;", 0, "at += rows.stride;"},
     Shown::by_both},
    {"ReversedRowsBeginATokenLate",
     backwards,
     {key_rows, "tokens.end - 1 - token - first", 0, "tokens.end - 2 - token - first"},
     Shown::by_both},
    {"ReversedGatesAreMetForwards",
     backwards,
     {key_rows, "reversed ? -view.strides[1] : view.strides[1];", 0, "view.strides[1];"},
     Shown::by_both},
    {"ReversedGatesOfGradientsAreMetForwards",
     backwards,
     {flat, "REVERSED ? -gates.strides[1] : gates.strides[1];", 0, "gates.strides[1];"},
     Shown::by_both},
    {"KeyGradientsWithoutRestsOfRows",
     strong_keys,
     {key_sums, "for (int other = 0; other < PIECES; ++other)", 0, "for (int other = 0; other < 1; ++other)"},
     Shown::by_both},
    {"FlowsWithoutWhatFlowsThrough", flows, {step_gradients, "through * times.all", 0, "0 * times.all"}, Shown::by_both},
};

class PtxMutant : public ::testing::TestWithParam<Mutant> {};
// What is changed is right before: else any mutant would be found. Named by the first mutant of its subject.
class PtxMutantsOriginal : public ::testing::TestWithParam<Mutant> {};

// A third of the subjects a day, each with all of its mutants; of the others, that there is what they change.
bool of_the_day(const Subject& subject) { return test::of_the_day(subject.kernel + subject.case_name + subject.variant, 3); }

TEST_P(PtxMutant, IsFound) {
  if (!of_the_day(GetParam().subject)) {
    EXPECT_NO_THROW(test::ChangedStore(test::source_dir(), GetParam().change));
    return;
  }
  const auto outcome = try_on_hopper(GetParam().subject, GetParam().change);
  if (!outcome.has_compiler) GTEST_SKIP() << "no NVRTC is found";
  EXPECT_FALSE(outcome.is_broken) << outcome.words;
  EXPECT_EQ(outcome.shown, GetParam().shown) << outcome.words;
}

TEST_P(PtxMutantsOriginal, IsRight) {
  if (!of_the_day(GetParam().subject)) GTEST_SKIP() << "not one of the day's subjects";
  const auto outcome = try_on_hopper(GetParam().subject, std::nullopt);
  if (!outcome.has_compiler) GTEST_SKIP() << "no NVRTC is found";
  EXPECT_FALSE(outcome.is_broken) << outcome.words;
  EXPECT_EQ(outcome.shown, Shown::by_none) << outcome.words;
}

std::vector<Mutant> one_of_each_subject() {
  std::vector<Mutant> firsts;
  for (const auto& mutant : mutants)
    if (std::none_of(firsts.begin(), firsts.end(), [&](const Mutant& first) { return first.subject == mutant.subject; }))
      firsts.push_back(mutant);
  return firsts;
}

std::string name_of(const ::testing::TestParamInfo<Mutant>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Hopper, PtxMutant, ::testing::ValuesIn(mutants), name_of);
INSTANTIATE_TEST_SUITE_P(Hopper, PtxMutantsOriginal, ::testing::ValuesIn(one_of_each_subject()), name_of);

}  // namespace
}  // namespace ejk::hopper_trial

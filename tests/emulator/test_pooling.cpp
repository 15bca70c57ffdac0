// Mean pooling on GPUs, on the emulator: mutants of its templates, each of which must fail.
#include <gtest/gtest.h>

#include "emulator/trial.hpp"

namespace ejk {
namespace {

constexpr const char *forward = "forward.gpu.cu", *backward = "backward.gpu.cu";

struct Row {
  const char *name, *file, *case_name;
  Mutation mutation;
  friend void PrintTo(const Row& row, std::ostream* stream) { *stream << row.name; }
};

Subject pooling(const std::string& file, const std::string& case_name) {
  return {EJK_SOURCE_DIR, file == forward ? "mean_pooling" : "mean_pooling_bwd", case_name, "mean_pooling/" + file};
}

class PoolingMutant : public ::testing::TestWithParam<Row> {};

TEST_P(PoolingMutant, IsFoundAndItsOriginalIsRight) {
  const auto& row = GetParam();
  const auto original = try_template(pooling(row.file, row.case_name), std::nullopt);
  EXPECT_EQ(original.verdict, Verdict::right) << original.words;
  const auto outcome = try_template(pooling(row.file, row.case_name), row.mutation);
  EXPECT_NE(outcome.verdict, Verdict::right);
  EXPECT_NE(outcome.verdict, Verdict::broken) << outcome.words;
}

INSTANTIATE_TEST_SUITE_P(
    All, PoolingMutant,
    ::testing::Values(
        Row{"WarpsMergedBeforeAllAreDone", forward, "one_long.f32", {"sync_block();", 0, ""}},
        Row{"MaskedTokensRead", forward, "minilm.f32", {"(!MASKED || mask[t + u * side])", 0, "true"}},
        Row{"LanesNotAddedUp", forward, "narrow.f32", {"mask_of_lanes = WARP / side", 0, "mask_of_lanes = WARP"}},
        Row{"TailsInTheSlotOfHeads", forward, "packed.bf16", {"last.begin < tile_begin ? 0 : 1", 0, "0"}},
        Row{"WarpsTailsInTheSlotOfHeads", forward, "packed.f32", {"rows.begin < begin ? 0 : 1", 0, "0"}},
        Row{"NoRowCrosses", forward, "packed.f32", {"last.end > tile_end", 0, "false"}},
        Row{"PartsAddedBeforeAllAreRead", forward, "packed.f32", {"sync_block();", 4, ""}},
        Row{"EmptyRowsNotCleared", forward, "packed.f32", {"bool is_empty = mine < rows", 0, "bool is_empty = false"}},
        Row{"CountOfTheWrongSlot", forward, "minilm.f32", {"partial_count[t * 2 + (t == first_tile)]", 0, "partial_count[t * 2]"}},
        Row{"CountsReadTooEarly", forward, "minilm.f32", {"sync_block();", 1, ""}},
        Row{"MaskedTokensFilled", backward, "minilm.f32", {"visible[u] ? share : Pack<Element, VEC>{}", 0, "share"}},
        Row{"CountOfTheWholeRow", backward, "minilm.f32", {"visible_tokens(rows, counts, parts)", 0, "rows.end - rows.begin"}},
        Row{"TokensOfNoSequenceFilled", backward, "packed.f32", {"if (rows.row >= 0) share", 0, "share"}},
        Row{"ChunksOfTheFirstSequence", backward, "chunks.bf16", {"rows.sequence * row_count", 0, "0"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ejk

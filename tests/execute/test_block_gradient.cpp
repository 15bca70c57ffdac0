// blocksparse_attention_bwd as a caller meets it: masks whose blocks are taken together, apart, or not at all.
#include <limits>

#include "execute/strange_views.hpp"

namespace ejk::block_gradient_test {
namespace {

const Config plain{"plain", "generic", {}}, tiled{"tiled", "generic", {}};
const Config uneven{
    "tiled", "generic", {{"vectors", 3}, {"panel", 4}, {"block_m", 32}, {"block_n", 96}}};  // 12 keys a panel, which 16 and 32 do not fill

class BlockGradient : public StoreTest {
 protected:
  void SetUp() override { use_project_store(); }

  static reference::Call make(std::int64_t tokens, std::int64_t block, std::map<std::string, spec::Value> attributes = {}) {
    spec::Case c;
    c.name = "blocks";
    c.dims = {{"B", 1L}, {"Sq", tokens}, {"Sk", tokens}, {"Hq", 4L}, {"Hkv", 2L}, {"Hm", 1L}, {"D", 16L}, {"Dv", 24L}};
    c.types = {{"E", "bf16"}};
    c.attributes = std::move(attributes);
    c.attributes["block_q"] = block, c.attributes["block_k"] = block;
    return reference::make_call(reference::spec_of("blocksparse_attention_bwd"), c, 7);
  }
  static void fill(HostTensor& tensor, const std::function<double(std::int64_t)>& value) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, value(i));
  }
  // Makes out and lse anew for inputs that were changed.
  static void right(reference::Call call) {
    reference::find_reference("blocksparse_attention_bwd")->complete(call);
    for (const auto* config : {&plain, &tiled, &uneven}) expect_right(call, *config);
  }
};

// A piece of keys is several blocks: of these some are on, not the same ones for each block of queries, and what lies in one that is off
// for all brings nothing. A block of queries without blocks has gradient 0.
TEST_F(BlockGradient, OfBlocksThatAreTakenTogether) {
  for (const std::int64_t block : {16, 32}) {
    const std::int64_t tokens = 6 * block + 5, blocks = 7;
    for (const auto& attributes : {std::map<std::string, spec::Value>{},
                                   {{"causal", true}},
                                   {{"window_left", std::int64_t{40}}, {"chunk_size", std::int64_t{50}}}}) {
      auto call = make(tokens, block, attributes);
      fill(call.input("block_mask"), [&](std::int64_t i) {
        const std::int64_t row = i / blocks, column = i % blocks;
        return column != 3 && row != 2 && (row + column) % 3 != 1 ? 1 : 0;
      });
      for (const char* name : {"k", "v"}) {
        auto& keys = call.input(name);
        const std::int64_t token = keys.elements() / tokens;
        for (std::int64_t i = 3 * block * token; i < 4 * block * token; ++i) keys.set(i, std::numeric_limits<double>::quiet_NaN());
      }
      right(call);
    }
  }
}

// Log-sum-exps near -88.7: what a row would weigh of a key of score 0 is beyond f32. Columns behind a block's last key have that score.
TEST_F(BlockGradient, OfRowsOfLowScoresWhereBlocksFillNoPanel) {
  auto call = make(96, 16);
  fill(call.input("block_mask"), [](std::int64_t) { return 1; });
  fill(call.input("q"), [](std::int64_t i) { return i % 16 == 0 ? 1 : 0; });
  auto& k = call.input("k");
  for (std::int64_t i = 0; i < k.elements(); i += 16) k.set(i, -372);  // by the scale of 1 / 4: -93, with the logarithm of 96 keys -88.4
  right(call);
}

// What an item adds nothing to is neither cleared nor read in its part of dq, where an earlier call has left numbers.
TEST_F(BlockGradient, OfRowsThatAnEarlierCallAddedTo) {
  constexpr std::int64_t tokens = 700, block = 32, blocks = 22;  // keys of two items
  auto call = make(tokens, block, {{"causal", true}});
  fill(call.input("block_mask"), [](std::int64_t) { return 1; });
  right(call);
  fill(call.input("block_mask"), [&](std::int64_t i) {
    const std::int64_t row = i / blocks, column = i % blocks;
    return row % 3 == 0 ? column == row : row % 3 == 1 && column == 0;
  });
  right(call);
}

}  // namespace
}  // namespace ejk::block_gradient_test

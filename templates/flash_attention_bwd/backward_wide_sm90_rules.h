// What a call of Hopper's backward attention of wide heads says of its scores: a bias, dropout and a mask. A part of
// backward_wide.sm90.cu, whose constants it uses.
#pragma once

// A dense bias as it is given; sums of its gradient. Tiles of those are of 128 keys.
struct DenseBias {
  const TensorMap& map;
  const View& view;
  float* sums;
  const int64_t& tiles;  // of keys

  // first_key: of the warpgroup.
  CallBiasSums sums_of(const Block& block, int first_key, const QueryTurn& turn) const {
    if constexpr (!SUMS_BIAS) return {nullptr, 0};
    const int64_t tile = dense_tile(view, block.sequence.batch, block.first_head + turn.block / block.blocks_a_head, tiles, first_key / 128,
                                    block.blocks_a_head, turn.step);
    return {sums + tile * CallBiasSums::COUNT, first_key / 64 % 2};
  }
};

typedef float Scores[BLOCK_M / 2];
typedef uint32_t Operands[BLOCK_M / 16][4];
typedef Slopes<BLOCK_M, CAPPED> ScoreSlopes;
using MaskBits = MaskTile<MASKED, BLOCK_M>;

// What a call says of dropout, and how many query heads it has.
struct Kept {
  Dropout dropout;
  int heads;
  // Of a turn's weights; first_key: of the warpgroup.
  void find(KeptScores<BLOCK_M>& kept, const Block& block, int first_key, const QueryTurn& turn) const {
    const uint32_t key = first_key + later(thread_x()) / WARP % 4 * 16, head = block.first_head + turn.block / block.blocks_a_head;
    kept.find(dropout, key, turn.step * BLOCK_M, static_cast<uint32_t>(block.sequence.index) * heads + head);
  }
};

// This lane's bits of a dense mask, of a turn's scores: loaded a turn ahead.
struct SeenScores {
  uint32_t words[MASKED ? MaskBits::WORDS : 1];

  // first_key: of the warpgroup.
  void load(const View& mask, const int32_t* bits, int64_t blocks, const Block& block, int first_key, const QueryTurn& turn) {
    const int64_t tile = dense_tile(mask, block.sequence.batch, block.first_head + turn.block / block.blocks_a_head, blocks, first_key / 128,
                                    block.blocks_a_head, turn.step);
    const uint32_t* const own = MaskBits::place(bits, tile) + first_key / 64 % 2 * WARPGROUP + later(thread_x()) % WARPGROUP;
#pragma unroll
    for (int word = 0; word < MaskBits::WORDS; ++word) words[word] = own[word * MaskBits::LANES];
  }
  // Weights of hidden scores become 0.
  void hide(Scores& s) const {
#pragma unroll
    for (int e = 0; e < (MASKED ? BLOCK_M / 2 : 0); ++e)
      if (!(words[e / 32] >> e % 32 & 1)) s[e] = 0;
  }
};

// What a call gives of a dense mask.
struct Mask {
  const View& view;
  const int32_t* bits;
  const int64_t& blocks;  // of 128 keys
};

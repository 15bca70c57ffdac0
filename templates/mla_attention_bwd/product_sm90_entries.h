// Launches of mla_attention_bwd after flash_attention_bwd's on Hopper: products by wgmma from gradients of a turn's heads' keys and values to those of latent rows and of
// weights. An end of backward_wide.sm90.cu, whose constants it uses. Sums over heads wait in f32 from turn to turn.
#pragma once

// dw_kc and dw_vc: tiles of 128 latent features by a head's columns of both, summed over all tokens.
struct WeightProduct {
  struct Tile {
    int steps, feature, slot;
  };
  const TensorMap &latents, &keys, &values;
  const View &key_weights, &value_weights;
  int tokens, batches, heads, first_head;

  int steps_a_row() const { return (tokens + HOPPER_DEPTH - 1) / HOPPER_DEPTH; }
  int tiles() const { return LATENT / HOPPER_M * heads; }
  Tile tile(int i) const { return {batches * steps_a_row(), i % (LATENT / HOPPER_M) * HOPPER_M, i / (LATENT / HOPPER_M)}; }
  void copy_left(const Tile& tile, int step, int box, uint32_t to, uint32_t full) const {
    load_tile(to, latents, full, {tile.feature + 64 * box, step % steps_a_row() * HOPPER_DEPTH, step / steps_a_row()});
  }
  void copy_right(const Tile& tile, int step, int box, uint32_t to, uint32_t full) const {
    load_tile(to, box < 2 ? keys : values, full, {64 * (box % 2), tile.slot, step % steps_a_row() * HOPPER_DEPTH, step / steps_a_row()});
  }
  void store(const Tile& tile, int part, const HopperSums& sums) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = tile.feature + part * 64 + warp() % 4 * 16 + 8 * h + lane() / 4, column = lane() % 4 * 2, head = first_head + tile.slot;
      Element* const key = static_cast<Element*>(key_weights.data) + row * key_weights.strides[0] + head * key_weights.strides[1] + column;
      Element* const value = static_cast<Element*>(value_weights.data) + row * value_weights.strides[0] + head * value_weights.strides[1] + column;
#pragma unroll
      for (int j = 0; j < HOPPER_N; j += 8)
        store_pack(j < NOPE ? key + j : value + j - NOPE, Pack<Element, 2>{{from_float<Element>(sums[j / 2 + 2 * h]), from_float<Element>(sums[j / 2 + 2 * h + 1])}});
    }
  }
};

// dkv_latent: tiles of 128 tokens by 256 latent features, summed over features of keys, then values, of a part of the turn's heads.
struct LatentProduct {
  struct Tile {
    int steps, batch, row, feature, part;
  };
  static constexpr int STEPS_A_HEAD = (NOPE + DV) / HOPPER_DEPTH;
  const TensorMap &keys, &values, &w_kc, &w_vc;
  float* sums;
  int tokens, batches, heads, first_head, parts;
  bool first_turn;

  int bands() const { return (tokens + HOPPER_M - 1) / HOPPER_M; }  // of a row of the batch
  int tiles() const { return bands() * batches * (LATENT / HOPPER_N) * parts; }
  int head_of(int part) const { return heads * part / parts; }
  Tile tile(int i) const {
    const int feature = i % (LATENT / HOPPER_N), part = i / (LATENT / HOPPER_N) % parts, band = i / (LATENT / HOPPER_N) / parts;
    return {(head_of(part + 1) - head_of(part)) * STEPS_A_HEAD, band / bands(), band % bands() * HOPPER_M, feature * HOPPER_N, part};
  }
  void copy_left(const Tile& tile, int step, int box, uint32_t to, uint32_t full) const {
    const int slot = head_of(tile.part) + step / STEPS_A_HEAD, feature = step % STEPS_A_HEAD * HOPPER_DEPTH;
    load_tile(to, feature < NOPE ? keys : values, full, {feature % NOPE, slot, tile.row + 64 * box, tile.batch});
  }
  void copy_right(const Tile& tile, int step, int box, uint32_t to, uint32_t full) const {
    const int head = first_head + head_of(tile.part) + step / STEPS_A_HEAD, feature = step % STEPS_A_HEAD * HOPPER_DEPTH;
    load_tile(to, feature < NOPE ? w_kc : w_vc, full, {feature % NOPE, head, tile.feature + 64 * box});
  }
  void store(const Tile& tile, int part, const HopperSums& from) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = tile.row + part * 64 + warp() % 4 * 16 + 8 * h + lane() / 4;
      if (row >= tokens) continue;
      float* const to = sums + ((int64_t{tile.part} * batches + tile.batch) * tokens + row) * LATENT + tile.feature + lane() % 4 * 2;
#pragma unroll
      for (int j = 0; j < HOPPER_N; j += 8) {
        Pack<float, 2> x{{from[j / 2 + 2 * h], from[j / 2 + 2 * h + 1]}};
        if (!first_turn) {
          const Pack<float, 2> before = load_pack<2>(to + j);
          x.at[0] += before.at[0], x.at[1] += before.at[1];
        }
        store_pack(to + j, x);
      }
    }
  }
};

KERNEL(HOPPER_THREADS, 1) differentiate_weights(${parameters('differentiate_weights')}) {
  const TurnHeads turn(step, head_slots, all_heads);
  multiply_on_hopper<Element, false, false>(WeightProduct{finite_latent_map, dk_map, dv_map, dw_kc_view, dw_vc_view, static_cast<int>(key_tokens), static_cast<int>(sequence_count),
                                                          static_cast<int>(turn.count), static_cast<int>(turn.first)});
}

KERNEL(HOPPER_THREADS, 1) differentiate_latents(${parameters('differentiate_latents')}) {
  const TurnHeads turn(step, head_slots, all_heads);
  multiply_on_hopper<Element, true, true>(LatentProduct{dk_map, dv_map, w_kc_map, w_vc_map, latent_sums, static_cast<int>(key_tokens), static_cast<int>(sequence_count),
                                                        static_cast<int>(turn.count), static_cast<int>(turn.first), static_cast<int>(parts), step == 0});
}

// dkv_latent from the sums of all parts.
KERNEL(SPLIT_THREADS, 1) finish_latents(${parameters('finish_latents')}) {
  const int64_t chunks = sequence_count * key_tokens * (LATENT / 4);
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * SPLIT_THREADS + thread_x(); i < chunks; i += int64_t{grid_x()} * SPLIT_THREADS) {
    Pack<float, 4> x = load_pack<4>(latent_sums + i * 4);
#pragma unroll 1
    for (int64_t part = 1; part < parts; ++part) {
      const Pack<float, 4> more = load_pack<4>(latent_sums + (part * chunks + i) * 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) x.at[j] += more.at[j];
    }
    const int64_t row = i / (LATENT / 4);
    Element* const to = static_cast<Element*>(dkv_latent_view.data) + row / key_tokens * dkv_latent_view.strides[0] + row % key_tokens * dkv_latent_view.strides[1] + i % (LATENT / 4) * 4;
#pragma unroll
    for (int j = 0; j < 4; j += 2) store_pack(to + j, Pack<Element, 2>{{from_float<Element>(x.at[j]), from_float<Element>(x.at[j + 1])}});
  }
}

// Launches of mla_attention_bwd after flash_attention_bwd's: from gradients of a turn's heads' queries, keys and values to those of the call's tensors. An end of
// flash_attention_bwd's backward.mma.gpu.cu, whose constants it uses. Sums over heads wait in f32 from turn to turn.
#pragma once

constexpr int LATENT = ${R}, SPLIT_THREADS = 256, ROPE_OR_TWO = ROPE > 0 ? ROPE : 2, WEIGHT_N = 64, LATENT_M = 64, LATENT_N = 128;
using WeightProduct = BlockProduct<Element, 64, WEIGHT_N, 32, 3, 2, 4, false, false>;
using LatentProduct = BlockProduct<Element, LATENT_M, LATENT_N, 32, 3, 2, 4, true, true>;
static_assert(3 * WeightProduct::STAGE == ${weights_shared} && 3 * LatentProduct::STAGE == ${latents_shared}, "the spec has other sizes");

#include "mla_attention_bwd/row_entries.h"

// Block (x, y): latent features x * 64 ... of dw_kc or dw_vc: block y % blocks of their columns of head y / blocks of this turn. Summed over all tokens.
KERNEL(WeightProduct::THREADS, 1) differentiate_weights(${parameters('differentiate_weights')}) {
  constexpr int KEY_BLOCKS = (NOPE + WEIGHT_N - 1) / WEIGHT_N, BLOCKS = KEY_BLOCKS + (DV + WEIGHT_N - 1) / WEIGHT_N;
  const TurnHeads turn(step, head_slots, all_heads);
  const int slot = block_y() / BLOCKS, block = block_y() % BLOCKS, feature = block_x() * 64;
  if (slot >= turn.count) return;
  const bool of_keys = block < KEY_BLOCKS;
  const int column = (of_keys ? block : block - KEY_BLOCKS) * WEIGHT_N, columns = (of_keys ? NOPE : DV) - column, width = of_keys ? D : DV;
  const View& to = of_keys ? dw_kc_view : dw_vc_view;
  WeightProduct product;
  product.run({reinterpret_cast<const Element*>(finite_latent) + feature, LATENT, LATENT - feature},
              {reinterpret_cast<const Element*>(of_keys ? dk : dv) + slot * width + column, head_slots * width, columns}, sequence_count * key_tokens);
  product.store<false>(static_cast<Element*>(to.data) + feature * to.strides[0] + (turn.first + slot) * to.strides[1] + column, to.strides[0],
                       static_cast<const Element*>(nullptr), 0, LATENT - feature, columns);
}

// Block (x, y, z): latent features y * LATENT_N ... of tokens x * LATENT_M ... of row z of the batch, summed over the heads.
KERNEL(LatentProduct::THREADS, 1) differentiate_latents(${parameters('differentiate_latents')}) {
  const TurnHeads turn(step, head_slots, all_heads);
  const int64_t row = int64_t{block_x()} * LATENT_M, at = block_z() * key_tokens + row, left = key_tokens - row;
  const int feature = block_y() * LATENT_N, features = LATENT - feature;
  LatentProduct product;
#pragma unroll 1
  for (int64_t slot = 0; slot < turn.count; ++slot) {
    const int64_t head = turn.first + slot;
    product.run({reinterpret_cast<const Element*>(dk) + (at * head_slots + slot) * D, head_slots * D, left},
                {static_cast<const Element*>(w_kc_view.data) + feature * w_kc_view.strides[0] + head * w_kc_view.strides[1], w_kc_view.strides[0], features}, NOPE);
    sync_block();  // the last step has been read
    product.run({reinterpret_cast<const Element*>(dv) + (at * head_slots + slot) * DV, head_slots * DV, left},
                {static_cast<const Element*>(w_vc_view.data) + feature * w_vc_view.strides[0] + head * w_vc_view.strides[1], w_vc_view.strides[0], features}, DV);
    sync_block();
  }
  float* const sums = latent_sums + at * LATENT + feature;
  if (step > 0)
    product.store<true>(sums, LATENT, sums, LATENT, left, features);
  else
    product.store<false>(sums, LATENT, static_cast<const float*>(nullptr), 0, left, features);
  if (turn.first + turn.count < all_heads) return;
  sync_block();  // a block's own sums, of all its threads
  Element* const to = static_cast<Element*>(dkv_latent_view.data) + block_z() * dkv_latent_view.strides[0] + row * dkv_latent_view.strides[1] + feature;
  const int columns = features < LATENT_N ? features : LATENT_N, rows = left < LATENT_M ? static_cast<int>(left) : LATENT_M;
#pragma unroll 1
  for (int i = thread_x(); i < rows * (columns / 2); i += LatentProduct::THREADS) {
    const int r = i / (columns / 2), c = i % (columns / 2) * 2;
    const Pack<float, 2> x = load_pack<2>(sums + r * LATENT + c);
    store_pack(to + r * dkv_latent_view.strides[1] + c, Pack<Element, 2>{{from_float<Element>(x.at[0]), from_float<Element>(x.at[1])}});
  }
}

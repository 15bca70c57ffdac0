// Launches of mla_attention_bwd after flash_attention_bwd's: from gradients of a turn's heads' queries, keys and values to those of the call's tensors. An end of
// flash_attention_bwd's backward.mma.gpu.cu, whose constants it uses. Sums over heads wait in f32 from turn to turn.
#pragma once

constexpr int LATENT = ${R}, SPLIT_THREADS = 256, ROPE_OR_ONE = ROPE > 0 ? ROPE : 1, WEIGHT_N = 64, LATENT_M = 64, LATENT_N = 128;
using WeightProduct = BlockProduct<Element, 64, WEIGHT_N, 32, 3, 2, 4, false, false>;
using LatentProduct = BlockProduct<Element, LATENT_M, LATENT_N, 32, 3, 2, 4, true, true>;
static_assert(3 * WeightProduct::STAGE == ${weights_shared} && 3 * LatentProduct::STAGE == ${latents_shared}, "the spec has other sizes");

// kv_latent, in one piece, with 0 for what is not finite: such a token's keys' gradients are NaN where a query sees it, and 0 times it must be 0 elsewhere.
KERNEL(SPLIT_THREADS, 1) copy_finite(${parameters('copy_finite')}) {
  const int64_t chunks = sequence_count * key_tokens * (LATENT / 8);
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * SPLIT_THREADS + thread_x(); i < chunks; i += int64_t{grid_x()} * SPLIT_THREADS) {
    const int d = static_cast<int>(i % (LATENT / 8)) * 8;
    const int64_t row = i / (LATENT / 8);
    Pack<Element, 8> x = load_pack<8>(kv_latent + row / key_tokens * latent_outer + row % key_tokens * latent_inner + d);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (to_float(x.at[j]) * 0 != 0) x.at[j] = from_float<Element>(0);
    store_pack(reinterpret_cast<Element*>(finite_latent) + row * LATENT + d, x);
  }
}

// dq to its two parts; dk_rope's sum over the heads.
KERNEL(SPLIT_THREADS, 1) split(${parameters('split')}) {
  const TurnHeads turn(step, head_slots, all_heads);
  const int64_t query_chunks = sequence_count * query_tokens * turn.count * (D / 8), all_threads = int64_t{grid_x()} * SPLIT_THREADS;
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * SPLIT_THREADS + thread_x(); i < query_chunks; i += all_threads) {
    const int d = static_cast<int>(i % (D / 8)) * 8;
    const int64_t row = i / (D / 8), slot = row % turn.count, token = row / turn.count % query_tokens, batch = row / turn.count / query_tokens;
    const View& to = d < NOPE ? dq_nope_view : dq_rope_view;
    store_pack(static_cast<Element*>(to.data) + batch * to.strides[0] + token * to.strides[1] + (turn.first + slot) * to.strides[2] + (d < NOPE ? d : d - NOPE),
               load_pack<8>(reinterpret_cast<const Element*>(dq) + ((batch * query_tokens + token) * head_slots + slot) * D + d));
  }
  const int64_t features = sequence_count * key_tokens * ROPE;
  const bool last = turn.first + turn.count == all_heads;
#pragma unroll 1
  for (int64_t i = int64_t{block_x()} * SPLIT_THREADS + thread_x(); i < features; i += all_threads) {
    const int64_t row = i / ROPE_OR_ONE;
    const int d = static_cast<int>(i % ROPE_OR_ONE);
    float sum = step > 0 ? rope_sums[i] : 0;
#pragma unroll 1
    for (int64_t slot = 0; slot < turn.count; ++slot) sum += to_float(reinterpret_cast<const Element*>(dk)[(row * head_slots + slot) * D + NOPE + d]);
    rope_sums[i] = sum;
    if (last) static_cast<Element*>(dk_rope_view.data)[row / key_tokens * dk_rope_view.strides[0] + row % key_tokens * dk_rope_view.strides[1] + d] = from_float<Element>(sum);
  }
}

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

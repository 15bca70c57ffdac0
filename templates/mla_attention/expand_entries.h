// Launches of mla_attention before flash_attention's `attend` on mma.sync, for the heads of a turn. An end of flash_attention's forward.mma.gpu.cu, whose
// constants it uses.
#pragma once
#include "device/matrix/mma_product.h"

constexpr int NOPE = ${Dn}, ROPE = ${Dr}, EXPAND_M = 128, EXPAND_N = ${expand_n};
using Expansion = BlockProduct<Element, EXPAND_M, EXPAND_N, 32, 3, 2, 4, true, false>;
constexpr int JOIN_THREADS = 256;
static_assert(NOPE % 8 == 0 && ROPE % 8 == 0 && NOPE + ROPE == D);
static_assert(3 * Expansion::STAGE == ${expand_shared}, "the spec has another size");

#include "mla_attention/join_entry.h"

// Block (x, y, z): tokens x * EXPAND_M ... of row z of the batch, times a head's columns of w_kc or w_vc: block y % blocks of them of head y / blocks of this turn.
KERNEL(Expansion::THREADS, 1) expand(${parameters('expand')}) {
  constexpr int KEY_BLOCKS = (NOPE + EXPAND_N - 1) / EXPAND_N, BLOCKS = KEY_BLOCKS + (DV + EXPAND_N - 1) / EXPAND_N;
  const int slot = block_y() / BLOCKS, block = block_y() % BLOCKS;
  const int64_t head = step * head_slots + slot, row = int64_t{block_x()} * EXPAND_M, left_rows = key_tokens - row;
  if (head >= all_heads) return;
  const bool of_keys = block < KEY_BLOCKS;
  const View& weights = of_keys ? w_kc_view : w_vc_view;
  const int column = (of_keys ? block : block - KEY_BLOCKS) * EXPAND_N, columns = (of_keys ? NOPE : DV) - column, width = of_keys ? D : DV;
  Expansion product;
  product.run({kv_latent + block_z() * latent_outer + row * latent_inner, latent_inner, left_rows},
              {static_cast<const Element*>(weights.data) + head * weights.strides[1] + column, weights.strides[0], columns}, ${R});
  Element* const to = reinterpret_cast<Element*>(of_keys ? made_k : made_v) + ((block_z() * key_tokens + row) * head_slots + slot) * width + column;
  product.store<false>(to, head_slots * width, static_cast<const Element*>(nullptr), 0, left_rows, columns);
}

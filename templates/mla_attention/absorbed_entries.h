// Launches of mla_attention around mla_decode's: w_kc into the queries before, w_vc to the outputs after. An end of mla_decode's GPU templates, whose
// constants it uses.
#pragma once
#include "device/matrix/mma_product.h"
#include "device/tile/launch_order.h"

constexpr int ROWS_AT_ONCE = 64;  // of queries; features: latent ones 128, of values 64
using Absorption = BlockProduct<Element, ROWS_AT_ONCE, 128, 32, 3, 2, 4, true, true>;
using Projection = BlockProduct<Element, ROWS_AT_ONCE, 64, 32, 3, 2, 4, true, false>;
static_assert(3 * Absorption::STAGE == ${absorb_shared} && 3 * Projection::STAGE == ${project_shared}, "the spec has other sizes");

// Block (x, y, z): latent features x * 128 ... of head y of query rows z * ROWS_AT_ONCE ... (of all sequences, evenly strided).
KERNEL(Absorption::THREADS, 1) absorb(${parameters('absorb')}) {
  let_next_launch_go();
  const int64_t row = int64_t{block_z()} * ROWS_AT_ONCE, rows = sequence_count * query_tokens - row, feature = block_x() * 128, head = block_y();
  Absorption product;
  product.run({q_nope + row * q_nope_row + head * q_nope_head, q_nope_row, rows},
              {static_cast<const Element*>(w_kc_view.data) + feature * w_kc_view.strides[0] + head * w_kc_view.strides[1], w_kc_view.strides[0], R - feature}, w_kc_view.shape[2]);
  product.store<false>(reinterpret_cast<Element*>(q_latent) + (row * all_heads + head) * R + feature, all_heads * R, static_cast<const Element*>(nullptr), 0, rows, R - feature);
}

// Block (x, y, z): value features x * 64 ... of head y of query rows z * ROWS_AT_ONCE ...
KERNEL(Projection::THREADS, 1) project(${parameters('project')}) {
  wait_for_previous_launch();
  const int64_t row = int64_t{block_z()} * ROWS_AT_ONCE, rows = sequence_count * query_tokens - row, feature = block_x() * 64, head = block_y();
  const int64_t features = w_vc_view.shape[2] - feature;
  Projection product;
  product.run({reinterpret_cast<const Element*>(latent_out) + (row * all_heads + head) * R, all_heads * R, rows},
              {static_cast<const Element*>(w_vc_view.data) + head * w_vc_view.strides[1] + feature, w_vc_view.strides[0], features}, R);
  product.store<false>(out + row * out_row + head * out_head + feature, out_row, static_cast<const Element*>(nullptr), 0, rows, features);
}

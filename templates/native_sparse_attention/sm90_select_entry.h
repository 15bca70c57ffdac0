// Hopper vocabulary: the entry that finds sums over means and selects blocks, a token a warp. A part of forward.sm90.cu, whose constants it uses.
#pragma once
#include "device/attention/softmax.h"
#include "device/matrix/fragment.h"
$if lists
#include "native_sparse_attention/block_lists_gpu.h"
$end
#include "native_sparse_attention/gates.h"
#include "native_sparse_attention/sm90_choose_blocks.h"
#include "native_sparse_attention/sm90_selected_token.h"
$if packed
#include "native_sparse_attention/sm90_select_groups.h"
$end

// Block (x, y, z): a token a warp of row z of the batch, groups x, x + grid and so on of them, the last first, and kv head y: of each query head the logarithm
// of its sum over means, and the blocks that the token selects.
KERNEL(SELECT_THREADS, SELECT_BLOCKS) select(${parameters('select')}) {
  __shared__ MeanRing ring;
  const Heads<const Element> q(q_view);
  const int heads = static_cast<int>(heads_a_kv_head), kv_head = block_y(), batch = block_z(), words = static_cast<int>(block_words);
  const int tokens = static_cast<int>(q.tokens), size = static_cast<int>(block_size), parts = (heads + ROW_HEADS - 1) / ROW_HEADS;
  const int groups = (tokens + SELECT_WARPS - 1) / SELECT_WARPS${packed ? ' + static_cast<int>(sequences)' : ''};
  const int kv_heads = static_cast<int>(q.heads) / heads, pitch = (static_cast<int>(means) + MEANS_A_TILE - 1) / MEANS_A_TILE * MEANS_A_TILE;
  const bool selects = is_given(g_slc_view) && !is_given(block_indices_view);
  const auto chooses = [&](int last) { return selects && room_beside(named_blocks, last / size) < last / size - 1; };
  const auto tiles_of = [&](int last) { return is_given(g_cmp_view) || chooses(last) ? ((last + 1) / size + MEANS_A_TILE - 1) / MEANS_A_TILE : 0; };
$if packed
  SelectSequence sequence{groups, 0, 0, 0};
  int kept = -1;  // so many tiles of the sequence stay in the ring, which has room for all; -1: they come for each group
  const auto tiles_that_stay = [&](int most) { return most <= static_cast<int>(SELECT_STAGES) ? most : -1; };
$else
  const auto last_of = [&](int group) { return (group + 1) * SELECT_WARPS < tokens ? (group + 1) * SELECT_WARPS - 1 : tokens - 1; };
  const int most = tiles_of(last_of(groups - 1 - block_x()));
  const bool stays = most <= static_cast<int>(SELECT_STAGES);
$end
  const uint32_t base = (shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024;
  if (thread_x() == 0) ring.start();
  sync_block();
  if (uniform(warpgroup()) == SELECTORS) {
    give_registers<24>();
    if (thread_x() != SELECTORS * WARPGROUP) return;
$if packed
    Turn<SELECT_STAGES> turn;
#pragma unroll 1
    for (int group = groups - 1 - block_x(); group >= 0; group -= grid_x()) {
      bool enters;
      if (!sequence.reach(enters, group, cum_seqlens, sequences, tokens)) continue;
      const int last = sequence.last_of(group);
      if (enters) kept = tiles_that_stay(tiles_of(last));
      const char* const terms = reinterpret_cast<const char*>(mean_terms) + (kv_head * tiles_of_means + first_tile_of_means(sequence.sequence, sequence.start, block_size)) * MEANS_BYTES;
#pragma unroll 1
      for (int part = 0; part < (kept < 0 ? parts : enters ? 1 : 0); ++part) ring.copy(turn, base, terms, tiles_of(last), kept < 0 && chooses(last));
    }
$else
    const char* const terms = reinterpret_cast<const char*>(mean_terms) + (static_cast<int64_t>(batch) * kv_heads + kv_head) * (pitch / MEANS_A_TILE) * MEANS_BYTES;
    Turn<SELECT_STAGES> turn;
#pragma unroll 1
    for (int group = groups - 1 - block_x(); group >= 0 && !(stays && group < groups - 1 - block_x()); group -= grid_x())
#pragma unroll 1
      for (int part = 0; part < (stays ? 1 : parts); ++part) ring.copy(turn, base, terms, tiles_of(last_of(group)), !stays && chooses(last_of(group)));
$end
    return;
  }
  take_registers<SELECT_REGISTERS>();
  const int own_warp = uniform(warp());
  Turn<SELECT_STAGES> turn;
#pragma unroll 1
  for (int group = groups - 1 - block_x(); group >= 0; group -= grid_x()) {
$if packed
    bool enters;
    if (!sequence.reach(enters, group, cum_seqlens, sequences, tokens)) continue;
    const int last = sequence.last_of(group), number = sequence.first_of(group) + own_warp, token = sequence.start + number, tiles = tiles_of(last);
    if (enters) {
      ring.leave(turn, kept);
      kept = tiles_that_stay(tiles);
    }
    const bool there = number < sequence.length, choose = chooses(last), stays = kept >= 0;
$else
    const int token = group * SELECT_WARPS + own_warp, tiles = tiles_of(last_of(group));
    const bool there = token < tokens, choose = chooses(last_of(group));
$end
    float* const importance = reinterpret_cast<float*>(dynamic_shared() + (base - shared_pointer(dynamic_shared())) + SELECT_STAGES * MEANS_STAGE) + own_warp * pitch;
    SelectedToken own{base, ring, there ? (${packed ? 'number' : 'token'} + 1) / size : 0, 0, softmax_scale * LOG2_E, stays, turn, ${packed ? 'turn, ' : ''}{}, {}};
#pragma unroll 1
    for (int first = 0; first < heads; first += ROW_HEADS) {
      const int first_head = kv_head * heads + first;
      own.heads = !there ? 0 : heads - first < ROW_HEADS ? heads - first : ROW_HEADS;
      own.load_query(q.row(batch, there ? token : 0, first_head), q.head_stride);
      const int next = token - static_cast<int>(grid_x()) * SELECT_WARPS;
      if (first == 0 && next >= 0) fetch_rows(q.row(batch, next, first_head), q.head_stride, heads < ROW_HEADS ? heads : ROW_HEADS);
      float lse[2];
$if selectors == 3
      own.find_all(lse, importance, tiles, choose, first == 0);
$else
      SelectedToken::MeanScores scores;
      own.find_lse(lse, scores, tiles);
$end
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int head = lane() / 4 + 8 * r;
        if (!is_given(g_cmp_view) || head >= own.heads || lane() % 4 != 0) continue;
        mean_lse[(batch * q.heads + first_head + head) * tokens + token] = lse[r];
        store_branch_lse(branch_lse_view, batch, token, first_head + head, MEANS, lse[r] * LN_2);
      }
$if selectors != 3
      if (choose) own.add_importance(importance, lse, scores, tiles, first == 0);
$end
    }
    ${packed ? 'if (!stays) turn' : 'turn'} = own.turn;
    if (!selects || !there) continue;
    sync_warp();
    uint32_t* const bits = reinterpret_cast<uint32_t*>(importance + (SELECT_WARPS - own_warp) * pitch) + own_warp * words;
    const int own_block = ${packed ? 'number' : 'token'} / size;
    if (own_block <= WARP * HELD_BLOCKS)
      choose_held_blocks<HELD_BLOCKS>(bits, importance, own_block, named_blocks);
    else
      choose_blocks<HopperWarp>(bits, importance, own_block, named_blocks);
    store_selected(selected_view, bits, batch, token, kv_head, ${packed ? 'number' : 'token'} / size);
$if lists
    store_block_list(block_lists + ((static_cast<int64_t>(batch) * kv_heads + kv_head) * tokens + token) * listed_blocks, static_cast<int>(listed_blocks), bits, own_block);
$else
    int32_t* const to = block_bits + ((static_cast<int64_t>(batch) * kv_heads + kv_head) * tokens + token) * words;
#pragma unroll 1
    for (int word = lane(); word < words; word += WARP) to[word] = word <= ${packed ? 'number' : 'token'} / size / 32 ? static_cast<int32_t>(bits[word]) : 0;
$end
    sync_warp();
  }
}

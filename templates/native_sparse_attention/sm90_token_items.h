// Hopper vocabulary: what a block of threads does one after the other: TOKENS tokens of a row of the batch and up to ROW_HEADS query heads of a kv head. Part
// of a template, as sm90_tile_ring.h.
#pragma once
#include "native_sparse_attention/sm90_tile_ring.h"

struct TokenItem {
  int batch, kv_head, first_token;
  int part, first_head, heads;  // of the kv head's query heads
};

struct TokenItems {
  int batches, tokens, kv_heads, heads;  // heads: of a kv head

  int parts() const { return (heads + ROW_HEADS - 1) / ROW_HEADS; }
  int across() const { return (tokens + TOKENS - 1) / TOKENS; }
  int count() const { return across() * kv_heads * parts() * batches; }
  // Of this block of threads, which has every grid_x()-th.
  int own_count() const { return (count() - block_x() + grid_x() - 1) / grid_x(); }
  // The last tokens first: they see most. Blocks of threads begin at different places of a row, since tokens behind share few tiles with their neighbours, and wait for the
  // L2 cache, while the first ones wait for products.
  TokenItem own(int turn) const {
    const int i = block_x() + (turn + block_x() % (across() / grid_x() + 1)) % own_count() * grid_x();
    const int rows = kv_heads * parts(), row = i / across() % rows, part = row % parts(), kv_head = row / parts(), left = heads - part * ROW_HEADS;
    return {i / across() / rows, kv_head, (across() - 1 - i % across()) * TOKENS, part, kv_head * heads + part * ROW_HEADS, left < ROW_HEADS ? left : ROW_HEADS};
  }
};

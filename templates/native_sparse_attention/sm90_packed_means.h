// Hopper vocabulary: where means of packed sequences lie, in tiles of 64: each sequence begins a tile of its own.
#pragma once
#include "native_sparse_attention/packed_tokens.h"

// The first tile of a sequence, whose number and first token these are.
static inline int64_t first_tile_of_means(int64_t sequence, int64_t first_token, int64_t block_size) { return first_token / (64 * block_size) + sequence; }

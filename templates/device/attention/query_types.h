// GPU vocabulary of decoding: what a lane has of query rows that are columns of products. Part of a template, which has defined before: SLICES, TILES,
// ROW_TILES.
#pragma once

typedef float Scores[TILES][ROW_TILES][4];
typedef float Outputs[SLICES][ROW_TILES][4];
typedef uint32_t Queries[SLICES][ROW_TILES][2];
typedef float PerRow[ROW_TILES][2];  // of rows lane % 4 * 2 and the one after it, as element i of a product belongs to row i % 2

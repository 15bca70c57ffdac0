// What the options of a call of Hopper's forward attention say of a pair of a query and a key, and of a tile. A part of forward.sm90.cu,
// whose constants it uses.
#pragma once

$if segmented
using CallSegments = Segments<BLOCK_N>;
$else
struct CallSegments {};
$end
$if dropped
using CallDropout = Dropout;
$else
struct CallDropout {};
$end

// Of a tile's batch and query head, for dropout.
static inline uint32_t row_number(const AttentionTile& tile, int heads) { return static_cast<uint32_t>(tile.batch * heads + tile.head); }

// What a row asks of a key in its range.
struct KeyRule {
  const CallSegments& segments;
  const CallDropout& dropout;
  float kept;  // what a weight counts that is kept
  int heads;   // query heads
$if by_blocks
  const TileSteps& blocks;
$end
$if latent
  int first_group_head;  // of the call's heads
$end

  uint32_t number(const AttentionTile& tile) const { return row_number(tile, heads); }
  bool sees(const AttentionTile& tile, int row, int key) const {
$if by_blocks
    if (!blocks.has(tile, key, BLOCK_N)) return false;
$end
$if segmented
    const int id = segments.key(tile.batch, key);
    return id >= 0 && id == segments.query(tile.batch, tile.first_row + row);
$else
    return true;
$end
  }
  bool keeps(const AttentionTile& tile, int row, int key) const {
$if dropped
    return dropout.keeps(key, tile.first_row + row, number(tile));
$else
    return true;
$end
  }
  float factor() const { return kept; }
};
using Plain = PlainAttention<Element, KeyRule>;
using Numbers = TileNumbers<DYNAMIC, CLUSTER>;
using Turns = AttentionTurns<CLUSTER>;

// Tile `number` of the call; a whole warp calls it. False: there is no such tile (packed).
$if by_blocks
// waits: for the launch that makes the list of steps, which is what it reads last.
$end
static inline bool find_tile(const ${by_blocks ? 'ChunkedTiles' : 'AttentionTiles'}& tiles, const Plain& plain, int number, AttentionTile& tile${by_blocks ? ', bool waits = false' : ''}) {
$if cluster > 1
  // One of a cluster's, whose blocks go through the steps that any of them sees, also one that is past the last row.
  const bool found = tiles.find<BLOCK_M * CLUSTER, BLOCK_N>(number, tile);
  const int first = tile.first, end = tile.end, row = cluster_rank() * BLOCK_M;
  tile.first_row += row, tile.rows = tile.rows - row < BLOCK_M ? tile.rows - row : BLOCK_M;
  if (tile.rows <= 0) tile.rows = -1;  // 0: there is no tile
  tiles.find_steps<BLOCK_N>(tile);
  tile.hides = tile.hides || tile.first != first || tile.end != end;
  tile.first = first, tile.end = end;
$else
  const bool found = tiles.find<BLOCK_M, BLOCK_N>(number, tile);
$end
$if by_blocks
  if (waits) wait_for_previous_launch();
$end
$if segmented
  plain.rule.segments.trim(tile, BOUNDED ? tile.seeing : tile.rows);
$end
$if by_blocks
  plain.rule.blocks.take(tile);  // steps are places in the list from here on, but for whole ones
$end
  return found;
}

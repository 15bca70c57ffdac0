// Hopper vocabulary of the attention kernels' gradients: a turn's tile of a dense bias and of a dense mask: from global to shared memory, and from
// there to scores, which lie as flash_attention_bwd/sm90_attention_weights.h says. A mask is packed before, a bit an element, in the order of lanes; in that
// order, too, are sums of the bias's gradient.
#pragma once
#include "flash_attention_bwd/bias_gradient.h"
#include "device/tile/later.h"
#include "device/sm90/sm90_attention_aligned_rows.h"
#include "flash_attention_bwd/sm90_attention_keys.h"

static inline uint32_t load_word(uint32_t from) {
  uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}

// The number of a tile of a bias or mask: keys `block` times 128, queries `step` times ROWS. blocks: of keys; steps: of a head.
static inline int64_t dense_tile(const View& view, int64_t batch, int64_t head, int64_t blocks, int64_t block, int64_t steps, int64_t step) {
  const int64_t plane = (view.shape[0] == 1 ? 0 : batch) * view.shape[1] + (view.shape[1] == 1 ? 0 : head);
  return (plane * blocks + block) * steps + step;
}

// ROWS queries by KEYS keys, 64 or 128, of a bias of type T: boxes of 128 bytes of keys a row, as tile copies with swizzle 128 leave them. void: there
// is none.
template <class T, int ROWS, int KEYS = 128> struct BiasTile {
  static constexpr int BOX_KEYS = 128 / sizeof(T), BOXES = KEYS / BOX_KEYS;
  static constexpr uint32_t BOX_BYTES = ROWS * 128, BYTES = BOXES * BOX_BYTES;

  static void copy(uint32_t to, const TensorMap& map, const View& bias, uint32_t full, int key, int query, int head, int batch) {
    const int at_head = bias.shape[1] == 1 ? 0 : head, at_batch = bias.shape[0] == 1 ? 0 : batch;
#pragma unroll
    for (int i = 0; i < BOXES; ++i) {
      const int at[4] = {key + i * BOX_KEYS, query, at_head, at_batch};
      load_tile(to + i * BOX_BYTES, map, full, at);
    }
  }

  // Scores become s * scale + bias. part: which 64 of 128 keys.
  static void add(float (&s)[ROWS / 2], float scale, uint32_t tile, int part) {
    const uint32_t thread = later(thread_x()), warp_of_group = thread / WARP % 4, box = KEYS == 64 ? 0 : later(part) * (64 / BOX_KEYS);
    if constexpr (sizeof(T) == 2) {
      const uint32_t chunk = warp_of_group * 2 + thread / 8 % 2, row = thread / 16 % 2 * 8 + thread % 8;
      const uint32_t from = tile + box * BOX_BYTES + row * 128 + (chunk ^ thread % 8) * 16;
#pragma unroll
      for (int n = 0; n < ROWS / 16; ++n) {
        uint32_t pairs[4];
        load_matrices_transposed(pairs, from + n * 16 * 128);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float& low = s[8 * n + 2 * i];
          float& high = s[8 * n + 2 * i + 1];
          low = low * scale + to_float(T{static_cast<uint16_t>(pairs[i])});
          high = high * scale + to_float(T{static_cast<uint16_t>(pairs[i] >> 16)});
        }
      }
    } else {
      const uint32_t chunk = warp_of_group % 2 * 4 + thread % WARP / 16, row = thread % 4 * 2;
      const uint32_t from = tile + (box + warp_of_group / 2) * BOX_BYTES + row * 128 + (chunk ^ row) * 16 + thread / 4 % 4 * 4;
#pragma unroll
      for (int e = 0; e < ROWS / 2; ++e) {  // rows of other parity and keys 8 on are in chunks whose numbers differ in one bit
        const uint32_t x = load_word((from ^ (e % 2 * 16 + e / 2 % 2 * 32)) + e % 2 * 128 + e / 4 * 1024);
        s[e] = s[e] * scale + __uint_as_float(x);
      }
    }
  }
};
template <int ROWS, int KEYS> struct BiasTile<void, ROWS, KEYS> {
  static constexpr uint32_t BYTES = 0;
  static void copy(uint32_t, const TensorMap&, const View&, uint32_t, int, int, int, int) {}
  static void add(float (&)[ROWS / 2], float, uint32_t, int) {}
};

// Bits of ROWS queries by 128 keys: 32 of a lane's elements a word; words of the 256 lanes one after another.
template <bool MASKED, int ROWS> struct MaskTile {
  static constexpr int LANES = 256, WORDS = MASKED ? (ROWS / 2 + 31) / 32 : 0;  // of a lane
  static constexpr uint32_t BYTES = WORDS * LANES * 4;

  static const uint32_t* place(const int32_t* bits, int64_t tile) { return reinterpret_cast<const uint32_t*>(bits) + tile * (WORDS * LANES); }
  // Hidden scores become -inf.
  static void hide(float (&s)[ROWS / 2], uint32_t tile, int part) {
    const uint32_t from = tile + (later(part) * WARPGROUP + later(thread_x()) % WARPGROUP) * 4;
#pragma unroll
    for (int word = 0; word < WORDS; ++word) {
      const uint32_t seen = load_word(from + word * LANES * 4);
#pragma unroll
      for (int i = 0; i < 32 && 32 * word + i < ROWS / 2; ++i)
        if (!(seen >> i & 1)) s[32 * word + i] = -INFINITE;
    }
  }
};

// A block's steps become those from the first to the last whose tile of the mask some query head of the group sees something of. By a whole warp.
template <class Block>
static inline void narrow_steps(Block& block, const View& mask, const int32_t* tiles_seen, int heads_a_kv_head, int64_t blocks) {
  int first = block.end_step, end = block.first_step;
#pragma unroll 1
  for (int head = 0; head < (mask.shape[1] == 1 ? 1 : heads_a_kv_head); ++head) {
    const int32_t* const seen =
        tiles_seen + dense_tile(mask, block.sequence.batch, block.first_head + head, blocks, block.first_key / Block::COUNT, block.blocks_a_head, 0);
#pragma unroll 1
    for (int step = block.first_step + lane(); step < block.end_step; step += WARP) {
      if (seen[step] == 0) continue;
      first = step < first ? step : first;
      end = step + 1 > end ? step + 1 : end;
    }
  }
  for (int other = WARP / 2; other > 0; other /= 2) {
    const int its_first = shuffle_xor(first, other), its_end = shuffle_xor(end, other);
    first = its_first < first ? its_first : first;
    end = its_end > end ? its_end : end;
  }
  block.first_step = first, block.end_step = first < end ? end : first;
}

// All tiles of a mask, and of each whether something of it is seen, by all blocks of a grid of 256 threads each.
template <int ROWS> struct MaskPacker {
  using Tile = MaskTile<true, ROWS>;
  static constexpr int KEYS = 128, BYTES = Tile::WORDS * 64 * 16;  // of bits in shared memory: 16 a row, of whole words
  const View& mask;
  uint32_t* bits;
  int32_t* tiles_seen;
  int64_t blocks, steps;
$if masked
  int64_t farthest, nearest;  // of the keys that a query sees by its place: their distance from it

  // No query of the tile sees a key of it by their places: nobody asks for its bits.
  bool is_hidden(int64_t block, int64_t step) const {
    return block * KEYS > step * ROWS + ROWS - 1 + farthest || block * KEYS + KEYS - 1 < step * ROWS + nearest;
  }
$end

  // A block of the grid goes through tiles of TOGETHER steps of 128 keys. They are fewer than 2^32: of 2^45 elements.
  void run(uint8_t* rows) const {
    constexpr uint32_t TOGETHER = 8;
    const uint32_t heads = static_cast<uint32_t>(mask.shape[1]), of_plane = static_cast<uint32_t>(blocks), of_row = static_cast<uint32_t>(steps);
    const uint32_t parts = (of_row + TOGETHER - 1) / TOGETHER, items = static_cast<uint32_t>(mask.shape[0]) * heads * of_plane * parts;
#pragma unroll 1
    for (uint32_t item = block_x(); item < items; item += grid_x()) {
      const uint32_t row = item / parts, plane = row / of_plane, block = row - plane * of_plane, batch = plane / heads, first = (item - row * parts) * TOGETHER;
      const uint32_t end = first + TOGETHER < of_row ? first + TOGETHER : of_row;
      const uint8_t* const from = static_cast<const uint8_t*>(mask.data) + row_offset(mask, batch, plane - batch * heads, 0) + block * KEYS;
#pragma unroll 1
      for (uint32_t step = first; step < end; ++step) {
$if masked
        if (is_hidden(block, step)) continue;
$end
        load(rows, from + step * ROWS * mask.strides[2], mask.shape[2] - step * ROWS, mask.shape[3] - block * KEYS);
        sync_block();
        const int64_t tile = int64_t{row} * steps + step;
        uint32_t some = 0;
#pragma unroll
        for (int word = 0; word < Tile::WORDS; ++word) {
          const uint32_t seen = pack(rows, word);
          bits[(tile * Tile::WORDS + word) * Tile::LANES + thread_x()] = seen;
          some |= seen;
        }
        const bool any = any_in_block(some != 0);
        if (thread_x() == 0) tiles_seen[tile] = any;
      }
    }
  }
  // Bit i: byte i of a word is not 0.
  static uint32_t four_bits(uint32_t x) {
    const uint32_t tops = (((x & 0x7f7f7f7f) + 0x7f7f7f7f) | x) & 0x80808080;
    return (tops >> 7) * 0x10204080 >> 28;
  }
  // rows, keys: those that there are from `from` on; of others, and of rows up to a whole word of them, bits are 0.
  void load(uint8_t* bits_of_rows, const uint8_t* from, int64_t rows, int64_t keys) const {
    const bool aligned = keys >= KEYS && (reinterpret_cast<uint64_t>(from) | mask.strides[2]) % 16 == 0;
    constexpr int LANES_A_ROW = KEYS / 16, STEP = Tile::LANES / LANES_A_ROW;
    const int byte = thread_x() % LANES_A_ROW * 16;
#pragma unroll
    for (int first_row = 0; first_row < Tile::WORDS * 64; first_row += STEP) {
      const int row = first_row + thread_x() / LANES_A_ROW;
      Pack<uint32_t, 4> x{};
      if (row < ROWS && row < rows) x = aligned ? load_pack<4>(reinterpret_cast<const uint32_t*>(from + row * mask.strides[2] + byte)) : load_bytes_of(from + row * mask.strides[2], byte, keys);
      uint32_t sixteen = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) sixteen |= four_bits(x.at[i]) << 4 * i;
      *reinterpret_cast<uint16_t*>(bits_of_rows + row * 16 + byte / 8) = static_cast<uint16_t>(sixteen);
    }
  }
  static Pack<uint32_t, 4> load_bytes_of(const uint8_t* row, int byte, int64_t keys) {
    Pack<uint32_t, 4> x{};
#pragma unroll 4
    for (int i = 0; i < 16; ++i)
      if (byte + i < keys) x.at[i / 4] |= static_cast<uint32_t>(row[byte + i]) << 8 * (i % 4);
    return x;
  }
  // Bits k with bit P of k set and bit Q not change places with those of which it is the other way round.
  template <int P, int Q> static uint32_t swap_places(uint32_t x, uint32_t places) {
    constexpr int APART = (1 << Q) - (1 << P);
    const uint32_t changed = (x ^ x >> APART) & places;
    return x ^ changed ^ changed << APART;
  }
  // Those of a lane's elements: of keys lane / 4 of the warp's 16 (h = 0) and the one 8 later, and of queries 2 (lane % 4) + i of eight, first as bits
  // j + 8 h + 16 i, then as 4 j + 2 h + i.
  static uint32_t pack(const uint8_t* bits_of_rows, int word) {
    const uint8_t* const from = bits_of_rows + (64 * word + thread_x() % 4 * 2) * 16 + thread_x() / WARP * 2;
    const int key = thread_x() % WARP / 4;
    uint32_t seen = 0;
#pragma unroll
    for (int j = 7; j >= 0; --j) {
      const uint32_t low = *reinterpret_cast<const uint16_t*>(from + 8 * j * 16), high = *reinterpret_cast<const uint16_t*>(from + (8 * j + 1) * 16);
      seen = seen * 2 + ((low | high << 16) >> key & 0x01010101);
    }
    return swap_places<2, 4>(swap_places<0, 4>(swap_places<1, 3>(seen, 0x00cc00cc), 0x0000aaaa), 0x0000f0f0);
  }
};

// Sums of a bias's gradient, ROWS queries by 128 keys a tile: 8 queries at a time, in those 16 keys a warp, as its lanes hold scores.
template <bool SUMMED, int ROWS> struct BiasTileSums {
  static constexpr int WARPS = 8, CHUNK = WARPS * WARP * 4, COUNT = ROWS / 8 * CHUNK;  // floats of 8 queries; of a tile
  float* of_warp;  // in the tile

  BiasTileSums(float* tile, int part) : of_warp(tile + (later(part) * 4 + later(warp()) % 4) * (WARP * 4)) {}
  void add(int chunk, const float* x) const {
    const float four[4] = {x[0], x[1], x[2], x[3]};
    add_to_sums(of_warp + chunk * CHUNK, four);
  }
};
template <int ROWS> struct BiasTileSums<false, ROWS> {
  static constexpr int COUNT = 0;
  BiasTileSums(float*, int) {}
  void add(int, const float*) const {}
};

// All tiles of the sums to dbias, by all blocks of a grid of 256 threads each.
template <int ROWS> struct BiasStorer {
  static constexpr int KEYS = 128, PITCH = KEYS + 4;  // floats a row in shared memory
  using Tile = BiasTileSums<true, ROWS>;
  const View& dbias;
  int64_t type;
  const float* sums;
  int64_t blocks, steps;

  void run(float* rows) const {
    const int64_t tiles = dbias.shape[0] * dbias.shape[1] * blocks * steps;
#pragma unroll 1
    for (int64_t tile = block_x(); tile < tiles; tile += grid_x()) {
      const int64_t row = tile / steps, step = tile - row * steps, plane = row / blocks, block = row - plane * blocks, batch = plane / dbias.shape[1];
      sync_block();
      load(rows, sums + tile * Tile::COUNT);
      sync_block();
      const int64_t first = row_offset(dbias, batch, plane - batch * dbias.shape[1], step * ROWS) + block * KEYS;
      if (type == TYPE_F16) store<half>(rows, first, dbias.shape[2] - step * ROWS, dbias.shape[3] - block * KEYS);
      if (type == TYPE_BF16) store<bfloat16>(rows, first, dbias.shape[2] - step * ROWS, dbias.shape[3] - block * KEYS);
      if (type == TYPE_F32) store<float>(rows, first, dbias.shape[2] - step * ROWS, dbias.shape[3] - block * KEYS);
    }
  }
  static void load(float* rows, const float* tile) {
    float* const to = rows + lane() % 4 * 2 * PITCH + warp() * 16 + lane() / 4;
#pragma unroll
    for (int chunk = 0; chunk < ROWS / 8; ++chunk) {
      const Pack<float, 4> x = load_sums(tile + chunk * Tile::CHUNK + warp() * (WARP * 4));
#pragma unroll
      for (int e = 0; e < 4; ++e) to[(8 * chunk + e % 2) * PITCH + e / 2 * 8] = x.at[e];
    }
  }
  // `left` rows and keys are there from `first` on.
  template <class T> void store(const float* rows, int64_t first, int64_t rows_left, int64_t keys_left) const {
    T* const to = static_cast<T*>(dbias.data) + first;
    const bool by_fours = keys_left >= KEYS && (reinterpret_cast<uint64_t>(to) | dbias.strides[2] * sizeof(T)) % (4 * sizeof(T)) == 0;
#pragma unroll 1
    for (int row = warp(); row < ROWS && row < rows_left; row += Tile::WARPS) {
      Pack<T, 4> four;
#pragma unroll
      for (int i = 0; i < 4; ++i) four.at[i] = from_float<T>(rows[row * PITCH + lane() * 4 + i]);
      T* const here = to + row * dbias.strides[2] + lane() * 4;
      if (by_fours)
        store_pack(here, four);
      else
        for (int i = 0; i < 4; ++i)
          if (lane() * 4 + i < keys_left) here[i] = four.at[i];
    }
  }
};

// dbias of `keys` keys from key `first` on is 0, but for queries from `low` to before `high`. By a block of THREADS threads.
template <int THREADS, class T> static inline void clear_bias_rows(const View& dbias, int64_t batch, int64_t head, int64_t first, int keys, int low, int high) {
#pragma unroll 1
  for (int query = warp(); query < dbias.shape[2]; query += THREADS / WARP) {
    if (query >= low && query < high) continue;
    T* const to = static_cast<T*>(dbias.data) + row_offset(dbias, batch, head, query) + first;
#pragma unroll 1
    for (int key = lane() * 8; key < keys; key += WARP * 8) {
      if (key + 8 <= keys)
        store_pack(to + key, Pack<T, 8>{});
      else  // what lies beside the row is not dbias's
#pragma unroll 1
        for (int i = key; i < keys; ++i) to[i] = from_float<T>(0);
    }
  }
}

// The warpgroup of Hopper's mla_decode of bytes in registers that copies keys which no tensor map does, row by row. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once

// A warp copies KEYS_A_WARP of a tile's keys. Keys that are not there become zeros.
struct Gatherer {
  static constexpr int KEYS_A_WARP = 16;
  static constexpr uint32_t SCALES_BYTES = BLOCKS * 4, NONE = ~0u;
  const Places& at;
  const uint8_t* cache;
  uint32_t page_stride, token_stride;  // in units of 16 bytes
  const int32_t* entries;              // slots of the query token; or pages of the sequence
  bool listed;
  int page_keys;

  // What says where key `number` lies: its slot, or its page. It is asked for a tile before it is needed.
  int entry(int number, int end) const {
    if (number >= end) return -1;
    return entries[listed ? number : static_cast<unsigned>(number) / static_cast<unsigned>(page_keys)];
  }
  // Where it lies, in units of 16 bytes.
  uint32_t row(int number, int entry) const {
    if (entry < 0) return NONE;
    const int slot = listed ? entry : number, page = static_cast<unsigned>(slot) / static_cast<unsigned>(page_keys);
    return static_cast<uint32_t>(listed ? page : entry) * page_stride + static_cast<uint32_t>(slot - page * page_keys) * token_stride;
  }
  const uint8_t* address(uint32_t row) const { return cache + uint64_t{row != NONE ? row : 0} * 16; }
  static int own_lane() { return static_cast<int>(keep_here(thread_x())) % WARP; }
  static int first_row() { return static_cast<int>(keep_here(thread_x())) / WARP * KEYS_A_WARP; }

  // Lane i's own is row i.
  void copy(uint32_t stage, uint32_t own) const {
    const int l = own_lane();
#pragma unroll
    for (int n = 0; n < KEYS_A_WARP / 4; ++n) {
      const int i = n * 4 + l / 8;
      const uint32_t from = shuffle(own, i);
      const uint8_t* const bytes = address(from) + l % 8 * 16;
      const uint32_t to = at.keys(stage) + (first_row() + i) * 128 + (l % 8 ^ i % 8) * 16;
#pragma unroll
      for (uint32_t box = 0; box < BOXES; ++box) copy_async_16(to + box * BOX, bytes + box * 128 + (box == ROPE_BOX ? SCALES_BYTES : 0), from != NONE);
    }
    if (l < KEYS_A_WARP) copy_async_16(at.scales(stage) + (first_row() + l) * SCALES_BYTES, address(own) + R, own != NONE);
  }

  // Keys from `first` to before `end`.
  void run(int first, int end) const {
    Turn<STAGES> turn;
    int number = first + first_row() + own_lane() % KEYS_A_WARP;  // of the own row
    uint32_t own = row(number, entry(number, end));
    int next_entry = entry(number + KEYS, end);
#pragma unroll 1
    for (; first < end; first += KEYS) {
      number += KEYS;
      const uint32_t next = row(number, next_entry);
      next_entry = entry(number + KEYS, end);
      barrier_wait(at.empty(turn.at), turn.parity ^ 1);
      const uint32_t some = lanes_where(own != NONE);
      if (own_lane() == 0) {
        store_shared_2(at.seen(turn.at) + first_row() / 8, static_cast<uint16_t>(some));
        barrier_arrive(at.full(turn.at));
      }
      copy(turn.at, own);
      barrier_arrive_after_copies(at.full(turn.at));
      own = next;
      turn.next();
    }
  }
};

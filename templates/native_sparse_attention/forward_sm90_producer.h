// The warp of Hopper's native sparse attention that copies: tiles of 64 keys that any of the block's tokens sees, one after the other, then
// tiles of means. A part of forward.sm90.cu, whose constants it uses.
#pragma once

struct Producer {
  const Places& at;
  Notes& notes;
  const uint32_t* bits;  // [TOKENS][words], in shared memory
  int words, block_size, first_token, tokens;
  int kv_head, batch;
  Turn<STAGES> turn;

  int token() const { return first_token + lane(); }
  bool there() const { return lane() < TOKENS && token() < tokens; }

  // The tile is empty, and lane 0 writes what it will be.
  void open(TileKind kind, uint32_t wanted, int first) const {
    barrier_wait_all(shared_pointer(&notes.empty[turn.at]), turn.parity ^ 1);
    if (lane() == 0) notes.wanted[turn.at] = wanted | kind << 16, notes.first[turn.at] = first;
  }
  uint32_t full() const { return shared_pointer(&notes.full[turn.at]); }
  void next() {
    sync_warp();
    turn.next();
  }

  void copy_queries(const TensorMap& q_map, int first_head) const {
    if (lane() != 0) return;
    const uint32_t here = shared_pointer(&notes.queries);
    barrier_arrive_expect(here, QUERY_PANEL * D / 64);
#pragma unroll
    for (int panel = 0; panel < D / 64; ++panel)
      load_tile(at.queries(0) + panel * QUERY_PANEL, q_map, here, {64 * panel, first_head, first_token, batch});
  }
  void copy_keys(const TensorMap& k_map, const TensorMap& v_map, uint32_t wanted, int first) {
    open(TILE_OF_BLOCKS, wanted, first);
    if (lane() == 0) {
      barrier_arrive_expect(full(), STAGE_BYTES);
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel) load_tile(at.keys(turn.at) + panel * PANEL, k_map, full(), {64 * panel, kv_head, first, batch});
#pragma unroll
      for (int panel = 0; panel < DV / 64; ++panel) load_tile(at.values(turn.at) + panel * PANEL, v_map, full(), {64 * panel, kv_head, first, batch});
    }
    next();
  }
  void copy_blocks(const TensorMap& k_map, const TensorMap& v_map) {
    const int last = first_token + TOKENS < tokens ? first_token + TOKENS - 1 : tokens - 1;
#pragma unroll 1
    for (int word = 0; word <= last / block_size / 32; ++word) {
      const uint32_t mine = there() ? bits[lane() * words + word] : 0;
      uint32_t any = static_cast<uint32_t>(uniform(static_cast<int>(mine)));
#pragma unroll 1
      for (; any != 0; any &= any - 1) {
        const int bit = __ffs(any) - 1, begin = (word * 32 + bit) * block_size;
#pragma unroll 1
        for (int first = begin; first < begin + block_size && first <= last; first += KEYS)
          copy_keys(k_map, v_map, lanes_where((mine >> bit & 1) != 0 && token() >= first), first);
      }
    }
  }
  // `tiles`: of the kv head's means, each as it lies in a stage, TILE_BYTES apart.
$if gated
  void copy_means(const char* tiles) {
    const int past = there() ? (token() + 1) / block_size : 0;  // means that the token sees
#pragma unroll 1
    for (int first = 0;; first += KEYS, tiles += TILE_BYTES) {
      const uint32_t wanted = lanes_where(past > first);
      if (wanted == 0) break;
      open(TILE_OF_MEANS, wanted, first);
      if (lane() == 0) {
        barrier_arrive_expect(full(), STAGE_BYTES);
        load_bytes(at.keys(turn.at), tiles, STAGE_BYTES, full());
      }
      next();
    }
  }
$end
  void finish() {
    open(NO_TILE, 0, 0);
    if (lane() == 0) barrier_arrive(full());
    next();
  }
};

// How the two blocks of a cluster of Hopper's mla_decode of whole features, which have two parts of the same rows, put them together. A part of
// decode_pair.sm90.cu, whose constants it uses.
#pragma once

// Into another block's shared memory, where the bytes arrive at its barrier. (cp.async.bulk)
static inline void send_bytes(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier, int rank) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               : : "r"(address_in_block(to, rank)), "r"(from), "r"(bytes), "r"(address_in_block(barrier, rank)) : "memory");
}

// Block r of the cluster gets the half of the outputs that its warpgroup r has, from warpgroup r of the other one.
template <int GROUP> struct ClusterMerge : PairRows<GROUP> {
  using Rows = PairRows<GROUP>;
  using Rows::at, Rows::rows, Rows::me, Rows::own_lane, Rows::first_row;

  static uint32_t sent() { return at.base(); }
  static uint32_t received() { return at.base() + Rows::STAGED_BYTES; }
  static uint32_t softmax(int row) { return at.weights(1) + row * 8; }  // the other block's
  static uint32_t barrier() { return at.full(0, 0); }                  // of keys that are no more
  static uint32_t stage() { return at.q(); }
  static_assert(Rows::STAGED_BYTES <= Places::WEIGHTS_AT + Places::WEIGHT_BYTES - Places::Q_AT, "outputs take the place of queries");

  // All keys have been used in both blocks. By all who multiply.
  static void meet() {
    if (GROUP == 0 && me() == 0) {
      barrier_invalidate(barrier());
      barrier_init(barrier(), 1);
      fence_barrier_init();
      barrier_arrive_expect(barrier(), ROWS * (HALF * 4 + 8));
    }
    sync_cluster();
  }

  template <int N> void send(const float (&o)[N], int to) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Rows::stage_row(o, h, sent(), GROUP * HALF);
      const int row = first_row() + 8 * h;
      if (own_lane() % 4 == 0) {
        store_async_in_block(softmax(row), __float_as_uint(rows.reference[h]), barrier(), to);
        store_async_in_block(softmax(row) + 4, __float_as_uint(rows.sum[h]), barrier(), to);
      }
    }
    fence_async();
    sync_warp();
    const int row = me() / WARP * 16 + own_lane();
    if (own_lane() < 16) send_bytes(received() + row * Rows::STAGED_ROW, sent() + row * Rows::STAGED_ROW, HALF * 4, barrier(), to);
  }

  template <int N> void receive(float (&o)[N]) {
    barrier_wait_cluster(barrier(), 0);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float other[2];
      load_shared_two(softmax(first_row() + 8 * h), other);
      const float next = larger_of(rows.reference[h], other[0]), factor = exp2_of(rows.reference[h] - next), its = exp2_of(other[0] - next);
      rows.reference[h] = next, rows.sum[h] = rows.sum[h] * factor + other[1] * its;
      const uint32_t from = Rows::staged_at(received(), h, GROUP * HALF);
      constexpr int AT_ONCE = 8;
#pragma unroll
      for (int j = 0; j < N / 4; j += AT_ONCE) {
        sync_warp();  // the compiler would begin all at once, and run out of registers
        float x[AT_ONCE][2];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) load_shared_two(from + (j + i) * 32, x[i]);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
          for (int e = 0; e < 2; ++e) o[4 * (j + i) + 2 * h + e] = made_here(o[4 * (j + i) + 2 * h + e] * factor + x[i][e] * its);
      }
    }
  }
};

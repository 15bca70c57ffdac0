// The warpgroups of Hopper's mla_decode of bytes in registers that add values. A part of decode_raw_bytes.sm90.cu, whose constants it uses.
#pragma once

static inline uint32_t multiply_halves(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}

// A warpgroup's half of the features, in tiles of 64; warp w's rows of such a tile are 16 of them, the even ones before the odd ones.
template <int GROUP> struct Adder {
  static constexpr int TILES = R / 2 / 64, SLICES = KEYS / 16, STEPS = SLICES * TILES / 2;
  typedef float Outputs[TILES][HEADS / 2];
  typedef uint32_t Operands[2][4];  // of two tiles of features that share a scale, and 16 keys
  const Places& at;

  static void keep_outputs(Outputs& o) {
#pragma unroll
    for (int m = 0; m < TILES; ++m) keep_in_place(o[m]);
  }
  void scale_outputs(Outputs& o, uint32_t turn) const {
#pragma unroll
    for (int j = 0; j < HEADS / 8; ++j) {
      float factor[2];
      load_shared_two(at.factors(turn) + (8 * j + lane() % 4 * 2) * 4, factor);
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[m][4 * j + e] *= factor[e % 2];
    }
  }

  // Step 2 n + b: 16 keys from 16 n on, of the half's features with scale b. A byte of a key lies beside that of its next feature, and two keys' in a word.
  void load_step(uint32_t (&bytes)[4], uint32_t stage, int step) const {
    const int l = lane();
    load_matrices_transposed(bytes, at.chunk(stage, step / 2 * 16 + l % 16, (GROUP * 2 + step % 2) * 8 + l / 16 * 4 + warp() % 4));
  }
  void widen_step(Operands& a, const uint32_t (&bytes)[4], uint32_t turn, int step) const {
    uint32_t ratio[2];
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(ratio[0]), "=r"(ratio[1]) : "r"(at.ratios(turn, GROUP * 2 + step % 2) + lane() % 4 * 32 + step / 2 * 8) : "memory");
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      uint32_t even, odd;
      widen_bytes<float8_e4m3>(swap_middle_bytes(bytes[m]), even, odd);
      a[m / 2][m % 2 * 2] = multiply_halves(even, ratio[m % 2]), a[m / 2][m % 2 * 2 + 1] = multiply_halves(odd, ratio[m % 2]);
    }
  }
  void start_step(Outputs& o, const Operands& a, uint64_t weights, int step) const {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 2; ++k) wgmma<half, HEADS>(o[step % 2 * 2 + k], a[k], moved(weights, step / 2 * 32), true);
    wgmma_commit();
  }
  static void arrive(uint32_t barrier) {
    sync_warp();
    if (lane() == 0) barrier_arrive(barrier);
  }

  void add(Outputs& o, uint32_t stage, uint32_t turn) const {
    const uint64_t weights = depth_major<128>(at.weights(turn));
    Operands a[2];
    uint32_t bytes[4];
    load_step(bytes, stage, 0);
    keep_outputs(o);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (step > 1) wgmma_wait<1>();
      widen_step(a[step % 2], bytes, turn, step);
      if (step + 1 < STEPS)
        load_step(bytes, stage, step + 1);
      else
        arrive(at.empty(stage));
      start_step(o, a[step % 2], weights, step);
    }
    wgmma_wait<0>();
    keep_outputs(o);
    arrive(at.added(turn));
  }

  // To the other block of the cluster, where keys were: 16 bytes a thread beside each other.
  uint32_t sent(int m, int j) const { return at.keys(0) + ((m * (HEADS / 8) + j) * WARPGROUP + thread_x() % WARPGROUP) * 16; }
  void send(const Outputs& o, int rank) const {
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int j = 0; j < HEADS / 8; ++j) {
        Pack<uint32_t, 4> x;
        for (int e = 0; e < 4; ++e) x.at[e] = __float_as_uint(o[m][4 * j + e]);
        store_to_cluster(address_in_block(sent(m, j), rank), x);
      }
  }

  // What outputs are multiplied by: own ones, and those of the other block.
  template <bool PAIRED> void factors_of(int head, bool whole, float& own, float& others) const {
    const Softmax all = softmax_of<PAIRED>(at, head);
    own = !whole ? 1 : all.sum == 0 ? 0 : reciprocal(all.sum), others = 0;
    if constexpr (PAIRED) {
      float reference[2];
      for (int rank = 0; rank < 2; ++rank) reference[rank] = __uint_as_float(load_shared_4(at.softmax(rank, head)));
      others = own * exp2_of(reference[1 - GROUP] - all.reference), own *= exp2_of(reference[GROUP] - all.reference);
    }
  }
  template <bool PAIRED> void store(const Outputs& o, const Results& results) const {
    const int feature = GROUP * (R / 2) + warp() % 4 * 16 + lane() / 4 * 2;
    const bool whole = results.parts == 1;
#pragma unroll
    for (int j = 0; j < HEADS / 8; ++j) {
      float own[2], others[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) factors_of<PAIRED>(8 * j + lane() % 4 * 2 + c, whole, own[c], others[c]);
#pragma unroll
      for (int m = 0; m < TILES; ++m) {
        float x[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = o[m][4 * j + e] * own[e % 2];
        if constexpr (PAIRED) {
          uint32_t y[4];
          load_shared_16(sent(m, j), y);
#pragma unroll
          for (int e = 0; e < 4; ++e) x[e] += __uint_as_float(y[e]) * others[e % 2];
        }
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int head = 8 * j + lane() % 4 * 2 + c;
          if (!results.has(head)) continue;
          if (whole)
            *reinterpret_cast<uint32_t*>(results.row(head) + feature + m * 64) = pack_pair<Element>(x[c], x[2 + c]);
          else
            store_pack(results.partial + results.piece(head) * R + feature + m * 64, Pack<float, 2>{{x[c], x[2 + c]}});
        }
      }
    }
  }

  // PAIRED: block r of the cluster puts together the half of the features that warpgroup r has.
  template <bool PAIRED, class MakeResults> void run(int tiles, MakeResults results) const {
    Outputs o;
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int e = 0; e < HEADS / 2; ++e) o[m][e] = 0;
    Turn<STAGES> stage;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const uint32_t turn = tile % 2;
      barrier_wait_all(at.weighed(turn), tile / 2 % 2);
      if (load_shared_4(at.follows(turn))) scale_outputs(o, turn);
      add(o, stage.at, turn);
      stage.next();
    }
    if constexpr (PAIRED) {
      const int other = 1 - cluster_rank();
      sync_cluster();  // all keys have been used
      if (other == GROUP) send(o, other);
      sync_cluster();
      if (other == GROUP) return;
    } else {
      sync_some(CONSUMING, CONSUMERS);
    }
    store<PAIRED>(o, results());
  }
};

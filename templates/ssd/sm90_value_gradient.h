// Hopper vocabulary of ssd_bwd: x's gradient, which tokens read of the same states as Bm's. Such a state has keys by values; as elements, in
// shared memory, it is a right factor. Part of templates/ssd/backward.chunk.sm90.cu.
#pragma once

// What a warpgroup that carries 64 keys of a state does for 64 values of x's gradient.
struct ValueGradient {
  const Places at;
  const TensorMap& out;
  const int part;

  bool any() const { return part < VALUE_BOXES; }

  // Elements of 16 values of the state.
  void put_state(const uint32_t (&elements)[4], int slice) const {
    StoreBuffers<Element, 1>{at.state(part) + slice / 4 * BOX, 0}.put<false>(slice % 4 * 2, elements);
  }
  // Both warpgroups have put theirs.
  static void all_put() {
    fence_async();
    sync_some(3, 2 * WARPGROUP);
  }
  // Starts sums (+)= the part's keys of the state times rows, which lie in boxes.
  void read(Columns& sums, uint64_t rows, bool add) const {
    const uint64_t a = depth_major<128>(at.state(part));
#pragma unroll
    for (int k = 0; k < 4 * VALUE_BOXES; ++k) wgmma<Element, CHUNK>(sums, moved(a, k / 4 * BOX + k % 4 * 32), moved(rows, k / 4 * BOX + k % 4 * 32), add || k > 0);
  }
  // Starts sums = what tokens read of the state: tokens by values.
  void start(Columns& sums, uint32_t stage) const {
    const uint64_t a = depth_major<128>(at.met(stage, 0)), b = row_major<128>(at.state(0) + part * BOX, CHUNK);
    keep_in_place(sums);
    wgmma_fence();
    if (any())
#pragma unroll
      for (int k = 0; k < SLICES; ++k)
        wgmma<Element, CHUNK, false, true>(sums, moved(a, k / 4 * BOX + k % 4 * 32), moved(b, k / 4 * (VALUE_BOXES * BOX) + k % 4 * 2048), k > 0);
    wgmma_commit();
  }
  // After them: times what is left and the step, and what they read in the chunk.
  template <class Store> void finish(Columns& sums, const Gates& gates, uint32_t stage, uint32_t slot, Store store) const {
    if (!any()) return;
    wgmma_wait<0>();
    keep_in_place(sums);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int token = 16 * (warp() % 4) + lane() / 4 + 8 * h;
      const float factor = gates.after[token] * gates.beta[token];
#pragma unroll
      for (int j = 0; j < CHUNK / 8; ++j) sums[4 * j + 2 * h] *= factor, sums[4 * j + 2 * h + 1] *= factor;
    }
    const uint64_t a = depth_major<128>(at.value_pairs(slot)), b = row_major<128>(at.read(stage) + part * BOX, CHUNK);
    keep_in_place(sums);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<Element, CHUNK, false, true>(sums, moved(a, k * 32), moved(b, k * 2048), true);
    wgmma_commit();
    wgmma_wait<0>();
    keep_in_place(sums);
    store(sums);
  }
  // 64 values of a chunk's tokens on their way to memory.
  template <int BUFFERS> void store(const Columns& sums, StoreBuffers<Element, BUFFERS>& buffers, const int (&to)[4]) const {
    buffers.open();
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = pack_pair<Element>(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
      buffers.template put<false>(j, r);
    }
    buffers.send(true, static_cast<Element*>(nullptr), 0, 0, 0, [&](uint32_t from) { store_tile(out, to, from); });
  }
};

// GPU vocabulary of attention forward on mma.sync, from Hopper on: keys and values of each step come by tile copies, round a ring of places
// in shared memory. Warps take turns in starting the copies, and wait for one another by the ring's barriers alone: they drift apart.
#pragma once
#include "device/sm90.h"
#include "device/tile/tile.h"

// KEYS keys a step, of one head; STAGES places, a power of 2. A box of a tensor map is [KEYS][1][8 elements more than the tile's columns]:
// what lies past the head becomes zeros, so that rows come to lie as a Tile has them.
template <class KTile, class VTile, int KEYS, int STAGES, int WARPS> struct KeyRing {
  static constexpr int AHEAD = STAGES / 2;  // steps
  SharedPointer keys, values, barriers;     // of 8 bytes each: those of full places, then those of empty ones
  const TensorMap &k, &v;
  int first, end;          // steps
  int token, head, batch;  // the first step's first key
  int mine;                // this warp

  KTile k_tile(int step) const { return {keys + place(step) * KTile::BYTES}; }
  VTile v_tile(int step) const { return {values + place(step) * VTile::BYTES}; }

  // By one thread, before a barrier of the block.
  static void init(SharedPointer barriers) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(barriers + 8 * i, 1);
      barrier_init(barriers + 8 * (STAGES + i), WARPS);
    }
    fence_barrier_init();
  }

  void start() const {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) bring(first + i);
  }

  // Leaves the step before it, whose place becomes free; returns when the step's keys and values are there. Every warp goes through all steps.
  void come_to(int step) const {
    if (step > first) {
      sync_warp();
      if (elect_one()) barrier_arrive(empty(step - 1));
    }
    bring(step + AHEAD);
    barrier_wait(full(step), lap(step) & 1);
  }

 private:
  int place(int step) const { return (step - first) & (STAGES - 1); }
  int lap(int step) const { return (step - first) / STAGES; }
  uint32_t full(int step) const { return barriers + 8 * place(step); }
  uint32_t empty(int step) const { return barriers + 8 * (STAGES + place(step)); }

  void bring(int step) const {
    if (step >= end || mine != (step - first) % WARPS) return;
    if (step - first >= STAGES) barrier_wait(empty(step), (lap(step) - 1) & 1);
    if (!elect_one()) return;
    const int at[4] = {0, head, token + (step - first) * KEYS, batch};
    barrier_arrive_expect(full(step), KTile::BYTES + VTile::BYTES);
    load_tile(k_tile(step).base, k, full(step), at);
    load_tile(v_tile(step).base, v, full(step), at);
  }
};

// Hopper vocabulary (sm_90a, in PTX): what device/gpu.h's portable words leave out. Needs device/gpu.h before it. Addresses of shared
// memory are uint32_t, in the shared window. PTX names are those of the PTX ISA 9.0.
//
// Also here: device/tile/launch_order.h (launches that overlap), device/sm90/sm90_copy.h (barriers of transactions, copies of tiles),
// device/sm90/sm90_wgmma.h (matrix products of a warpgroup).
#pragma once
#include "device/tile/launch_order.h"
#include "device/sm90/sm90_copy.h"
#include "device/sm90/sm90_wgmma.h"

constexpr int WARPGROUP = 128;
static inline int warpgroup() { return thread_x() / WARPGROUP; }

// True in one lane of the warp, the same one each time; all lanes call it. (elect.sync)
static inline bool elect_one() {
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected;
}

// Registers a thread, 24..256 in steps of 8; every warp of the warpgroup calls it. Increasing waits until others have given enough away.
// The kernel needs a launch bound. (setmaxnreg)
template <int N> static inline void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(N)); }
template <int N> static inline void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(N)); }

// Barriers of some of a block's warps. id: 0..15, of which 0 is sync_block's; threads: those that sync and those that arrive, a multiple of
// 32. Who arrives does not wait. (barrier.sync, barrier.arrive)
static inline void sync_some(int id, int threads) { asm volatile("barrier.sync %0, %1;" : : "r"(id), "r"(threads) : "memory"); }
static inline void arrive_some(int id, int threads) { asm volatile("barrier.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory"); }

// Writes of this thread to shared memory before it come before reads of tile copies and wgmma after it. (fence.proxy.async)
static inline void fence_async() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
// The same for all memory.
static inline void fence_async_everywhere() { asm volatile("fence.proxy.async;" : : : "memory"); }

// Four 8 x 8 matrices of 16-bit elements into shared memory, load_matrices' opposite: lane l gives the address of row l % 8 of matrix l / 8
// (16 bytes, aligned). Of matrix i, lane 4 g + t brings elements [g][2 t], [g][2 t + 1] in r[i]; transposed: [2 t][g], [2 t + 1][g].
// (stmatrix)
static inline void store_matrices(uint32_t row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               : : "r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
static inline void store_matrices_transposed(uint32_t row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               : : "r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

// Clusters: blocks that run at once and reach each other's shared memory.
static inline int cluster_rank() {  // of this block
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
static inline int cluster_blocks() {
  uint32_t blocks;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return static_cast<int>(blocks);
}
// Every thread of the cluster, exited ones left out. What was written before arriving is seen after waiting. (barrier.cluster)
static inline void arrive_cluster() { asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory"); }
static inline void wait_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory"); }
static inline void sync_cluster() {
  arrive_cluster();
  wait_cluster();
}
// The same place in another block's shared memory, and 16 bytes to and from there. (mapa, ld and st.shared::cluster)
static inline uint32_t address_in_block(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
static inline Pack<uint32_t, 4> load_from_cluster(uint32_t there) {
  Pack<uint32_t, 4> x;
  asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.at[0]), "=r"(x.at[1]), "=r"(x.at[2]), "=r"(x.at[3]) : "r"(there) : "memory");
  return x;
}
static inline void store_to_cluster(uint32_t there, const Pack<uint32_t, 4>& x) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};"
               : : "r"(there), "r"(x.at[0]), "r"(x.at[1]), "r"(x.at[2]), "r"(x.at[3]) : "memory");
}

// Hopper vocabulary: barriers that count bytes as well as threads, and copies of tiles between global and shared memory.
#pragma once

// mbarrier: 8 bytes of shared memory, aligned. A phase ends when all its arrivals have come and all its expected bytes; phases are told
// apart by parity: the first is 0, the next 1, then 0 again. (mbarrier.*)
static inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals) : "memory");
}
// After the inits and before a sync: makes them visible to the cluster and to copies. (fence.mbarrier_init)
static inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}
static inline void barrier_invalidate(uint32_t barrier) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" : : "r"(barrier) : "memory"); }
static inline void barrier_arrive(uint32_t barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(barrier) : "memory"); }
// Arrives, and expects so many more bytes in this phase.
static inline void barrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}
static inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(bytes) : "memory");
}
// At the same place in another block of the cluster, or in this one.
static inline void barrier_arrive_in_block(uint32_t barrier, int rank) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}"
               : : "r"(barrier), "r"(rank) : "memory");
}
// The same where those who wait need not see writes of this thread, only that its reads are done, as those of finished wgmma are: no fence.
static inline void barrier_release_in_block(uint32_t barrier, int rank) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}"
               : : "r"(barrier), "r"(rank) : "memory");
}
// The same of a cluster of BLOCKS; of one, launched without a cluster, the block's own: remote words are illegal there.
template <int BLOCKS> static inline void barrier_release(uint32_t barrier, int rank) {
  if constexpr (BLOCKS == 1)
    barrier_arrive(barrier);
  else
    barrier_release_in_block(barrier, rank);
}
// There, expecting so many more bytes in this phase; and a word into that block's shared memory, whose 4 bytes arrive at its barrier.
// (mbarrier.arrive.expect_tx, st.async)
static inline void barrier_arrive_expect_in_block(uint32_t barrier, int rank, uint32_t bytes) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.expect_tx.shared::cluster.b64 _, [there], %2;\n}"
               : : "r"(barrier), "r"(rank), "r"(bytes) : "memory");
}
static inline void store_async_in_block(uint32_t to, uint32_t word, uint32_t barrier, int rank) {
  asm volatile("{\n.reg .b32 there, its;\nmapa.shared::cluster.u32 there, %0, %3;\nmapa.shared::cluster.u32 its, %2, %3;\n"
               "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [there], %1, [its];\n}"
               : : "r"(to), "r"(word), "r"(barrier), "r"(rank) : "memory");
}
// Whether the phase of that parity is over; may wait a little. A barrier's phase before its first, parity 1, is over.
static inline bool barrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t over;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
               : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
  return over;
}
static inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  while (!barrier_try_wait(barrier, parity)) {
  }
}
// The same where blocks of the cluster arrive: their writes before arriving are seen after it.
static inline void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t over = 0;
  while (!over)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
}

// What the second-level cache does with a copy's lines. (.L2::cache_hint; createpolicy's encodings)
enum class Keep : uint64_t { normal = 0x1000000000000000, shortly = 0x12F0000000000000, long_time = 0x14F0000000000000 };

// Copies of tiles by a tensor map, which has the box's extents and the swizzle. `at`: coordinates of the box's first element, innermost
// first; what lies outside of the tensor is read as zeros and not written. Shared addresses are aligned to 128 bytes, with swizzle 128 to
// 1024. One thread starts a copy. With a swizzle of w bytes the box's inner extent is at most w bytes; 16-byte chunk c of row r is at
// chunk c ^ (r % 8) (w = 128), c ^ (r / 2 % 4) (64) or c ^ (r / 4 % 2) (32).
static inline void prefetch_tensor_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory"); }

$for kind in 0..2
// Global to shared memory${kind == 1 ? ' of every block whose bit is set in `blocks`, at the same place in each; the bytes arrive at the barriers there.' : '; the bytes arrive at the barrier.'}
// (cp.async.bulk.tensor.*.shared::cluster.global${kind == 1 ? '.multicast::cluster' : ''})
template <int RANK> static inline void load_tile${kind == 1 ? '_multicast' : ''}(uint32_t to, const TensorMap& map, uint32_t barrier, const int (&at)[RANK],${kind == 1 ? ' uint16_t blocks,' : ''} Keep keep = Keep::normal) {
  static_assert(RANK >= 1 && RANK <= 5);
$for rank in 1..6
  if constexpr (RANK == ${rank})
    asm volatile("cp.async.bulk.tensor.${rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes${kind == 1 ? '.multicast::cluster' : ''}.L2::cache_hint [%0], [%1, {%4"
$for i in 1..rank
                 ", %${i + 4}"
$end
                 "}], [%2]${kind == 1 ? ', %' : ''}"
$if kind == 1
                 "${rank + 4}"
$end
                 ", %3;"
                 : : "r"(to), "l"(&map), "r"(barrier), "l"(keep), "r"(at[0])
$for i in 1..rank
                 , "r"(at[${i}])
$end
$if kind == 1
                 , "h"(blocks)
$end
                 : "memory");
$end
}
$end

$for kind in 0..2
// Shared to global memory${kind == 1 ? ', added to what is there' : ''}; then copy_commit. Before it fence_async, and a sync of those who wrote.
// (cp${kind == 1 ? '.reduce' : ''}.async.bulk.tensor.*.global.shared::cta)
template <int RANK> static inline void ${kind == 1 ? 'add' : 'store'}_tile(const TensorMap& map, const int (&at)[RANK], uint32_t from) {
  static_assert(RANK >= 1 && RANK <= 5);
$for rank in 1..6
  if constexpr (RANK == ${rank})
    asm volatile("cp${kind == 1 ? '.reduce' : ''}.async.bulk.tensor.${rank}d.global.shared::cta${kind == 1 ? '.add' : ''}.tile.bulk_group [%0, {%2"
$for i in 1..rank
                 ", %${i + 2}"
$end
                 "}], [%1];" : : "l"(&map), "r"(from), "r"(at[0])
$for i in 1..rank
                 , "r"(at[${i}])
$end
                 : "memory");
$end
}
$end

// Bytes in a row, a multiple of 16, both addresses aligned to 16. (cp.async.bulk)
static inline void load_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               : : "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
static inline void store_bytes(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" : : "l"(to), "r"(from), "r"(bytes) : "memory");
}

// Stores of one thread come in groups: until all but its last PENDING ones have been read from shared memory, or are done.
// (cp.async.bulk.commit_group, wait_group)
static inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" : : : "memory"); }
template <int PENDING> static inline void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(PENDING) : "memory"); }
template <int PENDING> static inline void store_wait() { asm volatile("cp.async.bulk.wait_group %0;" : : "n"(PENDING) : "memory"); }

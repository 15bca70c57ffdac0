// Hopper vocabulary: copies from block to block of a cluster, and to several at once.
#pragma once
#include "device/sm90.h"

// Bytes of this block's shared memory, a multiple of 16, to the same place in another block's, at whose barrier they arrive. Address aligned to
// 16; before it fence_async, and a sync of those who wrote. (cp.async.bulk.shared::cluster.shared::cta)
static inline void copy_to_block(uint32_t from, uint32_t bytes, uint32_t barrier, int rank) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               : : "r"(address_in_block(from, rank)), "r"(from), "r"(bytes), "r"(address_in_block(barrier, rank)) : "memory");
}

// load_bytes to every block whose bit is set in `blocks`, at the same place in each; the bytes arrive at the barriers there.
// (cp.async.bulk.shared::cluster.global.multicast::cluster)
static inline void load_bytes_multicast(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, uint16_t blocks) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
               : : "r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"(blocks) : "memory");
}

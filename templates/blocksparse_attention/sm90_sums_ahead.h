// Hopper vocabulary of blocksparse_attention's gradients: sums of dq become 0 while blocks of keys of the heads before are computed. The launch before has
// cleared those of the first heads only: it waits for memory, which blocks of keys leave half idle.
#pragma once
#include "flash_attention_bwd/sm90_attention_finish.h"

// Each block of keys clears its share of the sums of the kv head that comes `heads_cleared` after its own: units of UNIT bytes, by bulk copies of zeros.
template <uint32_t UNIT> struct SumsAhead {
  static constexpr uint32_t ZEROS = 4096;  // bytes of zeros in shared memory
  static_assert(UNIT % ZEROS == 0);
  float* sums;
  int32_t* cleared;  // by kv head how many blocks of keys have cleared their share; 0 at first
  const int64_t &heads_cleared, &kv_heads, &units_a_head, &key_blocks, &heads_a_kv_head;

  // A warp, before clear().
  static void make_zeros(uint32_t zeros) {
#pragma unroll 1
    for (uint32_t i = lane() * 16; i < ZEROS; i += WARP * 16)
      asm volatile("st.shared.v4.f32 [%0], {%1, %1, %1, %1};" : : "r"(zeros + i), "f"(0.0f) : "memory");
    fence_async();
    sync_warp();
  }
  // One thread, for a block of keys.
  void clear(int64_t numbered, uint32_t zeros) const {
    const uint32_t blocks = low_word(key_blocks), own = static_cast<uint32_t>(numbered) / blocks, head = own + low_word(heads_cleared);
    if (head >= low_word(kv_heads)) return;
    const uint32_t units = low_word(units_a_head) * low_word(heads_a_kv_head), share = (units + blocks - 1) / blocks;
    const uint32_t first = (static_cast<uint32_t>(numbered) - own * blocks) * share, end = first + share < units ? first + share : units;
    char* to = reinterpret_cast<char*>(sums) + (int64_t{head} * units + first) * UNIT;
#pragma unroll 1
    for (uint32_t left = first < end ? (end - first) * (UNIT / ZEROS) : 0; left > 0; --left, to += ZEROS) store_bytes(to, zeros, ZEROS);
    store_commit();
    store_wait<0>();
    fence_async_everywhere();
    count_up(cleared + head);
  }
  // One thread: until the sums of a block's own head are 0.
  void wait(int64_t numbered) const {
    const uint32_t head = static_cast<uint32_t>(numbered) / low_word(key_blocks);
    if (head >= low_word(heads_cleared)) wait_for_count(cleared + head, static_cast<int32_t>(low_word(key_blocks)));
  }
};

// mla_decode on Hopper with a cache of bytes, 64 heads a block, which has all features of each key in shared memory. A warpgroup brings tiles of 64 keys, and widens features
// in e4m3, which are exact in 16 bits, on their way. Two more take turns with tiles, as in decode_pair.sm90.cu: each makes the scores and weights of every second one, and
// holds half of the outputs' features; weights go to the other one through shared memory.
//
// Keys' scales, one for 128 features, multiply the sums of products of these, and weights before they meet values, so that scores have f32's digits.
//
// Weights are 2^(score - reference): a row's reference goes from tile to tile, and follows its largest score only when that is 2^HEADROOM times ahead.
// A second launch puts together the parts of a query token's keys.
#include "device/gpu.h"
#include "device/sm90/sm90_attention_rows.h"
#include "device/sm90/sm90_uniform.h"
#include "mla_decode/finish_parts.h"
#include "mla_decode/shared_words.h"

$require R == 512 and Dr == 64 and C == 'u8' and E == 'bf16'
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
#include "mla_decode/latent_keys.h"
constexpr int R = ${R}, ROPE = ${Dr};
constexpr int HALF = R / 2, SCALES = R / 128;
constexpr bool CAPPED = ${capped};     // a soft cap
constexpr int KEYS = 64, ROWS = 64;    // of a tile; heads of a block
constexpr int GROUPS = 2, COPIERS = WARPGROUP, THREADS = COPIERS + GROUPS * WARPGROUP;
constexpr int PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224;
#include "mla_decode/pair_bytes_places.h"
#include "mla_decode/pair_bytes_producer.h"
#include "mla_decode/pair_bytes_consumer.h"

// Block x: heads x % row_blocks * ROWS ... of part x / row_blocks % parts of the keys of query token x / row_blocks / parts (of all sequences).
KERNEL(THREADS, 1) decode(${parameters('decode')}) {
  const Places at;
  if (thread_x() == 0) {
    for (uint32_t stage = 0; stage < STAGES; ++stage)
      for (int piece = 0; piece < PIECES; ++piece) barrier_init(at.full(stage, piece), COPIERS / WARP + COPIERS), barrier_init(at.empty(stage, piece), 4);
    fence_barrier_init();
  }
  let_next_launch_go();
  sync_block();
  const int part_count = static_cast<int>(parts), blocks = static_cast<int>(row_blocks);
  const int first_head = block_x() % blocks * ROWS, unit = block_x() / blocks, token = unit / part_count, part = unit % part_count;
  const int queries = static_cast<int>(q_latent_view.shape[1]), heads = static_cast<int>(q_latent_view.shape[2]);
  const int sequence = token / queries, i = token % queries;
  const bool listed = is_given(indices_view);
  const int count = uniform(static_cast<int>(listed ? indices_view.shape[2] : visible_tokens(context_lens[sequence], queries, i)));
  const int all_tiles = (count + KEYS - 1) / KEYS, first_tile = static_cast<int>(int64_t{all_tiles} * part / part_count);
  const int tiles = uniform(static_cast<int>(int64_t{all_tiles} * (part + 1) / part_count) - first_tile);

  if (uniform(warpgroup()) < COPIERS / WARPGROUP) {
    give_registers<PRODUCER_REGISTERS>();
    const int first = first_tile * KEYS, end = first + tiles * KEYS < count ? first + tiles * KEYS : count;
    const int32_t* const list = listed ? static_cast<const int32_t*>(indices_view.data) + sequence * indices_view.strides[0] + i * indices_view.strides[1] : nullptr;
    Widener{cache, static_cast<uint32_t>(latent_outer / 16), static_cast<uint32_t>(latent_inner / 16), listed, static_cast<int>(page_size)}.run(listed ? list : block_tables + sequence * table_row, uniform(first), uniform(end));
  } else {
    take_registers<CONSUMER_REGISTERS>();
    const QueryRows q{static_cast<const Element*>(q_latent_view.data) + sequence * q_latent_view.strides[0] + i * q_latent_view.strides[1],
                      static_cast<const Element*>(q_rope_view.data) + sequence * q_rope_view.strides[0] + i * q_rope_view.strides[1],
                      q_latent_view.strides[2], q_rope_view.strides[2], first_head, heads};
    // Worked out when it is needed: registers are few before.
    const auto results = [&] {
      const int at_end = keep_here(block_x()) / blocks, of_token = at_end / part_count;
      return Results{out_view, lse_view, partial, reinterpret_cast<Softmax*>(partial_softmax), of_token / queries, of_token % queries, of_token,
                     static_cast<int>(keep_here(block_x())) % blocks * ROWS, heads, at_end % part_count, part_count};
    };
    const float to_log = CAPPED ? logits_soft_cap * LOG2_E : larger_of(softmax_scale * LOG2_E, 1e-30f), to_tanh = CAPPED ? softmax_scale / logits_soft_cap : 0;
    if (uniform(warpgroup()) == COPIERS / WARPGROUP)
      Consumer<0>{{}, tiles, to_log, to_tanh}.run(q, results);
    else
      Consumer<1>{{}, tiles, to_log, to_tanh}.run(q, results);
  }
}

// Block x: head x % heads of query token x / heads.
KERNEL(FINISH_THREADS * MOST_GROUPS, 1) finish(${parameters('finish')}) {
  wait_for_previous_launch();
  finish_row<Element, R, true>(out_view, lse_view, partial, reinterpret_cast<const Softmax*>(partial_softmax), static_cast<int>(parts), static_cast<int>(finish_groups));
}

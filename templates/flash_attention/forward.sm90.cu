// flash_attention, forward, on Hopper. A block goes from tile to tile (BLOCK_M query rows of one head): of warpgroup 0, one warp finds the
// tiles and a thread of another copies queries, keys and values; the other warpgroups have 64 rows each, scores and outputs in registers.
//
// A warpgroup starts the product of the next step's keys (perhaps of the next tile's) beside that of this step's weights and values, and
// weighs the new scores while the latter runs. With PING_PONG warpgroups start their products in turn, so that one weighs while another's
// products run.
// Weights are 2^(score - reference): a row's reference follows its largest score when that is 2^HEADROOM times ahead. Under a soft cap that is
// small enough (NARROW) no score is far from 0: the reference is 0, and outputs that overflow are computed once more.
// With segment ids a launch before looks at those of the keys by steps. With BITS_APART, dropout, a last warpgroup makes which weights
// are kept, some steps ahead of them.
#include "device/gpu.h"
#include "device/sm90/sm90_attention_tiles.h"
#include "flash_attention/sm90_attention_outputs.h"
#include "device/sm90/sm90_attention_rows.h"
#include "flash_attention/sm90_attention_plain.h"
#include "flash_attention/sm90_attention_adjust.h"
#include "device/sm90/sm90_uniform.h"
$if segmented
#include "flash_attention/sm90_attention_segments.h"
$end
$if dropped
#include "flash_attention/sm90_attention_dropout.h"
$end
$if by_blocks  // blocksparse_attention: steps come from a list
$if not packed
#include "blocksparse_attention/batched.h"
$end
#include "blocksparse_attention/sm90_block_tiles.h"
$end
$if latent  // mla_attention: of some heads, whose keys without rope are made first; rope features come from the call's tensors
#include "mla_attention/head_views.h"
$end

$require D % 8 == 0 and Dv % 8 == 0 and block_n % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                   // head dim of q and k; of v and out
constexpr bool PACKED = ${packed}, CAPPED = ${capped};  // sequences end to end; soft cap
constexpr bool NARROW = ${narrow};                     // no weight of a capped score leaves the floats
constexpr bool BOUNDED = ${bounded}, SEGMENTED = ${segmented}, DROPPED = ${dropped};  // lengths; segment ids; dropout
constexpr int GROUPS = ${groups};                     // warpgroups that multiply
constexpr int BLOCK_M = GROUPS * 64;                  // query rows of a tile
constexpr int BLOCK_N = ${block_n};                   // keys of a step
constexpr uint32_t STAGES = ${stages};                // steps of keys, and of values, in shared memory
constexpr uint32_t Q_STAGES = ${q_stages};            // tiles' queries in shared memory
constexpr bool PING_PONG = ${ping_pong};
constexpr bool DYNAMIC = ${dynamic};                   // a block takes the next tile when it needs one, not in turn
constexpr int CLUSTER = ${cluster};                    // blocks that work on neighbouring rows of a head, and copy keys and values for each other
constexpr bool STAGED = ${staged};                     // outputs leave through shared memory
$if biased == 'none'
using Bias = NoBias;
$else
using Bias = ${ctype(biased)};
$end
using ScoreTile = Adjustments<Bias, ${masked}, BLOCK_M, BLOCK_N, SEGMENTED || DROPPED>;  // what is given for the scores of a step
constexpr bool ADJUSTED = ScoreTile::BYTES > 0;
constexpr uint32_t ADJUST_STAGES = ${adjust_stages};   // steps of it in shared memory
constexpr bool WIDE = D > 192 || DV > 128;
// Options that leave no registers for what depends on tensors' ranks.
constexpr bool CROWDED = ADJUSTED ? BOUNDED || SEGMENTED || DROPPED : WIDE && (DROPPED ? PACKED || BOUNDED || SEGMENTED : SEGMENTED && CAPPED);
constexpr bool ASKED = GROUPS == 2 || D <= 64 || D > 128;  // whether what a step needs is here, ahead of it: with other heads no gain
constexpr bool BITS_APART = ${bits_apart};             // a warpgroup makes dropout's bits
$if by_blocks
// Of tiles that are short: the last product with values begins before the next tile is looked at, and its outputs are sent while that one's first
// scores are made.
constexpr bool SWITCHES = GROUPS == 2 && D > 64 && !PING_PONG;
$end
constexpr int THREADS = (GROUPS + 1 + BITS_APART) * WARPGROUP;
constexpr bool SEARCHES = ${by_blocks ? 'true' : 'PACKED || SEGMENTED || (BOUNDED && (DROPPED || (NARROW && DV <= 64)))'};  // to find a tile needs more registers
constexpr int PRODUCER_REGISTERS = SEARCHES ? 56 : GROUPS == 3 || BITS_APART ? 32 : 40;
constexpr int BITS_REGISTERS = SEARCHES ? 56 : 64;
constexpr int CONSUMER_REGISTERS = ${by_blocks ? paired ? 'GROUPS == 1 ? 200 : ' : 'GROUPS == 1 ? 240 : ' : ''}GROUPS == 3 ? SEARCHES ? 152 : 160 : BITS_APART ? SEARCHES ? 200 : 208 : SEARCHES ? 224 : 232;
$if bits_apart
constexpr uint32_t BITS_STAGES = ${bits_stages};       // steps of bits in shared memory
static_assert(GROUPS == 2);
$end

$if latent
constexpr int NOPE = ${Dn}, ROPE = ${Dr}, NOPE_BOXES = NOPE / 64;
static_assert(NOPE % 64 == 0 && ROPE % 64 == 0 && CLUSTER == 1);
$end
constexpr int BOXES = (D + 63) / 64, V_BOXES = (DV + 63) / 64;  // of 64 features
constexpr uint32_t Q_BOX = 64 * 128, KEY_BOX = BLOCK_N * 128;
constexpr uint32_t Q_BYTES = BOXES * Q_BOX, K_BYTES = BOXES * KEY_BOX, V_BYTES = V_BOXES * KEY_BOX;

#include "flash_attention/forward_sm90_places.h"
#include "flash_attention/forward_sm90_rules.h"
#include "flash_attention/forward_sm90_producer.h"
#include "flash_attention/forward_sm90_consumer.h"

KERNEL(THREADS, ${by_blocks and paired ? 2 : 1}) attend(${parameters('attend')}) {
$if latent
#include "mla_attention/expanded_arguments.h"
$end
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  if (thread_x() == 0) {
    prefetch_tensor_map(q_map);
    prefetch_tensor_map(k_map);
    prefetch_tensor_map(v_map);
    for (uint32_t i = 0; i < Places::BARRIERS; ++i) {
      barrier_init(at.barrier(i), 1);
      barrier_init(empty(at.barrier(i)), i < Places::QUERIES ? 1 : i < Places::KEYS_AND_VALUES ? GROUPS * CLUSTER : GROUPS * 4);
    }
    barrier_init(at.found(), 1);
    barrier_init(at.wanted(), 1 + 4 * BITS_APART);
$if bits_apart
    for (uint32_t i = 0; i < 4 * BITS_STAGES; ++i) {
      barrier_init(at.bits_full(0, i), 1);
      barrier_init(empty(at.bits_full(0, i)), 2);
    }
$end
    fence_barrier_init();
  }
$if not by_blocks  // there, what begins a block and finds its first tile goes on beside the launch that makes the list
  if (${latent ? 'true' : '!DYNAMIC || SEGMENTED'}) wait_for_previous_launch();
$end
  if constexpr (CLUSTER > 1)
    sync_cluster();
  else
    sync_block();
  if constexpr (CROWDED)
    for (const View* view : {&q_view, &k_view, &v_view, &out_view}) __builtin_assume(view->rank == (PACKED ? 3 : 4));
  const int q_heads = static_cast<int>(q_view.shape[q_view.rank - 2]), kv_heads = static_cast<int>(k_view.shape[k_view.rank - 2]);
$if ends_evenly
  const int last_heads = static_cast<int>(last_together);
$else
  constexpr int last_heads = 0;
$end
  const ${by_blocks ? 'ChunkedTiles tiles{' : 'AttentionTiles tiles'}{{PACKED ? cum_seqlens_q : nullptr, PACKED ? cum_seqlens_k : nullptr, sequence_count, q_view.shape[q_view.rank - 3],
                              k_view.shape[k_view.rank - 3], offset_given, offset,
                              BOUNDED ? query_seq_lengths : nullptr, BOUNDED ? key_value_seq_lengths : nullptr},
                             causal, window_left, window_right, q_heads, static_cast<int>(row_blocks), static_cast<int>(heads_together),
                             static_cast<int>(${latent ? 'group_tiles' : 'tile_count'}), ${by_blocks ? (packed ? 'true' : 'PACKED && DROPPED') : 'PACKED && DROPPED'}, last_heads}${by_blocks ? ', static_cast<int>(chunk_size < (1 << 30) ? chunk_size : 1 << 30)' : ''}${by_blocks ? (packed ? ', cut_to(block_mask_view.shape[2] * block_q), cut_to(block_mask_view.shape[3] * steps_a_block * BLOCK_N)}' : '}') : ''};
$if segmented
  const CallSegments segments{q_segment_ids_view, kv_segment_ids_view, key_ids, key_ranges, static_cast<int>(key_steps)};
$else
  const CallSegments segments{};
$end
$if dropped
  const CallDropout dropout(drop_threshold, dropout_seed);
$else
  const CallDropout dropout{};
$end
$if by_blocks
  const TileSteps blocks{{step_list, block_mask_view, static_cast<int>(list_words), static_cast<int>(block_q), static_cast<int>(steps_a_block)}};
$end
  const Plain plain{Heads<const Element>(q_view), Heads<const Element>(k_view), Heads<const Element>(v_view), Heads<Element>(${latent ? 'group_out' : 'out_view'}),
                    softmax_aux_view, lse_view, sinks_type, ${latent ? 'NOPE' : 'D'}, softmax_scale, CAPPED ? logits_soft_cap : 0,
                    {segments, dropout, DROPPED && drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : DROPPED ? 0.0f : 1.0f, q_heads${by_blocks ? ', blocks' : latent ? ', static_cast<int>(group_head)' : ''}}${latent ? ', Heads<const Element>(rope_queries), Heads<const Element>(rope_keys), ROPE' : ''}};
$if adjust_stages > 0
  const ScoreTile given{bias_map, attention_mask_map, bias_view, attention_mask_view};
$else
  const ScoreTile given;
$end
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<PRODUCER_REGISTERS>();
$if by_blocks
    if (warp() != 1) wait_for_previous_launch();
$end
$if ends_evenly
    const int first_late = q_heads * static_cast<int>(sequence_count) - last_heads;
    if (warp() == 0 && lane() == 0) Producer{at, q_map, k_map, v_map, given, ${by_blocks ? 'blocks, ' : latent ? 'q_rope_map, k_rope_map, static_cast<int>(group_head), ' : ''}q_heads / kv_heads, q_heads, first_late}.run();
$else
    if (warp() == 0 && lane() == 0) Producer{at, q_map, k_map, v_map, given, ${by_blocks ? 'blocks, ' : latent ? 'q_rope_map, k_rope_map, static_cast<int>(group_head), ' : ''}q_heads / kv_heads}.run();
$end
    if (warp() == 1) Finder{at, tiles, plain}.run(Numbers{taken});
    if (warp() == 2) finish_empty_tiles(tiles, plain);
$if bits_apart
  } else if (group == GROUPS + 1) {
    give_registers<BITS_REGISTERS>();
    BitMaker{at, dropout, q_heads, uniform(warp() % 4)}.run();
$end
  } else {
    take_registers<CONSUMER_REGISTERS>();
$if by_blocks
    wait_for_previous_launch();
$end
    constexpr float LEAST = ScoreTile::BIASED ? 1e-25f : 0;  // scores times it are as good as 0, a bias over it is finite
    const float to_natural = CAPPED ? logits_soft_cap : softmax_scale > LEAST ? softmax_scale : ScoreTile::BIASED ? LEAST : 1e-30f;
    const float cap_unit = CAPPED ? softmax_scale / logits_soft_cap : 0, bias_unit = ScoreTile::BIASED ? reciprocal(to_natural) : 0;
    Consumer{at, tiles, plain, given, out_map, taken, to_natural * LOG2_E, cap_unit, bias_unit, group - 1, false}.run();
  }
  if constexpr (CLUSTER > 1) {
    sync_warp();
    sync_cluster();  // the others may still copy to here
  }
}
$if segmented

// A warp a step of a row of the batch. key_steps: of a row.
KERNEL(128, 1) look_at_keys(${parameters('look_at_keys')}) {
$if latent
  const int32_t* const key_value_seq_lengths = nullptr;
$end
  let_next_launch_go();
  if (block_x() == 0 && thread_x() == 0) *taken = 0;
  const int number = block_x() * 4 + warp(), steps = static_cast<int>(key_steps), batch = number / steps;
  if (batch >= sequence_count) return;
  int64_t keys = kv_segment_ids_view.shape[1];
  if (BOUNDED && key_value_seq_lengths) keys = Sequences::limited(key_value_seq_lengths[batch], keys);
  CallSegments{q_segment_ids_view, kv_segment_ids_view, key_ids, key_ranges, steps}.look_at(batch, number - batch * steps, static_cast<int>(keys));
}
$end
$if by_blocks

KERNEL(128, 1) list_steps(${parameters('list_steps')}) {
  let_next_launch_go();
$if dynamic
  if (block_x() == 0 && thread_x() == 0) *taken = 0;
$end
  StepList<2>{step_list, block_mask_view, static_cast<int>(list_words), static_cast<int>(block_q), static_cast<int>(steps_a_block)}.make<128>();
}
$end
$if biased != 'none' or masked

#include "flash_attention/forward_sm90_aligned.h"
$end
$if latent

#include "mla_attention/expand_sm90_entries.h"
$end

// recurrent, forward, a chunk of 64 tokens at a time, on Hopper's wgmma: forward.chunk.gpu.cu has the formulas. A block goes through one
// sequence and head for 128 columns of the state. Warpgroup 0 copies rows, sums up gates and weighs pairs of tokens, a chunk ahead of the
// others; warpgroups 1 and 2 keep 64 columns of the state each in registers, as a matrix of values by keys. So the left factor of each of
// their products is in registers, where the one before it left it, and the right one lies in shared memory as it was copied.
//
// Without the delta rule, where sequences and heads do not fill the device, sequences are cut into segments: two launches before make the
// state before each.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16, BOXES = KEYS / 64;  // up to 56 more than there are: zeros
constexpr int STAGES = ${stages};
constexpr int WARPS = 4, THREADS = WARPS * WARP;      // of a block that inverts matrices
constexpr bool DELTA = ${delta}, NORMED = ${normed};  // the delta rule; l2_norm
constexpr bool NARROW = false;
#include "recurrent/chunk_gates.h"

using KeyRows = ChunkRows<Element, KEYS, THREADS>;
using KeyTile = KeyRows::Place;
using Square = Tile<Element, CHUNK, CHUNK>;
#include "recurrent/chunk_block.h"
$if delta
#include "recurrent/chunk_inverse.h"
$end
#include "recurrent/chunk_sm90_products.h"
#include "recurrent/chunk_sm90_places.h"
#include "recurrent/chunk_sm90_weigher.h"
#include "recurrent/chunk_sm90_carrier.h"
$if delta

// Block number: slice % slices of a head of a sequence.
$else
#include "recurrent/chunk_sm90_segments.h"

// Block number: a segment of slice % slices of a head of a sequence.
$end
KERNEL(3 * WARPGROUP, 1) recurrent(${parameters('recurrent')}) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  if (thread_x() == 0) {
    prefetch_tensor_map(q_map);
    prefetch_tensor_map(k_map);
    prefetch_tensor_map(v_map);
    at.init();
    fence_barrier_init();
  }
  sync_block();
$if delta
  const uint32_t all_heads = static_cast<uint32_t>(heads), row = static_cast<uint32_t>(block_x()) / static_cast<uint32_t>(slices);
  const int slice = static_cast<int>(static_cast<uint32_t>(block_x()) - row * static_cast<uint32_t>(slices));
  const int sequence = static_cast<int>(row / all_heads), head = static_cast<int>(row - sequence * all_heads);
  const int count = static_cast<int>(q_view.shape[1]);
$else
  const Segment segment(heads, slices, segments, segment_tokens, q_view.shape[1]);
  const uint32_t all_heads = static_cast<uint32_t>(heads);
  const int slice = segment.slice, sequence = segment.sequence, head = segment.head, count = segment.count;
$end
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<88>();
    const auto own = [&](const View& view) { return head / static_cast<int>(all_heads / static_cast<uint32_t>(view.shape[2])); };
$if delta
    const Tokens tokens(nullptr, sequences, sequence, count);
$else
    const Tokens tokens = segment.tokens(sequences);
$end
    Weigher{at, memory, q_map, k_map, v_map,
$if delta
            inverses_map, {beta_view, beta_type, tokens, head, false},
$end
            {g_view, g_type, tokens, head, false}, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers),
            static_cast<float>(softmax_scale), count, sequence, head, own(q_view), own(k_view), own(v_view), slice * 128${delta ? '' : ', segment.first'}}
        .run();
  } else {
    take_registers<208>();
    const int column = slice * 128 + (group - 1) * 64;
$if delta
    Carrier{at, memory, out_map, static_cast<float>(softmax_scale), count, sequence, head, column, group - 1}.run(initial_state_view, final_state_view);
$else
    const float* kept = segment.number > 0 ? segment_states + segment.place(segments, segment.number - 1, group - 1) : nullptr;
    Carrier{at, memory, out_map, static_cast<float>(softmax_scale), count, sequence, head, column, group - 1, segment.first}
        .run(initial_state_view, final_state_view, kept, segment.number + 1 == segments);
$end
  }
}

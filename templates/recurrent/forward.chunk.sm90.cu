// recurrent, forward, a chunk of 64 tokens at a time, on Hopper's wgmma: forward.chunk.gpu.cu has the formulas. A block goes through one
// sequence and head for 128 columns of the state. Warpgroup 0 weighs pairs of tokens, a chunk ahead of 1 and 2, which keep 64 columns of the
// state each in registers, as a matrix of values by keys. So the left factor of each of their products is in registers, where the one before it
// left it, and the right one lies in shared memory as it was copied. Warpgroup 3 copies rows and sums up gates, each warp those of every so
// manieth chunk, as such sums take as long as all else; with the delta rule warpgroup 0 does.
//
// ssd: where x has up to 64 features, warpgroups 1 and 2 have a head each of a group's, whose rows of Bm and C are the same.
//
// Where sequences and heads do not fill the device, sequences are cut into segments. Without the delta rule two launches before make the
// state before each; with it two launches after make these states and add what queries read of them.
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
constexpr int HEADS = ${paired ? 2 : 1};              // of a block
#include "recurrent/chunk_gates.h"

using KeyRows = ChunkRows<Element, KEYS, THREADS>;
using KeyTile = KeyRows::Place;
using Square = Tile<Element, CHUNK, CHUNK>;
#include "recurrent/chunk_block.h"
$if dual  // ssd: steps are factors of keys, and lie where betas do
#include "ssd/dual_chunk.h"
$end
$if delta
#include "recurrent/chunk_inverse.h"
$end
#include "recurrent/chunk_sm90_products.h"
$if delta
constexpr int CARRIED_TURNS = STAGES;
#include "recurrent/chunk_sm90_carried.h"
$end
#include "recurrent/chunk_sm90_places.h"
#include "recurrent/chunk_sm90_feeder.h"
#include "recurrent/chunk_sm90_weigher.h"
#include "recurrent/chunk_sm90_carrier.h"
$if delta
#include "recurrent/chunk_sm90_joints.h"

// Block number: as Segment has it.
$else
#include "recurrent/chunk_sm90_segments.h"

// Block number: as Segment has it.
$end
KERNEL(${delta ? 3 : 4} * WARPGROUP, 1) recurrent(${parameters('recurrent')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view;
  const TensorMap &q_map = C_map, &k_map = Bm_map, &v_map = x_map;
$end
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  if (thread_x() == 0) {
    prefetch_tensor_map(q_map);
    prefetch_tensor_map(k_map);
    prefetch_tensor_map(v_map);
    at.init();
$if delta
    at.carried(memory).init();
$end
    fence_barrier_init();
  }
$if delta
  const Segment segment(heads, slices, segments, segment_tokens, (segments - 1) * heads * sequences, q_view.shape[1]);
  if (thread_x() == 0) segment.put_place(at.carried(memory));
  sync_block();
  let_next_launch_go();
  wait_for_previous_launch();
$else
  sync_block();
  const Segment segment(block_x(), whole_rows, heads, slices, segments, segment_tokens, q_view.shape[1]);
  const bool waits_last = segments > 1 && block_x() < whole_rows;  // launches before are of this call, and nothing is read of them
  if (!waits_last) wait_for_previous_launch();
$end
  const uint32_t all_heads = static_cast<uint32_t>(heads);
  const int slice = segment.slice, sequence = segment.sequence, head = ${delta ? 'segment.head' : 'segment.head_of(0)'}, count = segment.count;
  const int group = uniform(warpgroup());
  const auto own = [&](const View& view) { return head / static_cast<int>(all_heads * HEADS / static_cast<uint32_t>(view.shape[2])); };
$if delta
  if (group == 0) {
    give_registers<88>();
    const int chunks = static_cast<int>((q_view.shape[1] + CHUNK - 1) / CHUNK);
    const Tokens tokens = segment.tokens(sequences);
    Weigher{at, memory, {at, memory, q_map, k_map, v_map, inverses_map, {beta_view, beta_type, tokens, head, false}, {g_view, g_type, tokens, head, false},
                         gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers),
                         count, sequence, head, own(q_view), own(k_view), own(v_view), slice * 128, segment.first, sequence * chunks},
            static_cast<float>(softmax_scale), count}
        .run();
  } else {
    take_registers<208>();
$else
  if (group == 0) {
    give_registers<${paired ? 88 : 80}>();
    Weigher{at, memory, ${dual ? '1' : 'static_cast<float>(softmax_scale)'}, count}.run();
  } else if (group == 3) {
    give_registers<${paired ? 56 : 48}>();
    const Tokens tokens = segment.tokens(sequences);
    Feeder{at, memory, q_map, k_map, v_map,
$if dual
           dual_numbers(dt_view, dt_type, A_view, a_type, dt_bias_view, bias_type, tokens, ${paired ? 'head + warp() % 2' : 'head'}, dt_softplus),
$else
           {g_view, g_type, tokens, head, false}, gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers),
$end
           count, sequence, head, own(q_view), own(k_view), own(v_view), slice * 128, segment.first}
        .run();
  } else {
    take_registers<${paired ? 184 : 192}>();
$end
$if delta
    const int column = slice * 128 + (group - 1) * 64;
    float* alone = segment.carries ? carried_states + segment.joint(segments) * STATE_NUMBERS
                   : segments > 1  ? segment_states + (static_cast<int64_t>(segment.row) * segments + segment.number) * STATE_NUMBERS
                                   : nullptr;
    int32_t* chunks = segment.carries ? carried_chunks + segment.joint(segments) : nullptr;
    const TensorMap& out = segment.carries ? carried_rows_map : out_map;
    Carrier{at, memory, out, static_cast<float>(softmax_scale), count, sequence, head, column, group - 1, segment.first}
        .run(initial_state_view, final_state_view, alone, chunks);
$end
$if not delta
    const float* kept = segment.number > 0 ? segment_states + segment.place(segments, segment.number - 1, group - 1) : nullptr;
    const int own_head = segment.head_of(group - 1);
    const float factor = ${dual ? 'number_of_head(D_view, d_type, own_head)' : 'static_cast<float>(softmax_scale)'};
    Carrier{at, memory, out_map, factor, count, sequence, own_head, segment.column(group - 1), group - 1, segment.first}
        .run(initial_state_view, final_state_view, kept, segment.ends);
$end
  }
$if not delta
  if (waits_last) wait_for_previous_launch();
$end
}

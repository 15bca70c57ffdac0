// recurrent_bwd, a chunk of 64 tokens at a time, on Hopper's wgmma: backward.chunk.gpu.cu has the formulas. Each gradient is such a
// recurrence itself: that of queries reads with dout what values' rows hold of keys, forward; those of keys and values read with v and k
// what rows of dout and q hold of q and dout, from the last token on. So a block goes through one sequence and head for one gradient, as
// forward.chunk.sm90.cu does for out: warpgroup 0 copies rows, sums up gates and weighs pairs of tokens, a chunk ahead of the others;
// warpgroups 1 and 2 keep 64 rows of the state each in registers. No state goes to memory. Packed sequences, and calls from the last token on:
// chunk_sm90_packed.h.
//
// GATED: gradients of log gates are sums of what flows past them. Blocks leave what each token reads of the state and leaves to it, and
// what pairs of a chunk hand on, in f32, from states of two elements a number, of three where gates' gradients are f32. What flows through a
// whole chunk follows from the products of states with their gradients at both of its ends: they are computed every few chunks, and those
// between follow from the tokens' flows.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${features}, SLICES = KEYS / 16, BOXES = KEYS / 64;  // of keys and of values; up to 56 more than there are: zeros
constexpr int STAGES = ${stages}, HEADS = 1;  // of a block
constexpr bool GATED = ${gated};  // gradients of log gates are asked for
constexpr int KEPT_EVERY = ${kept};
#include "recurrent/chunk_gates.h"
#include "recurrent/chunk_products.h"
#include "recurrent/gradient_rows.h"
#include "recurrent/chunk_sm90_products.h"
$if packed
constexpr int TOGETHER = 1;  // chunk
#include "recurrent/chunk_sm90_packed.h"
enum CopyOf { Q_ROWS, K_ROWS, V_ROWS, DOUT_ROWS, DQ_ROWS, DK_ROWS, DV_ROWS };  // tensors whose rows are copied
$end
#include "recurrent/chunk_sm90_gradient_places.h"
#include "recurrent/chunk_sm90_gradient_flows.h"
#include "recurrent/chunk_sm90_gradient_weigher.h"
#include "recurrent/chunk_sm90_gradient_carrier.h"

#include "recurrent/chunk_sm90_gradient_segments.h"

// What blocks of the entries below have alike. ROWS: tokens' flows are asked for; PAIRS: those of pairs.
template <bool ROWS, bool PAIRS>
static inline void go_through(const Job& job, const Stream& stream, const TokenNumbers& gates, float gamma, const FlowRows& flows, const KeptStates& kept,
                              const View& first_state, const View& last_state, const float* before, bool ends) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  if (thread_x() == 0) {
    at.init();
    fence_barrier_init();
  }
  sync_block();
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<GATED ? 104 : 88>();
    GradientWeigher<ROWS, PAIRS>{at, memory, job, stream, gates, gamma, flows}.run();
  } else {
    take_registers<GATED ? 200 : 208>();
    GradientCarrier<ROWS, PAIRS>{at, memory, job, stream, flows, kept, group - 1}.run(first_state, last_state, before, ends);
  }
}

// Block number: a segment of a head of a sequence, for the queries' gradient, which takes longest; then for each of them those of values and
// keys, which read the same rows at the same time.
KERNEL(3 * WARPGROUP, 1) gradients(${parameters('gradients')}) {
  wait_for_previous_launch();
  constexpr uint32_t OTHERS = GATED ? 1 : 2;
  const uint32_t items = static_cast<uint32_t>(heads * sequences * segments), block = static_cast<uint32_t>(block_x());
  const int kind = block < items ? QUERIES : VALUES + static_cast<int>((block - items) % OTHERS);
  const Segment segment(kind, block < items ? block : (block - items) / OTHERS, heads, segments, ${packed ? 'cum_seqlens, q_view.shape[1]' : 'segment_chunks, q_view'});
$if packed
  if (!segment.there()) return;
$end
  const Stream& stream = segment.stream;
  const TokenNumbers gates(g_view, g_type, Tokens(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, stream.sequence, stream.count), stream.head, ${packed ? 'REVERSED' : 'false'});
  const float gamma = gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers), scale = softmax_scale;
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
  const float* before = segment.before(segment_states, sequences);
$if packed
  const auto rows = [&](const TensorMap& map, CopyOf of) { return stream.rows(map, row_copies_map, of, copied_boxes); };
  const PackedRows q = rows(q_map, Q_ROWS);
  if (kind == QUERIES) {
    const PackedRows readers = rows(dout_map, DOUT_ROWS), read = rows(v_map, V_ROWS), written = rows(k_map, K_ROWS), out = rows(dq_map, DQ_ROWS);
    go_through<GATED, false>({readers, read, written, q, out, scale, 1, scale, false, false, false}, stream, gates, gamma, flows, kept,
                             initial_state_view, initial_state_view, before, segment.ends());
  } else {
    const bool of_values = GATED || kind == VALUES;
    const PackedRows readers = rows(of_values ? k_map : v_map, of_values ? K_ROWS : V_ROWS);
    const PackedRows read = rows(of_values ? q_map : dout_map, of_values ? Q_ROWS : DOUT_ROWS);
    const PackedRows written = rows(of_values ? dout_map : q_map, of_values ? DOUT_ROWS : Q_ROWS);
    const PackedRows out = rows(of_values ? dv_map : dk_map, of_values ? DV_ROWS : DK_ROWS);
    go_through<false, false>({readers, read, written, q, out, 1, scale, scale, true, of_values, of_values}, stream, gates, gamma, flows, kept,
                             dfinal_state_view, dinitial_state_view, before, segment.ends());
  }
$else
  if (kind == QUERIES) {
    go_through<GATED, false>({dout_map, v_map, k_map, q_map, dq_map, scale, 1, scale, false, false, false}, stream, gates, gamma, flows, kept, initial_state_view, initial_state_view,
                             before, segment.ends());
  } else {
    const bool of_values = GATED || kind == VALUES;
    const Job job{of_values ? k_map : v_map, of_values ? q_map : dout_map, of_values ? dout_map : q_map, q_map, of_values ? dv_map : dk_map, 1, scale, scale, true, of_values, of_values};
    go_through<false, false>(job, stream, gates, gamma, flows, kept, dfinal_state_view, dinitial_state_view, before, segment.ends());
  }
$end
}
$if gated

// Block number: a segment of a head of a sequence. After the launch before it, whose states it meets.
KERNEL(3 * WARPGROUP, 1) key_gradients(${parameters('key_gradients')}) {
  const Segment segment(KEYS_OF, static_cast<uint32_t>(block_x()), heads, segments, ${packed ? 'cum_seqlens, k_view.shape[1]' : 'segment_chunks, k_view'});
$if packed
  if (!segment.there()) return;
$end
  const Stream& stream = segment.stream;
  const TokenNumbers gates(g_view, g_type, Tokens(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, stream.sequence, stream.count), stream.head, ${packed ? 'REVERSED' : 'false'});
  const float gamma = gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers), scale = softmax_scale;
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
$if packed
  const auto rows = [&](const TensorMap& map, CopyOf of) { return stream.rows(map, row_copies_map, of, copied_boxes); };
  const PackedRows q = rows(q_map, Q_ROWS), k = rows(k_map, K_ROWS), v = rows(v_map, V_ROWS), dout = rows(dout_map, DOUT_ROWS), dk = rows(dk_map, DK_ROWS);
$end
  go_through<true, true>({${packed ? 'v, dout, q, k, dk' : 'v_map, dout_map, q_map, k_map, dk_map'}, 1, scale, scale, true, false, false}, stream, gates, gamma, flows, kept, dfinal_state_view,
                         dfinal_state_view, segment.before(segment_states, sequences), segment.ends());
}
#include "recurrent/chunk_sm90_gate_gradients.h"
#include "recurrent/chunk_gamma_sum.h"
$end
$if packed

// Block number: as CopiedRow has it.
KERNEL(128, 1) take_rows(${parameters('take_rows')}) {
  const CopiedRow row(cum_seqlens, sequences, q_view.shape[1]);
  const View* const views[] = {&q_view, &k_view, &v_view, &dout_view};
#pragma unroll
  for (int i = Q_ROWS; i <= DOUT_ROWS; ++i) take_row(row, *views[i], row_copies, i, copied_boxes, heads);
}
// Block number: likewise; then AFTER_BLOCKS.
KERNEL(128, 1) put_rows(${parameters('put_rows')}) {
  const View* const views[] = {&dq_view, &dk_view, &dv_view};
  const int64_t length = dq_view.shape[1];
  const int after = static_cast<int>(block_x() - copied_boxes * CHUNK);
  if (after < 0) {
    const CopiedRow row(cum_seqlens, sequences, length);
#pragma unroll
    for (int i = 0; i < 3; ++i) put_row(row, *views[i], row_copies, DQ_ROWS + i, copied_boxes, heads);
    return;
  }
  const int64_t first = REVERSED && !cum_seqlens ? length : cum_seqlens[sequences];
#pragma unroll
  for (int i = 0; i < 3; ++i) clear_after(*views[i], ELEMENT_TYPE, first, length, heads, after);
  clear_after(dg_view, g_type, first, length, heads, after);
}
$end

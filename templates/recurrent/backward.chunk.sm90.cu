// recurrent_bwd, a chunk of 64 tokens at a time, on Hopper's wgmma: backward.chunk.gpu.cu has the formulas. Each gradient is such a
// recurrence itself: that of queries reads with dout what values' rows hold of keys, forward; those of keys and values read with v and k
// what rows of dout and q hold of q and dout, from the last token on. So a block goes through one sequence and head for one gradient, as
// forward.chunk.sm90.cu does for out: warpgroup 0 copies rows, sums up gates and weighs pairs of tokens, a chunk ahead of the others;
// warpgroups 1 and 2 keep 64 rows of the state each in registers. No state goes to memory.
//
// GATED: gradients of log gates are sums of what flows past them. Blocks leave what each token reads of the state and leaves to it, and
// what pairs of a chunk hand on, in f32; PRECISE: from states of two elements a number. What flows through a whole chunk follows from the products
// of states with their gradients at both of its ends: they are computed every few chunks, and those between follow from the tokens' flows.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${features}, SLICES = KEYS / 16, BOXES = KEYS / 64;  // of keys and of values; up to 56 more than there are: zeros
constexpr int STAGES = ${stages}, HEADS = 1;  // of a block
constexpr bool GATED = ${gated}, PRECISE = ${precise};  // gradients of log gates are asked for; as f32
constexpr int KEPT_EVERY = ${kept};
#include "recurrent/chunk_gates.h"
#include "recurrent/chunk_products.h"
#include "recurrent/gradient_rows.h"
#include "recurrent/chunk_sm90_products.h"
$if packed
#include "recurrent/chunk_sm90_packed.h"
enum EndOf { Q_END, K_END, V_END, DOUT_END, DQ_END, DK_END, DV_END };  // tensors of which ends are kept
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
  const Segment segment(kind, block < items ? block : (block - items) / OTHERS, heads, segments, ${packed ? 'cum_seqlens' : 'segment_chunks, q_view'});
$if packed
  if (!segment.there()) return;
$end
  const Stream& stream = segment.stream;
  const TokenNumbers gates(g_view, g_type, Tokens(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, stream.sequence, stream.count), stream.head, false);
  const float gamma = gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers), scale = softmax_scale;
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
  const float* before = segment.before(segment_states, sequences);
$if packed
  const auto rows = [&](const TensorMap& map, EndOf end) { return stream.rows(map, row_ends_map, end, sequences); };
  const PackedRows q = rows(q_map, Q_END);
  if (kind == QUERIES) {
    go_through<GATED, false>({rows(dout_map, DOUT_END), rows(v_map, V_END), rows(k_map, K_END), q, rows(dq_map, DQ_END), scale, 1, scale, false, false, false}, stream, gates, gamma,
                             flows, kept, initial_state_view, initial_state_view, before, segment.ends());
  } else {
    const bool of_values = GATED || kind == VALUES;
    const PackedRows readers = rows(of_values ? k_map : v_map, of_values ? K_END : V_END), read = rows(of_values ? q_map : dout_map, of_values ? Q_END : DOUT_END);
    const PackedRows written = rows(of_values ? dout_map : q_map, of_values ? DOUT_END : Q_END), out = rows(of_values ? dv_map : dk_map, of_values ? DV_END : DK_END);
    go_through<false, false>({readers, read, written, q, out, 1, scale, scale, true, of_values, of_values}, stream, gates, gamma, flows, kept, dfinal_state_view, dinitial_state_view,
                             before, segment.ends());
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
  const Segment segment(KEYS_OF, static_cast<uint32_t>(block_x()), heads, segments, ${packed ? 'cum_seqlens' : 'segment_chunks, k_view'});
$if packed
  if (!segment.there()) return;
$end
  const Stream& stream = segment.stream;
  const TokenNumbers gates(g_view, g_type, Tokens(${packed ? 'cum_seqlens' : 'nullptr'}, sequences, stream.sequence, stream.count), stream.head, false);
  const float gamma = gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers), scale = softmax_scale;
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
$if packed
  const auto rows = [&](const TensorMap& map, EndOf end) { return stream.rows(map, row_ends_map, end, sequences); };
$end
  go_through<true, true>({${packed ? 'rows(v_map, V_END), rows(dout_map, DOUT_END), rows(q_map, Q_END), rows(k_map, K_END), rows(dk_map, DK_END)' : 'v_map, dout_map, q_map, k_map, dk_map'}, 1, scale, scale, true, false, false}, stream, gates, gamma, flows, kept, dfinal_state_view,
                         dfinal_state_view, segment.before(segment_states, sequences), segment.ends());
}
#include "recurrent/chunk_sm90_gate_gradients.h"
#include "recurrent/chunk_gamma_sum.h"
$end
$if packed

// Block number: as EndRow has it.
KERNEL(128, 1) take_ends(${parameters('take_ends')}) {
  const EndRow end(cum_seqlens);
  const View* const views[] = {&q_view, &k_view, &v_view, &dout_view};
#pragma unroll
  for (int i = Q_END; i <= DOUT_END; ++i) take_end(end, *views[i], static_cast<Element*>(row_ends), i, sequences, heads);
}
// Block number: likewise; then AFTER_BLOCKS.
KERNEL(128, 1) put_ends(${parameters('put_ends')}) {
  const View* const views[] = {&dq_view, &dk_view, &dv_view};
  const int after = static_cast<int>(block_x() - sequences * CHUNK);
  if (after < 0) {
    const EndRow end(cum_seqlens);
#pragma unroll
    for (int i = 0; i < 3; ++i) put_end(end, *views[i], static_cast<Element*>(row_ends), DQ_END + i, sequences, heads);
    return;
  }
  const int64_t first = cum_seqlens[sequences], length = dq_view.shape[1];
#pragma unroll
  for (int i = 0; i < 3; ++i) clear_after(*views[i], ELEMENT_TYPE, first, length, heads, after);
  clear_after(dg_view, g_type, first, length, heads, after);
}
$end

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
  const Segment segment(kind, block < items ? block : (block - items) / OTHERS, heads, segments, segment_chunks, q_view);
  const Stream& stream = segment.stream;
  const TokenNumbers gates(g_view, g_type, Tokens(nullptr, sequences, stream.sequence, stream.count), stream.head, false);
  const float gamma = gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers), scale = softmax_scale;
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
  const float* before = segment.before(segment_states, sequences);
  if (kind == QUERIES) {
    go_through<GATED, false>({dout_map, v_map, k_map, q_map, dq_map, scale, 1, scale, false, false, false}, stream, gates, gamma, flows, kept, initial_state_view, initial_state_view,
                             before, segment.ends());
  } else {
    const bool of_values = GATED || kind == VALUES;
    const Job job{of_values ? k_map : v_map, of_values ? q_map : dout_map, of_values ? dout_map : q_map, q_map, of_values ? dv_map : dk_map, 1, scale, scale, true, of_values, of_values};
    go_through<false, false>(job, stream, gates, gamma, flows, kept, dfinal_state_view, dinitial_state_view, before, segment.ends());
  }
}
$if gated

// Block number: a segment of a head of a sequence. After the launch before it, whose states it meets.
KERNEL(3 * WARPGROUP, 1) key_gradients(${parameters('key_gradients')}) {
  const Segment segment(KEYS_OF, static_cast<uint32_t>(block_x()), heads, segments, segment_chunks, k_view);
  const Stream& stream = segment.stream;
  const TokenNumbers gates(g_view, g_type, Tokens(nullptr, sequences, stream.sequence, stream.count), stream.head, false);
  const float gamma = gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers), scale = softmax_scale;
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
  go_through<true, true>({v_map, dout_map, q_map, k_map, dk_map, 1, scale, scale, true, false, false}, stream, gates, gamma, flows, kept, dfinal_state_view,
                         dfinal_state_view, segment.before(segment_states, sequences), segment.ends());
}
#include "recurrent/chunk_sm90_gate_gradients.h"
#include "recurrent/chunk_gamma_sum.h"
$end

// recurrent_bwd, a chunk of 64 tokens at a time, on Hopper's wgmma: backward.chunk.gpu.cu has the formulas. Each gradient is such a
// recurrence itself: that of queries reads with dout what values' rows hold of keys, forward; those of keys and values read with v and k
// what rows of dout and q hold of q and dout, from the last token on. So a block goes through one sequence and head for one gradient, as
// forward.chunk.sm90.cu does for out: warpgroup 0 copies rows, sums up gates and weighs pairs of tokens, a chunk ahead of the others;
// warpgroups 1 and 2 keep 64 rows of the state each in registers. No state goes to memory.
//
// GATED: gradients of log gates are sums of what flows past them. Blocks leave what each token reads of the state and leaves to it, and
// what pairs of a chunk hand on, in f32; PRECISE: from states of two elements a number. What flows through a whole chunk follows from the products
// of states with their gradients at both of its ends: they are computed every few chunks, and those between follow from the tokens' flows.
//
// For ssd (templates/ssd/) a step is a factor of what its token writes: of the queries' pairs and writes, and of rows of the other gradients.
// D x adds D to the weight with which a token reads itself. Heads of a group leave gradients of their own, which a last launch adds up.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${features}, SLICES = KEYS / 16, BOXES = KEYS / 64;  // of keys and of values; up to 56 more than there are: zeros
constexpr int STAGES = ${stages};
$if dual
constexpr int VALUE_BOXES = ${value_boxes};  // of a token's values
// Elements a number of states as they are read, and of what they take in, where flows are asked for: A's gradient in f32 is a sum over all
// tokens, in which terms of both signs cancel.
#ifndef RP
#define RP 3
#define WP 3
#endif
constexpr int READ_PARTS = ${precise} ? RP : 1, WRITTEN_PARTS = ${precise} ? WP : 2;
$end
constexpr bool GATED = ${gated}, PRECISE = ${precise};  // gradients of log gates are asked for; as f32
constexpr int KEPT_EVERY = ${kept};
$if dual
#include "ssd/dual_chunk.h"
$else
#include "recurrent/chunk_gates.h"
#include "recurrent/chunk_products.h"
$end
#include "recurrent/gradient_rows.h"
#include "recurrent/chunk_sm90_products.h"
#include "recurrent/chunk_sm90_gradient_places.h"
#include "recurrent/chunk_sm90_gradient_flows.h"
#include "recurrent/chunk_sm90_gradient_weigher.h"
#include "recurrent/chunk_sm90_gradient_carrier.h"

#include "recurrent/chunk_sm90_gradient_segments.h"

// What blocks of the entries below have alike. ROWS: tokens' flows are asked for; PAIRS: those of pairs.
template <bool ROWS, bool PAIRS>
static inline void go_through(const Job& job, const Stream& stream, const ${dual ? 'DualNumbers& gates, float skip' : 'TokenNumbers& gates, float gamma'}, const FlowRows& flows, const KeptStates& kept,
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
    give_registers<PAIRS ? ${dual ? '120' : '112'} : GATED ? 104 : 88>();
    GradientWeigher<ROWS, PAIRS>{at, memory, job, stream, gates, ${dual ? 'skip' : 'gamma'}, flows}.run();
  } else {
    take_registers<PAIRS ? 192 : GATED ? 200 : 208>();
    GradientCarrier<ROWS, PAIRS>{at, memory, job, stream, flows, kept, group - 1}.run(first_state, last_state, before, ends);
  }
}

$if dual
static inline DualNumbers steps_of(const View& dt, int64_t type, const View& bias, int64_t bias_type, const View& rates, int64_t rate_type, bool softplus, const Stream& stream) {
  // Steps are told from logs of what they leave, so that no rate is 0: this one leaves everything, too.
  const float rate = number_at(rates.data, rate_type, stream.head), least = -0x1p-60f;
  return {{dt, type, Tokens(nullptr, stream.sequence + 1, stream.sequence, stream.count), stream.head, false},
          number_of_head(bias, bias_type, stream.head), rate > least && rate <= 0 ? least : rate, softplus};
}

$end
// Block number: a segment of a head of a sequence, for the queries' gradient, which takes longest; then for each of them those of values and
// keys, which read the same rows at the same time.
KERNEL(3 * WARPGROUP, 1) gradients(${parameters('gradients')}) {
  wait_for_previous_launch();
  constexpr uint32_t OTHERS = GATED ? 1 : 2;
  const uint32_t items = static_cast<uint32_t>(heads * sequences * segments), block = static_cast<uint32_t>(block_x());
  const int kind = block < items ? QUERIES : VALUES + static_cast<int>((block - items) % OTHERS);
$if dual
  const TensorMap &q_map = C_map, &k_map = Bm_map, &v_map = x_map, &dq_map = query_sums_map, &dk_map = dq_map, &dv_map = dx_map;
  const Segment segment(kind, block < items ? block : (block - items) / OTHERS, heads, segments, segment_chunks, C_view);
  const Stream& stream = segment.stream;
  const DualNumbers gates = steps_of(dt_view, dt_type, dt_bias_view, bias_type, A_view, a_type, dt_softplus, stream);
  const float gamma = number_of_head(D_view, d_type, stream.head);  // D
  constexpr float scale = 1;
$else
  const Segment segment(kind, block < items ? block : (block - items) / OTHERS, heads, segments, segment_chunks, q_view);
  const Stream& stream = segment.stream;
  const TokenNumbers gates(g_view, g_type, Tokens(nullptr, sequences, stream.sequence, stream.count), stream.head, false);
  const float gamma = gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers), scale = softmax_scale;
$end
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
$if dual
  const TensorMap &q_map = C_map, &k_map = Bm_map, &v_map = x_map, &dk_map = key_sums_map;
  const Segment segment(KEYS_OF, static_cast<uint32_t>(block_x()), heads, segments, segment_chunks, Bm_view);
  const Stream& stream = segment.stream;
  const DualNumbers gates = steps_of(dt_view, dt_type, dt_bias_view, bias_type, A_view, a_type, dt_softplus, stream);
  constexpr float gamma = 0, scale = 1;
$else
  const Segment segment(KEYS_OF, static_cast<uint32_t>(block_x()), heads, segments, segment_chunks, k_view);
  const Stream& stream = segment.stream;
  const TokenNumbers gates(g_view, g_type, Tokens(nullptr, sequences, stream.sequence, stream.count), stream.head, false);
  const float gamma = gamma_of(g_gamma_view, gamma_type, stream.head, heads, layer_idx, num_layers), scale = softmax_scale;
$end
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
  go_through<true, true>({v_map, dout_map, q_map, k_map, dk_map, 1, scale, scale, true, false, false}, stream, gates, gamma, flows, kept, dfinal_state_view,
                         dfinal_state_view, segment.before(segment_states, sequences), segment.ends());
}
$if dual
#include "ssd/sm90_step_gradients.h"
#include "ssd/sum_heads.h"
$else
#include "recurrent/chunk_sm90_gate_gradients.h"
#include "recurrent/chunk_gamma_sum.h"
$end
$end

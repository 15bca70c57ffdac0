// ssd_bwd, a chunk of 64 tokens at a time, on Hopper's wgmma: as recurrent_bwd (templates/recurrent/backward.chunk.sm90.cu), where C takes the
// place of queries, Bm that of keys and x that of values. C's gradient is a recurrence of its own, whose state a block carries in registers;
// those of Bm and x read the states of a second one.
//
// A step is a factor of what its token writes: of the queries' pairs and writes, and of rows of the other gradients. D x adds D to the weight
// with which a token reads itself. Gradients of steps follow from what flows past tokens, which is computed without the writer's step.
// Heads of a group leave gradients of C and Bm of their own, which a last launch adds up.
#include "device/gpu.h"
#include "device/sm90.h"
#include "device/sm90/sm90_store.h"
#include "device/sm90/sm90_uniform.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${features}, SLICES = KEYS / 16, BOXES = KEYS / 64;  // of keys and of values; up to 56 more than there are: zeros
constexpr int VALUE_BOXES = ${value_boxes};                               // of a head's values
constexpr int STAGES = ${stages}, HEADS = 1;  // of a block
constexpr bool GATED = true, PRECISE = ${precise};  // gradients of steps are asked for; as f32
// Elements a number of states as they are read, and of what they take in, where flows are asked for: A's gradient in f32 is a sum over all
// tokens, in which terms of both signs cancel.
constexpr int READ_PARTS = PRECISE ? 3 : 2, WRITTEN_PARTS = PRECISE ? 3 : 2;
constexpr int KEPT_EVERY = ${kept};
#include "ssd/dual_chunk.h"
#include "recurrent/gradient_rows.h"
#include "recurrent/chunk_sm90_products.h"
#include "recurrent/chunk_sm90_gradient_places.h"
#include "recurrent/chunk_sm90_gradient_flows.h"
#include "recurrent/chunk_sm90_gradient_weigher.h"
#include "ssd/sm90_value_gradient.h"
#include "recurrent/chunk_sm90_gradient_carrier.h"

#include "recurrent/chunk_sm90_gradient_segments.h"

static inline DualNumbers steps_of(const View& dt, int64_t type, const View& bias, int64_t bias_type, const View& rates, int64_t rate_type, bool softplus, const Stream& stream) {
  // Steps are told from logs of what they leave, so that no rate is 0: this one leaves everything, too.
  const float rate = number_at(rates.data, rate_type, stream.head), least = -0x1p-60f;
  return {{dt, type, Tokens(nullptr, stream.sequence + 1, stream.sequence, stream.count), stream.head, false},
          number_of_head(bias, bias_type, stream.head), rate > least && rate <= 0 ? least : rate, softplus};
}

// What blocks of the entries below have alike: warpgroup 0 calls weigh(at, memory), the others carry(at, memory, number). PAIRS: flows of pairs
// are asked for.
template <bool PAIRS, class Weigh, class Carry> static inline void go_through(Weigh weigh, Carry carry) {
  const Places at{(shared_pointer(dynamic_shared()) + 1023) / 1024 * 1024};
  char* memory = dynamic_shared() + (at.first - shared_pointer(dynamic_shared()));
  if (thread_x() == 0) {
    at.init();
    fence_barrier_init();
  }
  sync_block();
  const int group = uniform(warpgroup());
  if (group == 0) {
    give_registers<PAIRS ? 104 : 88>();
    weigh(at, memory);
  } else {
    take_registers<PAIRS ? 200 : 208>();
    carry(at, memory, group - 1);
  }
}

// Block number: a segment of a head of a sequence, for C's gradient.
KERNEL(3 * WARPGROUP, 1) query_gradients(${parameters('query_gradients')}) {
  wait_for_previous_launch();
  const Segment segment(QUERIES, static_cast<uint32_t>(block_x()), heads, segments, segment_chunks, C_view);
  const Stream& stream = segment.stream;
  const DualNumbers numbers = steps_of(dt_view, dt_type, dt_bias_view, bias_type, A_view, a_type, dt_softplus, stream);
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
  const Job job{dout_map, x_map, Bm_map, C_map, query_sums_map, 1, 1, 1, false, false, false};
  go_through<false>([&](const Places& at, char* memory) { GradientWeigher<true, false>{at, memory, job, stream, numbers, 0, flows}.run(); },
                    [&](const Places& at, char* memory, int part) {
                      GradientCarrier<true, false>{at, memory, job, stream, flows, kept, part, {at, query_sums_map, part}}.run(
                          initial_state_view, initial_state_view, segment.before(segment_states, sequences), segment.ends());
                    });
}

// Block number: likewise, for Bm's and x's. After the launch before it, whose states it meets.
KERNEL(3 * WARPGROUP, 1) key_gradients(${parameters('key_gradients')}) {
  const Segment segment(KEYS_OF, static_cast<uint32_t>(block_x()), heads, segments, segment_chunks, Bm_view);
  const Stream& stream = segment.stream;
  const DualNumbers numbers = steps_of(dt_view, dt_type, dt_bias_view, bias_type, A_view, a_type, dt_softplus, stream);
  const FlowRows flows(flow_sums, stream);
  const KeptStates kept(through_sums, kept_states, stream, is_given(dfinal_state_view));
  const Job job{x_map, dout_map, C_map, Bm_map, key_sums_map, 1, 1, 1, true, false, true};
  go_through<true>(
      [&](const Places& at, char* memory) {
        GradientWeigher<true, true>{at, memory, job, stream, numbers, number_of_head(D_view, d_type, stream.head), flows}.run();
      },
      [&](const Places& at, char* memory, int part) {
        GradientCarrier<true, true>{at, memory, job, stream, flows, kept, part, {at, dx_map, part}}.run(
            dfinal_state_view, dinitial_state_view, segment.before(segment_states, sequences), segment.ends());
      });
}
#include "ssd/sm90_step_gradients.h"
#include "ssd/sum_heads.h"

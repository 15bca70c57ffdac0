// GPU vocabulary of the chunked recurrence's gradients with gates of keys, on matrix instructions of a wave: the entry that makes gradients of
// values and of the first state. Part of backward.chunk_keys_wave.gpu.cu.
//
// forward.chunk_keys_wave.gpu.cu from the last token on, with the places of queries and keys exchanged, of values those of out's gradients, and of
// a state its gradient. The scale is that of what is written.
#pragma once

constexpr int DOUTS = (KeyPlaces::END + 15) / 16 * 16, PAIRS = DOUTS + COLUMNS * TOKEN_PITCH, VALUE_PLAN = PAIRS + Pairs::BYTES;
static_assert(VALUE_PLAN + 176 <= ${shared}, "the spec has another size");

// Where a block's rows and numbers are. In shared memory: in registers it would be in the way.
struct ValuePlan {
  KeyRows keys, queries;
  ValueRows douts;
  TokenNumbers gates;
  WalkRows out;
  float gamma;
  int count;

  // The chunk from `token` on, to shared memory, without its gates of keys.
  void copy(const KeyPlaces& to, int token) const {
    const SharedPointer shared = shared_pointer(to.memory);
    keys.copy_async({shared}, token, count);
    queries.copy_async({shared + KeyPlaces::KEY_ROWS}, token, count);
    copy_chunk_transposed(shared + DOUTS, douts, token, count);
    if (warp() == 0) {
      float numbers[2];
      gates.load(token, count < token + CHUNK ? count : token + CHUNK, gamma, numbers);
      if (2 * lane() < CHUNK) to.token_gates()[2 * lane()] = numbers[0], to.token_gates()[2 * lane() + 1] = numbers[1];
    }
    copy_async_commit();
    copy_async_wait<0>();
  }
};
static_assert(sizeof(ValuePlan) <= 176);

// Block number: some columns of values of a head of a sequence.
KERNEL(THREADS, 1) value_gradients(${parameters('value_gradients')}) {
  const Item item(slices, heads);
  const int64_t head = item.head, start = item.start;
  if (start >= v_view.shape[3]) return;
  const Tokens tokens(cum_seqlens, sequences, item.sequence, v_view.shape[1]);
  const bool from_first = reverse;  // as the last token is met first
  char* memory = dynamic_shared();
  const KeyPlaces places{memory};
  ValuePlan& plan = *reinterpret_cast<ValuePlan*>(memory + VALUE_PLAN);
  if (thread_x() == 0) {
    const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3] - start);
    plan = {{k_view, tokens, head, heads, 0, keys, !from_first}, {q_view, tokens, head, heads, 0, keys, !from_first},
            {dout_view, tokens, head, heads, start, values, !from_first}, {g_view, g_type, tokens, head, !from_first},
            {dv_view, SUMS_OF_VALUES ? value_sums : nullptr, tokens, head, heads, start, !from_first},
            gamma_of(g_gamma_view, gamma_type, head, heads, layer_idx, num_layers), static_cast<int>(tokens.end - tokens.first)};
  }
  sync_block();  // the plan is there

  State state = {};
  StateMemory(dfinal_state_view, item.sequence, head, start + 16 * wave()).load(state);
#pragma unroll 1
  for (int token = 0; token < plan.count; token += CHUNK) {
    sync_block();  // all are done with the chunk before
    plan.copy(places, token);
    sync_block();  // the chunk is there
    put_factors(places, gk_view, gk_type, tokens, head, token, plan.count, !from_first);
    if constexpr (NORMED) put_norms(memory, memory + KeyPlaces::KEY_ROWS, places.norms());
    sync_block();  // what gates leave, and norms are there
    multiply_near(places);
    const KeyWeigher weigher(places);
    sync_block();  // all are done with rows and what gates leave, whose place others take
    weigher.weigh_rows(places, static_cast<float>(softmax_scale));
    sync_block();  // weighed rows are there
    put_key_pairs(places, memory + PAIRS, static_cast<float>(softmax_scale));
    sync_block();  // weights of pairs are there

    Operand douts[TILES];
#pragma unroll
    for (int c = 0; c < TILES; ++c) douts[c] = load_operand(shared_pointer(memory) + DOUTS + 16 * wave() * TOKEN_PITCH + 32 * c, TOKEN_PITCH);
    const Unit unit = unit_of(state);
    Sums sums[TILES] = {};
    add_seen(sums, state, shared_pointer(memory), unit.of);
#pragma unroll
    for (int r = 0; r < TILES; ++r) sums[r] = scaled(sums[r], unit.inverse);
    Pairs(memory + PAIRS).add(sums, douts, 1);
    plan.out.store(sums, token, plan.count);
    take_in_by_keys(state, places, douts);
  }
  StateMemory(dinitial_state_view, item.sequence, head, start + 16 * wave()).store(state);
}

// A warpgroup of Hopper's mla_decode that multiplies: from scores to outputs. A part of decode.sm90.cu, whose constants it uses.
#pragma once

// The heads of a query token.
struct QueryRows {
  const Element *latent, *rope;
  int64_t latent_stride, rope_stride;
  int first, heads;

  int head(int row) const { return first + row < heads ? first + row : heads - 1; }  // rows past the last one are never stored
  const Element* latent_row(int row) const { return latent + head(row) * latent_stride; }
  const Element* rope_row(int row) const { return rope + head(row) * rope_stride; }
};

// Where outputs go.
struct Results {
  const View &out, &lse;
  float* partial;
  Softmax* softmaxes;
  int sequence, i, token, first_head, heads, part, parts;

  // Of a head, whose outputs are in as many pieces as warpgroups have keys of it.
  int64_t piece(int head, int group) const {
    const int64_t row = int64_t{token} * heads + head;
    return BY_KEYS ? (row * parts + part) * GROUPS + group : row * parts + part;
  }
  bool are_whole() const { return !BY_KEYS && parts == 1; }
  Element* row(int head) const { return static_cast<Element*>(out.data) + sequence * out.strides[0] + i * out.strides[1] + head * out.strides[2]; }
  void store_lse(int head, float reference, float sum) const {
    if (is_given(lse))
      static_cast<float*>(lse.data)[sequence * lse.strides[0] + head * lse.strides[1] + i * lse.strides[2]] =
          sum == 0 ? -INFINITE : reference * LN_2 + log_of(sum);
  }
};

// Of block RANK, which weighs row h = RANK of each lane's two: 16 w + lane / 4 + 8 h of warp w's warpgroup.
template <int RANK> struct Consumer {
  const int tiles;        // of the part
  uint32_t zero;          // 0, which the compiler does not know
  float to_log, to_tanh;  // take scores, or their tanh, to log 2; scores to what tanh is of
  float reference = LOWEST, sum = 0;  // of the lane's own row; the sum: of its own weights
  typedef uint32_t Held[HELD][4];
  typedef float Scores[KEYS / 2];
  typedef float OwnScores[KEYS / 4];  // element j: column j / 2 * 8 + lane % 4 * 2 + j % 2
  typedef float Outputs[HALF / 2];
  typedef uint32_t Weights[KEYS / 16][4];
  typedef uint32_t OwnWeights[2][4];

  static constexpr Places at{};
  static constexpr PlacesFrom<OtherBase<1 - RANK>> other{};
  static constexpr int STRIDE = BY_KEYS ? GROUPS : 1;  // tiles from one of this warpgroup's to the next
  // Lane and warp are asked for where they are used: what is made of them would else stay in registers, which are few.
  static int me() { return static_cast<int>(keep_here(thread_x())); }
  static int own_lane() { return me() % WARP; }
  static int group() { return uniform(me() / WARPGROUP) - 1; }  // which of the two
  static int exchange() { return me() / WARP - 4; }
  static int first_row() { return (BY_KEYS ? me() % WARPGROUP : me() - WARPGROUP) / WARP * 16 + own_lane() / 4; }

  static Turn<STAGES> after(Turn<STAGES> turn) {
#pragma unroll
    for (int i = 0; i < STRIDE; ++i) turn.next();
    return turn;
  }
  void load_queries(const QueryRows& q, Held& held) const {
    constexpr int CHUNKS = Q_SLICES * 2, FIRST = (HELD - 2) * 16;
#pragma unroll 4
    for (int i = thread_x() - WARPGROUP; i < BLOCK_ROWS * CHUNKS; i += GROUPS * WARPGROUP) {
      const int r = i / CHUNKS, row = r % 64, chunk = i % CHUNKS, box = chunk / 8;
      const uint32_t to = at.q(r / 64) + box * BOX + (box < Q_BOXES ? row * 128 + (chunk % 8 ^ row % 8) * 16 : row * 64 + (chunk % 8 ^ row / 2 % 4) * 16);
      store_shared_16(to, load_pack<4>(reinterpret_cast<const uint32_t*>(q.latent_row(r) + RANK * HALF + FIRST + chunk * 8)));
    }
#pragma unroll
    for (int slice = 0; slice < HELD; ++slice)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first_row() + i % 2 * 8, feature = own_lane() % 4 * 2 + i / 2 * 8;
        const Element* const from = slice < 2 ? q.rope_row(row) + RANK * HALF_ROPE + slice * 16 : q.latent_row(row) + RANK * HALF + (slice - 2) * 16;
        held[slice][i] = *reinterpret_cast<const uint32_t*>(from + feature);
      }
    fence_async();
    sync_some(3, GROUPS * WARPGROUP);
  }

  // Until a tile is here.
  void await(const Turn<STAGES>& turn) const {
    barrier_wait_all(at.full(turn.at), turn.parity);
    fence_async();
  }

  void multiply_keys(Scores& s, const Held& held, const Turn<STAGES>& turn) const {
    const uint64_t a = depth_major<128>(keep_here(at.q(group()))), a_end = depth_major<64>(keep_here(at.q(group()) + Q_BOXES * BOX));
    const uint64_t b = depth_major<128>(keep_here(at.keys(turn.at))), b_rope = depth_major<64>(keep_here(at.keys(turn.at) + ROPE_AT));
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < 2; ++slice) wgmma<Element, KEYS>(s, held[slice], moved(b_rope, slice * 32), slice > 0);
#pragma unroll
    for (int slice = 0; slice < HALF / 16; ++slice) {
      const uint64_t b_slice = moved(b, slice / 4 * BOX + slice % 4 * 32);
      const int stored = slice - (HELD - 2);
      if (stored < 0)
        wgmma<Element, KEYS>(s, held[slice + 2 < HELD ? slice + 2 : 0], b_slice, true);
      else
        wgmma<Element, KEYS>(s, stored < Q_BOXES * 4 ? moved(a, stored / 4 * BOX + stored % 4 * 32) : moved(a_end, stored % 4 * 32), b_slice, true);
    }
    wgmma_commit();
  }

  void multiply_values(Outputs& o, const Weights& p, const Turn<STAGES>& turn) const {
    const uint64_t b = row_major<128>(keep_here(at.keys(turn.at)), KEYS);
    keep_in_place(o);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < KEYS / 16; ++slice) wgmma<Element, HALF, true>(o, p[slice], moved(b, slice * 2048), true);
    wgmma_commit();
  }

  // Scores of the other block's row go there; those of the own row are kept, in registers of their own.
  void send_scores(const Scores& s, OwnScores& own) const {
    const int w = exchange(), l = own_lane();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int theirs = 8 * i + 2 * (1 - RANK), ours = 8 * i + 2 * RANK;
      const uint32_t x[4] = {__float_as_uint(s[theirs]), __float_as_uint(s[theirs + 1]), __float_as_uint(s[theirs + 4]), __float_as_uint(s[theirs + 5])};
      send_16(other.scores(w) + i * 512 + l * 16, x, other.scores_here(w));
      own[4 * i] = made_here(s[ours]), own[4 * i + 1] = made_here(s[ours + 1]), own[4 * i + 2] = made_here(s[ours + 4]), own[4 * i + 3] = made_here(s[ours + 5]);
    }
  }
  void add_scores(OwnScores& own, uint32_t parity) const {
    const int w = exchange(), l = own_lane();
    barrier_wait_cluster(at.scores_here(w), parity);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t x[4];
      load_shared_16(at.scores(w) + i * 512 + l * 16, x);
#pragma unroll
      for (int j = 0; j < 4; ++j) own[4 * i + j] += __uint_as_float(x[j]);
    }
  }

  // Which keys of a tile are seen: of columns lane % 4 * 2 + ... of each 8, the first 32 and the others.
  static void find_seen(uint32_t (&seen)[2], uint32_t stage) { seen[0] = load_shared_4(at.seen(stage)), seen[1] = load_shared_4(at.seen(stage) + 4); }

  // Scores become weights. Returns what outputs so far are multiplied by.
  float weigh(OwnScores& s, const uint32_t (&seen)[2]) {
#pragma unroll
    for (int j = 0; j < KEYS / 4; ++j) s[j] = (CAPPED ? tanh_of(s[j] * to_tanh) : s[j]) * to_log;
    if ((seen[0] & seen[1]) != ~0u) {
      const int column = own_lane() % 4 * 2;
#pragma unroll
      for (int j = 0; j < KEYS / 4; ++j)
        if (!(seen[j / 8] >> column >> (j % 8 / 2 * 8 + j % 2) & 1)) s[j] = -INFINITE;
    }
    float largest = s[0];
#pragma unroll
    for (int j = 1; j < KEYS / 4; ++j) largest = larger_of(largest, s[j]);
    largest = larger_of(largest, shuffle_xor(largest, 1));
    largest = larger_of(largest, shuffle_xor(largest, 2));
    const float now = largest > reference + HEADROOM ? largest : reference, factor = exp2_of(reference - now);
    reference = now;
    float sums[2] = {};
#pragma unroll
    for (int j = 0; j < KEYS / 4; ++j) s[j] = exp2_of(s[j] - now), sums[j % 2] += s[j];
    sum = sum * factor + (sums[0] + sums[1]);
    return factor;
  }

  // Weights of the own row, and what outputs are multiplied by before they are added, go to the other block.
  static void send_weights(const OwnScores& s, float factor, OwnWeights& own) {
    const int w = exchange(), l = own_lane();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) own[i][j] = pack_pair<Element>(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
      send_16(other.weights(w) + i * 512 + l * 16, own[i], other.weights_here(w));
    }
    send_4(other.weights(w) + 1024 + l * 4, __float_as_uint(factor), other.weights_here(w));
  }
  // Those of the other row come from there. The own ones become others by `zero`: they would else be made in registers that products still read, and
  // those would be waited for.
  void receive_weights(Weights& p, const OwnWeights& own, float (&factor)[2], uint32_t parity) const {
    const int w = exchange(), l = own_lane();
    barrier_wait_cluster(at.weights_here(w), parity);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t x[4];
      load_shared_16(at.weights(w) + i * 512 + l * 16, x);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        p[2 * i + n][RANK] = own[i][2 * n] ^ zero, p[2 * i + n][2 + RANK] = own[i][2 * n + 1] ^ zero;
        p[2 * i + n][1 - RANK] = x[2 * n], p[2 * i + n][3 - RANK] = x[2 * n + 1];
      }
    }
    factor[1 - RANK] = __uint_as_float(load_shared_4(at.weights(w) + 1024 + l * 4));
  }

  void release(const Turn<STAGES>& turn) const {
    sync_warp();
    if (own_lane() == 0) barrier_arrive(at.empty(turn.at));
  }

  // Both exchanges of a tile; those before are over.
  static void expect_exchanges() {
    if (own_lane() != 0) return;
    barrier_arrive_expect(at.scores_here(exchange()), Places::SCORE_BYTES);
    barrier_arrive_expect(at.weights_here(exchange()), Places::WEIGHT_BYTES);
  }

  // Starts the scores of the tile after `tile`. There may be none: then some scores that nobody asks for, so that all steps are alike.
  void start_scores(Scores& s, const Held& held, const Turn<STAGES>& here, int tile) const {
    const bool follows = tile + STRIDE < tiles;
    const Turn<STAGES> next = follows ? after(here) : here;
    if (follows) await(next);
    multiply_keys(s, held, next);
  }

  // Weighs a tile, whose own scores have been kept and others sent.
  float weigh_tile(OwnScores& own, OwnWeights& weights, const Turn<STAGES>& here, int tile) {
    add_scores(own, tile / STRIDE % 2);
    uint32_t seen[2];
    find_seen(seen, here.at);
    const float factor = weigh(own, seen);
    send_weights(own, factor, weights);
    return factor;
  }

  // Weights of a tile that are complete, with the factors of outputs so far.
  void take_weights(Weights& p, const OwnWeights& weights, float factor, Outputs& o, int tile) const {
    float factors[2];
    factors[RANK] = factor;
    receive_weights(p, weights, factors, tile / STRIDE % 2);
    if (any_in_warp(factors[0] != 1 || factors[1] != 1)) scale_rows(o, factors);
  }

  template <class MakeResults> void run(const QueryRows& q, MakeResults results) {
    Held held;
    load_queries(q, held);
    Outputs o;
#pragma unroll
    for (int j = 0; j < HALF / 2; ++j) o[j] = 0;
    Turn<STAGES> here;  // of the tile that has been weighed last
    if (BY_KEYS) here.at = group();
    int tile = BY_KEYS ? group() : 0;
    if (tile < tiles) {
      Scores s;
      OwnScores own;
      OwnWeights weights;
      Weights p;
$if by_keys
      // Each warpgroup has half of the stages: one tile at a time, while the next one comes.
#pragma unroll 1
      for (; tile < tiles; tile += STRIDE) {
        await(here);
        multiply_keys(s, held, here);
        wgmma_wait<0>();
        keep_in_place(s);
        expect_exchanges();
        send_scores(s, own);
        const float factor = weigh_tile(own, weights, here, tile);
        take_weights(p, weights, factor, o, tile);
        multiply_values(o, p, here);
        wgmma_wait<0>();
        keep_in_place(o);
        release(here);
        here = after(here);
      }
$else
      await(here);
      multiply_keys(s, held, here);
      wgmma_wait<0>();
      keep_in_place(s);
      expect_exchanges();
      send_scores(s, own);
      start_scores(s, held, here, tile);
      float factor = weigh_tile(own, weights, here, tile);
      wgmma_wait<0>();
      keep_in_place(s);
      // A step: the outputs of a tile, while the next one is weighed and the scores of the one after that are made. No product is left running from one
      // step to the next: it would be waited for at once.
#pragma unroll 1
      for (; tile + STRIDE < tiles; tile += STRIDE) {
        take_weights(p, weights, factor, o, tile);
        expect_exchanges();
        send_scores(s, own);
        multiply_values(o, p, here);
        start_scores(s, held, after(here), tile + STRIDE);
        factor = weigh_tile(own, weights, after(here), tile + STRIDE);
        wgmma_wait<0>();
        keep_in_place(s);
        keep_in_place(o);
        release(here);
        here = after(here);
      }
      take_weights(p, weights, factor, o, tile);
      multiply_values(o, p, here);
      wgmma_wait<0>();
      keep_in_place(o);
$end
    }
    finish(o, results());
  }

  void finish(Outputs& o, const Results& results) {
    const int mine = group();  // here, where all lanes are
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    const int head = results.first_head + first_row(), own = head + 8 * RANK;
    if (results.are_whole()) {
      float factor[2];
      factor[RANK] = sum == 0 ? 0 : reciprocal(sum);
      const int w = exchange();  // what the other block has sent before has been read: its weights came after that
      if (own_lane() == 0) barrier_arrive_expect(at.scores_here(w), WARP * 4);
      send_4(other.scores(w) + own_lane() * 4, __float_as_uint(factor[RANK]), other.scores_here(w));
      barrier_wait_cluster(at.scores_here(w), tiles % 2);
      factor[1 - RANK] = __uint_as_float(load_shared_4(at.scores(w) + own_lane() * 4));
#pragma unroll
      for (int h = 0; h < 2; ++h)
        store_row(o, h, factor[h], results.row(head + 8 * h < results.heads ? head + 8 * h : 0) + RANK * HALF, head + 8 * h < results.heads);
      if (own_lane() % 4 == 0 && own < results.heads) results.store_lse(own, reference, sum);
      return;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (head + 8 * h >= results.heads) continue;
      float* const to = results.partial + results.piece(head + 8 * h, mine) * R + RANK * HALF + own_lane() % 4 * 2;
#pragma unroll
      for (int j = 0; j < HALF / 8; ++j) store_pack(to + j * 8, Pack<float, 2>{{o[4 * j + 2 * h], o[4 * j + 2 * h + 1]}});
    }
    if (own_lane() % 4 == 0 && own < results.heads) results.softmaxes[results.piece(own, mine)] = {reference, sum};
  }
};

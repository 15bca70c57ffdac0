// A warpgroup of Hopper's mla_decode of whole features that multiplies: from scores to outputs. A part of decode_pair.sm90.cu, whose constants it uses.
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

  int64_t piece(int head) const { return (int64_t{token} * heads + head) * parts + part; }
  Element* row(int head) const { return static_cast<Element*>(out.data) + sequence * out.strides[0] + i * out.strides[1] + head * out.strides[2]; }
  void store_lse(int head, float reference, float sum) const {
    if (is_given(lse))
      static_cast<float*>(lse.data)[sequence * lse.strides[0] + head * lse.strides[1] + i * lse.strides[2]] =
          sum == 0 ? -INFINITE : reference * LN_2 + log_of(sum);
  }
};

// GROUP 0 weighs even tiles and holds the outputs' first half; it starts with a tile's scores when it has added the tile before to its outputs. GROUP 1
// has the rest, and adds the tile before while it weighs; but EAGER ones release the tile before first, and then wait for the next one.
template <int GROUP> struct Consumer {
  const int tiles, count;  // of the part; keys of the query token from the part's first one on
  float to_log, to_tanh;   // take scores, or their tanh, to log 2; scores to what tanh is of
  LaneRows rows{{LOWEST, LOWEST}, {0, 0}};  // as of the last tile that was looked at; sums: of the own tiles
  typedef uint32_t Held[ROPE / 16][4];  // queries' rope features
  typedef float Scores[KEYS / 2];
  typedef float Outputs[HALF / 2];
  typedef uint32_t Weights[KEYS / 16][4];
  static constexpr Places at{};
  static constexpr int OTHER = 1 - GROUP;
  enum Barrier { WEIGHED = 1, ALL = 3, OWN = 4 };  // + group, of WEIGHED and OWN

  int keys_from(int tile) const { return count - tile * KEYS; }
  // Lane and warp are asked for where they are used: what is made of them would else stay in registers, which are few.
  static int me() { return static_cast<int>(keep_here(thread_x())) % WARPGROUP; }
  static int own_lane() { return me() % WARP; }
  static int first_row() { return me() / WARP * 16 + own_lane() / 4; }

  void load_queries(const QueryRows& q, Held& held) const {
    constexpr int CHUNKS = R / 8, AT_ONCE = ROWS * CHUNKS / (GROUPS * WARPGROUP);
    Pack<uint32_t, 4> x[AT_ONCE];  // all are on their way together
    const auto place = [](int n) { return thread_x() - WARPGROUP + n * GROUPS * WARPGROUP; };
#pragma unroll
    for (int n = 0; n < AT_ONCE; ++n) x[n] = load_pack<4>(reinterpret_cast<const uint32_t*>(q.latent_row(place(n) / CHUNKS) + place(n) % CHUNKS * 8));
#pragma unroll
    for (int n = 0; n < AT_ONCE; ++n) {
      const int row = place(n) / CHUNKS, chunk = place(n) % CHUNKS;
      store_shared_16(at.q() + chunk / 8 * BOX + row * 128 + (chunk % 8 ^ row % 8) * 16, x[n]);
    }
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        held[slice][i] = *reinterpret_cast<const uint32_t*>(q.rope_row(first_row() + i % 2 * 8) + slice * 16 + own_lane() % 4 * 2 + i / 2 * 8);
    fence_async();
    sync_some(ALL, GROUPS * WARPGROUP);
  }

  static void await(uint32_t stage, int box, int tile) { barrier_wait_all(at.full(stage, box), tile / 2 % 2); }

  // Latent features of an own tile behind the last key, which may be anything, become zeros.
  void clear_behind(int tile) const {
    const int left = keys_from(tile);
#pragma unroll 1
    for (int box = 0; box < LATENT_BOXES; ++box) await(GROUP, box, tile);
#pragma unroll 1
    for (int i = me(); i < (KEYS - left) * (R / 8); i += WARPGROUP)
      store_shared_16(at.keys(GROUP) + i % (R / 8) / 8 * BOX + (left + i / (R / 8)) * 128 + i % 8 * 16, {});
    fence_async();
    sync_some(OWN + GROUP, WARPGROUP);
  }

  // Scores of an own tile start box by box, as those come: rope and the half of warpgroup GROUP, then the other half.
  void start_first_scores(Scores& s, const Held& held, int tile) const {
    const uint64_t b = depth_major<128>(keep_here(at.keys(GROUP) + ROPE_BOX * BOX));
    if (keys_from(tile) < KEYS) clear_behind(tile);
    await(GROUP, ROPE_BOX, tile);
    keep_in_place(s);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < ROPE / 16; ++slice) wgmma<Element, KEYS>(s, held[slice], moved(b, slice * 32), slice > 0);
    multiply_half(s, GROUP, tile);
    wgmma_commit();
  }
  void start_other_scores(Scores& s, int tile) const {
    multiply_half(s, OTHER, tile);
    wgmma_commit();
  }
  static void multiply_half(Scores& s, int half, int tile) {
    const uint64_t a = depth_major<128>(keep_here(at.q() + half * HALF_BOXES * BOX)), b = depth_major<128>(keep_here(at.keys(GROUP) + half * HALF_BOXES * BOX));
#pragma unroll
    for (int box = 0; box < HALF_BOXES; ++box) {
      await(GROUP, half * HALF_BOXES + box, tile);
#pragma unroll
      for (int slice = 0; slice < 4; ++slice) wgmma<Element, KEYS>(s, moved(a, box * BOX + slice * 32), moved(b, box * BOX + slice * 32), true);
    }
  }

  static uint64_t values(uint32_t stage) { return row_major<128>(keep_here(at.keys(stage) + GROUP * HALF_BOXES * BOX), KEYS); }

  // Adds an own tile's values.
  static void start_own(Outputs& o, const Weights& p) {
    const uint64_t b = values(GROUP);
    keep_in_place(o);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < KEYS / 16; ++slice) wgmma<Element, HALF, true>(o, p[slice], moved(b, slice * 2048), true);
    wgmma_commit();
  }

  // Takes references of the other warpgroup's last tile, and starts to add its values.
  void start_others(Outputs& o, int tile) {
    sync_some(WEIGHED + OTHER, GROUPS * WARPGROUP);
#pragma unroll
    for (int box = 0; box < HALF_BOXES; ++box) await(OTHER, GROUP * HALF_BOXES + box, tile);
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float next = __uint_as_float(load_shared_4(at.row(OTHER, first_row() + 8 * h)));
      factor[h] = exp2_of(rows.reference[h] - next);
      rows.reference[h] = next, rows.sum[h] *= factor[h];
    }
    if (any_in_warp(factor[0] != 1 || factor[1] != 1)) scale_rows(o, factor);
    const uint64_t a = depth_major<128>(keep_here(at.weights(OTHER))), b = values(OTHER);
    keep_in_place(o);
    wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < KEYS / 16; ++slice) wgmma<Element, HALF, false, true>(o, moved(a, slice * 32), moved(b, slice * 2048), true);
    wgmma_commit();
  }

  // A piece of a stage is not needed any more.
  static void release(uint32_t stage, Piece piece) {
    sync_warp();
    if (own_lane() == 0) barrier_arrive(at.empty(stage, piece));
  }

  // Scores become weights, which go to the other warpgroup, too. Returns whether outputs are to be multiplied by `factor` first.
  bool weigh(Scores& s, Weights& p, float (&factor)[2], int tile) {
    if constexpr (CAPPED) {
#pragma unroll
      for (int j = 0; j < KEYS / 2; ++j) s[j] = tanh_of(s[j] * to_tanh);
    }
    if (keys_from(tile) < KEYS) {
      const int left = keys_from(tile) - own_lane() % 4 * 2;
#pragma unroll
      for (int j = 0; j < KEYS / 2; ++j)
        if (j / 4 * 8 + j % 2 >= left) s[j] = -INFINITE;
    }
    const bool follows = rows.weigh(s, to_log, factor);
    pack_weights<Element, KEYS>(p, s);
    const int l = own_lane(), row = me() / WARP * 16 + l % 16;
#pragma unroll
    for (int n = 0; n < KEYS / 16; ++n) store_matrices(at.weights(GROUP) + row * 128 + ((2 * n + l / 16) ^ row % 8) * 16, p[n]);
    if (l % 4 == 0)
#pragma unroll
      for (int h = 0; h < 2; ++h) store_shared_word(at.row(GROUP, first_row() + 8 * h), __float_as_uint(rows.reference[h]));
    fence_async();
    arrive_some(WEIGHED + GROUP, GROUPS * WARPGROUP);
    return follows;
  }

  template <class MakeResults> void run(const QueryRows& q, MakeResults results) {
    Held held;
    load_queries(q, held);
    Outputs o;
#pragma unroll
    for (int j = 0; j < HALF / 2; ++j) o[j] = 0;
    Scores s;
    Weights p;
#pragma unroll 1
    for (int tile = GROUP; tile < tiles; tile += 2) {
      float factor[2];
      bool follows;
      if constexpr (GROUP == 0 || EAGER) {
        if (tile > 0) start_others(o, tile - 1);
        if (EAGER && tile > 0) {
          wgmma_wait<0>();
          keep_in_place(o);
          release(OTHER, OTHER_PIECE);
        }
        start_first_scores(s, held, tile);
        if (!EAGER && tile > 0) {
          wgmma_wait<1>();
          keep_in_place(o);
          release(OTHER, OTHER_PIECE);
        }
        start_other_scores(s, tile);
        wgmma_wait<0>();
        keep_in_place(s);
        release(GROUP, ROPE_PIECE);
        follows = weigh(s, p, factor, tile);
      } else {
        start_first_scores(s, held, tile);
        start_other_scores(s, tile);
        start_others(o, tile - 1);
        wgmma_wait<1>();
        keep_in_place(s);
        release(GROUP, ROPE_PIECE);
        follows = weigh(s, p, factor, tile);
        wgmma_wait<0>();
        keep_in_place(o);
        release(OTHER, OTHER_PIECE);
      }
      if (follows) scale_rows(o, factor);
      start_own(o, p);
      wgmma_wait<0>();
      keep_in_place(o);
      release(GROUP, OWN_PIECE);
    }
    if (tiles > 0 && (tiles - 1) % 2 == OTHER) {
      start_others(o, tiles - 1);
      wgmma_wait<0>();
      keep_in_place(o);
    }
    finish(o, results());
  }

  void finish(const Outputs& o, const Results& results) {
    rows.add_up();
    sync_some(ALL, GROUPS * WARPGROUP);  // references have been read
    if (own_lane() % 4 == 0)
#pragma unroll
      for (int h = 0; h < 2; ++h) store_shared_word(at.row(GROUP, first_row() + 8 * h), __float_as_uint(rows.sum[h]));
    sync_some(ALL, GROUPS * WARPGROUP);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.sum[h] += __uint_as_float(load_shared_4(at.row(OTHER, first_row() + 8 * h)));
      const int head = results.first_head + first_row() + 8 * h;
      const bool wanted = head < results.heads, counts = wanted && GROUP == 0 && own_lane() % 4 == 0;
      if (results.parts == 1) {
        store_row(o, h, rows.sum[h] == 0 ? 0 : reciprocal(rows.sum[h]), results.row(wanted ? head : 0) + GROUP * HALF, wanted);
        if (counts) results.store_lse(head, rows.reference[h], rows.sum[h]);
      } else if (wanted) {
        float* const to = results.partial + results.piece(head) * R + GROUP * HALF + own_lane() % 4 * 2;
#pragma unroll
        for (int j = 0; j < HALF / 8; ++j) store_pack(to + j * 8, Pack<float, 2>{{o[4 * j + 2 * h], o[4 * j + 2 * h + 1]}});
        if (counts) results.softmaxes[results.piece(head)] = {rows.reference[h], rows.sum[h]};
      }
    }
  }
};

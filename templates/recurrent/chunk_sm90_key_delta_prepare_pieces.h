// Hopper vocabulary of the chunked recurrence with gates of keys and the delta rule: pairs of tokens where no levels are needed, of elements of
// which several are a number. Part of chunk_sm90_key_delta_prepare.h, which has defined a chunk's memory and rows before.
#pragma once

// Where gates leave enough of all keys between the chunk's middle and its ends, no levels are needed: rows are weighed by what they leave from the
// middle on, or its inverse.
template <int COUNT, int MATRIX = CHUNK * FLAT_ROW> static inline void put_flat_pieces(Element* to, float low, float high) {
#pragma unroll
  for (int piece = 0; piece < COUNT; ++piece) {
    const uint32_t word = pack_pair<Element>(low, high);
    *reinterpret_cast<uint32_t*>(to + piece * MATRIX) = word;
    low -= low_of(word), high -= high_of(word);
  }
}
static inline void put_flat(PrepareMemory& memory, const OwnRows& own) {
  float left[2];  // the log of what they leave from the middle to the token
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const auto log_of_part = [&](int part) { return memory.logs[part][own.key + j]; };
    left[j] = own.part == 0 ? -(log_of_part(0) + log_of_part(1)) : own.part == 1 ? -log_of_part(1) : own.part == 3 ? log_of_part(2) : 0;
  }
  const int at = own.first * FLAT_ROW + own.key;
  auto& flat = memory.flat;
#pragma unroll
  for (int t = 0; t < PART; ++t) {
    left[0] += own.gates[t][0], left[1] += own.gates[t][1];
    const float low = low_of(own.keys[t]), high = high_of(own.keys[t]), later[2] = {exp2_of(left[0]), exp2_of(left[1])};
    put_flat_pieces<PAIR_PIECES>(flat.queries[0] + at + t * FLAT_ROW, low_of(own.queries[t]) * later[0], high_of(own.queries[t]) * later[1]);
    put_flat_pieces<FLAT_PIECES>(flat.keys[0] + at + t * FLAT_ROW, low * later[0], high * later[1]);
    put_flat_pieces<FLAT_PIECES>(flat.earlier[0] + at + t * FLAT_ROW, low * exp2_of(-left[0]), high * exp2_of(-left[1]));
  }
}

// Which tiles of 16 later tokens by 8 earlier ones a warp of eight has: up to three side by side.
struct FlatTiles {
  int row, column, count;
  explicit FlatTiles(int number)
      : row(number < 3 ? 48 : number < 5 ? 32 : number < 7 ? 16 : 0),
        column(number < 3 ? 24 * number : number < 5 ? 24 * (number - 3) : number < 7 ? 16 * (number - 5) : 0),
        count(number == 2 || number > 4 ? 2 : 3) {}
};
typedef float FlatSums[3][4];

// Eight earlier tokens' keys, 16 of them, two pieces at once; matrices of pieces are so many bytes apart. The first lane of 16 has the first one's rows.
typedef uint32_t EarlierPieces[FLAT_PIECES > 2 ? 2 : 1][4];
static inline void load_earlier(EarlierPieces& e, uint32_t at, uint32_t matrix) {
#pragma unroll
  for (int two = 0; 2 * two < FLAT_PIECES; ++two) load_matrices(e[two], at + two * (FLAT_PIECES - 2) * matrix);
}
// sums += later earlier^T, of so many pieces, without products that are below the last digits.
static inline void multiply_pieces(float (&sums)[4], const uint32_t (&later)[FLAT_PIECES][4], const EarlierPieces& e) {
#pragma unroll
  for (int order = FLAT_PIECES - 1; order >= 0; --order)
#pragma unroll
    for (int piece = 0; piece <= order; ++piece) {
      const uint32_t* right = piece < 2 ? e[0] + 2 * piece : e[FLAT_PIECES > 2 ? 1 : 0] + 2;
      mma_16x8x16<Element>(sums, later[order - piece], right[0], right[1]);
    }
}
static inline void multiply_query_pieces(float (&sums)[4], const uint32_t (&later)[PAIR_PIECES][4], const EarlierPieces& e) {
#pragma unroll
  for (int piece = PAIR_PIECES - 1; piece > 0; --piece) {
    mma_16x8x16<Element>(sums, later[piece], e[0][0], e[0][1]);
    mma_16x8x16<Element>(sums, later[0], e[0][2], e[0][3]);
  }
  mma_16x8x16<Element>(sums, later[0], e[0][0], e[0][1]);
}

static inline void multiply_flat(const PrepareMemory& memory, const FlatTiles& tiles, FlatSums& of_queries, FlatSums& of_keys) {
  constexpr uint32_t MATRIX = CHUNK * FLAT_ROW * sizeof(Element);
  const auto& flat = memory.flat;
  const uint32_t later = shared_pointer(flat.queries[0] + (tiles.row + lane() % 16) * FLAT_ROW + lane() / 16 * 8);
  const uint32_t earlier = shared_pointer(flat.earlier[lane() / 16] + (tiles.column + lane() % 8) * FLAT_ROW + lane() / 8 % 2 * 8);
#pragma unroll 2
  for (int key = 0; key < KEYS; key += 16) {
    uint32_t q[PAIR_PIECES][4], k[FLAT_PIECES][4];
#pragma unroll
    for (int piece = 0; piece < PAIR_PIECES; ++piece) load_matrices(q[piece], later + piece * MATRIX + key * 2);
#pragma unroll
    for (int piece = 0; piece < FLAT_PIECES; ++piece) load_matrices(k[piece], later + (PAIR_PIECES + piece) * MATRIX + key * 2);
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      if (n >= tiles.count) continue;
      EarlierPieces e;
      load_earlier(e, earlier + 8 * n * FLAT_ROW * 2 + key * 2, MATRIX);
      multiply_pieces(of_keys[n], k, e);
      multiply_query_pieces(of_queries[n], q, e);
    }
  }
}
// Calls use(t, s, of queries, of keys) for each pair that a warp has made, also where s > t: then they are of no meaning.
template <int TURNS, class Use> static inline void use_flat_sums(const FlatSums (&of_queries)[TURNS], const FlatSums (&of_keys)[TURNS], Use use) {
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const FlatTiles tiles(uniform(warp()) + turn * PREPARE_WARPS);
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      if (n >= tiles.count) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) use(tiles.row + lane() / 4 + 8 * (i / 2), tiles.column + 8 * n + lane() % 4 * 2 + i % 2, of_queries[turn][n][i], of_keys[turn][n][i]);
    }
  }
}

// Pairs of all tokens. Threads are together before it and before `use`, which may write where pairs are. use(t, s, of queries, of keys), also where
// s > t: then they are of no meaning.
template <class Use> static inline void multiply_flat_pairs(PrepareMemory& memory, OwnRows& own, Use use) {
  constexpr int TURNS = 8 / PREPARE_WARPS;
  FlatSums of_queries[TURNS] = {}, of_keys[TURNS] = {};
  own.forget();
  put_flat(memory, own);
  sync_block();
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) multiply_flat(memory, FlatTiles(uniform(warp()) + turn * PREPARE_WARPS), of_queries[turn], of_keys[turn]);
  sync_block();
  use_flat_sums(of_queries, of_keys, use);
}

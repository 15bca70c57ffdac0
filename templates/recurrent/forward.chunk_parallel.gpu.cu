// recurrent, forward, 64 tokens at a time on matrix instructions of a warp (mma.sync), all chunks at once: forward.chunk.gpu.cu has the
// formulas. The launch `states` walks through each sequence and keeps the state before every chunk, as elements; `outputs` then computes
// the chunks, each in a block of its own, so that one long sequence fills the device, too.
#include "device/gpu.h"

using Element = ${ctype(E)};
constexpr int KEYS = ${keys}, SLICES = KEYS / 16;  // up to 8 more than there are: zeros
constexpr int STATE_WARPS = ${state_warps}, STATE_THREADS = STATE_WARPS * WARP, STATE_COLUMNS = 16 * STATE_WARPS;
constexpr int STATE_STAGES = ${state_stages};
constexpr int HALVES = ${warps} / 4, WARPS = 4 * HALVES, THREADS = WARPS * WARP, COLUMNS = ${columns}, STAGES = ${stages};
constexpr bool NORMED = ${normed}, NARROW = false;  // l2_norm
constexpr int WAYS = 1, PARTS = 2, KEPT_PARTS = 1;  // a state has the digits of f32; what is kept of it is only read to `out`
#include "recurrent/chunk_gates.h"

using KeyTile = Tile<Element, CHUNK, KEYS>;
using ValueTile = Tile<Element, CHUNK, COLUMNS>;
using StateTile = Tile<Element, COLUMNS, KEYS>;
using Square = Tile<Element, CHUNK, CHUNK>;
#include "recurrent/chunk_keep.h"
#include "recurrent/chunk_pairs.h"
#include "recurrent/chunk_place.h"
$if dual  // ssd
#include "ssd/dual_chunk.h"
$end
#include "recurrent/chunk_numbers.h"
#include "recurrent/chunk_states.h"

// Shared memory: queries, keys, weights of pairs of tokens, stages of some columns' values and states, numbers.
constexpr int KEY_ROWS = KeyTile::BYTES, PAIRS = 2 * KeyTile::BYTES, FIRST_STAGE = PAIRS + Square::BYTES, BEFORE = ValueTile::BYTES;
constexpr int STAGE = BEFORE + StateTile::BYTES, NUMBERS = FIRST_STAGE + STAGES * STAGE;
static_assert(NUMBERS + NUMBERS_BYTES <= ${shared}, "the spec has another size");

// Block number: a chunk of a head.
KERNEL(THREADS, ${blocks}) outputs(${parameters('outputs')}) {
$if dual
  const View &q_view = C_view, &k_view = Bm_view, &v_view = x_view;
  constexpr bool reverse = false;
  constexpr float softmax_scale = 1;
$end
  const ChunkPlace at(cum_seqlens, sequences, heads, q_view.shape[1]);
  if (at.token >= at.count) return;
  char* memory = dynamic_shared();
  const SharedPointer shared = shared_pointer(memory);
  const int keys = static_cast<int>(q_view.shape[3]), values = static_cast<int>(v_view.shape[3]), slices = (values + COLUMNS - 1) / COLUMNS;
  const ChunkNumbers& numbers = *reinterpret_cast<const ChunkNumbers*>(memory + NUMBERS);
  const KeyTile query_tile{shared}, key_tile{shared + KEY_ROWS};
  ChunkRows<Element, KEYS, THREADS>(q_view, at.tokens, at.head, heads, 0, keys, reverse).copy_async(query_tile, at.token, at.count);
  ChunkRows<Element, KEYS, THREADS>(k_view, at.tokens, at.head, heads, 0, keys, reverse).copy_async(key_tile, at.token, at.count);
  copy_numbers_async<THREADS>(shared + NUMBERS, reinterpret_cast<const ChunkNumbers*>(chunk_numbers) + block_x());
  copy_async_commit();
  const Element* kept = reinterpret_cast<const Element*>(kept_states) + block_x() * padded_values * KEYS;
  const auto copy = [&](int slice) {
    if (slice < slices) {
      const SharedPointer stage = shared + FIRST_STAGE + slice % STAGES * STAGE;
      const int start = slice * COLUMNS;
      const ChunkRows<Element, COLUMNS, THREADS> rows(v_view, at.tokens, at.head, heads, start, values - start, reverse);
      rows.copy_async({stage}, at.token, at.count);
#pragma unroll 1
      for (int i = thread_x(); i < COLUMNS * KEYS / 8; i += THREADS)
        copy_async_16(StateTile{stage + BEFORE}.at(i / (KEYS / 8), i % (KEYS / 8) * 8),
                      kept + static_cast<int64_t>(start) * KEYS + i * 8, true);
    }
    copy_async_commit();
  };
  copy(0);
  copy_async_wait<1>();
  sync_block();
  const float scale = softmax_scale;
  {
    PairSums pairs = {};
    add_pairs<KeyTile, KEYS>(pairs, query_tile, key_tile);
    each_slice<4>([&](int j, int slice) {
      if (slice > row_slice()) return;
      each_number(pairs[j], slice, [&](int t, int s, float& x) {
        x = s <= t ? x * scale * numbers.gates.left(t, s) * numbers.query_norm(t) * numbers.key_norm(s) : 0;
      });
      put_pair_of(memory + PAIRS, slice, pairs[j]);
    });
  }
  Element* out = static_cast<Element*>(out_view.data) + at.tokens.row * out_view.strides[0] +
                 (reverse ? at.tokens.end - 1 : at.tokens.first) * out_view.strides[1] + at.head * out_view.strides[2];
  const int64_t stride = reverse ? -out_view.strides[1] : out_view.strides[1];
$if dual
  const float skip = number_of_head(D_view, d_type, at.head);
$end
#pragma unroll 1
  for (int x = 0; x < slices; ++x) {
    const int row = 16 * row_slice();
    const SharedPointer stage = shared + FIRST_STAGE + x % STAGES * STAGE;
    if (STAGES == 1 && x > 0) {
      sync_block();
      copy(x);
    }
    copy_async_wait<0>();
    sync_block();  // the slice is there for all, and all are done with the one before
    if (STAGES > 1) copy(x + 1);
    float sums[OWN<COLUMNS / 16>][2][4] = {};
#pragma unroll
    for (int k = 0; k < SLICES; ++k) {
      uint32_t a[4], b[4];
      query_tile.load_a(a, row, 16 * k);
      each_slice<COLUMNS / 16>([&](int j, int slice) {
        StateTile{stage + BEFORE}.load_b(b, 16 * slice, 16 * k);
        multiply_two(sums[j][0], sums[j][1], a, b);
      });
    }
    each_slice<COLUMNS / 16>([&](int j, int slice) {
      each_number(sums[j], slice, [&](int t, int, float& y) { y *= scale * numbers.gates.before[t] * numbers.query_norm(t); });
    });
#pragma unroll 1
    for (int s = 0; s <= row_slice(); ++s) {
      uint32_t a[4], b[4];
      Square{shared + PAIRS}.load_a(a, row, 16 * s);
      each_slice<COLUMNS / 16>([&](int j, int slice) {
        ValueTile{stage}.load_b_transposed(b, 16 * s, 16 * slice);
        multiply_two(sums[j][0], sums[j][1], a, b);
      });
    }
    each_slice<COLUMNS / 16>([&](int j, int slice) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int t = at.token + row + 8 * h + lane() / 4, value = x * COLUMNS + 16 * slice + 8 * n + lane() % 4 * 2;
$if dual
          const char* rows = memory + FIRST_STAGE + x % STAGES * STAGE;
          const auto own = load_pack<2>(reinterpret_cast<const Element*>(rows) + (t - at.token) * ValueTile::PITCH + value - x * COLUMNS);
          sums[j][n][2 * h] += skip * to_float(own.at[0]), sums[j][n][2 * h + 1] += skip * to_float(own.at[1]);
$end
          if (t < at.count && value < values)
            *reinterpret_cast<uint32_t*>(out + t * stride + value) = pack_pair<Element>(sums[j][n][2 * h], sums[j][n][2 * h + 1]);
        }
    });
  }
}

// Block x: token x of a packed call, if it is of no sequence.
KERNEL(128, 1) clear(${parameters('clear')}) {
  if (block_x() < cum_seqlens[sequences]) return;
  for (int64_t head = 0; head < out_view.shape[2]; ++head)
    for (int64_t i = thread_x(); i < out_view.shape[3]; i += 128)
      static_cast<Element*>(out_view.data)[block_x() * out_view.strides[1] + head * out_view.strides[2] + i] = from_float<Element>(0.0f);
}

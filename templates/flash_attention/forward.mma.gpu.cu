// flash_attention, forward, on matrix instructions of a warp (mma.sync). A block takes BLOCK_M query rows of one kv head through all their
// keys, BLOCK_N at a time; each warp keeps M_TILES tiles of 16 rows, their scores and their output in registers.
//
// A row is one query token of one of the query heads that share the kv head: row = token * heads_a_kv_head + head, as on the CPU.
// K and V blocks are copied asynchronously, one block ahead, into two places each.
// The running softmax in units of log 2: weights are 2^(score - reference). A row's reference is the largest score of its first block, and
// follows later ones only where weights become LARGE: then the block is done again. So most blocks neither look for their largest score
// nor rescale the outputs; whatever the reference, the denominator takes care of it.
// Of a step in two parts, the products of the second run beside the first one's softmax, and its own softmax beside those with values.
#include "device/gpu.h"
#include "device/attention/attention_plain.h"
#include "flash_attention/mma_attention.h"
$if steps == 0
#include "flash_attention/mma_ring.h"
$end
$if by_blocks  // blocksparse_attention: rows of one block of queries, whose steps come from a list
#include "blocksparse_attention/block_steps.h"
$if packed
#include "blocksparse_attention/packed_blocks.h"
$end
$end
$if latent  // mla_attention: of some heads, whose keys are made first
#include "mla_attention/head_views.h"
$end

$require D % 8 == 0 and Dv % 8 == 0 and block_n % 16 == 0
using Element = ${ctype(E)};
constexpr int D = ${D}, DV = ${Dv};                     // head dim of q and k; of v and out
constexpr int D16 = ${align(D, 16)}, DV16 = ${align(Dv, 16)};
constexpr bool ADJUSTED = ${adjusted};                  // any of bias, mask, segments, lengths may be given
constexpr bool CAPPED = ${capped}, DROPPED = ${dropped};  // soft cap; dropout
constexpr int WARPS = ${warps}, THREADS = WARPS * WARP;
constexpr int M_TILES = ${m_tiles};                     // tiles of 16 query rows a warp
constexpr int BLOCK_M = WARPS * M_TILES * 16;           // query rows a block
constexpr int BLOCK_N = ${block_n};                     // keys a step
constexpr int SLICES = D16 / 16, KEPT = ${q_slices};     // slices of 16 features; of the queries, kept in registers
constexpr int PARTS = KEPT == SLICES && BLOCK_N >= 32 ? 2 : 1;  // of a step's keys; a second one would read queries again that are not kept
constexpr int PART_N = BLOCK_N / PARTS, N_TILES = PART_N / 8, V_TILES = DV16 / 8;
$if steps == 0
constexpr int STAGES = ${stages};                       // blocks of keys in shared memory; a ring of them, and no barriers between steps
$else
constexpr int STEPS = ${steps}, STAGES = 2 * STEPS;      // steps between two barriers; blocks of keys in shared memory
$end

using QTile = Tile<Element, BLOCK_M, (D16 > DV16 ? D16 : DV16)>;
using KTile = Tile<Element, BLOCK_N, D16>;
using VTile = Tile<Element, BLOCK_N, DV16>;
using KPart = Tile<Element, PART_N, D16>;
using VPart = Tile<Element, PART_N, DV16>;
using KReader = TileReader<Element, BLOCK_N, D16, THREADS, D>;
using VReader = TileReader<Element, BLOCK_N, DV16, THREADS, DV>;

// What a warp keeps: [tile][8 columns][fragment of C]. Scores are a part's.
typedef float Scores[M_TILES][N_TILES][4];
typedef float Outputs[M_TILES][V_TILES][4];
typedef uint32_t Queries[M_TILES][KEPT > 0 ? KEPT : 1][4];  // operands A of the slices that are kept
// Of each row of this thread: rows 16 tile + lane / 4 and 8 below.
typedef float PerRow[M_TILES][2];

// Kept slices are spread evenly over all, so that reads of shared memory are.
static constexpr bool is_kept(int slice) { return slice * KEPT % SLICES < KEPT; }
static constexpr int kept_place(int slice) { return slice * KEPT / SLICES; }

// `beside(slice)` is called beside the products of each slice: work that matrix instructions hide.
template <class Beside>
static inline void multiply_keys(Scores& s, const Queries& queries, const QTile& q, const KPart& k, int warp_row, Beside beside) {
  uint32_t a[2][M_TILES][4], b[2][N_TILES / 2][4];  // of a slice, and of the next one
  const auto load = [&](int slice) {
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) k.load_b(b[slice % 2][n / 2], 8 * n, 16 * slice);
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int i = 0; is_kept(slice) && i < 4; ++i) a[slice % 2][m][i] = queries[m][kept_place(slice)][i];
      if (!is_kept(slice)) q.load_a(a[slice % 2][m], warp_row + 16 * m, 16 * slice);
    }
  };
  constexpr int AHEAD = D16 > 128 || DV16 > 128 ? 0 : 1;  // they leave no registers for the next slice
  clear(s);
  if (AHEAD) load(0);
#pragma unroll
  for (int slice = 0; slice < SLICES; ++slice) {
    if (slice + AHEAD < SLICES) load(slice + AHEAD);
    beside(slice);
    multiply_slice<Element>(s, a[slice % 2], b[slice % 2]);
  }
}

// The same once more, seldom: in little code.
static inline void multiply_keys_again(Scores& s, const QTile& q, const KPart& k, int warp_row) {
  clear(s);
#pragma unroll 1
  for (int d = 0; d < D16; d += 16) {
    uint32_t a[M_TILES][4], b[N_TILES / 2][4];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) q.load_a(a[m], warp_row + 16 * m, d);
#pragma unroll
    for (int n = 0; n < N_TILES; n += 2) k.load_b(b[n / 2], 8 * n, d);
    multiply_slice<Element>(s, a, b);
  }
}

$if not by_blocks
// Which steps a warp can do without a look at single keys. The same for all its lanes, and the compiler is told.
struct Steps {
  int first, end;                  // of the block: all its warps copy and wait together
  int first_seen, end_seen;        // of the warp: some row sees some key of them
  int first_whole, whole;          // steps of which every row sees every key
  bool hides;                      // the block has keys that some of its rows do not see

  Steps(const Rows& rows, int warp_row, int64_t keys) {
    const RowRange some = rows.some_see(0, BLOCK_M), every = rows.all_see(0, BLOCK_M);
    const RowRange warp_some = rows.some_see(warp_row, M_TILES * 16), warp_every = rows.all_see(warp_row, M_TILES * 16);
    first = shuffle(some.first / BLOCK_N, 0);
    end = shuffle(some.first < some.end ? (some.end + BLOCK_N - 1) / BLOCK_N : first, 0);
    first_seen = shuffle(warp_some.first / BLOCK_N, 0);
    end_seen = shuffle((warp_some.end + BLOCK_N - 1) / BLOCK_N, 0);
    first_whole = shuffle((warp_every.first + BLOCK_N - 1) / BLOCK_N, 0);
    whole = shuffle(ADJUSTED || CAPPED ? 0 : warp_every.end / BLOCK_N, 0) - first_whole;
    if (whole < 0) whole = 0;
    hides = ADJUSTED || some.first < every.first || every.end < some.end || some.first % BLOCK_N != 0 || (some.end % BLOCK_N != 0 && some.end < keys);
  }
  bool is_whole(int step) const { return static_cast<unsigned>(step - first_whole) < static_cast<unsigned>(whole); }
  bool is_seen(int step) const { return step >= first_seen && step < end_seen; }
};

$end
// Shared memory: Q, then the stages of K, then those of V, then each row's range of keys.
constexpr int KEYS = QTile::BYTES, VALUES = KEYS + STAGES * KTile::BYTES, RANGES = VALUES + STAGES * VTile::BYTES;

$if steps == 0
// Keys and values on their way to shared memory, half of the stages ahead.
using Ring = KeyRing<KTile, VTile, BLOCK_N, STAGES, WARPS>;
constexpr int BARRIERS = RANGES + 8 * BLOCK_M;
struct Copies : Ring {
  KPart k_part(int step, int part) const { return {k_tile(step).at(part * PART_N, 0)}; }
  VPart v_part(int step, int part) const { return {v_tile(step).at(part * PART_N, 0)}; }
  void go_on(int, int) const {}  // nothing beside the products: come_to() starts the copies
};
$else
// Keys and values on their way to shared memory, STEPS steps ahead; past the last one only zeros are written.
struct Copies {
  SharedPointer memory;
  KReader keys;
  VReader values;

  KTile k_tile(int step) const { return {memory + KEYS + (step & (STAGES - 1)) * KTile::BYTES}; }
  VTile v_tile(int step) const { return {memory + VALUES + (step & (STAGES - 1)) * VTile::BYTES}; }
  KPart k_part(int step, int part) const { return {k_tile(step).at(part * PART_N, 0)}; }
  VPart v_part(int step, int part) const { return {v_tile(step).at(part * PART_N, 0)}; }

$if by_blocks
  // What the step after copies: keys [first, end) of the sequence.
  void turn_to(const Heads<const Element>& k, const Heads<const Element>& v, const Sequence& sequence, int kv_head, const RowRange& of) {
    keys = KReader(k.row(sequence.batch, ${packed ? 'sequence.first_key + ' : ''}of.first, kv_head), k.token_stride, of.end - of.first);
    values = VReader(v.row(sequence.batch, ${packed ? 'sequence.first_key + ' : ''}of.first, kv_head), v.token_stride, of.end - of.first);
  }

$end
  void start(int first) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      keys.copy_async(k_tile(first + step));
      values.copy_async(v_tile(first + step));
    }
    copy_async_commit();
  }

  // In a few turns beside the slices of a step's first product.
  void go_on(int step, int slice) {
    constexpr int PARTS = KReader::PARTS + VReader::PARTS, TURNS = SLICES < 4 ? SLICES : SLICES > 8 ? 8 : 4;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      if (slice != turn * SLICES / TURNS) continue;
#pragma unroll
      for (int part = turn * PARTS / TURNS; part < (turn + 1) * PARTS / TURNS; ++part) {
        if (part < KReader::PARTS)
          keys.copy_part_async(k_tile(step + STEPS), part);
        else
          values.copy_part_async(v_tile(step + STEPS), part - KReader::PARTS);
      }
      if (turn == TURNS - 1) copy_async_commit();
    }
  }
};
$end

$if by_blocks
// Block (x, y, z): the x-th BLOCK_M rows, `parts` a block of queries, of row z of the batch (packed: of all sequences), the last rows first. A row is a query token of
// one of `together` heads that follow one another and share the mask: those of the y-th such group.
$else
// Block (x, y, z): the y-th BLOCK_M rows (packed: of all sequences) of the x-th kv head of group z, where the kv heads of all rows of the
// batch are numbered through. So the hardware starts the same rows of a group's heads together. With a causal mask later rows have more
// keys: a sequence's rows are taken from the end, and the last blocks to start are short.
$end
KERNEL(THREADS, ${blocks}) attend(${parameters('attend')}) {
$if latent
#include "mla_attention/expanded_arguments.h"
$end
  const Heads<const Element> q(q_view), k(k_view), v(v_view);
  const Heads<Element> out(${latent ? 'group_out' : 'out_view'});
  const ScoreRules rules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                         drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads};
$if by_blocks
$if packed
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset};
  Sequence sequence;
  int64_t block = block_x() / parts, blocks_of_sequence;
  if (!find_sequence(sequences, block, block_q, 1, sequence, blocks_of_sequence)) return;
  sequence = within_mask(sequence, block_mask_view, block_q, block_k);
  const int64_t query_block = blocks_of_sequence - 1 - block, end_token = (query_block + 1) * block_q;
  const int64_t mask_row = row_of_mask(block_mask_view, query_block), first_row = query_block * block_q * together + block_x() % parts * BLOCK_M;
$else
  const Sequences sequences{nullptr, nullptr, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  const Sequence sequence = sequences[block_z()];
  const int64_t item = grid_x() - 1 - block_x(), query_block = item / parts, end_token = (query_block + 1) * block_q;
  const int64_t first_row = query_block * block_q * together + item % parts * BLOCK_M;
$end
  const int64_t left = (end_token < sequence.queries ? end_token : sequence.queries) * together - first_row;
  if (left <= 0) return;
  const int heads_a_kv_head = static_cast<int>(together), first_head = block_y() * heads_a_kv_head;
  const int kv_head = first_head / static_cast<int>(q.heads / k.heads);
$else
  const Sequences sequences{cum_seqlens_q, cum_seqlens_k, sequence_count, q.tokens, k.tokens, offset_given, offset,
                            ADJUSTED ? query_seq_lengths : nullptr, ADJUSTED ? key_value_seq_lengths : nullptr};
  const int kv_heads = static_cast<int>(k.heads), heads_a_kv_head = static_cast<unsigned>(q.heads) / kv_heads;
  const int numbered = block_z() * grid_x() + block_x(), batch = cum_seqlens_q ? 0 : static_cast<unsigned>(numbered) / kv_heads;
  const int kv_head = numbered - batch * kv_heads;
  if (kv_head >= kv_heads || batch >= sequence_count) return;  // the last group may be smaller
  Sequence sequence = sequences[batch];
  int64_t item = block_y(), items = grid_y();
  if (cum_seqlens_q && !find_sequence(sequences, item, BLOCK_M, heads_a_kv_head, sequence, items)) return;
  const int64_t first_row = (items - 1 - item) * BLOCK_M, left = sequence.queries * heads_a_kv_head - first_row;
$end

  char* memory = dynamic_shared();
  const QTile q_tile{shared_pointer(memory)};
  const Rows rows{reinterpret_cast<RowRange*>(memory + RANGES), static_cast<int>(first_row),
                  static_cast<int>(left < BLOCK_M ? left : BLOCK_M), ${by_blocks ? 'first_head' : 'kv_head * heads_a_kv_head'}, heads_a_kv_head};
  rows.copy_queries<THREADS, D>(q_tile, q, sequence);
  if (KEPT > 0) copy_async_commit();
$if steps == 0
  if (thread_x() == 0) Ring::init(shared_pointer(memory) + BARRIERS);
$end
$if by_blocks
  find_ranges_in_chunks<THREADS, BLOCK_M>(rows, Visibility{causal, window_left, window_right}, sequence, chunk_size);
  const int warp_row = warp() * M_TILES * 16;
  const RunList list{runs, block_mask_view, query_blocks, runs_a_row};
  BlockSteps<BLOCK_N> steps(list.row(sequence.batch, first_head, ${packed ? 'mask_row' : 'query_block'}), rows.some_see(0, BLOCK_M));
  const bool exists = warp_row < rows.count;  // a block of queries may be smaller
  const RowRange some_see = rows.some_see(warp_row, M_TILES * 16), all_see = rows.all_see(warp_row, M_TILES * 16);
  const RowRange warp_some{shuffle(some_see.first, 0), shuffle(exists ? some_see.end : 0, 0)};
  const RowRange warp_every{shuffle(all_see.first, 0), shuffle(exists ? all_see.end : 0, 0)};
$else
  rows.find_ranges<THREADS, BLOCK_M>(Visibility{causal, window_left, window_right}, sequence);
  const int warp_row = warp() * M_TILES * 16;
  const Steps steps(rows, warp_row, sequence.keys);
$end

$if steps == 0
  const SharedPointer shared = shared_pointer(memory);
  const Copies copies{{shared + KEYS, shared + VALUES, shared + BARRIERS, k_map, v_map, steps.first, steps.end,
                       shuffle(static_cast<int>(sequence.first_key) + steps.first * BLOCK_N, 0), shuffle(kv_head, 0),
                       shuffle(static_cast<int>(sequence.batch), 0), shuffle(warp(), 0)}};
  copies.start();
  copy_async_commit();  // of nothing: the queries come in the group before
$elif by_blocks
  RowRange keys = steps.next(), ahead = steps.next();  // of this step, and of the next one
  Copies copies{shared_pointer(memory), {k.row(sequence.batch, ${packed ? 'sequence.first_key + ' : ''}keys.first, kv_head), k.token_stride, keys.end - keys.first},
                {v.row(sequence.batch, ${packed ? 'sequence.first_key + ' : ''}keys.first, kv_head), v.token_stride, keys.end - keys.first}};
  copies.start(0);
$else
  const int64_t first_key = sequence.first_key + int64_t{steps.first} * BLOCK_N;
  const int keys_left = static_cast<int>(sequence.keys) - steps.first * BLOCK_N;
  Copies copies{shared_pointer(memory), {k.row(sequence.batch, first_key, kv_head), k.token_stride, keys_left},
                {v.row(sequence.batch, first_key, kv_head), v.token_stride, keys_left}};
  copies.start(steps.first);
$end

  const float unit = ADJUSTED || CAPPED ? 1 : (softmax_scale > 0 ? softmax_scale : 1e-30f) * LOG2_E;
  Outputs o;
  PerRow reference, denominator;
  start_rows(o, reference, denominator, softmax_aux_view, sinks_type, q.heads, rows, sequence, warp_row);
  Queries queries;
  if (KEPT > 0) {
    copy_async_wait<1>();
    sync_block();
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice)
        if (is_kept(slice)) q_tile.load_a(queries[m][kept_place(slice)], warp_row + 16 * m, 16 * slice);
  }

  if (${by_blocks ? 'keys.first >= keys.end' : 'steps.first >= steps.end'}) {  // no step waits: the queries may still be on their way to where the outputs go, and warps that read ranges
    copy_async_wait<0>();
    sync_block();
  }
$if by_blocks
  bool started = false;  // some row has seen a key
$end
#pragma unroll 1
$if by_blocks
  for (int step = 0; keys.first < keys.end; ++step, keys = ahead, ahead = steps.next()) {
    copies.turn_to(k, v, sequence, kv_head, ahead);
$else
  for (int step = steps.first; step < steps.end; ++step) {
$end
$if steps == 0
    copies.come_to(step);
$elif by_blocks
    copy_async_wait<0>();
    sync_block();
$else
    if (STEPS == 1 || (step - steps.first) % STEPS == 0) {
      copy_async_wait<0>();
      sync_block();
    }
$end
$if by_blocks
    const bool whole = !ADJUSTED && !CAPPED && keys.end - keys.first == BLOCK_N && keys.first >= warp_every.first && keys.end <= warp_every.end;
    if (!whole && (keys.first >= warp_some.end || keys.end <= warp_some.first)) {
$else
    const bool whole = steps.is_whole(step);
    if (!whole && !steps.is_seen(step)) {
$end
#pragma unroll
      for (int slice = 0; slice < SLICES; ++slice) copies.go_on(step, slice);
      continue;
    }
    Scores s[PARTS];
    PerRow sum;
    const auto hide = [&](int part) {
$if by_blocks
      if (!whole) adjust_within<ADJUSTED, CAPPED>(s[part], rules, rows, sequence, warp_row, keys.first + part * PART_N, keys);
$else
      if (!whole) adjust<ADJUSTED, CAPPED>(s[part], rules, rows, sequence, warp_row, step * BLOCK_N + part * PART_N);
$end
    };
    multiply_keys(s[0], queries, q_tile, copies.k_part(step, 0), warp_row, [&](int slice) { copies.go_on(step, slice); });
$if by_blocks
    bool follows = !started, large = false;
    started = true;
$else
    bool follows = step == steps.first_seen, large = false;
$end
#pragma unroll
    for (int m = 0; follows && m < M_TILES; ++m) sum[m][0] = sum[m][1] = INFINITE;  // all rows
    for (;;) {
      hide(0);
      if (follows) follow(s[0], o, reference, denominator, sum, unit);
      large = weigh(s[0], reference, sum, unit);
      if (PARTS == 2) multiply_keys(s[PARTS - 1], queries, q_tile, copies.k_part(step, 1), warp_row, [](int) {});
      if (!any_in_warp(large) || follows) break;
      multiply_keys_again(s[0], q_tile, copies.k_part(step, 0), warp_row);
      follows = true;
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) denominator[m][h] += sum[m][h];
      if (DROPPED) drop(s[part], rules, rows, sequence, warp_row, ${by_blocks ? 'keys.first' : 'step * BLOCK_N'} + part * PART_N);
      const int next = part + 1;
      if (next < PARTS) {
        hide(next);
        large = weigh(s[next % PARTS], reference, sum, unit);
      }
#pragma unroll
      for (int n = 0; n < N_TILES; n += 2) add_values(o, s[part], n, copies.v_part(step, part));
      if (next == PARTS || !any_in_warp(large)) continue;
      multiply_keys_again(s[next % PARTS], q_tile, copies.k_part(step, next), warp_row);
      hide(next);
      follow(s[next % PARTS], o, reference, denominator, sum, unit);
      weigh(s[next % PARTS], reference, sum, unit);
    }
  }
  // A value that is not finite, behind a weight of 0, has made the outputs of rows that do not see it NaN: then the definition decides.
  // It is given objects of its own: what it has references to would lie in memory, and be read from there by all blocks.
  if (${by_blocks ? '' : 'steps.hides && '}any_in_block(!finite(o))) {
    copy_async_wait<0>();
    sync_block();
    const Rows same_rows = rows;
    const Sequence same_sequence = sequence;
    return ${by_blocks ? 'attend_blocks_plainly' : 'attend_plainly'}<THREADS, ADJUSTED, CAPPED, DROPPED, 1, (DV + WARP - 1) / WARP>(
        Heads<const Element>(q_view), Heads<const Element>(k_view), Heads<const Element>(v_view), Heads<Element>(${latent ? 'group_out' : 'out_view'}),
        ScoreRules{bias_view, attention_mask_view, q_segment_ids_view, kv_segment_ids_view, bias_type, softmax_scale, logits_soft_cap,
                   drop_threshold, static_cast<uint64_t>(dropout_seed), q.heads},
        same_sequence, softmax_aux_view, sinks_type, lse_view, same_rows,${by_blocks ? ' KeyBlocks(block_mask_view, sequence.batch, first_head, ' : ''}${by_blocks ? (packed ? 'mask_row' : 'query_block') : ''}${by_blocks ? ', block_k),' : ''} kv_head, D, DV, reinterpret_cast<float*>(memory));
  }
  const float kept = drop_threshold < 65536 ? 65536 / (65536 - drop_threshold) : 0;
  finish<DV, QTile::PITCH>(o, reference, denominator, reinterpret_cast<Element*>(memory), out, lse_view, rows, sequence, warp_row, kept);
}
$if by_blocks

#include "blocksparse_attention/list_blocks_entry.h"
$end
$if latent

#include "mla_attention/expand_entries.h"
$end

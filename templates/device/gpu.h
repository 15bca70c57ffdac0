// GPU vocabulary: the functions and macros of portable GPU templates, implemented by the image's platform.
//
//   thread_x() block_x() block_y() block_z() grid_x() grid_y() lane() warp() WARP    thread and block indices (blocks are one-dimensional)
//   KERNEL(threads, blocks) name(parameters)       an entry: __launch_bounds__(threads a block, blocks per SM)
//   __shared__ T x[n];  dynamic_shared()           memory of a block; the launch's `shared` bytes, aligned to 128
//   SharedPointer shared_pointer(p)                an address in it, for the words below; sums are in bytes
//   sync_block() sync_warp() any_in_block(b) any_in_warp(b)                 every thread of the block, or lane of the warp, must call them
//   shuffle_xor(x, mask) shuffle_down(x, by) shuffle(x, lane)               x of another lane: float, int32_t or uint32_t
//   Pack<T, N>  load_pack<N>(p) store_pack(p, x) load_once<N>(p) store_once(p, x)     N elements at an address aligned to all of them
//   copy_async_16(to, from, wanted) copy_async_commit() copy_async_wait<N>()          16 bytes from global to shared memory, or zeros
//   mma_16x8x16<T>(c, a, b0, b1) load_matrices(r, row) load_matrices_transposed(r, row) pack_pair<T>(low, high)     matrix tiles
//   exp2_of(x) log_of(x) tanh_of(x) reciprocal(x) larger_of(a, b)           f32; larger_of passes NaN over
//   far_tanh_of(x) cut_to(x, bound)                                         less of tanh for less; x within [-bound, bound], or NaN
//   fetch(p)                                                                brings the line of p into the L2 cache
//   keep(p)                                                                 the pointer p, computed here and not earlier
//   to_float(x) from_float<T>(x)                                            f32, half, bfloat16; to nearest even
#pragma once
$if arch.platform == 'cuda'
#include "device/platform/cuda.h"
$elif arch.platform == 'hip'
#include "device/platform/hip.h"
$elif arch.platform == 'simt'
#include "device/platform/simt.h"
$end

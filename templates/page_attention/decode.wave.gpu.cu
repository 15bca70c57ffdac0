// page_attention on matrix instructions of a wave (MFMA, WMMA): keys and values in pages. How: device/attention/decode_wave.h.
#include "device/gpu.h"
#include "device/number/float8.h"
#include "device/attention/row_end.h"
#include "page_attention/page_shares.h"
#include "device/matrix/wave_rows.h"

$require D % 8 == 0
using Element = ${ctype(E)};
using Cached = ${ctype(C)};
constexpr int D = ${D}, D16 = ${align(D, 16)};
constexpr bool CAPPED = ${capped};
constexpr int SHIFT = ${E == 'f16' ? 15 : 0};  // the largest weight is 2^SHIFT: gfx90a reads halves below 2^-14 as 0
constexpr int WAVES = ${waves}, THREADS = WAVES * WAVE, STEP = 16 * WAVES;  // STEP: keys of a step
constexpr int VALUES = D16 * TRANSPOSED_PITCH<16>;                          // bytes of a wave's values, [feature][key]
constexpr int ROW = D16 + 4;                                                // floats of a row of outputs in shared memory
constexpr int FINISH_THREADS = 128;

// Keys or values of one sequence and kv head. Strides in elements.
struct Pages {
  const Cached* data;
  int64_t page_stride, slot_stride;
  const int32_t* table;
  int page_size;
  const Cached* row(int key) const { return data + table[key / page_size] * page_stride + key % page_size * slot_stride; }
};

#include "device/attention/decode_wave.h"

// ejk_tensor against the DLTensor of an installed dlpack.h (libdlpack-dev); without that header there is nothing to compare.
#include "ejk/ejk.h"

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>

#include <type_traits>

#include "ejk/tensor.hpp"

namespace ejk {

// Member by member: the same place, the same size.
#define EJK_SAME_MEMBER(ours, theirs)                                      \
  static_assert(offsetof(ejk_tensor, ours) == offsetof(DLTensor, theirs)); \
  static_assert(sizeof(ejk_tensor{}.ours) == sizeof(DLTensor{}.theirs))

static_assert(sizeof(ejk_tensor) == sizeof(DLTensor) && alignof(ejk_tensor) == alignof(DLTensor));
EJK_SAME_MEMBER(data, data);
EJK_SAME_MEMBER(device, device);
EJK_SAME_MEMBER(device.type, device.device_type);
EJK_SAME_MEMBER(device.index, device.device_id);
EJK_SAME_MEMBER(rank, ndim);
EJK_SAME_MEMBER(dtype, dtype);
EJK_SAME_MEMBER(dtype.code, dtype.code);
EJK_SAME_MEMBER(dtype.bits, dtype.bits);
EJK_SAME_MEMBER(dtype.lanes, dtype.lanes);
EJK_SAME_MEMBER(shape, shape);
EJK_SAME_MEMBER(strides, strides);
EJK_SAME_MEMBER(byte_offset, byte_offset);
#undef EJK_SAME_MEMBER

// The numbers that the C API documents.
static_assert(kDLInt == 0 && kDLUInt == 1 && kDLFloat == 2 && kDLBfloat == 4);
static_assert(static_cast<int>(DeviceType::cpu) == kDLCPU && static_cast<int>(DeviceType::cuda) == kDLCUDA &&
              static_cast<int>(DeviceType::rocm) == kDLROCM);
#if defined(DLPACK_MAJOR_VERSION) || DLPACK_VERSION >= 80
static_assert(kDLBool == 6);
#endif

}  // namespace ejk
#endif

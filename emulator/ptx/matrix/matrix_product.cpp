// MatrixProduct for each kind of CPU: vectors of 16, 32 and 64 bytes.
#include "emulator/ptx/matrix/matrix_product.hpp"

#include "emulator/ptx/matrix/matrix_arithmetic.hpp"

namespace ejk::ptx {
namespace {

// Half of a warp's product of 256 columns is 40 KB: not for the stack, and not to be allocated each time.
thread_local matrix::Factors matrix_factors;

// Products of such factors are exact in float32, so that a fused multiplication makes no difference but time, whatever other sources want.
#if defined(__x86_64__) && !defined(__clang__)
#define EJK_PTX_FOR(...) __attribute__((target(__VA_ARGS__), optimize("fp-contract=fast")))
#else
#define EJK_PTX_FOR(...) __attribute__((target(__VA_ARGS__)))
#endif
#define EJK_PTX_MULTIPLY_WITH(NAME, BYTES, GROUPS, ...)                                                   \
  __VA_ARGS__ void NAME(const MatrixProduct& product) {                                                   \
    auto& factors = matrix_factors;                                                                       \
    matrix::widen<BYTES>(product.a_format, product, true, factors);                                       \
    matrix::widen<BYTES>(product.b_format, product, false, factors);                                      \
    if (product.integer) return matrix::multiply_factors<matrix::Words<BYTES>, GROUPS>(product, factors); \
    matrix::multiply_factors<typename matrix::Vectors<BYTES>::Floats, GROUPS>(product, factors);          \
  }
EJK_PTX_MULTIPLY_WITH(multiply_16, 16, 2)
#ifdef __x86_64__
EJK_PTX_MULTIPLY_WITH(multiply_32, 32, 2, EJK_PTX_FOR("avx2,fma"))
EJK_PTX_MULTIPLY_WITH(multiply_64, 64, 4, EJK_PTX_FOR("avx512f,avx512bw,avx512vl,avx512dq,fma"))
#endif
#undef EJK_PTX_MULTIPLY_WITH
#undef EJK_PTX_FOR

VectorWidth widest() {
  return has_width(VectorWidth::bytes64)   ? VectorWidth::bytes64
         : has_width(VectorWidth::bytes32) ? VectorWidth::bytes32
                                           : VectorWidth::bytes16;
}

}  // namespace

bool has_width(VectorWidth width) {
  if (width == VectorWidth::bytes16) return true;
#ifdef __x86_64__
  if (width == VectorWidth::bytes32) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

void multiply_with(VectorWidth width, const MatrixProduct& product) {
#ifdef __x86_64__
  if (width == VectorWidth::bytes64) return multiply_64(product);
  if (width == VectorWidth::bytes32) return multiply_32(product);
#endif
  (void)width;
  multiply_16(product);
}

void multiply(const MatrixProduct& product) {
  static const VectorWidth width = widest();
  multiply_with(width, product);
}

}  // namespace ejk::ptx

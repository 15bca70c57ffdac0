// The functions that XLA calls: one serves every kernel. On a GPU the choice and the binary are made ready when the program is initialised;
// to execute is to launch on XLA's stream, with scratch among XLA's results, so that it may be captured into a command buffer.
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "call_site.hpp"
#include "xla/ffi/api/ffi.h"

namespace ejk::xla {
namespace {

namespace ffi = ::xla::ffi;

enum Device { cpu = 1, cuda = 2, rocm = 10 };  // DLPack's
constexpr std::uintptr_t alignment = 256;      // of a workspace; XLA's buffers may have less

ffi::Error refused(ejk_status status) {
  using Code = ffi::ErrorCode;
  const Code code = status == EJK_BAD_INPUT                                       ? Code::kInvalidArgument
                    : status == EJK_UNSUPPORTED                                   ? Code::kUnimplemented
                    : status == EJK_MISSING_IMAGE || status == EJK_COMPILE_FAILED ? Code::kFailedPrecondition
                    : status == EJK_DEVICE                                        ? Code::kUnavailable
                                                                                  : Code::kInternal;
  return {code, std::string("ejk: ") + ejk_last_error()};
}

// The buffers of a call, as ejk_run takes them.
struct Buffers {
  static constexpr std::size_t most = 64;
  void* data[most];
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
};

ffi::Error take(const CallSite& site, std::size_t index, const ffi::AnyBuffer& buffer, Buffers& to) {
  const auto dims = buffer.dimensions();
  if (auto wrong = site.mismatch(
          index, {static_cast<int>(buffer.element_type()), buffer.untyped_data(), dims.begin(), static_cast<std::int64_t>(dims.size())});
      !wrong.empty())
    return ffi::Error::InvalidArgument("ejk: " + wrong);
  to.data[index] = buffer.untyped_data();
  if (const auto operand = site.updates(index); operand && to.data[*operand] != to.data[index])
    return ffi::Error::Internal("ejk: XLA gives " + site.name(index) + " other memory than the operand that the call updates");
  return ffi::Error::Success();
}

void take_workspace(const ffi::AnyBuffer& buffer, Buffers& to) {
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer.untyped_data());
  const auto aligned = (begin + alignment - 1) / alignment * alignment;
  to.workspace = reinterpret_cast<void*>(aligned);  // NOLINT: an address made of an address
  to.workspace_bytes = static_cast<std::int64_t>(buffer.size_bytes()) - static_cast<std::int64_t>(aligned - begin);
}

ffi::Error collect(const CallSite& site, ffi::RemainingArgs arguments, ffi::RemainingRets results, Buffers& to) {
  const auto count = site.tensors();
  if (count > Buffers::most || arguments.size() > count || arguments.size() + results.size() < count ||
      arguments.size() + results.size() > count + 1)
    return ffi::Error::InvalidArgument("ejk: XLA gives " + std::to_string(arguments.size()) + " operands and " +
                                       std::to_string(results.size()) + " results for a call of " + std::to_string(count) + " tensors");
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto buffer = arguments.get<ffi::AnyBuffer>(i);
    if (!buffer) return buffer.error();
    if (auto error = take(site, i, *buffer, to); error.failure()) return error;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    auto buffer = results.get<ffi::AnyBuffer>(i);
    if (!buffer) return buffer.error();
    if (arguments.size() + i == count)
      take_workspace(**buffer, to);
    else if (auto error = take(site, arguments.size() + i, **buffer, to); error.failure())
      return error;
  }
  return ffi::Error::Success();
}

// Nothing may be thrown into XLA.
template <class F>
ffi::Error with_call(std::string_view text, Device device, int ordinal, ffi::RemainingArgs arguments, ffi::RemainingRets results, F&& f) {
  try {
    auto& site = call_site(text);
    Buffers buffers;
    if (auto error = collect(site, arguments, results, buffers); error.failure()) return error;
    const auto* prepared = site.prepared(device, ordinal);
    if (!prepared) return refused(EJK_BAD_INPUT);
    const ejk_status status = f(prepared, buffers);
    return status == EJK_OK ? ffi::Error::Success() : refused(status);
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("ejk: ") + error.what());
  }
}

ffi::Error run(Device device, int ordinal, void* stream, ffi::RemainingArgs arguments, ffi::RemainingRets results, std::string_view text) {
  return with_call(text, device, ordinal, arguments, results, [&](const ejk_prepared* prepared, const Buffers& buffers) {
    return ejk_run_in(prepared, buffers.data, nullptr, stream, buffers.workspace, buffers.workspace_bytes);
  });
}

// The label is for those who read the program.
using Label = std::string_view;

// XLA's pool runs the tasks that it is given; where there is none, it runs them here, at once.
int32_t schedule(void* pool, void (*task)(void*), void* data) {
  static_cast<ffi::ThreadPool*>(pool)->Schedule([task, data] { task(data); });
  return 0;
}

ffi::Error run_on_cpu(ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results, std::string_view text, Label) {
  return with_call(text, cpu, 0, arguments, results, [&](const ejk_prepared* prepared, const Buffers& buffers) {
    const auto threads = static_cast<std::int32_t>(pool.num_threads());
    const ejk_executor executor{threads, schedule, &pool};
    return ejk_run_on(threads > 0 ? &executor : nullptr, prepared, buffers.data, nullptr, nullptr, buffers.workspace,
                      buffers.workspace_bytes);
  });
}

template <Device device>
ffi::Error run_on_gpu(void* stream, std::int32_t ordinal, ffi::RemainingArgs arguments, ffi::RemainingRets results, std::string_view text,
                      Label) {
  return run(device, ordinal, stream, arguments, results, text);
}

template <Device device>
ffi::Error make_ready(void* stream, std::int32_t ordinal, ffi::RemainingArgs arguments, ffi::RemainingRets results, std::string_view text,
                      Label) {
  return with_call(text, device, ordinal, arguments, results, [&](const ejk_prepared* prepared, const Buffers& buffers) {
    return ejk_make_ready(prepared, buffers.data, nullptr, stream);
  });
}

template <class Binding>
auto with_text(Binding binding) {
  return std::move(binding).RemainingArgs().RemainingRets().template Attr<std::string_view>("call").template Attr<std::string_view>(
      "label");
}

template <class Binding>
auto on_gpu(Binding binding) {
  return with_text(std::move(binding).template Ctx<ffi::PlatformStream<void*>>().template Ctx<ffi::DeviceOrdinal>());
}

constexpr auto initialize = ffi::ExecutionStage::kInitialize;
constexpr auto capturable = {ffi::Traits::kCmdBufferCompatible};

}  // namespace
}  // namespace ejk::xla

using namespace ejk::xla;  // NOLINT: the macros below name functions at global scope

#pragma GCC visibility push(default)
// The FFI that this library speaks, major and minor: it registers with XLAs of the same or a newer one.
extern "C" void ejk_xla_ffi_version(std::int32_t version[2]) {
  version[0] = XLA_FFI_API_MAJOR;
  version[1] = XLA_FFI_API_MINOR;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(ejk_xla_cpu, run_on_cpu, with_text(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(ejk_xla_cuda, run_on_gpu<cuda>, on_gpu(ffi::Ffi::Bind()), capturable);
XLA_FFI_DEFINE_HANDLER_SYMBOL(ejk_xla_cuda_initialize, make_ready<cuda>, on_gpu(ffi::Ffi::Bind<initialize>()), capturable);
XLA_FFI_DEFINE_HANDLER_SYMBOL(ejk_xla_rocm, run_on_gpu<rocm>, on_gpu(ffi::Ffi::Bind()), capturable);
XLA_FFI_DEFINE_HANDLER_SYMBOL(ejk_xla_rocm_initialize, make_ready<rocm>, on_gpu(ffi::Ffi::Bind<initialize>()), capturable);
#pragma GCC visibility pop

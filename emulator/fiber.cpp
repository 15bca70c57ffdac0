// Stacks by mmap, switches by Boost.Context.
#include "emulator/fiber.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "emulator/sanitizer.hpp"

namespace ejk::simt {
namespace {

namespace context = boost::context::detail;
// A sanitizer's report runs on the stack of the thread at fault, and needs much of it for names.
constexpr std::size_t page = 4096, stack_bytes = (sanitized ? 512 : 128) * 1024;

}  // namespace

Stack::Stack() {
  void* memory = mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
    throw std::runtime_error(fmt::format("simt: no memory for the stack of a GPU thread: {}", std::strerror(errno)));
  memory_ = static_cast<char*>(memory);
}

Stack::~Stack() { munmap(memory_, page + stack_bytes); }
char* Stack::low() const { return memory_ + page; }
char* Stack::high() const { return memory_ + page + stack_bytes; }
std::size_t Stack::size() { return stack_bytes; }

void Fiber::start(void (*body)(void*), void* argument) {
  // Of a body that returned only the frames of this file are left, at the top. To clear all takes longer than most bodies run.
  const std::size_t left = returned_ ? page : Stack::size();
  forget_stack(stack_.high() - left, left);
  returned_ = false;
  body_ = body;
  argument_ = argument;
  inside_ = context::make_fcontext(stack_.high(), Stack::size(), entry);
}

void Fiber::entry(context::transfer_t from) {
  auto& fiber = *static_cast<Fiber*>(from.data);
  finish_switch(nullptr, &fiber.outside_low_, &fiber.outside_size_);
  fiber.outside_ = from.fctx;
  fiber.body_(fiber.argument_);
  fiber.returned_ = true;
  fiber.abandon();
}

void Fiber::resume() {
  void* fake_stack = nullptr;
  start_switch(&fake_stack, stack_.low(), Stack::size());
  inside_ = context::jump_fcontext(inside_, this).fctx;
  finish_switch(fake_stack, nullptr, nullptr);
}

void Fiber::leave(void** fake_stack) {
  start_switch(fake_stack, outside_low_, outside_size_);
  outside_ = context::jump_fcontext(outside_, nullptr).fctx;
}

void Fiber::suspend() {
  void* fake_stack = nullptr;
  leave(&fake_stack);
  finish_switch(fake_stack, &outside_low_, &outside_size_);
}

void Fiber::abandon() {
  leave(nullptr);
  __builtin_unreachable();
}

}  // namespace ejk::simt

// A stack of its own that runs until it hands control back: Boost.Context's switch, told to the address sanitizer.
#pragma once
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace ejk::simt {

// Memory with a guard page below, so that an overrun faults. It is kept for the next run.
class Stack {
 public:
  Stack();  // throws std::runtime_error
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack();
  char* low() const;
  char* high() const;
  static std::size_t size();

 private:
  char* memory_;
};

class Fiber {
 public:
  // body(argument) runs at the next resume(). What was on the stack is forgotten: bodies own nothing.
  void start(void (*body)(void*), void* argument);
  void resume();                // from outside: runs the body until it suspends or ends
  void suspend();               // from the body
  [[noreturn]] void abandon();  // from the body: it never goes on

 private:
  static void entry(boost::context::detail::transfer_t from);
  void leave(void** fake_stack);

  Stack stack_;
  boost::context::detail::fcontext_t inside_ = nullptr, outside_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  const void* outside_low_ = nullptr;  // the resumer's stack
  std::size_t outside_size_ = 0;
  bool returned_ = false;  // the last body did, so that its frames have taken the address sanitizer's marks with them
};

}  // namespace ejk::simt

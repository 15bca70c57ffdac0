// The pool's threads: Boost.Asio's, each woken through a slot whose memory is reserved, so that waking allocates nothing.
#pragma once
#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <memory>
#include <new>

namespace ejk {

// One helper's wake-up call: at most one is under way at a time, so one piece of memory serves them all.
struct HelperSlot {
  static constexpr std::size_t reserved = 256;
  std::atomic<bool> awake{false};  // or called
  bool taken = false;              // the memory
  alignas(std::max_align_t) std::byte memory[reserved];
};

// Hands out the slot's memory, or the heap's for what does not fit.
template <class T>
struct SlotAllocator {
  using value_type = T;
  HelperSlot* slot;
  explicit SlotAllocator(HelperSlot* slot_) : slot(slot_) {}
  template <class U>
  SlotAllocator(const SlotAllocator<U>& other) : slot(other.slot) {}
  T* allocate(std::size_t count) {
    if (slot->taken || count * sizeof(T) > HelperSlot::reserved || alignof(T) > alignof(std::max_align_t))
      return static_cast<T*>(::operator new(count * sizeof(T)));
    slot->taken = true;
    return reinterpret_cast<T*>(slot->memory);
  }
  void deallocate(T* pointer, std::size_t) {
    if (reinterpret_cast<std::byte*>(pointer) != slot->memory) return ::operator delete(pointer);
    slot->taken = false;
  }
  template <class U>
  bool operator==(const SlotAllocator<U>& other) const {
    return slot == other.slot;
  }
};

template <class Work>
struct WakeUp {
  using allocator_type = SlotAllocator<void>;
  HelperSlot* slot;
  Work work;
  allocator_type get_allocator() const noexcept { return allocator_type(slot); }
  void operator()() { work(); }
};

class Helpers {
 public:
  explicit Helpers(int count) : count_(count), slots_(std::make_unique<HelperSlot[]>(static_cast<std::size_t>(count))), threads_(count) {}
  // Returns when every call has been served and the threads are gone; afterwards the object can only be destroyed.
  void finish() { threads_.join(); }
  int count() const { return count_; }
  HelperSlot& slot(int index) { return slots_[static_cast<std::size_t>(index)]; }
  // work() runs on some thread of the pool, unless this slot's helper is awake already and will look for work itself.
  template <class Work>
  void wake(int index, Work work) {
    auto& called = slot(index);
    if (!called.awake.exchange(true)) boost::asio::post(threads_, WakeUp<Work>{&called, work});
  }

 private:
  int count_;
  std::unique_ptr<HelperSlot[]> slots_;
  boost::asio::thread_pool threads_;
};

}  // namespace ejk

// Plans by packed key: a table of this thread (no lock), behind it one of the process.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "execute/fork_gate.hpp"
#include "execute/plan.hpp"

namespace ejk {
namespace {

bool same_key(const Plan& plan, const PlanKey& key) {
  return plan.key.size() == key.size && std::equal(plan.key.begin(), plan.key.end(), key.words);
}

// Open addressing, linear probing; dropped whole when it is full, since a plan is quickly found again in the process's table.
class ThreadTable {
 public:
  const Plan* find(const PlanKey& key) const {
    for (std::size_t i = key.hash % capacity;; i = (i + 1) % capacity) {
      const auto& slot = slots_[i];
      if (!slot.plan) return nullptr;
      if (slot.hash == key.hash && same_key(*slot.plan, key)) return slot.plan.get();
    }
  }

  void put(const PlanKey& key, std::shared_ptr<const Plan> plan) {
    if (++count_ > capacity / 2) {
      std::fill(slots_.begin(), slots_.end(), Slot{});
      count_ = 1;
    }
    auto i = key.hash % capacity;
    while (slots_[i].plan) i = (i + 1) % capacity;
    slots_[i] = {key.hash, std::move(plan)};
  }

 private:
  static constexpr std::size_t capacity = 1024;
  struct Slot {
    std::uint64_t hash = 0;
    std::shared_ptr<const Plan> plan;
  };
  std::vector<Slot> slots_ = std::vector<Slot>(capacity);
  std::size_t count_ = 0;
};

class ProcessTable {
 public:
  std::shared_ptr<const Plan> find(const PlanKey& key) {
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = plans_.equal_range(key.hash);
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return same_key(*entry.second, key); });
    return found == end ? nullptr : found->second;
  }

  void put(const PlanKey& key, std::shared_ptr<const Plan> plan) {
    const std::lock_guard lock(mutex_);
    if (plans_.size() >= capacity) plans_.clear();  // shapes that never repeat must not grow memory for ever
    plans_.emplace(key.hash, std::move(plan));
  }

 private:
  static constexpr std::size_t capacity = 16384;
  std::mutex mutex_;
  std::unordered_multimap<std::uint64_t, std::shared_ptr<const Plan>> plans_;
};

ProcessTable& process_table() {
  static auto* table = new ProcessTable;  // never destroyed: threads may outlive main
  return *table;
}

}  // namespace

const Plan& find_plan(const PlanKey& key, const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                      std::span<const AttributeValue> attributes, Stream stream, const char* config) {
  thread_local ThreadTable table;
  if (const auto* plan = table.find(key)) return *plan;
  const ForkGate gate;
  auto plan = process_table().find(key);
  if (!plan) {
    plan = make_plan(kernel, tensors, attributes, stream, config, &key);
    process_table().put(key, plan);
  }
  const auto& result = *plan;
  table.put(key, std::move(plan));
  return result;
}

}  // namespace ejk

// Plans by packed key: a table of this thread (no lock), behind it one of the process.
#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "backends/thread_table.hpp"
#include "common/guard.hpp"
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
    const auto place = place_of(key);
    return place == capacity || slots_[place].plan->stale() ? nullptr : slots_[place].plan.get();
  }

  // In the place of a stale one of that key, if there is one.
  void put(const PlanKey& key, std::shared_ptr<const Plan> plan) {
    if (const auto old = place_of(key); old != capacity) {
      slots_[old].plan = std::move(plan);
      return;
    }
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

  // capacity: nowhere.
  std::size_t place_of(const PlanKey& key) const {
    for (std::size_t i = key.hash % capacity;; i = (i + 1) % capacity) {
      const auto& slot = slots_[i];
      if (!slot.plan) return capacity;
      if (slot.hash == key.hash && same_key(*slot.plan, key)) return i;
    }
  }

  struct Slot {
    std::uint64_t hash = 0;
    std::shared_ptr<const Plan> plan;
  };
  std::vector<Slot> slots_ = std::vector<Slot>(capacity);
  std::size_t count_ = 0;
};

// Bounded by bytes: shapes that never repeat must not grow memory for ever. Rows are in the order in which threads asked for them.
class ProcessTable {
 public:
  explicit ProcessTable(std::size_t limit) : limit_(limit) {}

  std::shared_ptr<const Plan> find(const PlanKey& key) {
    std::list<Row> gone;  // destroyed after the lock
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = by_hash_.equal_range(key.hash);
    const auto found = std::find_if(begin, end, [&](const auto& entry) { return same_key(*entry.second->plan, key); });
    if (found == end) return nullptr;
    if (found->second->plan->stale()) {
      bytes_ -= found->second->bytes;
      gone.splice(gone.begin(), rows_, found->second);
      by_hash_.erase(found);
      return nullptr;
    }
    rows_.splice(rows_.begin(), rows_, found->second);
    return found->second->plan;
  }

  void put(const PlanKey& key, std::shared_ptr<const Plan> plan) {
    std::list<Row> gone;  // destroyed after the lock
    const std::lock_guard lock(mutex_);
    modules_.insert(plan->resolved.obtained.module);
    const auto bytes = plan->memory();
    rows_.push_front({std::move(plan), key.hash, bytes});
    by_hash_.emplace(key.hash, rows_.begin());
    bytes_ += bytes;
    while (bytes_ > limit_ && rows_.size() > 1) drop_last(gone);
  }

  PlanMemory memory() {
    const std::lock_guard lock(mutex_);
    return {rows_.size(), bytes_, limit_};
  }

 private:
  struct Row {
    std::shared_ptr<const Plan> plan;
    std::uint64_t hash;
    std::size_t bytes;
  };

  void drop_last(std::list<Row>& gone) {
    const auto last = std::prev(rows_.end());
    const auto [begin, end] = by_hash_.equal_range(last->hash);
    by_hash_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == last; }));
    bytes_ -= last->bytes;
    gone.splice(gone.begin(), rows_, last);
  }

  const std::size_t limit_;
  std::mutex mutex_;
  std::list<Row> rows_;  // the one asked for last comes first
  std::unordered_multimap<std::uint64_t, std::list<Row>::iterator> by_hash_;
  std::unordered_set<std::shared_ptr<Module>> modules_;  // as many as images: shapes share them
  std::size_t bytes_ = 0;
};

Config parsed(const KernelHandle& kernel, const char* text) {
  auto config = config_from_json(text);
  if (!config) throw CodedError(config.error().code, kernel.name + ": " + config.error().message);
  return *std::move(config);
}

// The last plan of a thread whose table is gone; nothing destroys it.
const Plan& kept_to_the_end(std::shared_ptr<const Plan> plan) {
  constinit thread_local std::shared_ptr<const Plan>* kept = nullptr;
  if (!kept) kept = new std::shared_ptr<const Plan>;
  *kept = std::move(plan);
  return **kept;
}

ProcessTable& process_table() {
  static auto* table = new ProcessTable(
      static_cast<std::size_t>(Library::instance().parts().environment.plan_bytes));  // never destroyed: threads may outlive main
  return *table;
}

// A graph that is captured would keep a stand-in: the call makes another plan, which waits for its own image.
bool would_be_kept(const Plan& plan, Stream stream) { return plan.resolved.awaited && plan.backend->capturing(plan.device, stream.handle); }

}  // namespace

PlanMemory plan_memory() { return process_table().memory(); }

const Plan& find_plan(const PlanKey& key, const KernelHandle& kernel, std::span<const TensorView* const> tensors,
                      std::span<const AttributeValue> attributes, Stream stream, const char* config) {
  auto* const table = table_of_thread<ThreadTable>();
  if (table)
    if (const auto* plan = table->find(key); plan && !would_be_kept(*plan, stream)) return *plan;
  const ForkGate gate;
  auto plan = process_table().find(key);
  if (!plan || would_be_kept(*plan, stream)) {
    const auto override_config = config ? std::optional(parsed(kernel, config)) : std::nullopt;
    plan = make_plan(kernel, tensors, attributes, stream, override_config ? &*override_config : nullptr, &key);
    process_table().put(key, plan);
  }
  if (!table) return kept_to_the_end(std::move(plan));
  const auto& result = *plan;
  table->put(key, std::move(plan));
  return result;
}

}  // namespace ejk

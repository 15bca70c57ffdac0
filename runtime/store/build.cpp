// Workers over a queue of images; an image that another process builds is put off while there is other work.
#include "store/build.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "store/files.hpp"

namespace ejk::store {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = BuildEvent::Kind;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Builder {
 public:
  Builder(const Store& store, std::span<const BuildItem> items, const std::function<void(const BuildEvent&)>& on_event,
          const Store* earlier)
      : store_(store), earlier_(earlier), on_event_(on_event), total_(items.size()) {
    for (const auto& item : items) queue_.push_back({&item, false});
  }

  BuildReport run(int jobs) {
    const auto start = Clock::now();
    {
      std::vector<std::jthread> helpers;
      for (int i = 1; i < std::min<int>(jobs, static_cast<int>(total_)); ++i) helpers.emplace_back([this] { work(); });
      work();
    }
    if (stopped_by_) std::rethrow_exception(stopped_by_);
    std::ranges::sort(report_.failures);
    report_.seconds = seconds_since(start);
    return report_;
  }

 private:
  struct Job {
    const BuildItem* item;
    bool put_off;  // it was somebody else's when we looked: next time, wait for it
  };

  std::optional<Job> next() {
    const std::lock_guard lock(queue_mutex_);
    if (queue_.empty() || stopped_) return std::nullopt;
    const auto job = queue_.front();
    queue_.pop_front();
    return job;
  }

  void put_off(const Job& job) {
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back({job.item, true});
  }

  void work() {
    try {
      while (const auto job = next()) build_one(*job);
    } catch (...) {  // the caller's on_event threw, or there is no memory
      const std::lock_guard lock(queue_mutex_);
      stopped_ = true;
      if (!stopped_by_) stopped_by_ = std::current_exception();
    }
  }

  void build_one(const Job& job) {
    const auto& [image, arch] = *job.item;
    auto* backend = backend_of(arch->platform);
    std::string why;
    if (backend && present(image, *backend)) return finish_present(image, *backend);
    if (!backend) return finish(Kind::skipped, image.id, fmt::format("this build has no {} backend", arch->platform), 0);
    if (!backend->can_compile(*arch, why)) return finish(Kind::skipped, image.id, why, 0);
    auto lock = job.put_off ? BuildLock::acquire(store_, image) : BuildLock::try_acquire(store_, image);
    if (!lock && !job.put_off) return put_off(job);
    if (present(image, *backend)) return finish_present(image, *backend);
    compile(image, *arch, *backend);
  }

  bool present(const spec::Image& image, const Backend& backend) const {
    return store_.find(image, backend.source_extension(), backend.binary_extension()).verdict == Verdict::hit &&
           store_.source_intact(image, backend.source_extension());
  }

  // The entry that is there may exceed the limits: it was compiled just in time for a call, which ignores limits, or before the limits
  // changed.
  void finish_present(const spec::Image& image, const Backend& backend) {
    const auto info = store_.find(image, backend.source_extension(), backend.binary_extension()).info;
    const auto above = above_limits(image, info.resources, info.compiler);
    finish(above.empty() ? Kind::present : Kind::failed, image.id, above, 0);
  }

  static std::string above_limits(const spec::Image& image, const spec::Resources& found, const std::string& compiler) {
    const auto above = spec::above_limits(image.limits, found);
    return above.empty() ? above : fmt::format("it needs more than its variant's limits allow: {} (compiled by {})", above, compiler);
  }

  void compile(const spec::Image& image, const spec::Arch& arch, Backend& backend) {
    const auto start = Clock::now();
    tell({Kind::started, image.id, {}, 0, 0, 0});
    const auto found = from_earlier(image, arch, backend);
    const auto result = found ? *found : backend.compile(image, arch);
    if (!result.ok) return finish(Kind::failed, image.id, result.log, seconds_since(start));
    if (const auto above = above_limits(image, result.resources, result.compiler); !above.empty())
      return finish(Kind::failed, image.id, fmt::format("{}; it said:\n{}", above, result.log), seconds_since(start));
    try {
      store_.set_aside(image);  // what is there, if anything, is bad: we looked under the lock
      (void)store_.publish(image, result, backend.source_extension(), backend.binary_extension());
    } catch (const std::runtime_error& error) {
      return finish(Kind::failed, image.id, error.what(), seconds_since(start));
    }
    if (earlier_ && !found) add_to_earlier(image, result, backend);
    finish(found ? Kind::copied : Kind::built, image.id, {}, seconds_since(start));
  }

  // What the store of earlier builds has of this source, as the compiler of today would give it.
  std::optional<CompileResult> from_earlier(const spec::Image& image, const spec::Arch& arch, Backend& backend) const {
    if (!earlier_ || !earlier_->source_intact(image, backend.source_extension())) return std::nullopt;
    auto found = earlier_->find(image, backend.source_extension(), backend.binary_extension());
    if (found.verdict != Verdict::hit || found.info.compiler != backend.compiler(arch)) return std::nullopt;
    earlier_->mark_used(image);
    CompileResult result;
    result.ok = true;
    result.binary = std::move(found.bytes);
    result.compiler = found.info.compiler;
    result.command = found.info.command;
    result.resources = found.info.resources;
    return result;
  }

  void add_to_earlier(const spec::Image& image, const CompileResult& result, const Backend& backend) const {
    if (!earlier_->writable()) return;
    try {
      earlier_->set_aside(image);  // of another compiler, or damaged
      (void)earlier_->publish(image, result, backend.source_extension(), backend.binary_extension());
    } catch (const std::runtime_error&) {
      // a full disk, a folder of somebody else: the next build compiles again
    }
  }

  void finish(Kind kind, const std::string& id, const std::string& text, double seconds) { tell({kind, id, text, seconds, 0, 0}); }

  // Counts and delivers, one event at a time.
  void tell(BuildEvent event) {
    const std::lock_guard lock(event_mutex_);
    if (event.kind != Kind::started) ++done_;
    if (event.kind == Kind::built) ++report_.built;
    if (event.kind == Kind::copied) ++report_.copied;
    if (event.kind == Kind::present) ++report_.present;
    if (event.kind == Kind::skipped) ++report_.skipped;
    if (event.kind == Kind::failed) {
      ++report_.failed;
      report_.failures.push_back(event.id + ":\n" + event.text);
    }
    event.done = done_;
    event.total = total_;
    if (on_event_) on_event_(event);
  }

  const Store& store_;
  const Store* earlier_;
  const std::function<void(const BuildEvent&)>& on_event_;
  const std::size_t total_;
  std::mutex queue_mutex_, event_mutex_;
  std::deque<Job> queue_;
  bool stopped_ = false;
  std::exception_ptr stopped_by_;
  std::size_t done_ = 0;
  BuildReport report_;
};

}  // namespace

BuildReport build(const Store& store, std::span<const BuildItem> items, int jobs, const std::function<void(const BuildEvent&)>& on_event,
                  const Store* earlier) {
  if (!store.writable()) throw std::runtime_error(fmt::format("cannot build into {}: the store is read-only", store.root().string()));
  make_folders(store.root());
  std::set<std::string> kernels;
  for (const auto& item : items) kernels.insert(item.image.kernel);
  for (const auto& kernel : kernels) store.remove_leftovers(kernel);
  if (jobs <= 0) jobs = std::max(1u, std::thread::hardware_concurrency());
  return Builder(store, items, on_event, earlier).run(jobs);
}

}  // namespace ejk::store

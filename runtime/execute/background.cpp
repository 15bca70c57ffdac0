// A crew of few threads, and the table of images in work.
#include "execute/background.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "common/guard.hpp"
#include "common/steady_condition.hpp"
#include "execute/fork_gate.hpp"
#include "execute/library_state.hpp"
#include "execute/resolve.hpp"
#include "select/events.hpp"
#include "store/module_table.hpp"

namespace ejk {
namespace {

using BackgroundJob = std::function<void()>;
constexpr unsigned most_background_threads = 4;
constexpr auto idle_time = std::chrono::milliseconds(100);

thread_local bool is_background_thread = false;

// The host's signals are for its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// What is longer than a day is a day.
std::chrono::steady_clock::time_point moment_after(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() +
         std::clamp<std::chrono::milliseconds>(time, std::chrono::milliseconds(0), std::chrono::hours(24));
}

class Crew {
 public:
  bool post(BackgroundJob job) {
    std::list<Worker> gone;
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return false;
      take_gone(gone);
      if (idle_ <= jobs_.size() && !add_worker() && workers_.empty()) return false;
      jobs_.push_back(std::move(job));
      work_.notify_one();
    }
    join(gone);
    return true;
  }

  bool wait(std::chrono::milliseconds longest) {
    std::unique_lock lock(mutex_);
    return quiet_.wait_until(lock, moment_after(longest), [&] { return jobs_.empty() && busy_ == 0; });
  }

  void end() {
    std::list<Worker> all;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      jobs_.clear();
      all.splice(all.end(), workers_);
      work_.notify_all();
      quiet_.notify_all();
    }
    join(all);
  }

 private:
  struct Worker {
    std::thread thread;
    bool gone = false;  // its thread takes no lock any more
  };

  static void join(std::list<Worker>& workers) {
    for (auto& worker : workers) {
      if (worker.thread.get_id() == std::this_thread::get_id())  // exit() was called by a job
        worker.thread.detach();
      else if (worker.thread.joinable())
        worker.thread.join();
    }
  }

  void take_gone(std::list<Worker>& gone) {
    for (auto each = workers_.begin(); each != workers_.end();) {
      const auto next = std::next(each);
      if (each->gone) gone.splice(gone.end(), workers_, each);
      each = next;
    }
  }

  bool add_worker() {
    const auto most = std::clamp(std::thread::hardware_concurrency(), 1u, most_background_threads);
    if (workers_.size() >= most) return false;
    auto& worker = workers_.emplace_back();
    try {
      const SignalsBlocked blocked;
      worker.thread = std::thread([this, &worker] { work(worker); });
      return true;
    } catch (const std::system_error&) {
      workers_.pop_back();
      return false;
    }
  }

  void work(Worker& self) {
    is_background_thread = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (jobs_.empty() && !ending_) {
        ++idle_;
        work_.wait_until(lock, moment_after(idle_time), [&] { return !jobs_.empty() || ending_; });
        --idle_;
      }
      if (jobs_.empty()) break;
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      ++busy_;
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
      --busy_;
      if (jobs_.empty() && busy_ == 0) quiet_.notify_all();
    }
    self.gone = true;
  }

  std::mutex mutex_;
  SteadyCondition work_, quiet_;
  std::deque<BackgroundJob> jobs_;
  std::list<Worker> workers_;
  std::size_t idle_ = 0, busy_ = 0;
  bool ending_ = false;
};

struct Builds {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Build>> by_key;
  std::unordered_set<std::shared_ptr<Module>> kept;
};

// Never destroyed: destructors of other objects may still call kernels. A fork's child gets others.
std::atomic<Crew*>& crew() {
  static std::atomic<Crew*> crew{new Crew};
  return crew;
}

std::atomic<Builds*>& builds() {
  static std::atomic<Builds*> builds{new Builds};
  return builds;
}

// The threads are not in the child, and their locks may be held there. Stand-ins whose image nobody builds any more are given up.
void background_in_child() {
  auto* old = builds().load();
  if (old->mutex.try_lock()) {
    for (auto& [key, build] : old->by_key)
      if (build->state.load() == Build::State::running) build->state.store(Build::State::failed);
    old->mutex.unlock();
  }
  builds().store(new Builds);
  crew().store(new Crew);
  is_background_thread = false;
  store::ModuleTable::instance().forget_doors();
}

// What runs when the process ends must run before the destructors of what jobs use: a compiler's library, once it is loaded, has some.
void end_with_process() {
  std::atexit([] { crew().load()->end(); });
}

void prepare_process() {
  static const bool done = [] {
    (void)crew();
    (void)builds();
    pthread_atfork(nullptr, nullptr, background_in_child);
    end_with_process();
    return true;
  }();
  (void)done;
}

std::string name_of_build(const spec::Image& image) { return image.arch + "/" + image.id + "-" + image.hash; }

void tell_build(Event::Kind kind, const spec::Image& image, const std::string& key, double seconds, std::string detail) {
  tell({kind, image.kernel, key, Config{image.variant, image.arch, {image.config.begin(), image.config.end()}}, std::nullopt, seconds,
        std::move(detail)});
}

void finish_build(Build& build, const spec::Image& image, const std::string& key, std::optional<store::Obtained> obtained,
                  const std::string& why) {
  if (obtained) {
    count_compiled(image, *obtained, {});
    build.module = obtained->module;
    build.state.store(Build::State::ready, std::memory_order_release);
    tell_build(Event::Kind::build_finish, image, key, obtained->seconds, image.id + " is there: later calls take it");
    return;
  }
  build.why = why;
  log_line(fmt::format("{} could not be built behind the calls: {}", image.id, why));
  build.state.store(Build::State::failed, std::memory_order_release);
  tell_build(Event::Kind::error, image, key, 0, fmt::format("{} could not be built behind the calls: {}", image.id, why));
}

void compile_behind(Build& build, const spec::Image& image, const spec::Arch& arch, Backend& backend, const std::string& key) noexcept {
  const ForkGate gate;
  std::optional<store::Obtained> obtained;
  std::string why;
  try {
    store::Tried tried;
    if (backend.can_compile(arch, why)) end_with_process();
    const store::JitPolicy policy{true, {}, [](const std::string& line) { log_line(line); }};
    obtained = store::obtain(Library::instance().parts().places, image, arch, backend, policy, tried);
    if (!obtained) why = fmt::format("{}", fmt::join(tried, "\n  "));
  } catch (const std::exception& error) {
    obtained.reset();
    why = error.what();
  }
  try {
    finish_build(build, image, key, std::move(obtained), why);
  } catch (const std::exception&) {  // no memory for words
    if (build.state.load() == Build::State::running) build.state.store(Build::State::failed);
  }
}

}  // namespace

std::shared_ptr<const Build> build_behind(const spec::Image& image, const spec::Arch& arch, Backend& backend, const std::string& key) {
  prepare_process();
  auto& table = *builds().load();
  const auto name = name_of_build(image);
  const auto made = std::make_shared<Build>();
  {
    const std::lock_guard lock(table.mutex);
    if (const auto found = table.by_key.find(name); found != table.by_key.end()) return found->second;
    if (!run_behind([made, image, arch, &backend, key] { compile_behind(*made, image, arch, backend, key); })) return nullptr;
    table.by_key.emplace(name, made);
  }
  // Under no lock: who is told may call kernels.
  tell_build(Event::Kind::build_start, image, key, 0, image.id + " is built behind the calls");
  return made;
}

bool being_built(const spec::Image& image) {
  auto& table = *builds().load();
  const std::lock_guard lock(table.mutex);
  if (table.by_key.empty()) return false;
  const auto found = table.by_key.find(name_of_build(image));
  return found != table.by_key.end() && found->second->state.load() == Build::State::running;
}

bool run_behind(std::function<void()> job) {
  prepare_process();
  return crew().load()->post(std::move(job));
}

bool on_background_thread() noexcept { return is_background_thread; }

bool wait_for_background(std::chrono::milliseconds longest) noexcept { return crew().load()->wait(longest); }

void keep_loaded(std::shared_ptr<Module> module) {
  auto& table = *builds().load();
  const std::lock_guard lock(table.mutex);
  table.kept.insert(std::move(module));
}

}  // namespace ejk

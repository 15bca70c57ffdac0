// ejk worker: tries configs for a tuner in another process (runtime/tune/worker_lab.hpp has the words). Not for people.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "command_line/command.hpp"
#include "command_line/device_option.hpp"
#include "command_line/library_options.hpp"
#include "common/guard.hpp"
#include "tune/worker_lab.hpp"
#include "tune/worker_subject.hpp"

namespace ejk::tools {
namespace {

using nlohmann::json;

// Requests, read by a thread of its own: when the tuner is gone, this process ends, whatever a config is doing meanwhile.
class Requests {
 public:
  Requests() {
    std::thread([this] {
      for (std::string line; std::getline(std::cin, line);) {
        const std::lock_guard lock(mutex_);
        lines_.push_back(line);
        arrived_.notify_one();
      }
      _exit(exit_done);
    }).detach();
  }
  std::string next() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !lines_.empty(); });
    auto line = std::move(lines_.front());
    lines_.pop_front();
    return line;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::string> lines_;
};

// The line back, on a descriptor of its own: what a kernel prints to stdout goes to stderr.
class Answers {
 public:
  Answers() : descriptor_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) { dup2(STDERR_FILENO, STDOUT_FILENO); }
  void send(const json& answer) const {
    const auto text = answer.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    for (std::size_t sent = 0; sent < text.size();) {
      const auto count = write(descriptor_, text.data() + sent, text.size() - sent);
      if (count <= 0) _exit(exit_failed);
      sent += static_cast<std::size_t>(count);
    }
  }

 private:
  int descriptor_;
};

class Worker {
 public:
  json answer(const json& request) {
    const auto what = request.at("do").get<std::string>();
    if (what == "open") return open(request);
    if (!subject_) return {{"error", "no call is open"}};
    const auto config = request.at("config").dump();
    return guarded([&]() -> json {
      if (what == "check") return check(config);
      if (what == "sample") return {{"us", subject_->sample_us(config)}};
      return {{"error", fmt::format("no such request: '{}'", what)}};
    });
  }

 private:
  // What a config throws is its own fault; on a device it may have cost this process the device.
  template <class F>
  json guarded(F&& f) const {
    try {
      return f();
    } catch (...) {
      const auto error = current_error();
      return {{"wrong", error.message}, {"lost", error.code == ErrorCode::device && !on_host(*machine_)}};
    }
  }

  json open(const json& request) {
    subject_.reset();  // its memory, before the next one's
    try {
      machine_ = &find_device({request.at("platform").get<std::string>(), request.at("index").get<int>()});
      subject_ = std::make_unique<WorkerSubject>(request.at("call"), *machine_, request.at("seed").get<std::uint64_t>());
    } catch (...) {
      return {{"error", current_error().message}};
    }
    return guarded([&]() -> json {
      const auto told = subject_->open(request.at("baseline").dump(), request.value("peaks", false));
      return {{"checked_against", told.checked_against},
              {"memory", told.memory},
              {"machine", told.machine},
              {"flops", told.flops},
              {"bytes", told.bytes},
              {"once_us", told.baseline_us},
              {"peak_flops", told.peak_flops},
              {"peak_bytes", told.peak_bytes}};
    });
  }

  json check(const std::string& config) {
    double once_us = 0;
    const auto verdict = subject_->check(config, once_us);
    if (!verdict.wrong.empty()) return {{"wrong", verdict.wrong}, {"lost", verdict.spoiled}};
    return {{"residual", verdict.residual}, {"once_us", once_us}};
  }

  const Machine* machine_ = nullptr;
  std::unique_ptr<WorkerSubject> subject_;
};

}  // namespace

int worker(std::span<const std::string> words) {
  Arguments arguments("worker", "[options]", "Tries configs for a tuner: lines of JSON in, lines of JSON out. Not for people.", "");
  add_library_options(arguments);
  if (!arguments.parse(words)) return exit_done;
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // faults are expected here
  const Answers answers;
  apply_library_options(arguments);
  answers.send({{"ejk", EJK_VERSION}, {"protocol", worker_protocol}});
  Requests requests;
  for (Worker worker;;) {
    try {
      answers.send(worker.answer(json::parse(requests.next())));
    } catch (const json::exception& e) {
      answers.send({{"error", e.what()}});
    }
  }
}

}  // namespace ejk::tools

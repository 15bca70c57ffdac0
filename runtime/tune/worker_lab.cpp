// Speaks to `ejk worker`, and starts another one where a config has ended it.
#include "tune/worker_lab.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/guard.hpp"

namespace ejk {

using nlohmann::json;

namespace {

constexpr double greeting_seconds = 60;  // a cold disk; a driver that initialises eight devices

// This process's, but for what would make the worker tune, record, check or name its own calls.
std::vector<std::string> worker_environment() {
  constexpr std::string_view not_passed_on[] = {
      "EJKERNEL_AUTOTUNE_POLICY=", "EJKERNEL_AGREEMENT=", "EJKERNEL_OPS_RECORD=",  "EJKERNEL_OPS_STAMP=",
      "EJKERNEL_CHECK=",           "EJKERNEL_LOG=",       "EJKERNEL_LOG_AUTOTUNE="};
  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry)
    if (std::none_of(std::begin(not_passed_on), std::end(not_passed_on),
                     [&](auto name) { return std::string_view(*entry).starts_with(name); }))
      variables.emplace_back(*entry);
  return variables;
}

// The stores and threads of this process.
std::vector<std::string> worker_command(const std::string& program) {
  std::vector<std::string> command{program, "worker", "--threads", std::to_string(cpu_threads())};
  for (const auto& pack : Library::instance().parts().places.packs) {
    command.emplace_back("--store");
    command.push_back(pack.root().string());
  }
  return command;
}

std::string platform_of(Device device) {
  const auto* machine = Library::instance().machine(device);
  return machine ? machine->backend->platform() : "cpu";
}

}  // namespace

struct WorkerLab::Reply {
  json words;        // the worker's, where it answered
  std::string died;  // how it ended, where it did not
  bool hung = false;
  bool answered() const { return died.empty(); }
};

WorkerLab::WorkerLab(std::string program, Call call) : program_(std::move(program)), call_(std::move(call)) {}
WorkerLab::~WorkerLab() = default;
void WorkerLab::set_call(Call call) { call_ = std::move(call); }

void WorkerLab::start() {
  child_ = std::make_unique<Child>(worker_command(program_), worker_environment());
  others_ = 0;
  last_.clear();
  std::string line;
  if (child_->receive(greeting_seconds, line) != Child::Answer::line) {
    const auto ended = child_->end();
    throw CodedError(ErrorCode::internal, fmt::format("{} worker did not start: {}. {}", program_, ended, child_->last_words()));
  }
  const auto greeting = json::parse(line, nullptr, false);
  if (!greeting.is_object() || greeting.value("protocol", 0) != worker_protocol || greeting.value("ejk", "") != EJK_VERSION)
    throw CodedError(ErrorCode::internal, fmt::format("{} is another version: its worker says '{}', expected ejk {} with protocol {}",
                                                      program_, line, EJK_VERSION, worker_protocol));
}

WorkerLab::Reply WorkerLab::ask(const json& request, double seconds) {
  Reply reply;
  std::string line;
  auto answer = child_->send(request.dump()) ? child_->receive(seconds, line) : Child::Answer::ended;
  if (answer == Child::Answer::line) {
    reply.words = json::parse(line, nullptr, false);
    if (reply.words.is_object()) {
      if (reply.words.value("lost", false)) child_.reset();
      return reply;
    }
    reply.died = fmt::format("it answered '{}', which is no JSON object", line.substr(0, 200));
    child_.reset();
    return reply;
  }
  reply.hung = answer == Child::Answer::timed_out;
  const auto ended = child_->end();
  const auto words = child_->last_words();
  reply.died = reply.hung ? fmt::format("no answer within {:.3g} s", seconds) : "its process ended: " + ended;
  if (!words.empty()) reply.died += "; it said: " + words;
  child_.reset();
  return reply;
}

LabCall WorkerLab::open(const Config& baseline, double seconds) {
  baseline_ = baseline;
  open_seconds_ = seconds;
  if (!child_) start();
  const auto reply = ask({{"do", "open"},
                          {"call", json::parse(call_.key)},
                          {"platform", platform_of(call_.device)},
                          {"index", call_.device.index},
                          {"baseline", json::parse(to_json(baseline))},
                          {"seed", call_.seed},
                          {"peaks", call_.peaks}},
                         seconds);
  if (!reply.answered())
    throw CodedError(ErrorCode::device, fmt::format("the default config {} cannot be measured: {}", to_json(baseline), reply.died));
  if (reply.words.contains("wrong"))
    throw CodedError(ErrorCode::device, fmt::format("the default config {} cannot be measured: {}", to_json(baseline),
                                                    reply.words["wrong"].get<std::string>()));
  if (reply.words.contains("error")) throw CodedError(ErrorCode::internal, "worker: " + reply.words["error"].get<std::string>());
  LabCall call;
  const auto number = [&](const char* name) { return reply.words.value(name, 0.0); };
  call.checked_against = reply.words.value("checked_against", "");
  call.memory = reply.words.value("memory", "");
  call.machine = reply.words.value("machine", "");
  call.flops = number("flops"), call.bytes = number("bytes"), call.baseline_us = number("once_us");
  call.peak_flops = number("peak_flops"), call.peak_bytes = number("peak_bytes");
  return call;
}

void WorkerLab::reopen() {
  const bool peaks = std::exchange(call_.peaks, false);
  open(*baseline_, open_seconds_);
  call_.peaks = peaks;
}

// A process that ends may be the deed of a config that ran in it before: only one that ends a fresh process is to blame for certain.
WorkerLab::Reply WorkerLab::step(const char* what, const Config& config, double seconds) {
  const auto text = to_json(config);
  const json request{{"do", what}, {"config", json::parse(text)}};
  if (!child_) reopen();
  if (last_ != text) ++others_, last_ = text;
  const bool alone = others_ <= 1;
  auto reply = ask(request, seconds);
  if (reply.answered() || reply.hung || alone) return reply;
  reopen();
  others_ = 1, last_ = text;
  return ask(request, seconds);
}

Checked WorkerLab::check(const Config& config, double seconds) {
  const auto reply = step("check", config, seconds);
  if (!reply.answered()) return {reply.died};
  if (reply.words.contains("wrong")) return {reply.words["wrong"].get<std::string>()};
  if (reply.words.contains("error")) throw CodedError(ErrorCode::internal, "worker: " + reply.words["error"].get<std::string>());
  return {"", reply.words.value("residual", 0.0), reply.words.value("once_us", 0.0)};
}

Sampled WorkerLab::sample(const Config& config, double seconds) {
  const auto reply = step("sample", config, seconds);
  if (!reply.answered()) return {reply.died};
  if (reply.words.contains("wrong")) return {reply.words["wrong"].get<std::string>()};
  if (reply.words.contains("error")) throw CodedError(ErrorCode::internal, "worker: " + reply.words["error"].get<std::string>());
  return {"", reply.words.value("us", 0.0)};
}

}  // namespace ejk

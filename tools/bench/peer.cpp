// The child process and its lines of JSON.
#include "bench/peer.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "bench/peer_scripts.hpp"
#include "reference/data.hpp"

extern char** environ;

namespace ejk::tools {
namespace {

using nlohmann::json;

constexpr int patience_ms = 300'000;  // importing torch and cuDNN's first search take a minute on a cold disk

// Offsets, sizes, lengths and masks of blocks decide how much work there is, so their values go along; other data does not matter.
json tensor_json(const spec::TensorSpec& spec, const reference::HostTensor& tensor) {
  json object{{"type", std::string(name_of(tensor.type()))}, {"shape", tensor.shape()}};
  if (reference::is_host_data(spec.fill) || spec.fill.starts_with("lengths") || spec.fill.starts_with("contexts") ||
      spec.fill.starts_with("blocks")) {
    object["values"] = json::array();
    for (const double value : tensor.values()) object["values"].push_back(static_cast<std::int64_t>(value));
  }
  return object;
}

json call_json(const reference::Call& call) {
  json object{{"kernel", call.spec->kernel}, {"form", call.binding.form}};
  object["attributes"] = json::object();
  for (const auto& [name, value] : call.binding.attributes)
    std::visit([&, &name = name](const auto& v) { object["attributes"][name] = v; }, value);
  for (const auto* list : {&call.inputs, &call.outputs})
    for (const auto& tensor : *list)
      if (const auto* told = call.spec->tensor(tensor.name())) object["tensors"][tensor.name()] = tensor_json(*told, tensor);
  return object;
}

const char* script_of(const std::string& library) {
  for (const auto& [name, text] : peer_scripts)
    if (library == name) return text;
  throw std::logic_error("no script of " + library);
}

}  // namespace

std::vector<std::string> peer_libraries() {
  std::vector<std::string> names;
  for (const auto& [name, text] : peer_scripts) names.emplace_back(name);
  return names;
}

Peer::Peer(const std::string& library, const std::string& python, const std::string& device) : library_(library), python_(python) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail(fmt::format("no socket: {}", std::strerror(errno)));
  socket_ = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::string words[] = {python, "-c", script_of(library)};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  const int error = posix_spawnp(&child_, python.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  try {
    if (error) {
      child_ = -1;
      fail(fmt::format("{} cannot be started: {}; name a Python that has {} with --python PATH", python, std::strerror(error), library));
    }
    send({{"do", "hello"}, {"device", device}});
  } catch (...) {
    end();
    throw;
  }
}

Peer::~Peer() { end(); }

void Peer::end() noexcept {
  if (socket_ >= 0) close(socket_);  // the end of its input ends the child
  if (child_ > 0) waitpid(child_, nullptr, 0);
}

void Peer::fail(const std::string& what) const { throw std::runtime_error("--against " + library_ + ": " + what); }

void Peer::ended() {
  int status = 0;
  if (waitpid(child_, &status, 0) == child_) child_ = -1;
  fail(fmt::format("{} ended early ({}); its words are above", python_,
                   WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status)) : fmt::format("exit code {}", WEXITSTATUS(status))));
}

void Peer::send(const json& request) {
  const auto line = request.dump() + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const auto count = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ended();
    sent += static_cast<std::size_t>(count);
  }
}

json Peer::receive() {
  while (unread_.find('\n') == std::string::npos) {
    pollfd ready{socket_, POLLIN, 0};
    const int found = poll(&ready, 1, patience_ms);
    if (found < 0 && errno == EINTR) continue;
    if (found == 0) {
      kill(child_, SIGKILL);
      fail(fmt::format("{} gave no answer in {} s", python_, patience_ms / 1000));
    }
    char bytes[4096];
    const auto count = recv(socket_, bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ended();
    unread_.append(bytes, static_cast<std::size_t>(count));
  }
  const auto end = unread_.find('\n');
  const auto answer = json::parse(unread_.substr(0, end), nullptr, false);
  const auto text = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  if (!answer.is_object()) fail(fmt::format("{} answered '{}', expected JSON", python_, text.substr(0, 200)));
  if (answer.contains("error"))
    fail(fmt::format("{} says: {}; name a Python that has {} for this device with --python PATH", python_,
                     answer["error"].get<std::string>(), library_));
  return answer;
}

const std::string& Peer::versions() {
  if (versions_.empty()) versions_ = receive().at("versions").get<std::string>();
  return versions_;
}

void Peer::start_preparing(const reference::Call& call) { send({{"do", "prepare"}, {"call", call_json(call)}}); }

std::vector<PeerKernel> Peer::prepared() {
  std::vector<PeerKernel> kernels;
  const auto answer = receive();
  for (const auto& peer : answer.at("peers")) kernels.push_back({peer.value("id", -1), peer.at("name"), peer.value("why_not", "")});
  return kernels;
}

double Peer::seconds(int id, int count, bool cold) {
  send({{"do", "measure"}, {"id", id}, {"count", count}, {"cold", cold}});
  return receive().at("seconds").get<double>();
}

void Peer::drop() {
  send({{"do", "drop"}});
  receive();
}

}  // namespace ejk::tools

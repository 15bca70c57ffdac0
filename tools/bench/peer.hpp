// Another library in a child process (tools/peers/), which measures its kernels one request at a time, so that rounds interleave.
#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/call.hpp"

namespace ejk::tools {

struct PeerKernel {
  int id = -1;
  std::string name;     // "SDPA cuDNN"
  std::string why_not;  // not empty: the library cannot do this call with it
};

std::vector<std::string> peer_libraries();  // those with a script: "torch", "ejkernel", "fa3", "fla"

// Requests are answered in turn, so that several may be on their way: start_... sends one, the function after it waits for its answer.
class Peer {
 public:
  // Starts it. python: an interpreter, looked for on PATH. Throws std::runtime_error saying what is missing and how to name another one.
  Peer(const std::string& library, const std::string& python, const std::string& device);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();

  // Waits until it has imported the library: "torch 2.11.0, cuDNN 91900, CUDA 13.0, NVIDIA H200". Before anything else.
  const std::string& versions();
  void start_preparing(const reference::Call& call);
  std::vector<PeerKernel> prepared();            // its kernels for that call, on data of the same shapes
  double seconds(int id, int count, bool cold);  // of `count` runs in a row, by the library's clock
  void drop();                                   // frees what was prepared

 private:
  void send(const nlohmann::json& request);
  nlohmann::json receive();  // throws std::runtime_error with the child's words
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void ended();
  void end() noexcept;

  std::string library_, python_, versions_, unread_;
  pid_t child_ = -1;
  int socket_ = -1;
};

}  // namespace ejk::tools

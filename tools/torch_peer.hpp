// PyTorch in a child process (tools/peers/torch_peer.py), which measures its kernels one request at a time, so that rounds interleave.
#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/call.hpp"

namespace ejk::tools {

struct TorchKernel {
  int id = -1;
  std::string name;     // "SDPA cuDNN"
  std::string why_not;  // not empty: PyTorch cannot do this call with it
};

class TorchPeer {
 public:
  // python: an interpreter, looked for on PATH. Throws std::runtime_error saying what is missing and how to name another one.
  TorchPeer(const std::string& python, const std::string& device);
  TorchPeer(const TorchPeer&) = delete;
  TorchPeer& operator=(const TorchPeer&) = delete;
  ~TorchPeer();

  const std::string& versions() const { return versions_; }       // "torch 2.11.0, cuDNN 91900, CUDA 13.0, NVIDIA H200"
  std::vector<TorchKernel> prepare(const reference::Call& call);  // its kernels for that call, on data of the same shapes
  double seconds(int id, int count, bool cold);                   // of `count` runs in a row, by device events
  void drop();                                                    // frees what was prepared

 private:
  nlohmann::json ask(const nlohmann::json& request);  // throws std::runtime_error with the child's words
  [[noreturn]] void ended();
  void end() noexcept;

  std::string python_, versions_, unread_;
  pid_t child_ = -1;
  int socket_ = -1;
};

}  // namespace ejk::tools

// NVIDIA's driver as a user of ejk has it: streams, graphs and memory of his own. By dlopen, so that the tests build anywhere.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace ejk {

class Driver {
 public:
  // Loads libcuda and makes the first device's primary context current on this thread, once. why_not() says why there is none.
  static Driver& instance();
  bool usable() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }
  int devices() const { return devices_; }

  void use_on_this_thread();  // makes the context current
  void* allocate(std::size_t bytes);
  void free(void* memory);
  void to_device(void* to, const void* from, std::size_t bytes);
  void to_host(void* to, const void* from, std::size_t bytes);
  void wait(void* stream);  // throws in the driver's words
  void wait();
  void* make_stream();  // one that does not wait for the default stream
  void free_stream(void* stream);
  void begin_capture(void* stream);
  void* end_capture(void* stream);  // an executable graph
  std::size_t nodes_of_last_capture() const { return nodes_; }
  void launch_graph(void* graph, void* stream);
  void free_graph(void* graph);

 private:
  Driver();
  template <class... Parameters, class... Arguments>
  void call(const char* name, int (*)(Parameters...), Arguments... arguments);
  void* function(const char* name);

  std::string why_not_;
  void* library_ = nullptr;
  void* context_ = nullptr;
  int devices_ = 0;
  std::size_t nodes_ = 0;
};

// A stream for a test's scope.
class OwnStream {
 public:
  OwnStream() : handle(Driver::instance().make_stream()) {}
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { Driver::instance().free_stream(handle); }
  void* const handle;
};

}  // namespace ejk

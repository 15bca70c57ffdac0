// A small kernel in the GPU vocabulary, rendered, compiled and loaded for the emulator.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "emulator/simt.hpp"
#include "spec/expression/value.hpp"

namespace ejk {

struct Dimensions {
  std::int64_t grid_x = 1, grid_y = 1, grid_z = 1, threads = 32, shared_bytes = 0;
  bool cooperative = false;
};

// Sets the order for a scope.
class Order {
 public:
  explicit Order(SimtOrder order) : before_(simt_order()) { simt_set_order(order); }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;
  ~Order() { simt_set_order(before_); }

 private:
  SimtOrder before_;
};

class Program {
 public:
  // `body` defines `KERNEL(...) kernel(void* a, void* b, void* c, int64_t n)`; `values` are its template's names; `arch`: warp32, cdna,
  // rdna3 or rdna4. Throws std::runtime_error with the compiler's words.
  explicit Program(const std::string& body, const std::map<std::string, spec::Value>& values = {}, const std::string& arch = "warp32");

  // Throws std::runtime_error with the emulator's words.
  void run(const Dimensions& dimensions, void* a = nullptr, void* b = nullptr, void* c = nullptr, std::int64_t n = 0) const;
  // Those words; empty if it ran to its end.
  std::string complaint(const Dimensions& dimensions, void* a = nullptr, void* b = nullptr, void* c = nullptr, std::int64_t n = 0) const;

 private:
  std::shared_ptr<Module> module_;
};

}  // namespace ejk

// Work of the host beside the caller's, such as data of the next cases: at most as many pieces at once as the process may use processors.
#pragma once
#include <future>
#include <memory>
#include <semaphore>

#include "backends/cpu/cpu_features.hpp"

namespace ejk::tools {

class SideWork {
 public:
  // Starts it when a processor is free. The future's end waits for it, so what it refers to must live as long.
  template <class Function>
  auto start(Function work) {
    return std::async(std::launch::async, [free = free_, work = std::move(work)] {
      free->acquire();
      struct Release {
        std::counting_semaphore<>& free;
        ~Release() { free.release(); }
      } const release{*free};
      return work();
    });
  }

 private:
  std::shared_ptr<std::counting_semaphore<>> free_ = std::make_shared<std::counting_semaphore<>>(cpu_threads());
};

}  // namespace ejk::tools

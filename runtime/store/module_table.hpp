// What this process knows of images: modules it has loaded, builds that failed, and a lock per image, so that one thread at a time works
// on it.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "store/obtain.hpp"

namespace ejk::store {

class ModuleTable {
 public:
  static ModuleTable& instance();

  // Modules are held weakly: they are unloaded with their last user.
  std::optional<Obtained> loaded(const std::string& key);
  void keep(const std::string& key, const Obtained& obtained);

  // The log of a failed build by that compiler.
  std::optional<std::string> failed(const std::string& key, const std::string& compiler);
  void remember_failure(const std::string& key, const std::string& compiler, const std::string& log);

  std::shared_ptr<std::mutex> door(const std::string& key);
  void forget_doors();  // in a fork's child: those that were shut by threads which it has not

 private:
  struct Row {
    std::weak_ptr<Module> module;
    Origin origin;
    std::string from;
  };
  struct Failure {
    std::string compiler, log;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, Row> rows_;
  std::unordered_map<std::string, Failure> failures_;
  std::unordered_map<std::string, std::weak_ptr<std::mutex>> doors_;
};

}  // namespace ejk::store

// The process's table of modules.
#include "store/module_table.hpp"

namespace ejk::store {

ModuleTable& ModuleTable::instance() {
  static auto* table = new ModuleTable;  // never destroyed: other objects' destructors may still call kernels
  return *table;
}

std::optional<Obtained> ModuleTable::loaded(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto row = rows_.find(key);
  if (row == rows_.end()) return std::nullopt;
  auto module = row->second.module.lock();
  if (!module) return std::nullopt;
  return Obtained{std::move(module), row->second.origin, row->second.from, 0};
}

void ModuleTable::keep(const std::string& key, const Obtained& obtained) {
  const std::lock_guard lock(mutex_);
  rows_[key] = {obtained.module, obtained.origin, obtained.from};
}

std::optional<std::string> ModuleTable::failed(const std::string& key, const std::string& compiler) {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(key);
  if (found == failures_.end() || found->second.compiler != compiler) return std::nullopt;
  return found->second.log;
}

void ModuleTable::remember_failure(const std::string& key, const std::string& compiler, const std::string& log) {
  const std::lock_guard lock(mutex_);
  failures_[key] = {compiler, log};
}

std::shared_ptr<std::mutex> ModuleTable::door(const std::string& key) {
  const std::lock_guard lock(mutex_);
  auto& kept = doors_[key];
  auto door = kept.lock();
  if (!door) kept = door = std::make_shared<std::mutex>();
  return door;
}

void ModuleTable::forget_doors() {
  if (!mutex_.try_lock()) return;
  doors_.clear();
  mutex_.unlock();
}

}  // namespace ejk::store

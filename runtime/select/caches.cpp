// ConfigCache: the memory tier.
#include "common/epoch.hpp"
#include "ejk/kernel.hpp"
#include "ejk/tuning.hpp"

namespace ejk {

std::optional<ConfigCache::Remembered> ConfigCache::recall(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = configs_.find(key);
  return found == configs_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Config> ConfigCache::find(const std::string& key) const {
  auto remembered = recall(key);
  return remembered ? std::optional(std::move(remembered->config)) : std::nullopt;
}

void ConfigCache::keep(const std::string& key, Remembered remembered) {
  const std::lock_guard lock(mutex_);
  configs_.insert_or_assign(key, std::move(remembered));
}

void ConfigCache::put(const std::string& key, Remembered remembered) {
  keep(key, std::move(remembered));
  ++decisions_epoch;
}

void ConfigCache::put(const std::string& key, Config config) { put(key, Remembered{std::move(config), {}, nullptr}); }

void ConfigCache::clear() {
  {
    const std::lock_guard lock(mutex_);
    configs_.clear();
  }
  ++decisions_epoch;
}

std::size_t ConfigCache::size() const {
  const std::lock_guard lock(mutex_);
  return configs_.size();
}

}  // namespace ejk

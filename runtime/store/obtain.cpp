// From an image to a module: the places in order, then the compiler.
#include "store/obtain.hpp"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>

#include "store/module_table.hpp"

namespace ejk::store {
namespace {

using Clock = std::chrono::steady_clock;

std::string key_of(const spec::Image& image) { return image.arch + "/" + image.kernel + "/" + image.id + "-" + image.hash; }

// One call of obtain(): its inputs, and what it tried.
class Search {
 public:
  Search(const Places& places, const spec::Image& image, const spec::Arch& arch, Backend& backend, const JitPolicy& jit, Tried& tried)
      : places_(places), image_(image), arch_(arch), backend_(backend), jit_(jit), tried_(tried), key_(key_of(image)) {
    find_user();
  }

  std::optional<Obtained> run() {
    if (auto found = from_user()) return found;
    for (const auto& pack : places_.packs)
      if (auto found = from_store(pack, "pack", Origin::pack)) return found;
    return from_compiler();
  }

 private:
  void note(const std::string& place, const std::string& reason) { tried_.push_back(place + ": " + reason); }

  // The folder of one kernel may be less safe than the cache itself: made under another umask, by another tool.
  void find_user() {
    why_no_user_ = places_.user ? places_.user->distrust(image_.kernel) : places_.why_no_user;
    if (places_.user && why_no_user_.empty()) user_ = &*places_.user;
  }

  std::optional<Obtained> from_user() {
    if (user_) return from_store(*user_, "user cache", Origin::user_cache);
    note("user cache", why_no_user_.empty() ? "none" : why_no_user_);
    return std::nullopt;
  }

  std::optional<Obtained> from_store(const Store& store, const std::string& place, Origin origin) {
    const auto found = store.find(image_, backend_.source_extension(), backend_.binary_extension());
    if (found.verdict != Verdict::hit) {
      note(place, found.why);
      if (found.verdict == Verdict::bad) store.set_aside(image_);
      return std::nullopt;
    }
    auto module = load(found.bytes, place);
    if (!module) {
      store.set_aside(image_);  // whole, but made for another system than this one
      return std::nullopt;
    }
    if (store.writable() && !store.source_intact(image_, backend_.source_extension()))
      store.restore_source(image_, backend_.source_extension());
    store.mark_used(image_);
    return Obtained{std::move(module), origin, store.entry_path(image_).string(), 0};
  }

  // The bytes that were hashed, never the path again: between the two others may have put another file there.
  std::shared_ptr<Module> load(const std::string& bytes, const std::string& place) {
    auto module = load_bytes(bytes);
    if (!module) note(place, why_not_bytes_);
    return module;
  }

  std::shared_ptr<Module> load_bytes(const std::string& bytes) {
    try {
      return backend_.load_bytes(bytes, image_);
    } catch (const DeviceError&) {
      throw;  // no fault of the binary: it stays where it is
    } catch (const std::runtime_error& error) {
      why_not_bytes_ = error.what();
      return nullptr;
    }
  }

  std::optional<Obtained> from_compiler() {
    std::string why;
    clock_.end("look");
    if (!jit_.allowed) {
      note("jit", jit_.why_not.empty() ? "not allowed" : jit_.why_not);
      return std::nullopt;
    }
    if (!backend_.can_compile(arch_, why)) {
      note("jit", why);
      return std::nullopt;
    }
    compiler_ = backend_.compiler(arch_);
    clock_.end("compiler");
    if (failed_before()) return std::nullopt;
    if (user_) user_->remove_leftovers(image_.kernel);
    const auto lock = user_ ? BuildLock::acquire(*user_, image_, jit_.progress, jit_.patience) : std::nullopt;
    if (user_) {  // while we waited, the holder may have built it, or failed
      if (user_->find(image_, backend_.source_extension(), backend_.binary_extension()).verdict == Verdict::hit)
        if (auto found = from_user()) return found;
      if (failed_before()) return std::nullopt;
    }
    clock_.end("lock");
    return compile();
  }

  bool failed_before() {
    auto log = ModuleTable::instance().failed(key_, compiler_);
    if (!log && user_) log = user_->failed_log(image_, compiler_);
    if (log) note("jit", fmt::format("{} refused this source before; it said:\n{}", compiler_, *log));
    return log.has_value();
  }

  std::optional<Obtained> compile() {
    const auto result = backend_.compile_soon(image_, arch_);
    clock_.end("compile");
    if (!result.ok) {
      if (!result.transient) remember(result);
      note("jit", fmt::format("{} failed on {}; it said:\n{}", result.compiler, image_.id, result.log));
      return std::nullopt;
    }
    auto obtained = publish(result);
    if (!obtained)
      if (auto module = load_bytes(result.binary)) obtained = Obtained{std::move(module), Origin::jit, "in memory", 0};
    if (!obtained) note("jit", why_not_bytes_);
    clock_.end("load");
    if (obtained) {
      obtained->above_limits = spec::above_limits(image_.limits, result.resources);
      obtained->stages = clock_.stages();
      obtained->assembled = result.assembled;
    }
    return obtained;
  }

  void remember(const CompileResult& result) {
    ModuleTable::instance().remember_failure(key_, result.compiler, result.log);
    if (user_) user_->remember_failure(image_, result.compiler, result.log);
  }

  std::optional<Obtained> publish(const CompileResult& result) {
    if (!user_ || !user_->writable()) return std::nullopt;
    try {
      const auto found = user_->publish(image_, result, backend_.source_extension(), backend_.binary_extension());
      clock_.end("store");
      if (auto module = load(found.bytes, "jit")) return Obtained{std::move(module), Origin::jit, user_->entry_path(image_).string(), 0};
    } catch (const DeviceError&) {
      throw;
    } catch (const std::runtime_error& error) {
      note("user cache", fmt::format("{}; the image serves this process from memory", error.what()));
    }
    return std::nullopt;
  }

  const Places& places_;
  const spec::Image& image_;
  const spec::Arch& arch_;
  Backend& backend_;
  const JitPolicy& jit_;
  Tried& tried_;
  const std::string key_;
  const Store* user_ = nullptr;  // the user's cache, if there is one to be trusted with this kernel
  std::string why_no_user_, compiler_, why_not_bytes_;
  StageClock clock_;
};

}  // namespace

std::optional<Obtained> obtain(const Places& places, const spec::Image& image, const spec::Arch& arch, Backend& backend,
                               const JitPolicy& jit, Tried& tried) {
  const auto start = Clock::now();
  auto& table = ModuleTable::instance();
  const auto key = key_of(image);
  const auto door = table.door(key);
  const std::lock_guard inside(*door);
  if (auto loaded = table.loaded(key)) return loaded;
  auto obtained = Search(places, image, arch, backend, jit, tried).run();
  if (!obtained) return std::nullopt;
  obtained->seconds = std::chrono::duration<double>(Clock::now() - start).count();
  table.keep(key, *obtained);
  return obtained;
}

}  // namespace ejk::store

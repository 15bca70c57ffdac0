// The child makes a store with the changed template, and calls the kernel through the library as a user would.
#include "emulator/trial.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "ejk/ejk.hpp"
#include "reference/reference.hpp"
#include "spec/read/catalogue.hpp"
#include "spec/render/image.hpp"
#include "tests/changed_store.hpp"

namespace ejk {
namespace {

namespace fs = std::filesystem;
constexpr int varied_calls = 5, calls_of_one_size = 2, attempts = 40;
constexpr unsigned processor_seconds = 20;  // ten times what the longest right trial needs; a busy machine does not shorten it
constexpr unsigned most_seconds = 300;      // for what waits without computing
constexpr const char* arch_of_device[] = {"warp32", "cdna", "rdna3", "rdna4"};

class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Trial {
 public:
  Trial(const fs::path& store, const Subject& subject) : subject_(subject) {
    // EJK_EARLIER: a user cache that lasts, so that a mutant is compiled once on a machine; its source tells it from the others.
    const char* const lasting = std::getenv("EJK_EARLIER");
    setenv("EJKERNEL_CACHE_DIR", lasting && *lasting ? lasting : (store / "cache").c_str(), 1);
    for (const char* name : {"EJKERNEL_STORE", "EJKERNEL_JIT", "EJKERNEL_LOG"}) unsetenv(name);
    add_backend(simt_backend());
    if (const auto added = add_store(store.string()); !added) throw Broken(added.error().message);
    catalogue_ = spec::Catalogue::open(store / "specs", store / "templates");
    spec_ = catalogue_.kernel(subject.kernel);
    reference_ = reference::find_reference(subject.kernel);
    if (!spec_ || !reference_) throw Broken("no kernel or no reference of the name " + subject.kernel);
    case_ = spec_->find_case(subject.case_name);
    if (!case_) throw Broken(subject.kernel + " has no case " + subject.case_name);
  }

  // Empty: right.
  std::string run() {
    const int wanted = subject_.sizes.empty() ? varied_calls : calls_of_one_size;
    int calls = 0;
    for (std::uint64_t seed = 0; seed < attempts && calls < wanted && wrong_.empty(); ++seed) calls += one_call(seed);
    if (calls == 0) throw Broken("no call like " + subject_.case_name + " is served by " + subject_.template_file);
    return wrong_;
  }

 private:
  // In both orders of threads: right, and the same bits.
  bool one_call(std::uint64_t seed) {
    auto call = reference::make_call(*spec_, sized_case(seed), seed);
    const auto* variant = server(call.binding);
    if (!variant) return false;
    if (!subject_.law.empty() && !judge_law(call, *variant, seed)) return false;
    if (!wrong_.empty()) return true;
    const auto forwards = outputs_of(call, *variant, SimtOrder::forwards);
    if (!wrong_.empty()) return true;
    const auto backwards = outputs_of(call, *variant, SimtOrder::backwards);
    if (wrong_.empty() && forwards != backwards) wrong_ = call.label + ": the order of threads changes the result";
    return true;
  }

  // False: the law says nothing of this call.
  bool judge_law(const reference::Call& call, const spec::Variant& variant, std::uint64_t seed) {
    const Config config{variant.name, "", {}};
    const auto execute = [&](reference::Call& each) { on_the_device(each, config); };
    reference::Rng rng(seed);
    for (const auto& property : reference_->properties()) {
      if (property.name != subject_.law || !property.applies(call)) continue;
      if (const auto message = property.check(call, execute, rng); !message.empty()) wrong_ += call.label + ": " + message + "\n";
      return true;
    }
    return false;
  }

  std::vector<std::vector<std::byte>> outputs_of(reference::Call& call, const spec::Variant& variant, SimtOrder order) {
    simt_set_order(order);
    const Config config{variant.name, "", {}};
    const auto execute = [&](reference::Call& each) { on_the_device(each, config); };
    const auto failure = reference::first_failure(reference::verify_call(*reference_, call, execute));
    if (!failure.empty()) wrong_ += call.label + ": " + failure + "\n";
    std::vector<std::vector<std::byte>> outputs;
    for (const auto& output : call.outputs) outputs.push_back(output.row_major_bytes());
    return outputs;
  }

  spec::Case sized_case(std::uint64_t seed) const {
    reference::Rng rng(seed);
    if (subject_.sizes.empty()) return reference_->vary(*case_, rng);
    auto sized = *case_;
    sized.dims.clear();
    for (const auto& [name, value] : subject_.sizes) (spec_->attribute(name) ? sized.attributes : sized.dims)[name] = value;
    return sized;
  }

  // The variant of our template that takes the call on one of the archs of the subject's device, sanitized or not.
  const spec::Variant* server(const spec::Binding& binding) const {
    for (const auto& variant : spec_->variants)
      if (variant.template_file == subject_.template_file && (subject_.variant.empty() || variant.name == subject_.variant))
        for (const auto* arch : catalogue_.archs_of(variant))
          if (arch->platform == "simt" && arch->name.starts_with(arch_of_device[subject_.device]) &&
              !spec::refusal(variant, *arch, binding))
            return &variant;
    return nullptr;
  }

  // The emulator's memory is the host's: the tensors stay where they are.
  void on_the_device(reference::Call& given, const Config& config) const {
    std::map<std::string, TensorView> tensors;
    for (const auto& [name, tensor] : given.launched()) {
      auto view = tensor->view();
      view.device = {DeviceType::extension, subject_.device};
      tensors.emplace(name, view);
    }
    const auto status = ejk::call(subject_.kernel, tensors, given.attributes, {}, &config);
    if (status) return;
    for (const auto code : {ErrorCode::bad_input, ErrorCode::unsupported, ErrorCode::missing_image, ErrorCode::compile_failed})
      if (status.error().code == code) throw Broken(status.error().message);
    throw std::runtime_error(status.error().message);  // the emulator's
  }

  const Subject& subject_;
  spec::Catalogue catalogue_;
  std::shared_ptr<const spec::Spec> spec_;
  const reference::KernelReference* reference_ = nullptr;
  const spec::Case* case_ = nullptr;
  std::string wrong_;
};

int run_trial(const fs::path& store, const Subject& subject) {
  auto verdict = Verdict::right;
  std::string words;
  try {
    words = Trial(store, subject).run();
    if (!words.empty()) verdict = Verdict::wrong;
  } catch (const Broken& error) {
    verdict = Verdict::broken;
    words = error.what();
  } catch (const spec::CallError& error) {
    verdict = Verdict::broken;
    words = error.what();
  } catch (const std::exception& error) {
    verdict = Verdict::refused;
    words = error.what();
  }
  fmt::print(stderr, "{}", words);
  return static_cast<int>(verdict);
}

}  // namespace

test::Change change_of(const Subject& subject, const Mutation& mutation) {
  return {mutation.header.empty() ? subject.template_file : mutation.header, mutation.word, mutation.occurrence, mutation.by};
}

Outcome try_template(const Subject& subject, const std::optional<Mutation>& mutation) {
  std::optional<test::Change> change;
  if (mutation) change = change_of(subject, *mutation);
  const test::ChangedStore store(subject.root, change);
  const auto ended = test::in_a_process(processor_seconds, most_seconds, [&] { return run_trial(store.path(), subject); });
  return {ended.status ? static_cast<Verdict>(*ended.status) : Verdict::crashed, ended.words};
}

}  // namespace ejk

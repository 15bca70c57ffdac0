// libFuzzer: any template, and one header of it, is rendered or refused with lines, in bounded time and memory.
#include <cstdint>
#include <cstdlib>

#include "fuzz/scratch.hpp"
#include "spec/render/source_hash.hpp"
#include "spec/render/template.hpp"

namespace {

using namespace ejk::spec;

class SomeNames : public Scope {
 public:
  std::optional<Value> lookup(std::string_view name) const override {
    if (name == "n") return Value(std::int64_t{40});
    if (name == "b") return Value(true);
    if (name == "s") return Value(std::string("bf16"));
    return name == "x" ? std::optional<Value>(0.5) : std::nullopt;
  }
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value>) const override {
    return function == "ctype" ? std::optional<Value>(std::string(name)) : std::nullopt;
  }
};

}  // namespace

// The template, and behind a zero byte the header "part/h.h".
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  const std::string all(reinterpret_cast<const char*>(data), size);
  const auto end = std::min(all.find('\0'), all.size());
  std::filesystem::create_directories(scratch.path() / "part");
  const auto header = all.substr(std::min(end + 1, all.size()));
  fuzz::write(scratch.path() / "part/h.h", header.data(), header.size());
  const TemplateLibrary library(scratch.path());
  try {
    const auto text = Template::parse("fuzz.cpp", all.substr(0, end)).render(SomeNames(), library);
    if (text.size() > std::size_t{17} << 20) std::abort();
    const auto plain = without_comments(text);
    if (without_comments(plain) != plain && plain.find_first_of("\"'") == std::string::npos) std::abort();
  } catch (const SpecError& error) {
    if (error.faults().empty() || error.faults().size() > 200) std::abort();
  }
  try {
    (void)interpolate(all.substr(0, end), SomeNames());
  } catch (const ExpressionError&) {
  }
  return 0;
}

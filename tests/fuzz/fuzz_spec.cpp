// Fuzzes the spec and arch readers and the checks behind them: any text gives a spec or faults, never a crash, and the same at once as by
// and by.
#include <map>

#include "spec/check/check.hpp"
#include "spec/read/archs.hpp"
#include "spec/read/loader.hpp"

// Whether a spec that is read as calls ask for it turns out to have faults.
static bool is_at_fault(const std::string& text) {
  using namespace ejk::spec;
  std::vector<Fault> faults;
  const auto spec = load_spec("fuzz.json", text, faults, Later::cases_and_gpus);
  try {
    if (spec) spec->variants.all(), spec->cases.all();
    return !spec;
  } catch (const SpecError&) {
    return true;
  }
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace ejk::spec;
  static const std::map<std::string, Arch> archs = [] {
    Arch generic;
    generic.name = "generic";
    generic.platform = "cpu";
    generic.properties = {{"vector_bytes", std::int64_t{16}}};
    return std::map<std::string, Arch>{{"cpu:generic", generic}};
  }();
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<Fault> faults;
  const auto spec = load_spec("fuzz.json", text, faults);
  if (spec.has_value() != faults.empty() || spec.has_value() == is_at_fault(text)) __builtin_trap();
  if (spec) check_spec(*spec, archs, TemplateLibrary("/nonexistent"), {"scale_rows"}, faults);
  faults.clear();
  if (load_arch("fuzz.json", text, faults).has_value() != faults.empty()) __builtin_trap();
  return 0;
}

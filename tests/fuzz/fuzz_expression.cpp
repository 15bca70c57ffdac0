// Fuzzes the expression parser and evaluator: any text gives a value or an ExpressionError, and a value's text reads back.
#include "spec/expression/expression.hpp"

namespace {

using namespace ejk::spec;

// Every name has a value, of a kind that depends on the name.
class AnyName : public Scope {
 public:
  std::optional<Value> lookup(std::string_view name) const override {
    switch (name.size() % 4) {
      case 0:
        return Value(static_cast<std::int64_t>(name[0]) << 56);
      case 1:
        return Value(std::int64_t{name[0]} - 100);
      case 2:
        return Value(name[0] < 'n');
      default:
        return name[0] < 'n' ? Value(0.5) : Value(std::string("bf16"));
    }
  }
  std::optional<Value> call(std::string_view, std::string_view name, std::span<const Value> rest) const override {
    return rest.empty() ? lookup(name) : std::optional<Value>(rest[0]);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const Expression expression = Expression::parse(std::string_view(reinterpret_cast<const char*>(data), size));
    expression.names();
    expression.name_calls();
    const Value value = expression.evaluate(AnyName());
    const std::string text = to_text(value);
    const bool readable = value.index() != 3 && text.find_first_of("in") == std::string::npos;  // inf and nan have no literal
    if (readable && to_text(Expression::parse(text).evaluate(AnyName())) != text) __builtin_trap();
  } catch (const ExpressionError&) {
  }
  return 0;
}

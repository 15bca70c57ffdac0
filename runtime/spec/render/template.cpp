// Templates, second half: rendering a parsed tree in a scope.
#include <fmt/format.h>
#include <set>

#include "spec/render/template_tree.hpp"

namespace ejk::spec {
namespace {

constexpr std::int64_t max_rounds = 100'000;  // of one $for: more is a mistake in its range
constexpr std::size_t max_include_depth = 16;
// Of one rendering, headers included: a hundred times what the largest template here takes. Loops in loops multiply.
constexpr std::size_t max_steps = 4'000'000, max_bytes = 16u << 20;
constexpr std::size_t steps_a_fault = 16;

// What an expression costs to evaluate, in steps.
std::size_t steps_of(const Expression& expression) { return expression.text().size() / 64; }

// A loop's variable over the scope around it.
class LoopScope : public Scope {
 public:
  LoopScope(const Scope& outer, std::string_view name) : outer_(outer), name_(name) {}
  std::optional<Value> lookup(std::string_view name) const override { return name == name_ ? Value(value) : outer_.lookup(name); }
  std::optional<Value> call(std::string_view function, std::string_view name, std::span<const Value> rest) const override {
    return outer_.call(function, name, rest);
  }
  std::int64_t value = 0;

 private:
  const Scope& outer_;
  std::string_view name_;
};

// "block_m = 12, D = 128", for the names of a failed $require.
std::string values_of(const Expression& expression, const Scope& scope) {
  std::string text;
  for (const std::string& name : expression.names()) {
    std::string value = "unknown";
    try {
      if (const auto found = scope.lookup(name)) value = to_text(*found);
    } catch (const ExpressionError&) {
      // The name has no value here, which is what "unknown" says.
    }
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

class Renderer {
 public:
  struct Enough {};  // thrown once the rest would change nothing: too many faults, too long

  explicit Renderer(const TemplateLibrary& library) : library_(library) {}

  void body(const Template::Body& body, const Scope& scope) {
    const Template::Body* outer = file_;
    file_ = &body;
    nodes(body.nodes, scope);
    file_ = outer;
  }

  std::string finish() {
    if (!faults_.empty()) throw SpecError(std::move(faults_));
    return std::move(out_);
  }

 private:
  void fault(int line, std::string sentence) {
    for (auto includer = includers_.rbegin(); includer != includers_.rend(); ++includer)
      sentence += fmt::format(" (included from {})", *includer);
    Fault fault{file_->file, std::to_string(line), std::move(sentence)};
    if (told_.insert(fault.text()).second) faults_.push_back(std::move(fault));  // a $for repeats its faults
    if (faults_.size() >= max_template_faults) throw Enough();
    step(line, steps_a_fault);
  }

  void step(int line, std::size_t count) {
    steps_ += count;
    if (steps_ <= max_steps && out_.size() <= max_bytes) return;
    const auto limit =
        steps_ > max_steps ? fmt::format("takes more than {} steps", max_steps) : fmt::format("gives more than {} bytes", max_bytes);
    faults_.push_back({file_->file, std::to_string(line), fmt::format("the rendering {}; are there $for in $for, or long ones?", limit)});
    throw Enough();
  }

  // Runs `work`, turning an expression's error into a fault at this place.
  template <class Work>
  void guarded(int line, const Expression& expression, Work work) {
    try {
      work();
    } catch (const ExpressionError& e) {
      fault(line, expression ? fmt::format("`{}`: {}", expression.text(), e.what()) : std::string(e.what()));
    }
  }

  void nodes(const std::vector<TemplateNode>& list, const Scope& scope) {
    for (const TemplateNode& each : list) node(each, scope);
  }

  void node(const TemplateNode& node, const Scope& scope) {
    step(node.line, 1 + steps_of(node.expression));
    switch (node.kind) {
      case TemplateNode::Kind::text:
        out_ += node.text;
        break;
      case TemplateNode::Kind::value:
      case TemplateNode::Kind::call:
        guarded(node.line, node.expression, [&] { out_ += substitute(node, scope); });
        break;
      case TemplateNode::Kind::branch:
        branch(node, scope);
        break;
      case TemplateNode::Kind::loop:
        loop(node, scope);
        break;
      case TemplateNode::Kind::require:
        require(node, scope);
        break;
      case TemplateNode::Kind::include:
        include(node, scope);
        break;
    }
  }

  void branch(const TemplateNode& node, const Scope& scope) {
    for (const TemplateBranch& arm : node.branches) {
      bool taken = !arm.condition, failed = false;
      if (arm.condition) {
        failed = true;
        step(arm.line, 1 + steps_of(arm.condition));
        guarded(arm.line, arm.condition, [&] {
          taken = arm.condition.boolean(scope);
          failed = false;
        });
      }
      if (failed) return;  // which arm was meant is unknown: nothing below it is judged
      if (taken) return nodes(arm.body, scope);
    }
  }

  void loop(const TemplateNode& node, const Scope& scope) {
    std::int64_t first = 0, last = 0;
    guarded(node.line, node.expression, [&] { first = node.expression.integer(scope); });
    guarded(node.line, node.last, [&] { last = node.last.integer(scope); });
    if (last > first && static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) > max_rounds)
      return fault(node.line, fmt::format("$for runs from {} to {}, more than {} rounds", first, last, max_rounds));
    LoopScope inner(scope, node.text);
    for (inner.value = first; inner.value < last; ++inner.value) {
      step(node.line, 1);
      nodes(node.body, inner);
    }
  }

  void require(const TemplateNode& node, const Scope& scope) {
    guarded(node.line, node.expression, [&] {
      if (node.expression.boolean(scope)) return;
      const std::string values = values_of(node.expression, scope);
      fault(node.line, fmt::format("$require {} does not hold{}{}", node.expression.text(), values.empty() ? "" : ": ", values));
    });
  }

  void include(const TemplateNode& node, const Scope& scope) {
    if (!included_.insert(node.text).second) return;
    if (includers_.size() >= max_include_depth) return fault(node.line, "headers include each other more than 16 deep");
    try {
      const Template& header = library_.get(node.text);
      includers_.push_back(fmt::format("{}:{}", file_->file, node.line));
      body(header.body(), scope);
      includers_.pop_back();
      if (!out_.empty() && out_.back() != '\n') out_ += '\n';
    } catch (const SpecError& e) {
      if (library_.has(node.text)) {  // the header's own faults of form
        for (const Fault& each : e.faults()) faults_.push_back(each);
      } else {
        fault(node.line, fmt::format("there is no vocabulary header \"{}\" below {}", node.text, library_.folders()));
      }
    }
  }

  const TemplateLibrary& library_;
  const Template::Body* file_ = nullptr;
  std::string out_;
  std::size_t steps_ = 0;
  std::set<std::string> told_;  // the texts of faults_
  std::set<std::string> included_;
  std::vector<std::string> includers_;
  std::vector<Fault> faults_;
};

}  // namespace

std::string substitute(const TemplateNode& node, const Scope& scope) {
  if (node.kind == TemplateNode::Kind::value) return to_text(node.expression.evaluate(scope));
  const auto value = scope.call(node.text, node.argument, {});
  if (!value) throw ExpressionError(fmt::format("{}() is not known here", node.text), 0);
  return to_text(*value);
}

std::string Template::render(const Scope& scope, const TemplateLibrary& library) const {
  if (!body_) return {};
  Renderer renderer(library);
  try {
    renderer.body(*body_, scope);
  } catch (const Renderer::Enough&) {
    // finish() throws the faults that led here.
  }
  return renderer.finish();
}

std::string interpolate(const std::string& text, const Scope& scope) {
  std::vector<TemplateNode> nodes;
  std::vector<Fault> faults;
  parse_text("message", text, 1, nodes, faults);
  if (!faults.empty()) throw ExpressionError(faults.front().sentence, 0);
  std::string out;
  for (const TemplateNode& node : nodes) out += node.kind == TemplateNode::Kind::text ? node.text : substitute(node, scope);
  return out;
}

}  // namespace ejk::spec

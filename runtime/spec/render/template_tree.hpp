// The parsed form of a template: what template_parse.cpp makes and template_render.cpp walks.
#pragma once
#include <string>
#include <vector>

#include "spec/render/template.hpp"

namespace ejk::spec {

inline constexpr std::size_t max_template_faults = 50;  // of one file, and of one rendering

struct TemplateNode;

// One arm of an $if: `condition` is empty for $else.
struct TemplateBranch {
  Expression condition;
  int line = 0;
  std::vector<TemplateNode> body;
};

struct TemplateNode {
  enum class Kind { text, value, call, branch, loop, require, include };
  Kind kind = Kind::text;
  int line = 0;
  std::string text;       // text; include: the header's name; loop: the variable; call: the function
  std::string argument;   // call: ctype(T), parameters('entry')
  Expression expression;  // value, require; loop: first
  Expression last;        // loop: one past the last
  std::vector<TemplateBranch> branches;
  std::vector<TemplateNode> body;  // loop
};

struct Template::Body {
  std::string file;
  std::vector<TemplateNode> nodes;
};

// Appends the nodes of a piece of text: literal parts, ${expression}s and $$. `line` is that of its first character.
void parse_text(const std::string& file, std::string_view text, int line, std::vector<TemplateNode>& nodes, std::vector<Fault>& faults);

// `${text}` of a value or call node; throws ExpressionError.
std::string substitute(const TemplateNode& node, const Scope& scope);

}  // namespace ejk::spec

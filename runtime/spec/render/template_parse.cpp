// Templates, first half: text to a tree, with every fault of form.
#include <fmt/format.h>
#include <algorithm>
#include <cctype>

#include "spec/render/template_tree.hpp"

namespace ejk::spec {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

bool is_name(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  for (const char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  return true;
}

// Where `token` occurs outside quotes; npos if nowhere.
std::size_t find_outside_quotes(std::string_view text, std::string_view token) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\'') quoted = !quoted;
    if (!quoted && text.substr(i).starts_with(token)) return i;
  }
  return std::string_view::npos;
}

void add_fault(std::vector<Fault>& faults, const std::string& file, int line, std::string sentence) {
  if (faults.size() < max_template_faults) faults.push_back({file, std::to_string(line), std::move(sentence)});
}

Expression parse_expression(const std::string& file, std::string_view text, int line, std::vector<Fault>& faults) {
  try {
    return Expression::parse(text);
  } catch (const ExpressionError& e) {
    const std::string where = e.column() > 0 ? fmt::format(" (column {})", e.column()) : "";
    add_fault(faults, file, line, fmt::format("`{}`: {}{}", text, e.what(), where));
    return {};
  }
}

// ctype(T) and parameters('entry') are templates' own: they give text, so they stand alone in their ${}.
bool parse_call(std::string_view text, TemplateNode& node) {
  for (const std::string_view function : {"ctype", "parameters"}) {
    if (!text.starts_with(function)) continue;
    std::string_view rest = trim(text.substr(function.size()));
    if (rest.size() < 2 || rest.front() != '(' || rest.back() != ')') continue;
    rest = trim(rest.substr(1, rest.size() - 2));
    if (rest.size() >= 2 && rest.front() == '\'' && rest.back() == '\'') rest = rest.substr(1, rest.size() - 2);
    if (!is_name(rest)) continue;
    node.kind = TemplateNode::Kind::call;
    node.text = function;
    node.argument = rest;
    return true;
  }
  return false;
}

constexpr int max_nesting = 32;  // of $if and $for; the deepest template here has 3

class Parser {
 public:
  Parser(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  std::vector<TemplateNode> parse(std::vector<Fault>& faults) {
    faults_ = &faults;
    std::vector<TemplateNode> nodes;
    block(nodes, nullptr);
    return nodes;
  }

 private:
  struct Directive {
    std::string_view word, rest;
    int line = 0;
  };

  void fault(int line, std::string sentence) { add_fault(*faults_, file_, line, std::move(sentence)); }

  // The directive of a line, if it is one; its trailing // comment is dropped.
  static bool directive_of(std::string_view line, Directive& directive) {
    line = trim(line);
    if (line.size() < 2 || line[0] != '$' || !std::isalpha(static_cast<unsigned char>(line[1]))) return false;
    line = trim(line.substr(0, find_outside_quotes(line, "//")));
    std::size_t end = 1;
    while (end < line.size() && std::isalnum(static_cast<unsigned char>(line[end]))) ++end;
    directive.word = line.substr(0, end);
    directive.rest = trim(line.substr(end));
    return true;
  }

  // A header of the templates' folders; others, of the compiler's, are left as they are.
  static bool included_header(std::string_view line, std::string& name) {
    line = trim(line);
    constexpr std::string_view opening = "#include \"";
    if (!line.starts_with(opening)) return false;
    line.remove_prefix(opening.size());
    const std::size_t end = line.find('"');
    if (end == std::string_view::npos || line.substr(0, end).find('/') == std::string_view::npos) return false;
    name = line.substr(0, end);
    return true;
  }

  std::string_view next_line() {
    ++line_;
    const std::size_t end = text_.find('\n', at_);
    const std::size_t stop = end == std::string_view::npos ? text_.size() : end + 1;
    const std::string_view line = text_.substr(at_, stop - at_);
    at_ = stop;
    return line;
  }

  // Reads nodes up to the $elif, $else or $end that closes `opened`, which is returned; at the file's end its word is empty.
  Directive block(std::vector<TemplateNode>& nodes, const Directive* opened) {
    std::size_t plain = at_;  // start of text not yet handed on
    int plain_line = line_ + 1;
    const auto flush = [&](std::size_t end) {
      if (end > plain) parse_text(file_, text_.substr(plain, end - plain), plain_line, nodes, *faults_);
    };
    while (at_ < text_.size()) {
      const std::size_t begin = at_;
      const std::string_view line = next_line();
      Directive directive;
      directive.line = line_;
      std::string header;
      const bool is_directive = directive_of(line, directive);
      if (!is_directive && !included_header(line, header) && trim(line) != "#pragma once") continue;
      flush(begin);
      if (is_directive) {
        if (directive.word == "$elif" || directive.word == "$else" || directive.word == "$end") {
          if (opened) return directive;
          fault(line_, fmt::format("{} without an $if or $for before it", directive.word));
        } else {
          open(directive, nodes);
        }
      } else if (!header.empty()) {
        TemplateNode node;
        node.kind = TemplateNode::Kind::include;
        node.line = line_;
        node.text = header;
        nodes.push_back(std::move(node));
      }  // else `#pragma once`: headers are inlined once anyway, and a compiler warns of it in a main file
      plain = at_;
      plain_line = line_ + 1;
    }
    flush(at_);
    if (opened && !stopped_) fault(opened->line, fmt::format("{} has no $end", opened->word));
    return {};
  }

  // Blocks are read, rendered and freed by recursion: how deep they may lie bounds the stack of all three.
  bool too_deep(const Directive& directive) {
    if (depth_ < max_nesting) return false;
    fault(directive.line,
          fmt::format("{} is nested more than {} deep; put inner blocks into a header of their own", directive.word, max_nesting));
    stopped_ = true;
    at_ = text_.size();
    return true;
  }

  void open(const Directive& directive, std::vector<TemplateNode>& nodes) {
    if (directive.word == "$if" || directive.word == "$for") {
      if (too_deep(directive)) return;
      ++depth_;
      directive.word == "$if" ? branches(directive, nodes) : loop(directive, nodes);
      --depth_;
      return;
    }
    if (directive.word == "$require") {
      TemplateNode node;
      node.kind = TemplateNode::Kind::require;
      node.line = directive.line;
      node.expression = condition(directive);
      nodes.push_back(std::move(node));
      return;
    }
    fault(directive.line,
          fmt::format("unknown directive {}; known are $if, $elif, $else, $end, $for, $require (write $$ for a dollar sign)",
                      directive.word));
  }

  Expression condition(const Directive& directive) {
    if (!directive.rest.empty()) return parse_expression(file_, directive.rest, directive.line, *faults_);
    fault(directive.line, fmt::format("{} needs an expression", directive.word));
    return {};
  }

  void no_rest(const Directive& directive) {
    if (!directive.rest.empty())
      fault(directive.line, fmt::format("{} takes nothing after it; found `{}`", directive.word, directive.rest));
  }

  void branches(const Directive& opened, std::vector<TemplateNode>& nodes) {
    TemplateNode node;
    node.kind = TemplateNode::Kind::branch;
    node.line = opened.line;
    Directive arm = opened;
    bool last = false;
    while (!arm.word.empty() && arm.word != "$end") {
      if (last) fault(arm.line, fmt::format("{} after $else; the $if is on line {}", arm.word, opened.line));
      TemplateBranch branch;
      branch.line = arm.line;
      if (arm.word == "$else") {
        last = true;
        no_rest(arm);
      } else {
        branch.condition = condition(arm);
      }
      arm = block(branch.body, &opened);
      node.branches.push_back(std::move(branch));
    }
    no_rest(arm);
    nodes.push_back(std::move(node));
  }

  void loop(const Directive& opened, std::vector<TemplateNode>& nodes) {
    TemplateNode node;
    node.kind = TemplateNode::Kind::loop;
    node.line = opened.line;
    loop_head(opened, node);
    Directive end = block(node.body, &opened);
    while (!end.word.empty() && end.word != "$end") {
      fault(end.line, fmt::format("{} inside the $for of line {}", end.word, opened.line));
      end = block(node.body, &opened);
    }
    no_rest(end);
    nodes.push_back(std::move(node));
  }

  void loop_head(const Directive& opened, TemplateNode& node) {
    const std::size_t space = opened.rest.find(' ');
    const std::string_view name = opened.rest.substr(0, space);
    std::string_view range = space == std::string_view::npos ? std::string_view() : trim(opened.rest.substr(space));
    const std::size_t dots = find_outside_quotes(range, "..");
    if (!is_name(name) || !range.starts_with("in ") || dots == std::string_view::npos) {
      fault(opened.line, fmt::format("$for is written `$for i in first..past_last`; found `$for {}`", opened.rest));
      return;
    }
    node.text = name;
    node.expression = parse_expression(file_, trim(range.substr(3, dots - 3)), opened.line, *faults_);
    node.last = parse_expression(file_, trim(range.substr(dots + 2)), opened.line, *faults_);
  }

  const std::string& file_;
  std::string_view text_;
  std::vector<Fault>* faults_ = nullptr;
  std::size_t at_ = 0;
  int line_ = 0, depth_ = 0;
  bool stopped_ = false;  // nested too deep: the rest of the file is not read
};

}  // namespace

namespace {

// ${inside}
TemplateNode substitution(const std::string& file, std::string_view inside, int line, std::vector<Fault>& faults) {
  TemplateNode node;
  node.line = line;
  if (inside.empty()) {
    add_fault(faults, file, line, "${} is empty; it needs an expression");
  } else if (!parse_call(inside, node)) {
    node.kind = TemplateNode::Kind::value;
    node.expression = parse_expression(file, inside, line, faults);
  }
  return node;
}

}  // namespace

void parse_text(const std::string& file, std::string_view text, int line, std::vector<TemplateNode>& nodes, std::vector<Fault>& faults) {
  std::string literal;
  int first_line = line;  // of `literal`
  const auto flush = [&] {
    if (literal.empty()) return;
    TemplateNode node;
    node.line = first_line;
    node.text = std::move(literal);
    literal.clear();
    nodes.push_back(std::move(node));
  };
  std::size_t line_end = 0;  // of the line that is read: looked for once a line, however many ${ it has
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t dollar = std::min(text.find('$', at), text.size());
    const std::string_view plain = text.substr(at, dollar - at);
    if (literal.empty()) first_line = line;
    literal += plain;
    line += static_cast<int>(std::count(plain.begin(), plain.end(), '\n'));
    if (dollar == text.size()) break;
    if (dollar >= line_end) line_end = std::min(text.find('\n', dollar), text.size());
    const std::string_view rest = text.substr(dollar, line_end - dollar);
    if (!rest.starts_with("${")) {  // a lone $ is of assembler operands and the like
      literal += '$';
      at = dollar + (rest.starts_with("$$") ? 2 : 1);
      continue;
    }
    const std::size_t end = find_outside_quotes(rest.substr(2), "}");
    if (end == std::string_view::npos) {
      add_fault(faults, file, line, "${ has no } on its line");
      at = line_end;  // what follows on the line is not judged: where the expression was meant to end is unknown
      continue;
    }
    flush();
    nodes.push_back(substitution(file, trim(rest.substr(2, end)), line, faults));
    at = dollar + 2 + end + 1;
  }
  flush();
}

Template Template::parse(const std::string& file, const std::string& text) {
  std::vector<Fault> faults;
  auto body = std::make_shared<Body>();
  body->file = file;
  body->nodes = Parser(file, text).parse(faults);
  if (!faults.empty()) throw SpecError(std::move(faults));
  Template result;
  result.body_ = std::move(body);
  return result;
}

}  // namespace ejk::spec

// Bodies: declarations, labels, instructions and calls, which are inlined.
#include "emulator/ptx/parse/parse_body.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/ptx/parse/parse_operands.hpp"
#include "emulator/ptx/parse/parse_types.hpp"

namespace ejk::ptx::parsing {
namespace {

constexpr int deepest_call = 64;
constexpr std::size_t local_alignment = 16;

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

void split_opcode(Parsed& parsed) {
  parsed.words.reserve(static_cast<std::size_t>(std::count(parsed.opcode.begin(), parsed.opcode.end(), '.')) + 1);
  for (std::size_t begin = 0; begin <= parsed.opcode.size();) {
    const auto end = std::min(parsed.opcode.find('.', begin), parsed.opcode.size());
    parsed.words.push_back(parsed.opcode.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::string_view without_trailing_space(std::string_view text) { return text.substr(0, text.find_last_not_of(" \t\r\n") + 1); }

class BodyReader {
 public:
  BodyReader(const Module& module, const FunctionText& entry, std::set<std::string, std::less<>>& opcodes)
      : module_(module),
        entry_(entry),
        opcodes_(opcodes),
        reader_(module.text, entry.body, entry.body_line),
        operands_(reader_, scopes_, made_, [this](std::string_view name) { return find_in_module(name); }) {}

  EntryText read() {
    scopes_.open(true, 0);
    for (const auto& parameter : entry_.parameters) add_entry_parameter(parameter);
    read_block();
    close_scope();
    exit_at_end();
    finish_memory();
    return std::move(made_);
  }

 private:
  // Memory.

  void add_entry_parameter(const Declared& parameter) {
    const auto offset = round_up(made_.parameter_bytes, parameter.alignment);
    made_.parameters.push_back({offset, parameter.bytes});
    made_.parameter_bytes = offset + parameter.bytes;
    scopes_.declare_variable(parameter.name, {.space = Space::parameter, .address = offset, .bytes = parameter.bytes});
  }

  // Of a scope, until it closes.
  Meaning new_local(const Declared& declared) {
    const auto address = round_up(local_top_, declared.alignment);
    local_top_ = address + declared.bytes;
    made_.local_bytes = std::max(made_.local_bytes, round_up(local_top_, local_alignment));
    return {.space = Space::local, .address = address, .bytes = declared.bytes};
  }

  // There is one of each declaration, however often its function is called.
  Meaning shared_variable(const Declared& declared) {
    Meaning made{.space = Space::shared, .bytes = declared.bytes};
    if (declared.is_dynamic) {
      made_.has_dynamic_shared = made.is_dynamic = true;
      return made;
    }
    const auto [found, is_new] = shared_.try_emplace(declared.name.data(), round_up(made_.shared_bytes, declared.alignment));
    if (is_new) made_.shared_bytes = found->second + declared.bytes;
    made.address = reserved_shared + found->second;
    return made;
  }

  std::optional<Meaning> find_in_module(std::string_view name) {
    const auto found = module_.variable_of.find(name);
    if (found == module_.variable_of.end()) return std::nullopt;
    const auto& variable = *found->second;
    if (variable.space == Space::shared) return shared_variable(variable);
    if (variable.is_external) reader_.fail(fmt::format("variable '{}' is defined in another module", name));
    return Meaning{.space = variable.space, .address = variable.address, .bytes = variable.bytes};
  }

  // Dynamic shared memory begins behind what is static.
  void finish_memory() {
    std::size_t alignment = 16;
    for (const auto& variable : module_.variables)
      if (variable.is_dynamic) alignment = std::max(alignment, variable.alignment);
    if (made_.has_dynamic_shared) made_.shared_bytes = round_up(made_.shared_bytes, alignment);
    for (auto& constant : made_.constants)
      if (constant.is_dynamic) constant.bits += reserved_shared + made_.shared_bytes;
  }

  // Scopes and declarations.

  void close_scope() {
    local_top_ = scopes_.close([this](std::size_t statement, std::size_t target) {
      made_.statements[statement].step.target = static_cast<std::uint32_t>(target);
    });
  }

  void read_block() {
    reader_.expect('{');
    while (!reader_.accept('}')) read_line();
  }

  void read_line() {
    switch (reader_.peek()) {
      case '{':
        scopes_.open(false, local_top_);
        read_block();
        return close_scope();
      case ';':
        return reader_.expect(';');
      case '.':
        return read_directive();
      case '@':
        return read_guarded();
      default:
        return read_labelled();
    }
  }

  void read_directive() {
    const auto word = reader_.directive();
    if (word == ".loc" || word == ".file") return reader_.skip_line();
    if (word == ".pragma" || word == ".branchtargets" || word == ".calltargets" || word == ".callprototype") return reader_.skip_past(';');
    if (word == ".reg") return read_registers();
    if (word != ".local" && word != ".param" && word != ".shared") reader_.fail(fmt::format("directive '{}' is not known in a body", word));
    read_declarations(reader_, Space::local, [&](const Declared& declared) {
      scopes_.declare_variable(declared.name, word == ".shared" ? shared_variable(declared) : new_local(declared));
    });
    reader_.expect(';');
  }

  void read_registers() {
    const auto type = read_declared_type(reader_, Space::local);
    if (type.bytes > 8) reader_.fail(fmt::format("registers of type '{}' are not emulated", type.type));
    const auto kind = kind_of_type(type.type);
    do {
      const auto name = reader_.name();
      if (reader_.accept('<')) {
        scopes_.declare_range(name, static_cast<std::size_t>(reader_.integer()), kind);
        reader_.expect('>');
      } else {
        scopes_.declare_register(name, operands_.new_register(kind), kind);
      }
    } while (reader_.accept(','));
    reader_.expect(';');
  }

  // Instructions.

  void read_guarded() {
    reader_.expect('@');
    Statement statement;
    statement.guard_inverted = reader_.accept('!');
    const auto name = reader_.name();
    const auto found = operands_.find(name);
    if (!found || !found->is_register || found->kind != RegisterKind::predicate)
      reader_.fail(fmt::format("a predicate expected behind '@', '{}' found", name));
    statement.guard = found->id;
    statement.step.guarded = true;
    read_instruction(std::move(statement), reader_.name());
  }

  void read_labelled() {
    const auto name = reader_.name();
    if (reader_.accept_colon()) return scopes_.declare_label(name, made_.statements.size());
    read_instruction({}, name);
  }

  void read_instruction(Statement statement, std::string_view first) {
    const auto begin = static_cast<std::size_t>(first.data() - module_.text.data());
    auto& parsed = statement.parsed;
    parsed.line = reader_.line();
    parsed.opcode = reader_.at() == begin + first.size() ? reader_.rest_of_opcode(begin) : first;
    split_opcode(parsed);
    const auto word = parsed.words.front();
    if (word == "call") return read_call(statement);
    if (word == "bra")
      read_branch(statement);
    else
      operands_.read_all(statement);
    const auto text = reader_.from(begin);
    parsed.text = without_trailing_space(text.substr(0, text.size() - 1));
    if (word == "ret" && !calls_.empty()) return add_return(std::move(statement));
    statement.step.exits = word == "ret" || word == "exit" || word == "trap";
    if (parsed.words.size() > 1 && parsed.words[1].starts_with("param")) use_local_memory(parsed);
    made_.statements.push_back(std::move(statement));
  }

  void read_branch(Statement& statement) {
    statement.parsed.label = reader_.name();
    reader_.expect(';');
    statement.step.branches = true;
    scopes_.add_branch({made_.statements.size(), statement.parsed.label, statement.parsed.line});
  }

  // "ld.param" of an entry's parameters stays; parameters of functions, and those that a call is made with, are in local memory.
  void use_local_memory(Parsed& parsed) {
    const auto space = operands_.space_of_address();
    if (space ? *space != Space::local : calls_.empty()) return;
    std::string opcode(parsed.words[0]);
    parsed.words[1] = "local";
    for (std::size_t i = 1; i < parsed.words.size(); ++i) opcode += fmt::format(".{}", parsed.words[i]);
    parsed.opcode = *opcodes_.insert(std::move(opcode)).first;
    split_again(parsed);
  }

  static void split_again(Parsed& parsed) {
    parsed.words.clear();
    split_opcode(parsed);
  }

  // Calls.

  // Results or arguments of a call, in parentheses: variables of .param space.
  std::vector<Meaning> read_arguments() {
    std::vector<Meaning> made;
    reader_.expect('(');
    while (!reader_.accept(')')) {
      const auto name = reader_.name();
      const auto found = operands_.find(name);
      if (!found || found->is_register || found->space != Space::local)
        reader_.fail(fmt::format("a call's argument in .param space expected, '{}' found", name));
      made.push_back(*found);
      if (reader_.peek() != ')') reader_.expect(',');
    }
    return made;
  }

  void read_call(Statement& statement) {
    std::vector<Meaning> results, arguments;
    if (reader_.peek() == '(') {
      results = read_arguments();
      reader_.expect(',');
    }
    const auto name = reader_.name();
    if (reader_.accept(',')) arguments = read_arguments();
    reader_.skip_past(';');
    const auto found = module_.function_of.find(name);
    if (found == module_.function_of.end() || !found->second->has_body)
      fail_at(statement.parsed.line, fmt::format("function '{}', which is called, has no body in this module", name));
    const auto skip = made_.statements.size();
    if (statement.guard != no_slot) add_branch_around(statement);
    inline_call(*found->second, results, arguments);
    if (statement.guard != no_slot) made_.statements[skip].step.target = static_cast<std::uint32_t>(made_.statements.size());
  }

  void add_branch_around(const Statement& call) {
    auto around = call;
    around.parsed.text = "bra";
    around.parsed.opcode = "bra";
    split_again(around.parsed);
    around.guard_inverted = !call.guard_inverted;
    around.step.branches = true;
    made_.statements.push_back(std::move(around));
  }

  void bind(const FunctionText& function, const std::vector<Declared>& declared, const std::vector<Meaning>& given, std::string_view what) {
    if (declared.size() != given.size())
      reader_.fail(fmt::format("function '{}' has {} {}, {} given", function.name, declared.size(), what, given.size()));
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (declared[i].is_register) reader_.fail(fmt::format("'{}': a function's .reg parameters are not emulated", declared[i].name));
      if (declared[i].bytes > given[i].bytes)
        reader_.fail(fmt::format("'{}' has {} bytes, {} given", declared[i].name, declared[i].bytes, given[i].bytes));
      scopes_.declare_variable(declared[i].name, given[i]);
    }
  }

  void inline_call(const FunctionText& function, const std::vector<Meaning>& results, const std::vector<Meaning>& arguments) {
    if (calls_.size() >= deepest_call)
      reader_.fail(fmt::format("function '{}' is called at a depth of {}; does it call itself?", function.name, deepest_call));
    scopes_.open(true, local_top_);
    bind(function, function.results, results, "results");
    bind(function, function.parameters, arguments, "parameters");
    calls_.push_back({scopes_.depth(), {}});
    const Reader caller = reader_;
    reader_ = Reader(module_.text, function.body, function.body_line);
    read_block();
    reader_ = caller;
    const auto end = static_cast<std::uint32_t>(made_.statements.size());
    for (const auto statement : calls_.back().returns) made_.statements[statement].step.target = end;
    calls_.pop_back();
    close_scope();
  }

  // A branch to the end of the function, unless it is there already.
  void add_return(Statement statement) {
    if (statement.guard == no_slot && scopes_.depth() == calls_.back().depth && reader_.peek() == '}') return;
    statement.step.branches = true;
    calls_.back().returns.push_back(made_.statements.size());
    made_.statements.push_back(std::move(statement));
  }

  void exit_at_end() {
    auto& statements = made_.statements;
    const auto end = statements.size();
    const bool goes_on =
        statements.empty() || statements.back().step.guarded || (!statements.back().step.branches && !statements.back().step.exits);
    const bool is_target =
        std::any_of(statements.begin(), statements.end(), [&](const auto& each) { return each.step.branches && each.step.target == end; });
    if (!goes_on && !is_target) return;
    Statement made;
    made.parsed.text = made.parsed.opcode = "ret";
    made.parsed.line = reader_.line();
    split_opcode(made.parsed);
    made.step.exits = true;
    statements.push_back(std::move(made));
  }

  struct Call {
    std::size_t depth;  // of its outermost scope
    std::vector<std::size_t> returns;
  };

  const Module& module_;
  const FunctionText& entry_;
  std::set<std::string, std::less<>>& opcodes_;
  Reader reader_;
  Scopes scopes_;
  EntryText made_;
  OperandReader operands_;
  std::vector<Call> calls_;
  std::map<const char*, std::size_t> shared_;
  std::size_t local_top_ = 0;
};

}  // namespace

EntryText read_body(const Module& module, const FunctionText& entry, std::set<std::string, std::less<>>& opcodes) {
  return BodyReader(module, entry, opcodes).read();
}

}  // namespace ejk::ptx::parsing

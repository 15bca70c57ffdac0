// What a PTX module declares: directives of its outermost level.
#include "emulator/ptx/parse/parse_module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/ptx/parse/parse_types.hpp"

namespace ejk::ptx::parsing {

Declared read_declared_type(Reader& reader, Space space) {
  Declared made;
  made.space = space;
  std::size_t parts = 1;
  bool is_pointer = false;  // ".ptr .align N": what follows is of what it points to
  while (reader.peek() == '.') {
    const auto word = reader.directive().substr(1);
    is_pointer = is_pointer || word == "ptr";
    if (word == "align") {
      const auto alignment = static_cast<std::size_t>(reader.integer());
      if (!is_pointer) made.alignment = alignment;
    } else if (word == "v2" || word == "v4")
      parts = word == "v2" ? 2 : 4;
    else if (word == "attribute")
      reader.skip_past(')');
    else if (bits_of_type(word))
      made.type = word;
    else if (!is_pointer && word != "global" && word != "const" && word != "shared" && word != "local")
      reader.fail(fmt::format("a variable's type expected, '.{}' found", word));
  }
  if (made.type.empty()) reader.fail("a variable's type expected");
  made.bytes = parts * static_cast<std::size_t>(bits_of_type(made.type) + 7) / 8;
  made.alignment = std::max(made.alignment, made.bytes);
  return made;
}

void read_declared_name(Reader& reader, Declared& declared) {
  declared.line = (reader.peek(), reader.line());
  declared.name = reader.name();
  while (reader.accept('[')) {
    if (reader.accept(']')) {
      declared.elements = 0;
      continue;
    }
    declared.elements *= static_cast<std::size_t>(reader.integer());
    reader.expect(']');
  }
  declared.bytes *= declared.elements;
}

namespace {

class ModuleReader {
 public:
  explicit ModuleReader(std::string_view text) : reader_(text) { module_.text = text; }

  Module read() {
    while (reader_.peek()) {
      if (reader_.accept(';')) continue;
      read_directive(reader_.directive());
    }
    return std::move(module_);
  }

 private:
  void read_directive(std::string_view word) {
    if (word == ".visible" || word == ".weak" || word == ".common") return;
    const bool is_external = word == ".extern";
    if (is_external) word = reader_.directive();
    if (word == ".version")
      reader_.literal();
    else if (word == ".target")
      read_target();
    else if (word == ".address_size")
      read_address_size();
    else if (word == ".global" || word == ".const")
      read_variables(Space::global, is_external);
    else if (word == ".shared")
      read_variables(Space::shared, is_external);
    else if (word == ".entry" || word == ".func")
      read_function(word == ".entry");
    else if (word == ".loc" || word == ".file")
      reader_.skip_line();
    else if (word == ".section")
      reader_.rest_of_opcode((reader_.peek(), reader_.at())), reader_.skip_braces();
    else if (word == ".pragma" || word == ".alias")
      reader_.skip_past(';');
    else
      reader_.fail(fmt::format("directive '{}' is not known", word));
  }

  void read_target() {
    const auto target = reader_.name();
    if (!target.starts_with("sm_")) reader_.fail(fmt::format("a target like sm_90a expected, '{}' found", target));
    for (const char c : target.substr(3))
      if (Reader::is_digit(c)) module_.sm = module_.sm * 10 + (c - '0');
    while (reader_.accept(',')) reader_.name();
  }

  void read_address_size() {
    if (const auto bits = reader_.integer(); bits != 64) reader_.fail(fmt::format("addresses of 64 bits expected, {} found", bits));
  }

  void read_variables(Space space, bool is_external) {
    read_declarations(reader_, space, [&](Declared& declared) {
      declared.is_dynamic = space == Space::shared && declared.elements == 0;
      declared.is_external = is_external;
      if (reader_.accept('=')) skip_initializer(declared);
      auto& kept = module_.variables.emplace_back(declared);
      module_.variable_of[kept.name] = &kept;
    });
    reader_.expect(';');
  }

  // An array without a size has as many elements as values.
  void skip_initializer(Declared& declared) {
    declared.initializer = (reader_.peek(), reader_.at());
    std::size_t values = 1;
    for (int depth = 0; depth || (reader_.peek() != ';' && reader_.peek() != ',');) {
      const char c = reader_.peek();
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      values += c == ',';
      reader_.expect(c ? c : ';');
    }
    if (declared.elements == 0) declared.bytes = values * static_cast<std::size_t>(bits_of_type(declared.type) + 7) / 8;
  }

  std::vector<Declared> read_parameters() {
    std::vector<Declared> made;
    if (!reader_.accept('(')) return made;
    while (!reader_.accept(')')) {
      const bool is_register = reader_.directive() == ".reg";
      auto declared = read_declared_type(reader_, Space::parameter);
      read_declared_name(reader_, declared);
      declared.is_register = is_register;
      made.push_back(declared);
      if (reader_.peek() != ')') reader_.expect(',');
    }
    return made;
  }

  void read_function(bool is_entry) {
    FunctionText made;
    made.is_entry = is_entry;
    if (!is_entry) made.results = read_parameters();
    made.name = reader_.name();
    made.parameters = read_parameters();
    while (reader_.peek() == '.') read_limit(made);
    if (!reader_.accept(';')) {
      made.has_body = true;
      made.body = (reader_.peek(), reader_.at());
      made.body_line = reader_.line();
      reader_.skip_braces();
    }
    auto& kept = module_.functions.emplace_back(std::move(made));
    auto& known = module_.function_of[kept.name];
    if (!known || kept.has_body) known = &kept;
  }

  void read_limit(FunctionText& made) {
    const auto word = reader_.directive();
    if (word == ".pragma") return reader_.skip_past(';');
    std::size_t product = 1;
    while (reader_.at_literal()) {
      product *= static_cast<std::size_t>(reader_.integer());
      if (!reader_.accept(',')) break;
    }
    if (word == ".maxntid" || word == ".reqntid") made.most_threads = product;
  }

  Reader reader_;
  Module module_;
};

// The value of a variable, written into memory.
class Initializer {
 public:
  Initializer(const Module& module, const Declared& declared, char* memory)
      : module_(module),
        declared_(declared),
        reader_(module.text, declared.initializer, declared.line),
        at_(memory),
        end_(memory + declared.bytes) {}

  void read() {
    if (!reader_.accept('{')) return read_value();
    while (!reader_.accept('}')) {
      read();
      if (reader_.peek() != '}') reader_.expect(',');
    }
  }

 private:
  void read_value() {
    const auto bytes = static_cast<std::size_t>(bits_of_type(declared_.type) + 7) / 8;
    if (at_ + bytes > end_) reader_.fail(fmt::format("'{}' has more values than its {} bytes hold", declared_.name, declared_.bytes));
    const auto bits = reader_.at_literal() ? bits_as(reader_.literal(), declared_.type) : read_address();
    std::memcpy(at_, &bits, bytes);
    at_ += bytes;
  }

  std::uint64_t read_address() {
    const auto name = reader_.name();
    if (name == "generic") {
      reader_.expect('(');
      const auto address = read_address();
      reader_.expect(')');
      return address;
    }
    const auto found = module_.variable_of.find(name);
    if (found == module_.variable_of.end() || found->second->space != Space::global)
      reader_.fail(fmt::format("the address of a global variable expected, '{}' found", name));
    return found->second->address + (reader_.accept('+') ? static_cast<std::uint64_t>(reader_.integer()) : 0);
  }

  const Module& module_;
  const Declared& declared_;
  Reader reader_;
  char *at_, *end_;
};

}  // namespace

Module read_module(std::string_view text) { return ModuleReader(text).read(); }

void place_globals(Module& module, Program& program) {
  constexpr std::size_t alignment = 256;
  std::size_t bytes = 0;
  for (auto& variable : module.variables) {
    if (variable.space != Space::global) continue;
    if (variable.alignment > alignment)
      fail_at(variable.line,
              fmt::format("'{}' wants an alignment of {}, at most {} expected", variable.name, variable.alignment, alignment));
    bytes = (bytes + variable.alignment - 1) / variable.alignment * variable.alignment;
    variable.address = bytes;
    bytes += variable.bytes;
  }
  program.globals.assign(bytes + alignment, 0);
  const auto begin = reinterpret_cast<std::uintptr_t>(program.globals.data());
  program.global_memory = program.globals.data() + (alignment - begin % alignment) % alignment;
  for (auto& variable : module.variables)
    if (variable.space == Space::global) variable.address += reinterpret_cast<std::uintptr_t>(program.global_memory);
  for (auto& variable : module.variables)
    if (variable.initializer)
      Initializer(module, variable, program.global_memory + (variable.address - reinterpret_cast<std::uintptr_t>(program.global_memory)))
          .read();
}

}  // namespace ejk::ptx::parsing

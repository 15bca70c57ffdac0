// What a PTX module declares: variables, entries and functions; bodies are left as text.
#pragma once
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/ptx/parse/parse_reader.hpp"
#include "emulator/ptx/program.hpp"

namespace ejk::ptx::parsing {

enum class Space : std::uint8_t { global, shared, local, parameter };

// A variable or parameter as its declaration has it.
struct Declared {
  std::string_view name, type;
  Space space = Space::global;
  std::size_t bytes = 0, alignment = 1, elements = 1;
  bool is_dynamic = false;      // .extern .shared name[]
  bool is_register = false;     // a function's .reg parameter
  bool is_external = false;     // defined elsewhere
  std::uint64_t address = 0;    // of a global one, once the module is read
  std::size_t initializer = 0;  // where its value is in the text, or 0
  int line = 0;
};

struct FunctionText {
  std::string_view name;
  bool is_entry = false, has_body = false;
  std::vector<Declared> results, parameters;
  std::size_t most_threads = 1024;
  std::size_t body = 0;  // where its '{' is
  int body_line = 0;
};

struct Module {
  std::string_view text;
  int sm = 0;
  std::deque<Declared> variables;
  std::deque<FunctionText> functions;  // entries too, in the order of the text
  std::unordered_map<std::string_view, Declared*> variable_of;
  std::unordered_map<std::string_view, FunctionText*> function_of;
};

// Declarations of variables, the reader being behind ".global" and such: one or more names, up to ';' or a mark that ends parameters. Calls
// `take` for each.
template <class Take>
void read_declarations(Reader& reader, Space space, const Take& take);
Declared read_declared_type(Reader& reader, Space space);     // ".align 8 .b8"
void read_declared_name(Reader& reader, Declared& declared);  // "name[144]"

Module read_module(std::string_view text);
// Gives variables their places in `program`'s memory, and their values.
void place_globals(Module& module, Program& program);

template <class Take>
void read_declarations(Reader& reader, Space space, const Take& take) {
  const auto type = read_declared_type(reader, space);
  do {
    auto declared = type;
    read_declared_name(reader, declared);
    take(declared);
  } while (reader.accept(','));
}

}  // namespace ejk::ptx::parsing

// Every field of every object of the spec and arch files: the one list that the loader obeys and the JSON Schemas are tested against.
#pragma once
#include <span>
#include <string_view>
#include <vector>

namespace ejk::spec {

enum class FieldKind {
  doc,   // text that says something
  text,  // a string
  boolean,
  integer,
  list,
  object,
  expression,  // a string, or a number or boolean that stands for itself
  any,         // of several forms: its reader judges it
};

struct Field {
  std::string_view name;
  FieldKind kind;
  bool required = false;
};

// object: the name of the schema's definition ("kernel", "variant"); `open` ones also take the names a spec declares.
struct ObjectFields {
  std::string_view object;
  std::vector<Field> fields;
  bool open = false;
};

std::span<const ObjectFields> known_fields();
const ObjectFields& fields_of(std::string_view object);  // the object must be known

}  // namespace ejk::spec

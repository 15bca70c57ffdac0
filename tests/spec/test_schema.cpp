// The JSON Schemas name exactly the fields that the loader knows, and the same ones as required.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "spec/read/fields.hpp"
#include "spec/read/files.hpp"
#include "tests/paths.hpp"

namespace {

using namespace ejk::spec;
using nlohmann::json;

json schema(const std::string& name) {
  return json::parse(read_text(std::filesystem::path(ejk::test::source_dir()) / "specs/schema" / (name + ".schema.json")));
}

json definition_of(std::string_view object) {
  if (object == "kernel" || object == "arch") return schema(std::string(object));
  return schema("kernel").at("definitions").at(std::string(object));
}

TEST(Schema, NamesTheFieldsTheLoaderKnows) {
  for (const ObjectFields& row : known_fields()) {
    const json definition = definition_of(row.object);
    std::set<std::string> known, required, in_schema, required_in_schema;
    for (const Field& field : row.fields) {
      known.emplace(field.name);
      if (field.required) required.emplace(field.name);
    }
    for (const auto& [name, value] : definition.at("properties").items()) in_schema.insert(name);
    for (const auto& name : definition.value("required", json::array())) required_in_schema.insert(name);
    EXPECT_EQ(in_schema, known) << row.object;
    EXPECT_EQ(required_in_schema, required) << row.object;
    EXPECT_EQ(definition.at("additionalProperties") == json(false), !row.open) << row.object;
  }
}

TEST(Schema, DescribesEveryField) {
  for (const ObjectFields& row : known_fields()) {
    const json definition = definition_of(row.object);
    for (const auto& [name, value] : definition.at("properties").items())
      EXPECT_TRUE(value.contains("description") || value.contains("$ref")) << row.object << "." << name;
  }
}

}  // namespace

// image.json: what is written is read back, what is wrong is named.
#include "fixtures.hpp"

namespace ejk::store {
namespace {

ImageInfo sample() {
  return {"toy.a", "toy", "cpu:avx2", "0123456789abcdef", "g++ 12", {"g++", "-O3"}, std::string(64, 'a'), 7777, {{"code_bytes", 99}}, {}};
}

std::string refusal_of(const std::string& text) {
  try {
    (void)parse_image_info(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

std::string changed(const std::string& from, const std::string& to) {
  auto text = to_json(sample());
  const auto at = text.find(from);
  return at == std::string::npos ? "no " + from : text.replace(at, from.size(), to);
}

TEST(ImageJson, IsReadBackAsItWasWritten) {
  const auto info = parse_image_info(to_json(sample()));
  EXPECT_EQ(to_json(info), to_json(sample()));
  EXPECT_EQ(info.command, sample().command);
  EXPECT_EQ(info.resources, sample().resources);
  EXPECT_EQ(info.binary_bytes, 7777);
}

TEST(ImageJson, FaultsAreNamed) {
  EXPECT_EQ(refusal_of("[]"), "image.json: expected an object, found array");
  EXPECT_EQ(refusal_of("{}"), "image.json: field \"schema\" is missing");
  EXPECT_EQ(refusal_of(changed("\"id\"", "\"di\"")), "image.json: field \"id\" is missing");
  EXPECT_EQ(refusal_of(changed("\"toy.a\"", "7")), "image.json: \"id\": expected a string, found number");
  EXPECT_EQ(refusal_of(changed("7777", "-1")), "image.json: \"binary_bytes\": expected 0 or more, found -1");
  EXPECT_EQ(refusal_of(changed("7777", "1.5")), "image.json: \"binary_bytes\": expected a 64-bit integer, found number");
  EXPECT_EQ(refusal_of(changed("7777", "18446744073709551615")),
            "image.json: \"binary_bytes\": expected a 64-bit integer, found 18446744073709551615");
  EXPECT_EQ(refusal_of(changed("0123456789abcdef", "../../etc/passwd")),
            "image.json: \"source_hash\": expected 16 hexadecimal digits, found 16 characters");
  EXPECT_EQ(refusal_of(changed("\"-O3\"", "3")), "image.json: \"command\": expected a list of strings, found number in it");
  EXPECT_EQ(refusal_of(changed("99", "\"99\"")), "image.json: \"resources/code_bytes\": expected a 64-bit integer, found string");
  EXPECT_EQ(refusal_of(changed("\"schema\": 1", "\"schema\": 2")), "image.json: schema 2 is unknown: expected 1");
  EXPECT_EQ(refusal_of(std::string(1000, '[')), "image.json: nested deeper than 8 levels");
  EXPECT_EQ(refusal_of("nonsense").substr(0, 21), "image.json: not JSON:");
}

TEST(ImageJson, OfAnOlderEjkHasNoHashOfTheMachineCode) {
  auto info = sample();
  EXPECT_EQ(to_json(info).find("\"code\""), std::string::npos);
  EXPECT_EQ(parse_image_info(to_json(info)).code, "");
  info.code = "fedcba9876543210";
  EXPECT_EQ(parse_image_info(to_json(info)).code, info.code);
  info.code = "none";
  EXPECT_EQ(refusal_of(to_json(info)), "image.json: \"code\": expected 16 hexadecimal digits, found 4 characters");
}

TEST(ImageJson, HoldsACompilerNameThatIsNotUtf8) {
  auto info = sample();
  info.compiler = "g\xff++";
  EXPECT_EQ(parse_image_info(to_json(info)).id, "toy.a");
}

TEST(Sha256, MatchesThePublishedVector) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace ejk::store

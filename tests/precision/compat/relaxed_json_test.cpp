// JSON with common deviations.
#include "mantissa/precision/compat/relaxed_json.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "precision/policy/message.h"

namespace mantissa::compat {
namespace {

using namespace precision;

using Kind = JsonValue::Kind;

JsonValue parsed(std::string_view text) {
  return parse_relaxed_json(text, "ds.json");
}

TEST(RelaxedJson, ReadsJson) {
  const JsonValue v = parsed("{\"a\": 1.5e3, \"b\": [true, null, \"x\\u00e9\\n\"], \"c\": {\"d\": -2}}");
  ASSERT_EQ(v.kind, Kind::object);
  EXPECT_EQ(v.keys, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(v.find("a")->number, 1500);
  EXPECT_EQ(v.find("a")->text, "1.5e3");
  EXPECT_TRUE(v.find("b")->items[0].flag);
  EXPECT_EQ(v.find("b")->items[1].kind, Kind::null);
  EXPECT_EQ(v.find("b")->items[2].text, "x\xc3\xa9\n");
  EXPECT_EQ(v.find("c")->find("d")->number, -2);
  EXPECT_EQ(v.find("e"), nullptr);
}

TEST(RelaxedJson, ReadsCommentsAndPythonsLiterals) {
  const JsonValue v = parsed(
      "# from a notebook\nds_config = {  // the engine's\n  'fp16': {'enabled': True, 'scale': None,},\n"
      "  /* two\n     lines */ \"betas\": (0.9, .95,),\n  big: 5_000, \"off\": False, 'plus': +2.,\n};\n");
  EXPECT_TRUE(v.find("fp16")->find("enabled")->flag);
  EXPECT_EQ(v.find("fp16")->find("scale")->kind, Kind::null);
  EXPECT_EQ(v.find("betas")->items[1].number, 0.95);
  EXPECT_EQ(v.find("betas")->line, 5);
  EXPECT_EQ(v.find("big")->number, 5000);
  EXPECT_EQ(v.find("off")->kind, Kind::boolean);
  EXPECT_FALSE(v.find("off")->flag);
  EXPECT_EQ(v.find("plus")->number, 2);
}

TEST(RelaxedJson, ReadsMembersWithoutTheirBraces) {
  const JsonValue v = parsed("\"fp16\": {\"enabled\": true},\n'bf16': {},\n");
  EXPECT_EQ(v.keys, (std::vector<std::string>{"fp16", "bf16"}));
}

TEST(RelaxedJson, NamesTheLineOfAFault) {
  const std::pair<const char*, const char*> faults[] = {
      {"", "ds.json:1: must be an object"},
      {"[1]", "ds.json:1: must be an object"},
      {"\n{\"a\": 1", "ds.json:2: the bracket on line 2 is not closed"},
      {"{\"a\": 1\n \"b\": 2}", "ds.json:2: a comma is missing before \"\"\""},
      {"{\"a\" 1}", "a colon is missing after \"a\", before \"1\""},
      {"{\"a\": 1, \"a\": 2}", "\"a\" is set twice"},
      {"{\"a\": enable_fp16}", "expected a value, got the name \"enable_fp16\""},
      {"{\"a\": }", "expected a value, got \"}\""},
      {"{\"a\":", "expected a value, got the end of the file"},
      {"{,}", "expected a key, got \",\""},
      {"{\"a\": \"x\n\"}", "a string is not closed on its line"},
      {"{\"a\": \"\\u12\"}", "four hexadecimal digits"},
      {"{\"a\": 1.2.3}", "\"1.2.3\" is not a number"},
      {"{\"a\": 1e999}", "is outside the range of f64"},
      {"{\"a\": -inf}", "is not finite"},
      {"{\"a\": NaN}", "expected a value, got the name \"NaN\""},
      {"{} {}", "expected the end of the file after the object, got \"{\""},
      {"{\"a\": 1 /* ", "is not closed"},
  };
  for (const auto& [text, expected] : faults) {
    const std::string message = message_of([&] { parsed(text); });
    EXPECT_NE(message.find(expected), std::string::npos) << text << "\n" << message;
  }
}

TEST(RelaxedJson, RejectsFilesThatAreNotText) {
  EXPECT_THROW(parsed(std::string_view("{\"a\": \0}", 8)), FileError);
  EXPECT_THROW(parsed("{\"\xff\": 1}"), FileError);
  EXPECT_THROW(parsed("{\"\xed\xa0\x80\": 1}"), FileError);
  EXPECT_THROW(parsed(std::string((std::size_t{1} << 20) + 1, ' ')), FileError);
  const std::string deep = message_of([] { parsed("{\"a\": " + std::string(100, '[')); });
  EXPECT_NE(deep.find("nests deeper than 64"), std::string::npos) << deep;
}

}  // namespace
}  // namespace mantissa::compat

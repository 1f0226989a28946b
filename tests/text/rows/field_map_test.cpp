// Fields of files under the names by which rows are read.
#include "mantissa/text/rows/field_map.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/conversation_row.h"
#include "mantissa/text/rows/row_reader.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using Json = nlohmann::ordered_json;

Json mapped(FieldMap map, const std::string& json) {
  Json row = Json::parse(json);
  FieldMapper(std::move(map)).apply(row, "f.jsonl:7");
  return row;
}
std::string refusal(const FieldMap& map, const std::string& json) {
  return error_of<FileError>([&] { mapped(map, json); });
}

const FieldMap kExchange = {{"prompt", {"query"}}, {"completion", {"reply"}}};

TEST(FieldMap, ReplacesTheFieldsThatWouldBeReadInTheirPlace) {
  const std::string json =
      R"({"query": "q", "reply": "a", "instruction": "x", "answer": "y", "messages": [], "id": 3})";
  const Json row = mapped(kExchange, json);
  EXPECT_EQ(row, Json::parse(R"({"query": "q", "reply": "a", "id": 3, "prompt": "q", "completion": "a"})"));
  EXPECT_EQ(read_conversation(row, "").texts, std::pair(std::string("q"), std::string("a")));
}

TEST(FieldMap, MayExchangeTwoNames) {
  const Json row = mapped({{"prompt", {"completion"}}, {"completion", {"prompt"}}},
                          R"({"prompt": "a", "completion": "b"})");
  EXPECT_EQ(row["prompt"], "b");
  EXPECT_EQ(row["completion"], "a");
}

TEST(FieldMap, JoinsTextsWithABlankLine) {
  const FieldMap map = {{"text", {"title", "body"}}};
  EXPECT_EQ(mapped(map, R"({"title": "t", "body": "b"})")["text"], "t\n\nb");
  EXPECT_EQ(mapped(map, R"({"title": null, "body": "b"})")["text"], "b");
  EXPECT_EQ(mapped(map, R"({"title": "", "body": "b"})")["text"], "b");
  EXPECT_EQ(refusal(map, R"({"title": "t", "body": 3})"),
            "f.jsonl:7: \"body\" is of type number; it is joined to \"text\", so it must be a string");
}

TEST(FieldMap, RefusesARowWithoutTheField) {
  EXPECT_EQ(refusal(kExchange, R"({"quary": "q", "reply": "a"})"),
            "f.jsonl:7: no field \"query\", the source of \"prompt\". The row's fields: quary, "
            "reply; did you mean \"quary\"?");
  EXPECT_TRUE(mapped(kExchange, R"({"query": null, "reply": "a"})")["prompt"].is_null());
}

TEST(FieldMap, ChecksTheWholeFileForAFieldThatARowNeedNotHave) {
  const TempFiles files;
  FileFormat format;
  format.fields = {{"instruction", {"q"}}, {"system", {"rules"}}};
  const auto count = [&](const std::string& rows) {
    int found = 0;
    read_rows(
        files.write("r.jsonl", rows),
        [&](const Json& row, const FilePlace& /*place*/) {
          found += row.contains("system") ? 1 : 0;
          return true;
        },
        format);
    return found;
  };
  EXPECT_EQ(count("{\"q\": \"a\"}\n{\"q\": \"b\", \"rules\": \"s\"}\n"), 1);
  EXPECT_TRUE(has(error_of<FileError>([&] { count("{\"q\": \"a\"}\n"); }),
                  "r.jsonl: no row has the field \"rules\", the source of \"system\". Fix: "));
}

}  // namespace
}  // namespace mantissa::text

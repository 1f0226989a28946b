// data.fields, the names that fields of rows have in files.
#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

RunConfig read_fields_of(const std::string& objective, const std::string& fields, Told* told = nullptr) {
  const Strings overrides = {"train.objective=" + objective, "data.source=rows.json",
                             "data.fields=" + fields};
  return parse_config(kSmallest, "/c/run.toml", overrides, {}, told);
}
std::string refusal_of(const std::string& objective, const std::string& fields) {
  return message_of([&] { read_fields_of(objective, fields); });
}

TEST(DataFields, AreATableOfNamesThatPrintsAndReadsBack) {
  Told told;
  const RunConfig run =
      read_fields_of("sft", "{prompt = [\"query\", \"context\"], completion = \"reply\"}", &told);
  EXPECT_EQ(run.data.fields, (text::FieldMap{{"completion", {"reply"}}, {"prompt", {"query", "context"}}}));
  const std::string printed = run.to_toml();
  EXPECT_NE(printed.find("\nfields = {completion = \"reply\", prompt = [\"query\", \"context\"]}\n"),
            std::string::npos)
      << printed;
  EXPECT_EQ(parse_config(printed, "/c/run.toml"), run);
  EXPECT_NE(std::ranges::find(told.notes,
                              "data.fields: completion is \"reply\", prompt is \"query\" + \"context\""),
            told.notes.end());
  const std::string section = "[data.fields]\ntext = \"body\"\n";
  EXPECT_EQ(parse_config(kSmallest + section, "/c/run.toml").data.fields,
            (text::FieldMap{{"text", {"body"}}}));
}

TEST(DataFields, ChangeNoPrintedConfigWithoutThem) {
  EXPECT_EQ(parse_config(kSmallest, "/c/run.toml").to_toml().find("fields"), std::string::npos);
}

TEST(DataFields, AreThoseOfTheObjective) {
  EXPECT_EQ(
      refusal_of("pretrain", "{prompt = \"q\"}"),
      "--set: data.fields = a table: train.objective = \"pretrain\" reads no field \"prompt\" (fields: text)");
  EXPECT_NE(refusal_of("sft", "{promt = \"q\"}").find("no field \"promt\"; did you mean \"prompt\"?"),
            std::string::npos);
  EXPECT_NE(refusal_of("dpo", "{completion = \"q\"}").find("reads no field \"completion\""),
            std::string::npos);
  EXPECT_NO_THROW(read_fields_of("dpo", "{chosen = \"a\", rejected = \"b\", margin = \"m\"}"));
  EXPECT_NE(refusal_of("sft", "{prompt = \"q\", input = \"c\"}").find("input follows instruction"),
            std::string::npos);
  EXPECT_NO_THROW(read_fields_of("sft", "{instruction = \"q\", input = \"c\"}"));
}

TEST(DataFields, OfOtherTypesAreRefused) {
  EXPECT_NE(refusal_of("sft", "query").find("must be a table, such as {prompt = \"query\""),
            std::string::npos);
  EXPECT_NE(refusal_of("sft", "{prompt = 3}").find("data.fields.prompt = 3: must be a string"),
            std::string::npos);
  EXPECT_NE(refusal_of("sft", "{prompt = []}").find("must not be empty"), std::string::npos);
  EXPECT_NE(refusal_of("sft", "{prompt = \"\"}").find("must not be empty"), std::string::npos);
  const Strings one = {"data.fields.prompt=query"};
  EXPECT_NE(message_of([&] {
              parse_config(kSmallest, "/c/run.toml", one);
            }).find("data.fields is a key, not a section; write data.fields={NAME = "),
            std::string::npos);
}

}  // namespace
}  // namespace mantissa::config

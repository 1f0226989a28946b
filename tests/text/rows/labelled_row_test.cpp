// Rows of answers with a label.
#include "mantissa/text/rows/labelled_row.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mantissa/core/base/error.h"

namespace mantissa::text {
namespace {

std::vector<LabelledRow> read(const char* text) {
  return read_labelled(nlohmann::ordered_json::parse(text), "rows.jsonl:3");
}

std::string label_refusal(const std::string& row) {
  try {
    read(row.c_str());
  } catch (const FileError& e) {
    return e.what();
  }
  return "";
}

TEST(LabelledRow, HasAConversationAndALabel) {
  for (const char* yes : {"true", "1", R"("true")", R"("1 ")", R"("True")"}) {
    const std::string row = R"({"prompt": "p", "completion": "c", "label": )" + std::string(yes) + "}";
    const std::vector<LabelledRow> rows = read(row.c_str());
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_TRUE(rows[0].desirable) << yes;
    EXPECT_EQ(rows[0].row.texts->second, "c");
  }
  for (const char* no : {"false", "0", R"("false")", R"("0")"}) {
    const std::string row =
        R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "c"}], "label": )" +
        std::string(no) + "}";
    const std::vector<LabelledRow> rows = read(row.c_str());
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_FALSE(rows[0].desirable) << no;
    EXPECT_EQ(rows[0].row.messages.size(), 2U);
  }
}

TEST(LabelledRow, IsEitherAnswerOfAPair) {
  const std::vector<LabelledRow> rows = read(R"({"prompt": "p", "chosen": "good", "rejected": "bad"})");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(rows[0].desirable);
  EXPECT_EQ(rows[0].row.texts->second, "good");
  EXPECT_FALSE(rows[1].desirable);
  EXPECT_EQ(rows[1].row.texts->second, "bad");
}

TEST(LabelledRow, WithoutALabelIsAnError) {
  EXPECT_TRUE(label_refusal(R"({"prompt": "p", "completion": "c"})")
                  .starts_with("rows.jsonl:3: no \"label\"; a row has"));
  for (const char* other : {"2", "0.5", R"("good")", "[]", "{}"}) {
    const std::string message =
        label_refusal(R"({"prompt": "p", "completion": "c", "label": )" + std::string(other) + "}");
    EXPECT_NE(message.find("expected true for a desirable answer, or false"), std::string::npos) << other;
  }
}

}  // namespace
}  // namespace mantissa::text

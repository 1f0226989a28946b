// Files of responses.
#include "mantissa/text/reward/responses.h"

#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "text/rows/temp_files.h"

namespace mantissa::reward {
namespace {

using text::error_of;
using text::has;

TEST(ResponsesOfAFile, AreScoredRowByRow) {
  const text::TempFiles files;
  std::string lines;
  for (int i = 0; i < 600; ++i) {  // more than are scored together
    lines +=
        R"({"response": ")" + std::to_string(i % 3) + R"(", "answer": 1})" + (i % 5 == 0 ? "\n\n" : "\n");
  }
  const auto rule = make_rule("exact");
  const auto scores = score_file(*rule, files.write("r.jsonl", lines));
  ASSERT_TRUE(scores);
  ASSERT_EQ(scores->size(), 600U);
  for (int i = 0; i < 600; ++i) EXPECT_EQ(scores->at(i).total, i % 3 == 1 ? 1 : 0) << i;
  EXPECT_TRUE(score_file(*rule, files.write("empty.jsonl", ""))->empty());
}

TEST(ResponsesOfAFile, FaultsAreNamedByFileAndLine) {
  const text::TempFiles files;
  const std::string good = R"({"response": "a", "answer": "a", "solution_text_format": ""})"
                           "\n";
  const auto error = [&](const std::string& rule, const std::string& line) {
    const std::string path = files.write("r.jsonl", good + "\n" + line + "\n" + good);
    return error_of<FileError>([&] { score_file(*make_rule(rule), path); });
  };
  EXPECT_TRUE(has(error("exact", "{"), "r.jsonl:3: not JSON"));
  EXPECT_TRUE(has(error("exact", "[]"), "r.jsonl:3: is a JSON array"));
  EXPECT_TRUE(has(error("exact", R"({"answer": "a"})"), "r.jsonl:3: no \"response\"; expected a string"));
  EXPECT_TRUE(
      has(error("exact", R"({"response": 1, "answer": "a"})"), "r.jsonl:3: \"response\" is of type number"));
  EXPECT_TRUE(has(error("exact", R"({"response": "a"})"), "r.jsonl:3: no right answer"));
  EXPECT_TRUE(
      has(error("exact", R"({"response": "a", "prompt": [], "answer": 1})"), "r.jsonl:3: \"prompt\" is of"));
  EXPECT_TRUE(has(error("kk", R"({"response": "a"})"), "r.jsonl:3: no \"solution_text_format\""));
  EXPECT_TRUE(has(error("kk", R"({"response": "a", "solution_text_format": [1]})"),
                  "r.jsonl:3: \"solution_text_format\" is of type array; expected a string"));
  EXPECT_TRUE(has(error_of<FileError>([] { score_file(*make_rule("kk"), "no such file"); }), "no such file"));
}

TEST(ResponsesOfAFile, AProgramGetsTheWholeRow) {
  const text::TempFiles files;
  const std::string path = files.write("r.jsonl", R"({"x": 7, "prompt": "p", "response": "a"})"
                                                  "\n");
  const auto rule = make_rule(
      R"(program:while read -r l; do case "$l" in '{"prompt":"p","response":"a","row":{"x":7,"prompt":"p","response":"a"}}') echo '{"reward": 1}';; *) echo '{"reward": 0}';; esac; done)");
  EXPECT_EQ(score_file(*rule, path)->at(0).total, 1);
}

}  // namespace
}  // namespace mantissa::reward

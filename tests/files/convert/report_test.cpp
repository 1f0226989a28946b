// Reports as text: tensors without errors are one line, and names of files reach no terminal as they are.
#include "mantissa/files/convert/report.h"

#include "files/convert/convert_testing.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/convert/inspect.h"

namespace mantissa::convert {
namespace {

RewrittenTensor tensor(const std::string& name, io::Dtype to, double error) {
  RewrittenTensor t{name, {2}, io::Dtype::f32, to};
  t.errors.count = t.errors.measured = 2;
  t.errors.max_abs = error;
  return t;
}

std::vector<std::string> lines_of(const Report& report) {
  std::vector<std::string> lines;
  const std::string text = to_text(report);
  for (const std::string_view line : split_words(text, "\n")) lines.emplace_back(line);
  return lines;
}

TEST(ConvertReport, TensorsWithoutErrorsAreOneLineOfEachDtype) {
  Report report;
  report.result.tensors = {tensor("a", io::Dtype::f32, 0), tensor("b", io::Dtype::bf16, 0.5),
                           tensor("c", io::Dtype::f32, 0), tensor("d", io::Dtype::f32, 0),
                           tensor("e", io::Dtype::bf16, 0)};
  const std::vector<std::string> lines = lines_of(report);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_TRUE(lines[1].starts_with("b                F32 to BF16")) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("3 exact tensors  F32  ")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("e                F32 to BF16")) << lines[3];
  EXPECT_TRUE(lines[4].starts_with("all ")) << lines[4];
  EXPECT_NE(lines[5].find("5 tensors"), std::string::npos) << lines[5];
}

TEST(ConvertReport, ATensorWithAValueThatBecameInfiniteKeepsItsLine) {
  Report report;
  report.result.tensors = {tensor("a", io::Dtype::f16, 0), tensor("b", io::Dtype::f16, 0)};
  report.result.tensors[1].errors.measured = 1;
  EXPECT_TRUE(lines_of(report)[1].starts_with("b "));
  report.result.tensors[1].errors.measured = 2;
  report.result.tensors[1].errors.vanished = 1;
  EXPECT_TRUE(lines_of(report)[1].starts_with("b "));
}

class HostileNames : public Convert {
 protected:
  /// Returns true if `text` has neither a control character nor a line that begins with "forged".
  static bool is_harmless(const std::string& text) {
    const bool controls = std::ranges::any_of(text, [](char c) { return (c >= 0 && c < ' ' && c != '\n'); });
    return !controls && text.find("\nforged") == std::string::npos &&
           text.find("\u202e") == std::string::npos;
  }
};

TEST_F(HostileNames, AreEscapedInEveryText) {
  const std::string name = "w\x1b[2J\nforged \u202e";
  std::vector<io::TensorToWrite> all = tensors();
  all.front().name = name;
  io::write_safetensors(folder / "in.safetensors", all,
                        {{"mantissa.policy", "\x1b]0;x\a"}, {kHistoryKey, "a\nforged"}});
  const Inspection seen = inspect(folder / "in.safetensors", {});
  EXPECT_TRUE(is_harmless(to_text(seen))) << to_text(seen);
  EXPECT_NE(to_text(seen).find(R"(w\x1b[2J\x0aforged \u{202e})"), std::string::npos) << to_text(seen);
  EXPECT_NE(to_json(seen).find(R"("w\u001b[2J\nforged )"), std::string::npos) << "JSON has its own escapes";
  Report report;
  report.out = folder / "out\x1b[2J";
  report.result = run(folder / "in.safetensors", folder / "out", {Scalar::bf16});
  report.result.left_out = {"x\nforged"};
  report.notes = {"a\x1b[2J\nforged"};
  EXPECT_TRUE(is_harmless(to_text(report))) << to_text(report);
  EXPECT_NE(to_text(report).find(R"(w\x1b[2J\x0aforged)"), std::string::npos) << to_text(report);
}

}  // namespace
}  // namespace mantissa::convert

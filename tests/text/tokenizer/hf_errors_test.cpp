// Damaged and unsupported tokenizer files: one message with the file, the place and what to do.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/tokenizer.h"
#include "text/rows/temp_files.h"

namespace mantissa::tokenizer {
namespace {

using nlohmann::json;
using text::error_of;
using text::has;

json smallest() {
  return json::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
      "post_processor": null, "decoder": null,
      "model": {"type": "BPE", "unk_token": null, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
}

json added(const std::string& content) {
  return {{"id", 3},         {"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", true}, {"special", true}};
}

struct Fault {
  const char* name;
  json::json_pointer where;
  json value;
  std::vector<std::string> parts;  // of the message
};

class HfFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(HfFaults, IsOneMessageWithTheFileAndThePlace) {
  text::TempFiles files;
  json tokenizer = smallest();
  tokenizer[GetParam().where] = GetParam().value;
  const std::string file = files.write("tokenizer.json", tokenizer.dump());
  const std::string message = error_of<FileError>([&] { make_tokenizer(file); });
  EXPECT_TRUE(has(message, file + ": $"));
  EXPECT_TRUE(has(message, "Fix: "));
  for (const std::string& part : GetParam().parts) EXPECT_TRUE(has(message, part));
}

json nested_groups() {
  return {{"type", "Split"},
          {"pattern", {{"Regex", std::string(500, '(') + "a" + std::string(500, ')')}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

const Fault kFaults[] = {
    {"IdTooLarge",
     "/model/vocab/b"_json_pointer,
     std::uint64_t{1} << 31,
     {"model.vocab", "\"b\" is 2147483648"}},
    {"IdNegative", "/model/vocab/b"_json_pointer, -1, {"\"b\" is -1"}},
    {"IdFraction", "/model/vocab/b"_json_pointer, 1.5, {"\"b\" is 1.5"}},
    {"IdTwice", "/model/vocab/b"_json_pointer, 0, {"two tokens have the same id"}},
    {"VocabularyIsAnArray", "/model/vocab"_json_pointer, json::array(), {"$.model.vocab", "object"}},
    {"MergeOfUnknownToken",
     "/model/merges/0"_json_pointer,
     {"a", "c"},
     {"merge 0", "\"c\" is not in the vocabulary"}},
    {"MergeToUnknownToken", "/model/merges/0"_json_pointer, "b a", {"merge 0", "\"ba\""}},
    {"MergeOfThree", "/model/merges/0"_json_pointer, "a b c", {"not two tokens"}},
    {"MergeIsANumber", "/model/merges/0"_json_pointer, 7, {"expected two tokens"}},
    {"Dropout", "/model/dropout"_json_pointer, 0.1, {"$.model.dropout", "random"}},
    {"UnknownTokenMissing", "/model/unk_token"_json_pointer, "<unk>", {"$.model.unk_token", "\"<unk>\""}},
    {"ModelType", "/model/type"_json_pointer, "Trie", {"$.model", "\"Trie\"", "Unigram"}},
    {"NormalizerType", "/normalizer"_json_pointer, {{"type", "NFX"}}, {"$.normalizer.type", "\"NFX\""}},
    {"PreTokenizerType",
     "/pre_tokenizer"_json_pointer,
     {{"type", "Words"}},
     {"$.pre_tokenizer.type", "\"Words\""}},
    {"PostProcessorType", "/post_processor"_json_pointer, {{"type", "X"}}, {"$.post_processor.type"}},
    {"DecoderType", "/decoder"_json_pointer, {{"type", "CTC"}}, {"$.decoder.type", "\"CTC\""}},
    {"NumberForText",
     "/normalizer"_json_pointer,
     {{"type", "Prepend"}, {"prepend", 3}},
     {"$.normalizer.prepend", "got 3"}},
    {"MissingKey", "/normalizer"_json_pointer, {{"type", "Strip"}}, {"$.normalizer", "is missing"}},
    {"BrokenPattern",
     "/normalizer"_json_pointer,
     {{"type", "Replace"}, {"pattern", {{"Regex", "a)"}}}, {"content", ""}},
     {"$.normalizer.pattern", "unmatched )"}},
    {"DeepPattern",
     "/pre_tokenizer"_json_pointer,
     nested_groups(),
     {"$.pre_tokenizer.pattern", "nest too deep"}},
    {"BrokenCharsmap",
     "/normalizer"_json_pointer,
     {{"type", "Precompiled"}, {"precompiled_charsmap", "!"}},
     {"$.normalizer.precompiled_charsmap"}},
    {"TemplateIdOutOfRange",
     "/post_processor"_json_pointer,
     {{"type", "BertProcessing"}, {"sep", {"b", 1}}, {"cls", {"x", 9}}},
     {"$.post_processor.cls[1]", "0 to 2", "got 9"}},
    {"AddedTokenWithoutFlags",
     "/added_tokens/0"_json_pointer,
     {{"id", 3}, {"content", "x"}},
     {"$.added_tokens[0]", "\"single_word\" is missing"}},
};

INSTANTIATE_TEST_SUITE_P(Faults, HfFaults, ::testing::ValuesIn(kFaults),
                         [](const auto& fault) { return fault.param.name; });

TEST(HfTokenizer, OfEqualKeysTheLastCounts) {
  const auto with = [](const std::string& model) {
    const text::TempFiles files;
    return make_tokenizer(files.write("tokenizer.json", "{" + model + "}"));
  };
  const std::string merges = R"("merges": [["a", "b"]])";
  const std::string tail = R"("type": "BPE", "vocab": {"b": 1, "a": 1, "a": 5, "ab": 2, "a": 0}, )" + merges;
  const std::string first = R"("model": {"type": "BPE", "vocab": {"x": 0}, "merges": []}, )";
  for (const std::string& model :
       {R"("model": {)" + tail + "}", first + R"("model": {)" + tail + "}",
        R"("model": {"vocab": {"y": 7}, )" + tail + "}", R"("model": {"vocab": [1], )" + tail + "}"}) {
    const auto tokenizer = with(model);
    EXPECT_EQ(tokenizer->encode("abba"), (std::vector<std::int32_t>{2, 1, 0})) << model;
    EXPECT_EQ(tokenizer->token_of(1), "b") << model;
    EXPECT_EQ(tokenizer->token_of(5), std::nullopt) << model;
    EXPECT_EQ(tokenizer->id_of("x"), std::nullopt) << model;
  }
  EXPECT_THROW(with(R"("model": {)" + tail + R"(}, "model": {"type": "BPE", )" + merges + "}"), FileError);
}

TEST(HfTokenizer, NamesAFileThatIsMissingOrNotJson) {
  text::TempFiles files;
  const std::string missing = files.path("missing.json");
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(missing); }), missing));
  const std::string broken = files.write("broken.json", "{\"model\": ");
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(broken); }),
                  "broken.json: is truncated: its JSON does not end with the file's 10 bytes. Fix: "));
  const std::string wrong = files.write("wrong.json", "{\"model\": ]}");
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(wrong); }),
                  "wrong.json: not valid JSON at byte 11. Fix: "));
  const std::string empty = files.write("empty.json", "");
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(empty); }), "empty.json: is empty. Fix: "));
  const std::string deep = files.write("deep.json", std::string(1'000'000, '['));
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(deep); }), "64 levels"));
}

TEST(HfTokenizer, APatternThatExplodesIsAnError) {
  text::TempFiles files;
  json spec = smallest();
  spec["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a|aa|b)+c"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const auto tokenizer = make_tokenizer(files.write("tokenizer.json", spec.dump()));
  const std::string message = error_of<ConfigError>([&] { tokenizer->encode(std::string(100, 'a') + "xc"); });
  EXPECT_TRUE(has(message, "(a|aa|b)+c"));
}

TEST(HfTokenizer, ATextThatReplacementsMakeTooLongIsAnError) {
  text::TempFiles files;
  json spec = smallest();
  spec["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(2'000'000, 'b')}};
  const auto tokenizer = make_tokenizer(files.write("tokenizer.json", spec.dump()));
  const std::string message = error_of<ConfigError>([&] { tokenizer->encode(std::string(1000, 'a')); });
  EXPECT_TRUE(has(message, "Fix: "));
}

/// Each step doubles a text at most, but all of them together do not.
TEST(HfTokenizer, StepsThatTogetherMakeATextTooLongAreAnError) {
  text::TempFiles files;
  json spec = smallest();
  const std::string some(1000, 'a');
  json doubling = json::array();
  for (int i = 0; i < 40; ++i)
    doubling.push_back({{"type", "Replace"}, {"pattern", {{"String", some}}}, {"content", some + some}});
  spec["normalizer"] = {{"type", "Sequence"}, {"normalizers", doubling}};
  const auto tokenizer = make_tokenizer(files.write("tokenizer.json", spec.dump()));
  EXPECT_TRUE(has(error_of<ConfigError>([&] { tokenizer->encode(some); }), "Fix: "));

  const auto token = [](const std::string& content, int id) -> json {
    return {{"id", id},        {"content", content}, {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", true}, {"special", false}};
  };
  spec["added_tokens"] = {token(some, 3)};
  const std::string path = files.write("token.json", spec.dump());
  EXPECT_TRUE(has(error_of<ConfigError>([&] { make_tokenizer(path); }), "Fix: "));

  spec["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(3'000'000, 'b')}};
  spec["added_tokens"] = json::array();
  for (int i = 0; i < 40; ++i) spec["added_tokens"].push_back(token("a" + std::to_string(i), 3 + i));
  const std::string many = files.write("many.json", spec.dump());
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(many); }), "set normalized to false"));
}

TEST(HfTokenizer, ReportsAnIdOutOfRangeWithItsPosition) {
  text::TempFiles files;
  const auto tokenizer = make_tokenizer(files.write("tokenizer.json", smallest().dump()));
  for (const std::int32_t bad : {3, -1, 50277}) {
    const std::string message = error_of<ConfigError>([&] {
      tokenizer->decode(std::vector<std::int32_t>{0, 1, bad});
    });
    EXPECT_TRUE(has(message, "id " + std::to_string(bad)));
    EXPECT_TRUE(has(message, "position 2"));
  }
}

TEST(HfTokenizer, ADirectoryGivesItsFileAndTheNamesOfItsTokens) {
  text::TempFiles files;
  json spec = smallest();
  spec["added_tokens"] = {added("<e>")};
  const std::string file = files.write("tokenizer.json", spec.dump());
  const std::string directory = file.substr(0, file.rfind('/'));
  EXPECT_TRUE(has(error_of<ConfigError>([&] { make_tokenizer(directory)->separator(); }), "eos_token"));
  files.write("tokenizer_config.json", R"({"bos_token": {"content": "a"}, "eos_token": "<e>"})");
  const auto tokenizer = make_tokenizer(directory);
  EXPECT_EQ(tokenizer->bos(), 0);
  EXPECT_EQ(tokenizer->eos(), 3);
  EXPECT_EQ(tokenizer->separator(), 3);
  EXPECT_TRUE(tokenizer->special(3));
  EXPECT_FALSE(tokenizer->special(0));
  EXPECT_EQ(tokenizer->vocabulary(), 4);
  EXPECT_EQ(tokenizer->encode("ab<e>a"), (std::vector<std::int32_t>{2, 3, 0}));
}

}  // namespace
}  // namespace mantissa::tokenizer

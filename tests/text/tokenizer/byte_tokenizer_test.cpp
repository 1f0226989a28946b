#include "mantissa/text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/text/tokenizer/settings.h"
#include "text/rows/temp_files.h"

namespace mantissa::tokenizer {
namespace {

using text::error_of;
using text::has;

TEST(ByteTokenizer, EveryByteIsItsOwnIdAndRoundTrips) {
  const auto tokenizer = make_tokenizer("byte");
  EXPECT_EQ(tokenizer->name(), "byte");
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_EQ(tokenizer->separator(), 0);
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  const std::vector<std::int32_t> ids = tokenizer->encode(every);
  ASSERT_EQ(ids.size(), 256U);
  for (std::int32_t i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(tokenizer->decode(ids), every);
}

TEST(ByteTokenizer, EmptyTextHasNoIds) {
  const auto tokenizer = make_tokenizer("byte");
  EXPECT_TRUE(tokenizer->encode("").empty());
  EXPECT_EQ(tokenizer->decode({}), "");
}

TEST(ByteTokenizer, ReportsAnIdOutOfRangeWithItsPosition) {
  const auto tokenizer = make_tokenizer("byte");
  for (const std::int32_t bad : {256, -1, 50277}) {
    const std::vector<std::int32_t> ids = {65, 66, bad};
    const std::string message = error_of<ConfigError>([&] { tokenizer->decode(ids); });
    EXPECT_TRUE(has(message, "id " + std::to_string(bad)));
    EXPECT_TRUE(has(message, "position 2"));
  }
}

TEST(MakeTokenizer, RejectsOtherNamesAndListsTheKnownOnes) {
  for (const char* spec : {"", "bytes", "model", "/"}) {
    const std::string message = error_of<ConfigError>([&] { make_tokenizer(spec); });
    EXPECT_TRUE(has(message, std::string("\"") + spec + "\""));
    EXPECT_TRUE(has(message, "\"byte\""));
  }
}

TEST(ByteTokenizer, OfItsFileIsTheSameTokenizer) {
  const text::TempFiles files;
  const auto read = read_hf_tokenizer(files.write("tokenizer.json", byte_tokenizer_json()));
  EXPECT_EQ(read->name(), "byte");
  const std::string no_utf8 = "a\xff\xc3";
  EXPECT_EQ(read->decode(read->encode(no_utf8)), no_utf8);
}

TEST(ByteTokenizer, FileHasTheSameIdsInTheLibraryOfOtherPrograms) {
  nlohmann::json json = nlohmann::json::parse(byte_tokenizer_json());
  json["version"] = "2.0";  // another file, so it is read as every tokenizer.json
  const text::TempFiles files;
  const auto read = read_hf_tokenizer(files.write("tokenizer.json", json.dump()));
  EXPECT_NE(read->name(), "byte");
  EXPECT_EQ(read->vocabulary(), 256);
  // Every byte that occurs in UTF-8; U+0100 is the character of the byte 0 in byte-level files.
  std::string every = "\u0100\u0120";
  for (int byte = 0; byte < 128; ++byte) every += static_cast<char>(byte);
  every += "caf\u00e9 \u0436 \u4f60\u597d \U0001f600  two  spaces\n\n";
  EXPECT_EQ(read->encode(every), byte_tokenizer()->encode(every));
  EXPECT_EQ(read->encode_with_template(every), byte_tokenizer()->encode(every));
  EXPECT_EQ(read->decode(read->encode(every)), every);
  EXPECT_TRUE(read->special(0));
  EXPECT_FALSE(read->special('a'));
}

TEST(Settings, NameTheTokensThatBeginEndAndPadAText) {
  const nlohmann::json bytes = special_tokens(*byte_tokenizer());
  const std::string zero(1, '\0');
  EXPECT_EQ(bytes, (nlohmann::json{{"bos_token", zero}, {"eos_token", zero}, {"pad_token", zero}}));
  const nlohmann::json file =
      nlohmann::json::parse(settings_json(*byte_tokenizer(), FileForm::tokenizer_json));
  EXPECT_EQ(file["eos_token"], zero);
  EXPECT_EQ(file["tokenizer_class"], "PreTrainedTokenizerFast");
}

}  // namespace
}  // namespace mantissa::tokenizer

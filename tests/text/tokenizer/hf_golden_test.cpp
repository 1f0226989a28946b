// Ids and texts equal to those of the library `tokenizers`, for tiny tokenizers that
// tools/golden_tokenizers.py trained.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/text/tokenizer/tokenizer.h"
#include "text/rows/temp_files.h"
#include "text/tokenizer/streams.h"

namespace mantissa::tokenizer {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(MANTISSA_SOURCE_DIR) / "tests/golden/tokenizers";

nlohmann::json read(const fs::path& file) {
  return nlohmann::json::parse(std::ifstream(file));
}

std::vector<std::string> texts() {
  std::vector<std::string> result;
  for (const std::string hex : read(kGolden / "texts.json")) {
    std::string& text = result.emplace_back();
    for (std::size_t i = 0; i < hex.size(); i += 2)
      text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return result;
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const fs::directory_entry& entry : fs::directory_iterator(kGolden)) {
    if (entry.path().stem() != "texts") result.push_back(entry.path().stem().string());
  }
  std::sort(result.begin(), result.end());
  return result;
}

class HfGolden : public ::testing::TestWithParam<std::string> {
 protected:
  HfGolden()
      : golden(read(kGolden / (GetParam() + ".json"))),
        tokenizer(make_tokenizer(files.write("tokenizer.json", golden["tokenizer"].dump()))) {}

  text::TempFiles files;
  nlohmann::json golden;
  std::unique_ptr<Tokenizer> tokenizer;
};

TEST_P(HfGolden, IdsAndTextsAreThoseOfTokenizers) {
  const std::vector<std::string> all = texts();
  ASSERT_EQ(all.size(), golden["results"].size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE("text " + std::to_string(i));
    const nlohmann::json& result = golden["results"][i];
    const std::vector<std::int32_t> ids = tokenizer->encode(all[i]);
    EXPECT_EQ(ids, result[0].get<std::vector<std::int32_t>>());
    EXPECT_EQ(tokenizer->encode_with_template(all[i]), result[1].get<std::vector<std::int32_t>>());
    EXPECT_EQ(tokenizer->decode(ids), result[2].get<std::string>());
  }
}

TEST_P(HfGolden, ABatchHasTheIdsOfItsTexts) {
  const std::vector<std::string> all = texts();
  const std::vector<std::string_view> views(all.begin(), all.end());
  const std::vector<std::vector<std::int32_t>> batch = encode_batch(*tokenizer, views, 4);
  ASSERT_EQ(batch.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(batch[i], tokenizer->encode(all[i]));
}

TEST_P(HfGolden, EveryIdHasATokenThatHasThisId) {
  for (std::int32_t id = 0; id < tokenizer->vocabulary(); ++id) {
    const std::optional<std::string> token = tokenizer->token_of(id);
    ASSERT_TRUE(token) << id;
    EXPECT_EQ(tokenizer->id_of(*token), id);
  }
  EXPECT_FALSE(tokenizer->token_of(static_cast<std::int32_t>(tokenizer->vocabulary())));
}

TEST_P(HfGolden, TheStreamOfAnyIdsJoinsToTheirText) {
  expect_streams_join(*tokenizer, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, HfGolden, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

TEST(HfTokenizer, AMillionEqualCharactersTakeLinearTime) {
  for (const char* name : {"gpt2", "cl100k", "llama2", "unigram", "metaspace_whole"}) {
    text::TempFiles files;
    const auto tokenizer = make_tokenizer(
        files.write("tokenizer.json", read(kGolden / (std::string(name) + ".json"))["tokenizer"].dump()));
    for (const char c : {'a', ' ', '1', '\n'}) {
      const std::string text(1'000'000, c);
      EXPECT_FALSE(tokenizer->encode(text).empty());
    }
  }
}

}  // namespace
}  // namespace mantissa::tokenizer

// Ids equal to those of the library `tokenizers`, for random tokenizers of tools/golden_random_tokenizers.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/tokenizer.h"
#include "text/rows/temp_files.h"

namespace mantissa::tokenizer {
namespace {

using nlohmann::json;

/// Returns the ids, or null if the tokenizer cannot encode the text.
json ids_of(const Tokenizer& tokenizer, const std::string& text) {
  try {
    return tokenizer.encode(text);
  } catch (const ConfigError&) {
    return nullptr;
  }
}

TEST(RandomTokenizers, GiveTheIdsOfTokenizers) {
  std::ifstream file(std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/random_tokenizers.jsonl");
  int texts = 0, panics = 0;
  for (std::string line; std::getline(file, line);) {
    const json golden = json::parse(line);
    const text::TempFiles files;
    const auto tokenizer = make_tokenizer(files.write("tokenizer.json", golden["tokenizer"].dump()));
    for (const json& pair : golden["texts"]) {
      const auto text = pair[0].get<std::string>();
      const json ids = ids_of(*tokenizer, text);
      ++texts;
      panics += pair[1] == -1 ? 1 : 0;
      if (pair[1] != -1) {
        EXPECT_EQ(ids, pair[1]) << json(text) << "\n" << golden["tokenizer"];
      }
    }
  }
  EXPECT_GE(texts, 400);
  EXPECT_LT(panics, texts / 10);
}

/// Returns the ids of "aB" under a tokenizer that writes all letters small, with these added tokens.
std::vector<std::int32_t> ids_of_equal_tokens(bool first_is_special, bool second_is_special) {
  const auto added = [](int id, const char* content, bool special) {
    return json{{"id", id},        {"content", content}, {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", true}, {"special", special}};
  };
  const json tokenizer = {
      {"added_tokens", {added(1, "AB", first_is_special), added(2, "Ab", second_is_special)}},
      {"normalizer", {{"type", "Lowercase"}}},
      {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", json::array()}}}};
  const text::TempFiles files;
  return make_tokenizer(files.write("tokenizer.json", tokenizer.dump()))->encode("aB");
}

TEST(AddedTokens, OfEqualOnesAfterNormalizationASpecialOneThenTheFirstIsFound) {
  EXPECT_EQ(ids_of_equal_tokens(false, false), std::vector<std::int32_t>{1});
  EXPECT_EQ(ids_of_equal_tokens(true, true), std::vector<std::int32_t>{1});
  EXPECT_EQ(ids_of_equal_tokens(true, false), std::vector<std::int32_t>{1});
  EXPECT_EQ(ids_of_equal_tokens(false, true), std::vector<std::int32_t>{2});
}

}  // namespace
}  // namespace mantissa::tokenizer

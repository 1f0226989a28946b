#include "mantissa/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "text/temp_files.h"

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

}  // namespace
}  // namespace mantissa::tokenizer

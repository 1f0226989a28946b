// The lines of a reward program.
#include "mantissa/text/reward/reply.h"

#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "text/rows/temp_files.h"

namespace mantissa::reward {
namespace {

using text::error_of;
using text::has;

TEST(Reply, HasARewardAndParts) {
  EXPECT_EQ(parse_reply(R"({"reward": -0.5})").total, -0.5);
  EXPECT_TRUE(parse_reply(R"({"reward": 1, "parts": null})").parts.empty());
  const Score score =
      parse_reply("\t{\"parts\": {\"z\": 1, \"a\": -2.5e3}, \"reward\": 7, \"other\": [1, {}]}\r");
  EXPECT_EQ(score.total, 7);
  EXPECT_EQ(score.parts, (decltype(score.parts){{"z", 1}, {"a", -2500}})) << "in their order";
  EXPECT_EQ(score.right, std::nullopt);
}

TEST(Reply, EverythingElseIsNamed) {
  const std::pair<std::string, const char*> faults[] = {
      {"", "is blank"},
      {" \t\r", "is blank"},
      {"Loading the model", "is not JSON at byte 1: \"Loading the model\""},
      {R"({"reward": 1)", "is not JSON"},
      {R"({"reward": 1} {"reward": 2})", "is not JSON"},
      {std::string("{\"reward\": 1}\0x", 15), "is not JSON at byte 14"},
      {"{\"reward\": 1, \"x\": \"\xff\"}", "is not JSON"},
      {"1", "is of type number"},
      {"[1]", "is of type array"},
      {"null", "is of type null"},
      {"{}", "has no \"reward\""},
      {R"({"Reward": 1})", "has no \"reward\""},
      {R"({"reward": "1"})", "has \"reward\" of type string"},
      {R"({"reward": true})", "has \"reward\" of type boolean"},
      {R"({"reward": null})", "has \"reward\" of type null"},
      {R"({"reward": NaN})", "has NaN or Infinity"},
      {R"({"reward": -Infinity})", "has NaN or Infinity"},
      {R"({"reward": 1e39})", "has \"reward\" beyond the range of f32"},
      {R"({"reward": -1e39})", "has \"reward\" beyond the range of f32"},
      {R"({"reward": 1e999})", "has a number that is out of range"},
      {R"({"reward": 1, "parts": 3})", "has \"parts\" of type number"},
      {R"({"reward": 1, "parts": [1]})", "has \"parts\" of type array"},
      {R"({"reward": 1, "parts": {"format": "x"}})", "has the part \"format\" of type string"},
      {R"({"reward": 1, "parts": {"format": NaN}})", "has NaN or Infinity"},
      {R"({"reward": 1, "x": )" + std::string(100, '[') + std::string(100, ']') + "}",
       "is nested more than 64"}};
  for (const auto& [line, fault] : faults) {
    EXPECT_TRUE(has(error_of<ConfigError>([&, &line = line] { parse_reply(line); }), fault)) << line;
  }
}

TEST(Reply, AVeryDeepLineIsRefused) {
  EXPECT_TRUE(
      has(error_of<ConfigError>([] { parse_reply(std::string(1 << 20, '[')); }), "is nested more than"));
  EXPECT_TRUE(has(error_of<ConfigError>([] {
                    std::string line;
                    for (int i = 0; i < 200000; ++i) line += "{\"a\":";
                    parse_reply(line);
                  }),
                  "is nested more than"));
}

TEST(Reply, RewardsAreThoseOfTheText) {
  EXPECT_EQ(parse_reply(R"({"reward": 3.4028234663852886e38})").total, 3.4028234663852886e38);
  EXPECT_EQ(parse_reply(R"({"reward": 0.1})").total, 0.1);
  EXPECT_EQ(parse_reply(R"({"reward": 18446744073709551615})").total, 18446744073709551615.0);
}

}  // namespace
}  // namespace mantissa::reward

// mantissa tokenizer: ids and text as a script sees them, and one message for a wrong file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"

namespace mantissa {
namespace {

using nlohmann::json;
using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::TemporaryFolder;
using testing::write;

class TokenizerCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the tokenizer trains on the text\n";
    write(folder / "text.txt", text);
    ASSERT_EQ(run("tokenizer train text.txt --vocab-size 270 --out t").code, 0);
  }
  Result run(const std::string& arguments) const { return mantissa(folder, arguments); }
  TemporaryFolder folder;
};

TEST_F(TokenizerCommand, EncodesAndDecodesTheBytesOfAFile) {
  write(folder / "in", std::string("the text<|endoftext|>\n\0 x", 25));
  const Result ids = run("tokenizer encode t --text-file in");
  EXPECT_EQ(ids.code, 0) << ids.err;
  write(folder / "ids", ids.out);
  EXPECT_EQ(run("tokenizer decode t --ids-file ids").out, read_all(folder / "in"));
  const json encoded = json::parse(run("tokenizer encode t/tokenizer.json --text-file in --json").out);
  EXPECT_EQ(encoded["text"], read_all(folder / "in"));
  EXPECT_NE(std::find(encoded["ids"].begin(), encoded["ids"].end(), 0), encoded["ids"].end());
  write(folder / "ids.json", encoded.dump());
  EXPECT_EQ(json::parse(run("tokenizer decode t --ids-file ids.json --json").out), encoded);
  write(folder / "list", encoded["ids"].dump());
  EXPECT_EQ(run("tokenizer decode t --ids-file list").out, read_all(folder / "in"));
  write(folder / "bytes", "\xFFz");
  EXPECT_EQ(run("tokenizer encode byte --text-file bytes").out, "255 122\n");
  write(folder / "none", "");
  EXPECT_EQ(run("tokenizer encode t --text-file none --json").out, "{\"ids\":[],\"text\":\"\"}\n");
  EXPECT_EQ(run("tokenizer decode t --ids-file none").out, "");
}

TEST_F(TokenizerCommand, DescribesATokenizer) {
  const json info = json::parse(run("tokenizer info t --json").out);
  EXPECT_EQ(info["vocabulary"], 270);
  EXPECT_EQ(info["eos"], (json{{"id", 0}, {"token", "<|endoftext|>"}}));
  EXPECT_EQ(info["bos"], info["eos"]) << "every document follows the end of another";
  EXPECT_EQ(info["special"].size(), 1U);
  EXPECT_NE(run("tokenizer info byte").out.find("256"), std::string::npos);
}

TEST_F(TokenizerCommand, WithAWrongFileIdOrOptionIsOneMessageAndExitCodeTwo) {
  write(folder / "ids", "1 2 999");
  write(folder / "words", "1 two");
  write(folder / "minus.json", "{\"ids\": [1, -2]}");
  write(folder / "damaged.json", "{");
  write(folder / "object.json", "{\"id\": 1}");
  const std::pair<const char*, const char*> cases[] = {
      {"tokenizer decoed", "encode, decode, info, train"},
      {"tokenizer decode t --ids-file ids", "999"},
      {"tokenizer decode t --ids-file words", "words: entry 1 is \"two\""},
      {"tokenizer decode t --ids-file minus.json", "entry 1 is \"-2\""},
      {"tokenizer decode t --ids-file damaged.json", "damaged.json"},
      {"tokenizer decode t --ids-file object.json", "no array of ids"},
      {"tokenizer encode damaged.json --text-file ids", "damaged.json"},
      {"tokenizer encode nowhere.model --text-file ids", "nowhere.model"},
      {"tokenizer encode rwkv_vocab.txt --text-file ids", "rwkv_vocab.txt"},
      {"tokenizer encode bites --text-file ids", "\"bites\""},
      {"tokenizer encode t --text-file nowhere", "nowhere"},
      {"tokenizer encode t --ids-file ids", "--ids-file"},
      {"tokenizer train text.txt", "--out"},
      {"tokenizer train text.txt --out t", "--overwrite"},
      {"tokenizer train text.txt --out u --vocab-size 256", "at least 257"},
      {"tokenizer train nowhere --out u", "nowhere"}};
  for (const auto& [arguments, message] : cases) {
    const Result r = run(arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_NE(r.err.find(message), std::string::npos) << arguments << ": " << r.err;
    EXPECT_EQ(r.out, "") << arguments;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "u"));
}

TEST_F(TokenizerCommand, ThatCannotWriteLeavesNothing) {
  const Result r = testing::shell(folder, "ulimit -f 1; " MANTISSA_BINARY_DIR
                                          "/mantissa tokenizer train text.txt --vocab-size 270 --out new/u");
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_NE(r.err.find("tokenizer.json"), std::string::npos) << r.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
}

TEST_F(TokenizerCommand, TrainsTheSameFileWithAnyNumberOfThreads) {
  for (const char* threads : {"1", "3"}) {
    const Result r =
        run(std::string("tokenizer train text.txt --vocab-size 270 --out u --overwrite --json --threads ") +
            threads);
    EXPECT_EQ(json::parse(r.out)["bytes"], 300 * 33) << r.err;
    EXPECT_EQ(read_all(folder / "u/tokenizer.json"), read_all(folder / "t/tokenizer.json"));
  }
}

}  // namespace
}  // namespace mantissa

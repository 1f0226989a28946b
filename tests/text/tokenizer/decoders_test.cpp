// Every kind of decoder: the text of all ids, and the text of ids that arrive one by one.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "text/rows/temp_files.h"
#include "text/tokenizer/streams.h"

namespace mantissa::tokenizer {
namespace {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;

json golden() {
  const auto file = std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/decoders.json";
  return json::parse(std::ifstream(file));
}

std::unique_ptr<Tokenizer> with_decoder(const text::TempFiles& files, const json& model,
                                        const json& decoder) {
  const json all = {{"added_tokens", json::array()}, {"normalizer", nullptr}, {"pre_tokenizer", nullptr},
                    {"post_processor", nullptr},     {"decoder", decoder},    {"model", model}};
  return make_tokenizer(files.write("tokenizer.json", all.dump()));
}

TEST(Decoders, GiveTheTextsOfTokenizersAtOnceAndInParts) {
  const json all = golden();
  const text::TempFiles files;
  for (const json& one : all["cases"]) {
    SCOPED_TRACE(one["decoder"].dump());
    const auto tokenizer = with_decoder(files, all["model"], one["decoder"]);
    ASSERT_GE(one["results"].size(), 10U);
    for (const json& result : one["results"]) {
      const Ids ids = result[0];
      EXPECT_EQ(tokenizer->decode(ids), result[1].get<std::string>()) << result[0];
      EXPECT_EQ(streamed(*tokenizer, ids), result[1].get<std::string>()) << result[0];
    }
    expect_streams_join(*tokenizer, "");
  }
}

std::vector<std::string> parts_of(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  TextStream stream(tokenizer);
  std::vector<std::string> parts;
  for (const std::string& token : tokens) parts.push_back(stream.push(*tokenizer.id_of(token)));
  parts.push_back(stream.finish());
  return parts;
}

using Parts = std::vector<std::string>;

TEST(Decoders, HoldAnIncompleteCharacterAndReplaceEachFaultOnce) {
  const json model = golden()["model"];
  const text::TempFiles files;
  const auto bytes = with_decoder(files, model, {{"type", "ByteLevel"}});
  EXPECT_EQ(parts_of(*bytes, {"â", "Ĥ", "¬", "a"}), (Parts{"", "", "€", "a", ""}));
  EXPECT_EQ(parts_of(*bytes, {"ð", "Ł", "a"}), (Parts{"", "", "\uFFFDa", ""}));
  EXPECT_EQ(parts_of(*bytes, {"ÿ", "ÿ", "ð", "Ł"}), (Parts{"\uFFFD", "\uFFFD", "", "", "\uFFFD"}));
}

TEST(Decoders, DecideOverAWholeRunOfByteTokens) {
  const json model = golden()["model"];
  const text::TempFiles files;
  const json llama = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  const auto tokenizer = with_decoder(files, model, llama);
  EXPECT_EQ(parts_of(*tokenizer, {"a", "<0xE2>", "<0x82>", "<0xAC>", "b"}),
            (Parts{"a", "", "", "", "€b", ""}));
  EXPECT_EQ(parts_of(*tokenizer, {"<0xE2>", "<0x82>", "<0xAC>"}), (Parts{"", "", "", "€"}));
  // A byte that is not UTF-8 spoils the run, as in the library `tokenizers`.
  EXPECT_EQ(parts_of(*tokenizer, {"<0x41>", "<0xFF>", "b"}), (Parts{"", "", "\uFFFD\uFFFDb", ""}));
}

TEST(Decoders, StripOnlyTheStartOfTheText) {
  const json model = golden()["model"];
  const text::TempFiles files;
  const json steps = {{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}};
  const auto start = with_decoder(files, model, {{"type", "Sequence"}, {"decoders", steps}});
  EXPECT_EQ(parts_of(*start, {" ", "  ", "a", " a "}), (Parts{"", "  ", "a", " a ", ""}));
}

}  // namespace
}  // namespace mantissa::tokenizer

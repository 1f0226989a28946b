#include "mantissa/text/rows/token_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/corpus.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/rows/shard_header.h"
#include "mantissa/text/rows/sources.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using Ids = std::vector<std::int32_t>;
using Lengths = std::vector<std::int64_t>;

std::string bytes_of(const Ids& ids, int width) {
  std::string bytes;
  for (const std::int32_t id : ids) {
    for (int b = 0; b < width; ++b) bytes += static_cast<char>(static_cast<std::uint32_t>(id) >> (8 * b));
  }
  return bytes;
}

/// A shard as llm.c writes it: a header of 256 int32, then the ids.
std::string shard(const Ids& ids, int width, std::int32_t separator = -1) {
  Ids header(256, 0);
  header[0] = width == 2 ? 20240520 : 20240801;
  header[1] = width == 2 ? 1 : 7;
  header[2] = static_cast<std::int32_t>(ids.size());
  header[3] = separator + 1;
  return bytes_of(header, 4) + bytes_of(ids, width);
}

Ids all(const TokenFile& file) {
  Ids ids(static_cast<std::size_t>(file.size()));
  file.read(0, ids);
  return ids;
}

class TokenFiles : public ::testing::Test {
 protected:
  std::string refused(const std::string& content, std::int64_t vocabulary = 50257) {
    const std::string path = files.write("bad.bin", content);
    const std::string message = error_of<FileError>([&] { all(TokenFile(path, vocabulary)); });
    EXPECT_TRUE(has(message, path));
    return message;
  }
  TempFiles files;
  const Ids ids = {50256, 1, 2, 3, 50256, 4, 5};
};

TEST_F(TokenFiles, WithoutAHeaderHaveTheWidthOfTheVocabulary) {
  EXPECT_EQ(all(TokenFile(files.write("a.bin", bytes_of(ids, 2)), 50257)), ids);
  EXPECT_EQ(all(TokenFile(files.write("b.bin", bytes_of(ids, 4)), 128256)), ids);
}

TEST_F(TokenFiles, WithoutAHeaderHaveTheTypeThatIsGiven) {
  const Ids largest = {65535, 0, 1, 65534};
  EXPECT_EQ(all(TokenFile(files.write("a.bin", bytes_of(largest, 2)), 65536, IdType::uint16)), largest);
  EXPECT_EQ(all(TokenFile(files.write("b.bin", bytes_of(ids, 4)), 50257, IdType::uint32)), ids);
  const std::string odd = files.write("c.bin", bytes_of(ids, 2));
  const std::string message = error_of<FileError>([&] { TokenFile(odd, 65536, IdType::uint32); });
  EXPECT_TRUE(has(message, "expected whole ids of data.id_type = \"uint32\", got 14 bytes")) << message;
  // A header states the width itself.
  EXPECT_EQ(all(TokenFile(files.write("d.bin", shard(ids, 4)), 65536, IdType::uint16)), ids);
  EXPECT_EQ(id_type_named("uint16", "data.id_type ="), IdType::uint16);
  EXPECT_TRUE(has(error_of<ConfigError>([&] { id_type_named("int8", "--id-type"); }),
                  "--id-type int8: one of auto, uint16, uint32"));
}

TEST_F(TokenFiles, HaveAHeaderThatNamesTheirTokenizer) {
  const auto written = [&](const ShardOrigin& origin) {
    const auto header = shard_header(true, 7, origin);
    std::string bytes(reinterpret_cast<const char*>(header.data()), header.size());
    return files.write("s.bin", bytes + bytes_of(ids, 2));
  };
  const std::string path = written({"models/a", 0xfedcba9876543210, 50257, 50256});
  EXPECT_EQ(all(TokenFile(path, 50257)), ids);
  EXPECT_EQ(TokenFile(path, 50257).separator(), 50256);
  const std::optional<ShardOrigin> origin = shard_origin(path);
  ASSERT_TRUE(origin);
  EXPECT_EQ(origin->tokenizer, "models/a");
  EXPECT_EQ(origin->fingerprint, 0xfedcba9876543210);
  EXPECT_EQ(origin->vocabulary, 50257);
  EXPECT_EQ(origin->separator, 50256);
  const std::string longest = std::string(2000, 'x') + "end";
  const std::string kept = shard_origin(written({longest, 1, 50257, 0}))->tokenizer;
  EXPECT_EQ(kept, longest.substr(longest.size() - kept.size()));
  EXPECT_GT(kept.size(), 900U);
  EXPECT_EQ(shard_origin(files.write("llm.bin", shard(ids, 2))), std::nullopt)
      << "llm.c states no vocabulary";
  EXPECT_EQ(shard_origin(files.write("raw.bin", bytes_of(ids, 2))), std::nullopt);
}

TEST_F(TokenFiles, OfLlmCHaveTheWidthOfTheirHeader) {
  for (const std::int64_t vocabulary : {50257, 128256}) {
    EXPECT_EQ(all(TokenFile(files.write("a.bin", shard(ids, 2)), vocabulary)), ids);
    EXPECT_EQ(all(TokenFile(files.write("b.bin", shard(ids, 4)), vocabulary)), ids);
  }
  EXPECT_EQ(TokenFile(files.write("a.bin", shard(ids, 2)), 50257).separator(), std::nullopt);
  EXPECT_EQ(TokenFile(files.write("a.bin", shard(ids, 2, 50256)), 50257).separator(), 50256);
}

TEST_F(TokenFiles, GiveAnyPartOfTheirIds) {
  Ids many(20'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int32_t>(i * 7 % 50'000);
  const TokenFile file(files.write("a.bin", shard(many, 2)), 50257);
  for (const std::size_t first : {0U, 1U, 4095U, 4096U, 11'111U}) {
    Ids part(5000);
    file.read(static_cast<std::int64_t>(first), part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), many.begin() + static_cast<std::ptrdiff_t>(first)));
  }
}

TEST_F(TokenFiles, ThatAreBrokenAreNamedWithThePosition) {
  const std::string whole = shard(ids, 2);
  EXPECT_TRUE(has(refused(whole.substr(0, whole.size() - 2)), "its header states 7 ids of uint16"));
  EXPECT_TRUE(has(refused(whole + "  "), "which makes 1038 bytes, but the file has 1040"));
  EXPECT_TRUE(has(refused(whole.substr(0, 1000)), "the file ends at byte 1000"));
  EXPECT_TRUE(has(refused(shard({50257}, 2)), "id 50257 at position 0"));
  std::string version = whole;
  version[4] = 2;
  EXPECT_TRUE(has(refused(version), "its version is 2"));
}

TEST_F(TokenFiles, ThatShrinkWhileTheyAreOpenAreNamed) {
  const std::string path = files.write("a.bin", bytes_of(ids, 2));
  const TokenFile file(path, 50257);
  std::filesystem::resize_file(path, 6);
  EXPECT_TRUE(has(error_of<FileError>([&] { all(file); }), "was truncated to 6 bytes"));
}

TEST_F(TokenFiles, JoinTextInOneCorpus) {
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  const std::string a = files.write("a.bin", bytes_of({1, 2, 9, 3}, 2)), b = files.write("b.txt", "AB"),
                    c = files.write("c.bin", shard({4, 9, 5}, 2, 9));
  const Corpus corpus = read_corpus({a, b, c}, "auto", *tokenizer, 256);
  Ids joined(static_cast<std::size_t>(corpus.tokens()));
  corpus.read(0, joined);
  EXPECT_EQ(joined, (Ids{1, 2, 9, 3, 0, 65, 66, 4, 9, 5}));
  EXPECT_EQ(corpus.last(), 5);
  Ids part(4);
  corpus.read(5, part);
  EXPECT_EQ(part, (Ids{65, 66, 4, 9}));
}

TEST_F(TokenFiles, AreSplitIntoDocumentsAfterTheSeparator) {
  const auto documents = [&](std::optional<std::int32_t> separator) {
    const auto tokenizer = tokenizer::make_tokenizer("byte");
    const std::string a = files.write("a.bin", bytes_of({1, 2, 9, 3}, 2)), b = files.write("b.txt", "A\tB"),
                      c = files.write("c.bin", shard({4, 9, 5, 9}, 2, 9));
    Corpus corpus = read_corpus({a, b, c}, "auto", *tokenizer, 256);
    corpus.split_token_files(separator);
    return corpus.document_lengths();
  };
  // The separator between a file of ids and a text belongs to the ids. The text has the id 9, too.
  EXPECT_EQ(documents(std::nullopt), (Lengths{5, 3, 2, 2})) << "only the header of the second file states it";
  EXPECT_EQ(documents(9), (Lengths{3, 2, 3, 2, 2}));
}

TEST_F(TokenFiles, TakeNoMemoryForTheirIds) {
  const Ids many(100'000, 1);
  Corpus corpus;
  append_token_file(files.write("a.bin", bytes_of(many, 2)), 256, corpus);
  EXPECT_EQ(corpus.tokens(), 100'000);
  EXPECT_LT(corpus.bytes(), 1000U);
}

}  // namespace
}  // namespace mantissa::text

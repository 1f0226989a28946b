#include "mantissa/text/rows/sources.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "mantissa/core/base/error.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using Ids = std::vector<std::int32_t>;
using namespace std::string_literals;

class Sources : public ::testing::Test {
 protected:
  Ids read(const std::vector<std::string>& patterns, const std::string& format = "auto",
           std::int64_t vocabulary = 256) const {
    return read_tokens(patterns, format, *tokenizer_, vocabulary);
  }
  std::string text_of(const std::vector<std::string>& patterns, const std::string& format = "auto") const {
    return tokenizer_->decode(read(patterns, format));
  }
  template <class E>
  std::string error(const std::vector<std::string>& patterns, const std::string& format = "auto",
                    std::int64_t vocabulary = 256) const {
    return error_of<E>([&] { read(patterns, format, vocabulary); });
  }

  TempFiles files_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = tokenizer::make_tokenizer("byte");
};

TEST_F(Sources, APlainTextFileIsExactlyItsBytes) {
  const std::string bytes = "line\r\n\n\0 \xff end"s;
  EXPECT_EQ(text_of({files_.write("a.txt", bytes)}), bytes);
}

TEST_F(Sources, AZeroByteSeparatesTextFiles) {
  const std::string a = files_.write("a.txt", "one"), b = files_.write("b.md", "two");
  EXPECT_EQ(text_of({b, a}), "two\0one"s);
}

TEST_F(Sources, EachDocumentOfJsonLinesEndsWithAZeroByte) {
  const std::string rows = files_.write(
      "rows.jsonl",
      "{\"text\": \"one\\n1\", \"other\": [1, {}]}\n\n  \r\n{\"text\": \"\"}\n{\"text\": \"caf\u00e9\"}");
  EXPECT_EQ(text_of({rows}), "one\n1\0\0caf\u00e9\0"s);
  EXPECT_EQ(text_of({files_.write("a.txt", "x"), rows, files_.path("a.txt")}), "x\0one\n1\0\0caf\u00e9\0x"s);
}

TEST_F(Sources, ErrorsInJsonLinesNameFileAndLine) {
  const std::string good = "{\"text\": \"a\"}\n";
  const auto message = [&](const std::string& line) {
    return error<FileError>({files_.write("rows.jsonl", good + good + line)});
  };
  for (const std::string line :
       {"{\"text\": \"a\"", "{\"text\": \"a\"} x", "text", "{\"text\": \"\\ud800\"}"}) {
    EXPECT_TRUE(has(message(line), "rows.jsonl:3: not JSON at byte")) << line;
  }
  for (const std::string line : {"{\"txt\": \"a\"}", "{\"text\": 3}", "[\"text\"]", "\"text\"", "null"}) {
    EXPECT_TRUE(has(message(line), "rows.jsonl:3: no string field \"text\"")) << line;
  }
  EXPECT_TRUE(has(message("{\"text\": \"\xff\"}"), "rows.jsonl:3: byte 11 of the line is not UTF-8"));
  const auto nested = [](std::size_t depth) {
    return "{\"x\": " + std::string(depth, '[') + std::string(depth, ']') + ", \"text\": \"[\\\"[\"}";
  };
  EXPECT_TRUE(has(message(nested(100000)), "rows.jsonl:3: arrays and objects nest deeper than 256 levels"));
  EXPECT_TRUE(has(message(nested(256)), "nest deeper"));
  EXPECT_TRUE(has(message("{\"text\": \"a\"}\0{"s), "rows.jsonl:3: not JSON at byte 14"));
  EXPECT_TRUE(has(message("{\"text\": \"a\", \"score\": 1e999}"), "rows.jsonl:3: a number of the line"));
}

TEST_F(Sources, LinesMayCrossTheReadersChunks) {
  const std::string long_text((1 << 20) + 7, 'x');
  const std::string rows =
      files_.write("rows.jsonl", "{\"text\": \"" + long_text + "\"}\n{\"text\": \"b\"}\n");
  EXPECT_TRUE(text_of({rows}) == long_text + "\0b\0"s);
}

TEST_F(Sources, RejectsALineThatWouldExhaustMemory) {
  const std::string path = files_.write("rows.jsonl", "{\"text\": \"a\"}\n");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // a sparse file of zero bytes
  EXPECT_TRUE(has(error<FileError>({path}), "rows.jsonl:2: the line has more than 256 MiB"));
}

TEST_F(Sources, TokenFilesAreRawLittleEndianIdsOfTheVocabularysWidth) {
  const std::string narrow = files_.write("n.bin", "\x01\x00\x34\x12\xfe\xff"s);
  EXPECT_EQ(read({narrow}, "auto", 65535), (Ids{1, 0x1234, 65534}));
  const std::string wide = files_.write("w.tokens", "\x01\x00\x00\x00\xff\xff\x00\x00\x04\x03\x02\x01"s);
  EXPECT_EQ(read({wide}, "auto", 0x01020305), (Ids{1, 65535, 0x01020304}));
  // 65,536 is the smallest vocabulary that is stored in four bytes.
  EXPECT_EQ(read({files_.write("e.bin", "\xff\xff\x00\x00"s)}, "tokens", 65536), (Ids{65535}));
}

TEST_F(Sources, TokenFilesJoinWithoutSeparators) {
  const std::string a = files_.write("a.bin", "\x01\x00\x02\x00"s), b = files_.write("b.bin", "\x03\x00"s);
  EXPECT_EQ(read({a, b}), (Ids{1, 2, 3}));
}

TEST_F(Sources, ReadsATokenFileLongerThanTheReadBuffer) {
  std::string bytes;
  for (int i = 0; i < 1'200'000; ++i) {
    bytes += static_cast<char>(i % 251);
    bytes += static_cast<char>(i % 7);
  }
  const Ids ids = read({files_.write("long.bin", bytes)}, "tokens", 2000);
  ASSERT_EQ(ids.size(), 1'200'000U);
  for (int i = 0; i < 1'200'000; ++i) ASSERT_EQ(ids[static_cast<std::size_t>(i)], i % 251 + 256 * (i % 7));
}

TEST_F(Sources, RejectsAnIdOutsideTheVocabularyWithItsPosition) {
  const std::string path = files_.write("bad.bin", "\x01\x00\xff\x00\x00\x01"s);
  const std::string message = error<FileError>({path});
  EXPECT_TRUE(has(message, "bad.bin"));
  EXPECT_TRUE(has(message, "id 256 at position 2"));
  // Also beyond 2^31, where the id would be negative.
  EXPECT_TRUE(has(error<FileError>({files_.write("w.bin", "\xff\xff\xff\xff"s)}, "tokens", 70000),
                  "id 4294967295 at position 0"));
}

TEST_F(Sources, RejectsASizeThatIsNotWholeIds) {
  EXPECT_TRUE(has(error<FileError>({files_.write("odd.bin", "abc")}), "3 bytes are not whole uint16 ids"));
  EXPECT_TRUE(has(error<FileError>({files_.write("odd.bin", "abcdef")}, "tokens", 70000),
                  "6 bytes are not whole uint32 ids"));
}

TEST_F(Sources, GlobsAreSortedAndNamesKeepTheirOrder) {
  files_.write("b2.txt", "2");
  files_.write("b10.txt", "10");
  files_.write("B.txt", "B");
  const std::string z = files_.write("z.txt", "z");
  EXPECT_EQ(
      expand_files({z, files_.path("[bB]*.txt")}),
      (std::vector<std::string>{z, files_.path("B.txt"), files_.path("b10.txt"), files_.path("b2.txt")}));
  const std::string odd = files_.write("b[1].txt", "name with brackets");
  EXPECT_EQ(expand_files({odd}), (std::vector<std::string>{odd}));
}

TEST_F(Sources, MissingFilesAreNamed) {
  EXPECT_TRUE(has(error<FileError>({files_.path("no.txt")}), "no.txt"));
  EXPECT_TRUE(has(error<FileError>({files_.path("no*.txt")}), "no*.txt"));
  EXPECT_TRUE(has(error<FileError>({files_.path("")}), "is a directory"));
  EXPECT_TRUE(has(error<FileError>({"/dev/zero"}, "text"), "not a regular file"));
  EXPECT_TRUE(has(error_of<ConfigError>([&] { read({}); }), "no file given"));
}

TEST_F(Sources, EmptyDataIsAnError) {
  EXPECT_TRUE(has(error<FileError>({files_.write("e.txt", "")}), "contains no tokens"));
  EXPECT_TRUE(has(error<FileError>({files_.write("e.jsonl", "\n\n")}), "contains no tokens"));
  EXPECT_TRUE(has(error<FileError>({files_.write("e.bin", "")}), "contains no tokens"));
}

TEST_F(Sources, AnEmptyFileAddsNothingBetweenOthers) {
  const std::string a = files_.write("a.txt", "a"), empty = files_.write("empty.txt", "");
  EXPECT_EQ(text_of({a, empty, a}), "a\0a"s);
}

TEST_F(Sources, TheConfigOrTheExtensionDecidesTheFormat) {
  const std::string path = files_.write("data.log", "{\"text\": \"a\"}");
  EXPECT_EQ(text_of({path}, "text"), "{\"text\": \"a\"}");
  EXPECT_EQ(text_of({path}, "jsonl"), "a\0"s);
  EXPECT_TRUE(has(error<ConfigError>({path}), "does not know the extension of"));
  EXPECT_TRUE(has(error<ConfigError>({path}, "parquet"),
                  "expected one of auto, text, jsonl, json, csv, tokens, binidx, got \"parquet\""));
}

TEST_F(Sources, AnIndexOfAnotherKindBesideIdsIsNamed) {
  const std::string bin = files_.write("m.bin", "\x01\x00"s);
  files_.write("m.idx", "TNTIDX\0\0"s);
  const std::string message = error<FileError>({bin});
  EXPECT_TRUE(has(message, "m.idx\": expected Megatron's index"));
  EXPECT_TRUE(has(message, "set data.format = \"tokens\" to read the .bin beside it as plain ids"));
  EXPECT_EQ(read({bin}, "tokens"), (Ids{1}));
}

TEST_F(Sources, ATokenizerMayHaveMoreEntriesThanTheModel) {
  const std::string text = files_.write("a.txt", "aaa\na"),
                    rows = files_.write("a.jsonl", "{\"text\": \"a\"}");
  EXPECT_EQ(read({text}, "auto", 98), (Ids{97, 97, 97, 10, 97}));
  EXPECT_EQ(read({rows, text}, "auto", 98), (Ids{97, 0, 97, 97, 97, 10, 97}));
  EXPECT_EQ(read({text}, "auto", 50277), (Ids{97, 97, 97, 10, 97}));
}

TEST_F(Sources, AnIdBeyondTheModelIsNamedWithItsLineAndTheTextThere) {
  std::string lines;
  for (int i = 1; i <= 100; ++i) lines += i == 37 ? "some aza\n" : "a\n";
  const std::string text = files_.write("a.txt", lines);
  const std::string message = error<ConfigError>({text}, "auto", 'z');
  for (const char* part :
       {"a.txt:37: ", "the id 122 in byte", "vocab_size is 122", "some aza", "at least 256"})
    EXPECT_TRUE(has(message, part));
  // Every line may be the first, and the last may have no end.
  for (int line = 1; line <= 9; ++line) {
    const std::string text =
        files_.write("b.txt", std::string(static_cast<std::size_t>(line - 1), '\n') + "z");
    EXPECT_TRUE(has(error<ConfigError>({text}, "auto", 'z'), fmt::format("b.txt:{}: ", line)));
  }
  const std::string rows = files_.write("a.jsonl", "{\"text\": \"a\"}\n\n{\"text\": \"bzb\"}\n");
  EXPECT_TRUE(has(error<ConfigError>({rows}, "auto", 'z'), "a.jsonl:3: "));
}

TEST_F(Sources, ASeparatorBeyondTheModelIsNamed) {
  class EndsWithZ final : public tokenizer::Tokenizer {
   public:
    Ids encode(std::string_view text) const override { return {text.begin(), text.end()}; }
    std::string decode(std::span<const std::int32_t> ids) const override { return {ids.begin(), ids.end()}; }
    std::int64_t vocabulary() const override { return 'z' + 1; }
    std::string name() const override { return "letters"; }
    std::int32_t separator() const override { return 'z'; }
    std::optional<std::string> token_of(std::int32_t) const override { return "<end>"; }
  };
  const EndsWithZ letters;
  const std::string rows = files_.write("a.jsonl", "{\"text\": \"a\"}\n"), text = files_.write("a.txt", "a");
  EXPECT_EQ(read_tokens({text}, "auto", letters, 'z'), (Ids{'a'}));
  for (const std::vector<std::string>& files : {std::vector{rows}, std::vector{text, text}}) {
    const std::string message = error_of<ConfigError>([&] { read_tokens(files, "auto", letters, 'z'); });
    EXPECT_TRUE(has(message, "the token \"<end>\" separates documents; it has the id 122 in letters"));
  }
}

}  // namespace
}  // namespace mantissa::text

#include "mantissa/text/rows/byte_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/rows/sources.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

/// A text of about `bytes` bytes that does not compress to nothing.
std::string long_text(std::size_t bytes) {
  std::string text;
  for (std::uint32_t i = 1; text.size() < bytes; ++i) text += std::to_string(i * 2654435761U) + '\n';
  return text;
}

std::string gzipped(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

struct Compression {
  const char* end;
  std::string (*compress)(const std::string&);
};
const Compression kCompressions[] = {{".gz", gzipped}, {".zst", zstandard}};

class CompressedFiles : public ::testing::Test {
 protected:
  TempFiles files;
  std::string text = long_text(1'000'000);
};

TEST_F(CompressedFiles, GiveTheirTextInPartsOfAnySize) {
  for (const Compression& c : kCompressions) {
    const std::string path = files.write(std::string("a.txt") + c.end, c.compress(text));
    EXPECT_TRUE(read_all_bytes(path) == text) << path;
    for (const std::size_t part : {std::size_t{1} << 20, std::size_t{70'001}, std::size_t{13}}) {
      ByteReader reader(path);
      std::string all, buffer(part, '\0');
      for (std::size_t got = part; got == part;) {
        got = reader.read(buffer.data(), part);
        all.append(buffer, 0, got);
      }
      EXPECT_TRUE(all == text) << path << " in parts of " << part;
      EXPECT_EQ(reader.consumed(), reader.file_bytes());
    }
  }
}

TEST_F(CompressedFiles, MayHaveSeveralPartsAndEmptyOnes) {
  for (const Compression& c : kCompressions) {
    const std::string path =
        files.write(std::string("a.txt") + c.end, c.compress("one\n") + c.compress("") + c.compress(text));
    EXPECT_TRUE(read_all_bytes(path) == "one\n" + text) << path;
    EXPECT_EQ(read_all_bytes(files.write(std::string("b.txt") + c.end, c.compress(""))), "");
  }
}

TEST_F(CompressedFiles, ThatEndEarlyAreNamedWithTheByte) {
  for (const Compression& c : kCompressions) {
    const std::string whole = c.compress(text);
    for (const std::size_t size : {std::size_t{0}, std::size_t{5}, whole.size() / 2, whole.size() - 1}) {
      const std::string path = files.write(std::string("a.txt") + c.end, whole.substr(0, size));
      const std::string message = error_of<FileError>([&] { read_all_bytes(path); });
      EXPECT_TRUE(has(message, path));
      EXPECT_TRUE(has(message, "data end early, at byte " + std::to_string(size) + " of the file"));
    }
  }
}

TEST_F(CompressedFiles, ThatAreDamagedOrNotCompressedAreNamed) {
  for (const Compression& c : kCompressions) {
    std::string broken = c.compress(text);
    for (std::size_t i = broken.size() / 2; i < broken.size() / 2 + 64; ++i) broken[i] = '\x5a';
    const std::string path = files.write(std::string("a.txt") + c.end, broken);
    EXPECT_TRUE(has(error_of<FileError>([&] { read_all_bytes(path); }), path));
    const std::string plain = files.write(std::string("b.txt") + c.end, "plain text, not compressed");
    EXPECT_TRUE(has(error_of<FileError>([&] { read_all_bytes(plain); }), "damaged"));
  }
}

TEST_F(CompressedFiles, HaveTheIdsOfThePlainOnes) {
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  const std::string rows = "{\"text\": \"one\"}\n\n{\"text\": \"two\"}\n";
  const auto ids = [&](const std::string& path) { return read_tokens({path}, "auto", *tokenizer, 256); };
  const std::vector<std::int32_t> want = ids(files.write("a.jsonl", rows)),
                                  plain = ids(files.write("a.txt", rows));
  for (const Compression& c : kCompressions) {
    EXPECT_EQ(ids(files.write(std::string("b.jsonl") + c.end, c.compress(rows))), want);
    EXPECT_EQ(ids(files.write(std::string("b.txt") + c.end, c.compress(rows))), plain);
    const std::string bad = files.write(std::string("c.jsonl") + c.end, c.compress(rows + "{\"txt\": 1}"));
    EXPECT_TRUE(has(error_of<FileError>([&] { ids(bad); }), ":4: no string field \"text\""));
    const std::string tokens = files.write(std::string("t.bin") + c.end, c.compress("\x01"));
    EXPECT_TRUE(has(error_of<FileError>([&] { ids(tokens); }), "decompress it"));
  }
  EXPECT_TRUE(has(error_of<ConfigError>([&] { ids(files.write("a.txt.xz", "x")); }), ".gz and .zst"));
}

TEST_F(CompressedFiles, ParquetIsRefusedWithTheCommandThatConvertsIt) {
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  for (const char* name : {"rows.parquet", "rows.jsonl"}) {
    const std::string path = files.write(name, std::string("PAR1\x15\x04PAR1"));
    const std::string message = error_of<FileError>([&] { read_tokens({path}, "auto", *tokenizer, 256); });
    EXPECT_TRUE(has(message, "is a Parquet file"));
    EXPECT_TRUE(has(message, "pandas.read_parquet(\"" + path + "\""));
  }
}

}  // namespace
}  // namespace mantissa::text

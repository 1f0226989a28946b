// SentencePiece models: ids, special tokens, settings beside the file, and damaged files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/tokenizer.h"
#include "text/rows/temp_files.h"
#include "text/tokenizer/streams.h"

namespace mantissa::tokenizer {
namespace {

using text::error_of;
using text::has;
using Ids = std::vector<std::int32_t>;

enum class Type : char { normal = 1, unknown = 2, control = 3, byte = 6 };

/// Returns field `number` of a protobuf message: its bytes, at most 127.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

/// Returns a piece: its text, score and type.
std::string piece(const std::string& text, float score, Type type = Type::normal) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return field(
      1, field(1, text) + std::string{2 << 3 | 5} + bits + std::string{3 << 3, static_cast<char>(type)});
}

/// Returns a unigram model without normalization.
std::string model() {
  return piece("<unk>", 0, Type::unknown) + piece("<s>", 0, Type::control) + piece("</s>", 0, Type::control) +
         piece("\xE2\x96\x81", -3) + piece("a", -3) + piece("b", -3) +
         piece(
             "\xE2\x96\x81"
             "ab",
             -1) +
         field(2, "") + field(3, field(1, "identity"));
}

/// The same with all byte pieces, and with the settings of a normalizer.
std::string model_with_bytes(const std::string& normalizer) {
  std::string pieces = model();
  pieces.erase(pieces.rfind(field(2, "")));
  for (unsigned byte = 0; byte < 256; ++byte)
    pieces += piece(fmt::format("<0x{:02X}>", byte), -9, Type::byte);
  return pieces + field(2, "\x98\x02\x01") + field(3, field(1, "identity") + normalizer);
}

TEST(SentencePiece, StreamsOfAnyIdsJoinToTheirText) {
  text::TempFiles files;
  // add_dummy_prefix, remove_extra_whitespaces: fields 3 and 4
  for (const std::string& normalizer :
       {std::string(), std::string{3 << 3, 0}, std::string{4 << 3, 0}, std::string{3 << 3, 0, 4 << 3, 0}}) {
    const auto tokenizer = make_tokenizer(files.write("small.model", model_with_bytes(normalizer)));
    expect_streams_join(*tokenizer, "small.model");
    TextStream stream(*tokenizer);
    std::vector<std::string> parts;
    for (const char* token : {"a", "<0xE2>", "<0x82>", "<0xAC>", "b"})
      parts.push_back(stream.push(*tokenizer->id_of(token)));
    EXPECT_EQ(parts, (std::vector<std::string>{"a", "", "", "", "€b"}));
    EXPECT_EQ(stream.finish(), "");
  }
}

TEST(SentencePiece, StreamsAPieceThatIsSpeltAsAByteAsThatByte) {
  text::TempFiles files;
  const std::string path = files.write("twice.model", piece("<0xCA>", -3) + model_with_bytes(""));
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(path);
  const Ids ids = {4, 0, static_cast<std::int32_t>(tokenizer->vocabulary()) - 256 + 0xAB, 4};
  TextStream stream(*tokenizer);
  std::string joined;
  for (const std::int32_t id : ids) joined += stream.push(id);
  joined += stream.finish();
  EXPECT_EQ(joined, tokenizer->decode(ids));
  EXPECT_TRUE(has(joined, "\xCA\xAB")) << joined;
}

TEST(SentencePiece, EncodesAndDecodesByTheLibrary) {
  text::TempFiles files;
  const auto tokenizer = make_tokenizer(files.write("small.model", model()));
  EXPECT_EQ(tokenizer->vocabulary(), 7);
  EXPECT_EQ(tokenizer->encode("ab ba"), (Ids{6, 3, 5, 4}));
  EXPECT_EQ(tokenizer->encode_with_template("ab"), (Ids{6}));
  EXPECT_EQ(tokenizer->encode(""), Ids());
  EXPECT_EQ(tokenizer->decode(Ids{6, 3, 5, 4}), "ab ba");
  EXPECT_EQ(tokenizer->encode(std::string(100'000, 'b')).size(), 100'001U);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->separator(), 2);
  EXPECT_EQ(tokenizer->id_of("a"), 4);
  EXPECT_EQ(tokenizer->id_of("z"), std::nullopt);
  EXPECT_TRUE(tokenizer->special(1));
  EXPECT_FALSE(tokenizer->special(4));
}

/// Returns little-endian words.
std::string words(const std::vector<std::uint32_t>& all) {
  std::string bytes;
  for (const std::uint32_t word : all) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(word >> 8 * i & 0xFF);
  }
  return bytes;
}

/// Returns a message with a field of any size.
std::string long_field(int number, const std::string& bytes) {
  std::string size;
  for (std::size_t left = bytes.size(); left > 0 || size.empty(); left >>= 7)
    size += static_cast<char>((left & 0x7F) | (left > 0x7F ? 0x80U : 0U));
  return std::string{static_cast<char>(number << 3 | 2)} + size + bytes;
}

/// The library follows the trie of a character map without a look at its end.
TEST(SentencePiece, RefusesACharacterMapThatLeadsOutOfIt) {
  text::TempFiles files;
  constexpr std::uint32_t kLeaf = 1U << 8U;
  const auto unit = [](std::uint32_t offset, std::uint32_t label) { return offset << 10U | label; };
  // "a" becomes "b": the children of the root are at 0 ^ 256, the value of "a" at (256 ^ 'a') ^ 'a'.
  std::vector<std::uint32_t> trie(512, 0);
  trie[0] = unit(256, 0);
  trie[256 + 'a'] = unit('a', 'a') | kLeaf;
  trie[256] = 1U << 31U;
  const auto tokenizer_of = [&](const std::string& map, int part = 3) {
    std::string bytes = model();
    bytes.erase(bytes.rfind(field(3, field(1, "identity"))));
    if (part != 3) bytes += field(3, field(1, "identity"));
    return make_tokenizer(files.write("mapped.model", bytes + long_field(part, long_field(2, map))));
  };
  const auto map_of = [](const std::vector<std::uint32_t>& units, const std::string& replacements) {
    return words({static_cast<std::uint32_t>(4 * units.size())}) + words(units) + replacements;
  };
  const std::string ends("b\0", 2);
  EXPECT_EQ(tokenizer_of(map_of(trie, ends))->decode(tokenizer_of(map_of(trie, ends))->encode("ab")), "bb");
  const auto refuses = [&](const std::string& map, const char* what) {
    for (const int part : {3, 5}) {
      const std::string error = error_of<FileError>([&] { tokenizer_of(map, part); });
      EXPECT_TRUE(has(error, "is not a SentencePiece model")) << what << ": " << error;
    }
  };
  // protobuf drops the upper bits of a tag, so this is a normalizer, too.
  const std::string long_tag = std::string{static_cast<char>(3 << 3 | 2 | 0x80)} + "\x80\x80\x80\x10";
  const std::string broken = long_field(2, words({0}) + ends);
  const std::string hidden = model() + long_tag + std::string{static_cast<char>(broken.size())} + broken;
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(files.write("hidden.model", hidden)); }),
                  "is not a SentencePiece model"));
  refuses(words({0}) + ends, "no trie");
  refuses(words({4096}) + words(trie) + ends, "a trie that is cut");
  refuses(map_of(trie, ""), "no replacements");
  refuses(map_of(trie, "b"), "a replacement without an end");
  refuses(map_of({unit(0, 0)}, ends), "a trie of one unit");
  auto outside = trie;
  outside[0] = unit(512, 0);
  refuses(map_of(outside, ends), "children outside of the trie");
  auto beyond = trie;
  beyond[256] = 1U << 31U | 2;
  refuses(map_of(beyond, ends), "a value outside of the replacements");
}

TEST(SentencePiece, ShowsControlSymbolsButDoesNotRecogniseThemInText) {
  text::TempFiles files;
  const auto tokenizer = make_tokenizer(files.write("small.model", model()));
  EXPECT_EQ(tokenizer->decode(Ids{1, 6, 2, 6, 2}), "<s>ab</s>ab</s>");
  const Ids ids = tokenizer->encode("<s>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 0);
}

TEST(SentencePiece, AddsTheIdsThatTheSettingsBesideTheFileName) {
  text::TempFiles files;
  const std::string file = files.write("tokenizer.model", model());
  files.write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": true})");
  EXPECT_EQ(make_tokenizer(file)->encode_with_template("ab"), (Ids{1, 6, 2}));
  EXPECT_EQ(make_tokenizer(file)->encode("ab"), (Ids{6}));
  files.write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": false})");
  const std::string directory = std::filesystem::path(file).parent_path().string();
  EXPECT_EQ(make_tokenizer(directory)->encode_with_template("ab"), (Ids{1, 6}));
}

TEST(SentencePiece, CountsABytePieceAsOneByte) {
  std::string bytes =
      piece("<unk>", 0, Type::unknown) + piece("<s>", 0, Type::control) + piece("</s>", 0, Type::control);
  for (int byte = 0; byte < 256; ++byte) bytes += piece(fmt::format("<0x{:02X}>", byte), 0, Type::byte);
  bytes += piece("▁", -3) + piece("a", -3);
  const std::string byte_fallback = {'\x98', '\x02', '\x01'};  // field 35
  bytes += field(2, byte_fallback) + field(3, field(1, "identity"));
  text::TempFiles files;
  const auto tokenizer = make_tokenizer(files.write("bytes.model", bytes));
  const std::string text = "a größer a";
  const Ids ids = tokenizer->encode(text);
  ASSERT_EQ(tokenizer->decode(ids), text);
  for (std::size_t cut = 0; cut <= ids.size(); ++cut) {
    EXPECT_EQ(added_bytes(*tokenizer, std::span(ids).first(cut), 0) + added_bytes(*tokenizer, ids, cut),
              static_cast<std::int64_t>(text.size()))
        << cut;
  }
  EXPECT_EQ(added_bytes(*tokenizer, Ids{1, 0xE6 + 3, 0x97 + 3, 2}, 0), 2);
}

TEST(SentencePiece, OfADamagedFileIsOneErrorWithItsName) {
  text::TempFiles files;
  for (const std::string& bytes : {std::string("junk"), model().substr(0, 9), model().substr(0, 90)}) {
    const std::string file = files.write("bad.model", bytes);
    EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(file); }),
                    file + ": is not a SentencePiece model, or is truncated. Fix: "));
  }
  const std::string empty = files.write("empty.model", "");
  EXPECT_TRUE(has(error_of<FileError>([&] { make_tokenizer(empty); }), empty + ": is empty. Fix: "));
  EXPECT_TRUE(has(error_of<FileError>([] { make_tokenizer("/nowhere/a.model"); }), "/nowhere/a.model"));
  const auto tokenizer = make_tokenizer(files.write("small.model", model()));
  for (const std::int32_t bad : {-1, 7}) {
    const std::string error = error_of<ConfigError>([&] { tokenizer->decode(Ids{4, bad}); });
    EXPECT_TRUE(has(error, std::to_string(bad)) && has(error, "position 1")) << error;
  }
}

}  // namespace
}  // namespace mantissa::tokenizer

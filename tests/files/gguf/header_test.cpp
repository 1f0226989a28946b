// Headers of GGUF files, and files that are cut, contradictory or hostile: each is one FileError.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/gguf/header_writer.h"

namespace mantissa::gguf {
namespace {

/// Returns a file with every kind of metadata and three tensors.
std::string sample() {
  HeaderWriter header;
  header.add("general.architecture", "llama");
  header.add("count", 7U);
  header.add("eps", 1e-5F);
  header.add_flag("flag", true);
  header.add("texts", std::vector<std::string>{"a", "", "bc"});
  header.add("kinds", std::vector<std::int32_t>{-1, 5});
  header.add("scores", std::vector<float>{0.5F, -2});
  std::vector<TensorToStore> tensors = {
      {"a", TensorType::f32, {2, 3}}, {"b", TensorType::q8_0, {2, 32}}, {"c", TensorType::bf16, {5}}};
  std::string file = header.finish(tensors);
  file.resize(tensors.back().begin + tensors.back().bytes(), '\1');
  return file;
}

Header parse(const std::string& file) {
  return parse_header(std::as_bytes(std::span(file)), "x.gguf");
}

/// Returns `file` with the number at the end of `before` replaced.
template <class T>
std::string replaced(std::string file, std::string_view before, T value) {
  const std::size_t at = file.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  std::memcpy(file.data() + at + before.size(), &value, sizeof(value));
  return file;
}

TEST(GgufHeader, ReadsWhatWasWritten) {
  const Header header = parse(sample());
  EXPECT_EQ(header.version, 3U);
  EXPECT_EQ(std::get<std::string>(header.metadata.at("general.architecture")), "llama");
  EXPECT_EQ(std::get<std::int64_t>(header.metadata.at("count")), 7);
  EXPECT_EQ(shortest(std::get<float>(header.metadata.at("eps"))), 1e-5);
  EXPECT_TRUE(std::get<bool>(header.metadata.at("flag")));
  EXPECT_EQ(std::get<Texts>(header.metadata.at("texts")), (Texts{"a", "", "bc"}));
  EXPECT_EQ(std::get<Integers>(header.metadata.at("kinds")), (Integers{-1, 5}));
  EXPECT_EQ(std::get<Numbers>(header.metadata.at("scores")), (Numbers{0.5, -2}));
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.tensors[1].bytes, 2U * 34);
  EXPECT_EQ(header.tensors[1].begin, 32U);
  EXPECT_EQ(header.tensors[2].count(), 5U);
}

TEST(GgufHeader, VersionTwoIsReadAsVersionThree) {
  EXPECT_EQ(parse(replaced(sample(), "GGUF", std::uint32_t{2})).tensors.size(), 3U);
}

TEST(GgufHeader, EveryTruncationIsAnError) {
  const std::string file = sample();
  for (std::size_t size = 0; size < file.size(); ++size)
    EXPECT_THROW(parse(file.substr(0, size)), FileError) << size;
}

TEST(GgufHeader, EveryChangedByteIsReadOrRefused) {
  const std::string file = sample();
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (const char value : {'\0', '\x7F', '\xFF'}) {
      std::string changed = file;
      changed[i] = value;
      try {
        for (const FileTensor& tensor : parse(changed).tensors)
          EXPECT_LE(tensor.begin + tensor.bytes, changed.size()) << i;
      } catch (const FileError&) {  // also fine
      }
    }
  }
}

struct Hostile {
  const char* name;
  std::function<std::string()> file;
  const char* message;
};

std::string hostile_name(const ::testing::TestParamInfo<Hostile>& info) {
  return info.param.name;
}

class GgufHostile : public ::testing::TestWithParam<Hostile> {};

TEST_P(GgufHostile, IsOneMessage) {
  const std::string file = GetParam().file();
  const std::string message = test::message_of<FileError>([&] { parse(file); });
  EXPECT_NE(message.find("x.gguf"), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;

/// Returns a file with one key of a type and one tensor of given dimensions.
std::string with_key(std::string_view key, std::uint32_t value) {
  HeaderWriter header;
  header.add(key, value);
  std::vector<TensorToStore> tensors = {{"t", TensorType::f32, {8}}};
  std::string file = header.finish(tensors);
  return file.append(32, '\0');
}

std::string with_two(std::uint64_t second_begin) {
  std::vector<TensorToStore> tensors = {{"one", TensorType::f32, {16}}, {"two", TensorType::f32, {16}}};
  std::string file = HeaderWriter().finish(tensors);
  file.append(128, '\0');
  const std::size_t at = file.find("two") + 3 + 4 + 8 + 4;  // after the rank, a dimension and the type
  std::memcpy(file.data() + at, &second_begin, sizeof(second_begin));
  return file;
}

const Hostile kHostile[] = {
    {"Empty", [] { return std::string(); }, "is empty. Fix: "},
    {"OtherMagic", [] { return std::string("GGML") + sample().substr(4); }, "begins with GGUF"},
    {"VersionOne", [] { return replaced(sample(), "GGUF", std::uint32_t{1}); }, "version 1"},
    {"BigEndian", [] { return replaced(sample(), "GGUF", std::uint32_t{0x03000000}); }, "big-endian"},
    {"HugeTensorCount", [] { return replaced(sample(), std::string_view("GGUF\3\0\0\0", 8), kHuge); },
     "declares"},
    {"HugeMetadataCount",
     [] { return replaced(sample(), std::string_view("GGUF\3\0\0\0\3\0\0\0\0\0\0\0", 16), kHuge); },
     "declares"},
    {"HugeKey", [] { return replaced(sample(), std::string_view("\7\0\0\0\0\0\0\0", 8), kHuge); }, "limit"},
    {"HugeText",
     [] { return replaced(sample(), std::string_view("general.architecture\x8\0\0\0", 24), kHuge); },
     "ends within"},
    {"HugeList", [] { return replaced(sample(), std::string_view("texts\x9\0\0\0\x8\0\0\0", 13), kHuge); },
     "declares"},
    {"ListOfLists",
     [] { return replaced(sample(), std::string_view("texts\x9\0\0\0", 9), std::uint32_t{9}); },
     "list of lists"},
    {"UnknownValueType", [] { return replaced(sample(), "count", std::uint32_t{77}); }, "unknown type 77"},
    {"FalseBoolean", [] { return replaced(sample(), std::string_view("flag\7\0\0\0", 8), std::uint8_t{2}); },
     "boolean"},
    {"AlignmentOfText",
     [] {
       HeaderWriter header;
       header.add("general.alignment", "32");
       return header.finish({});
     },
     "multiple of 8"},
    {"AlignmentOfZero", [] { return with_key("general.alignment", 0); }, "multiple of 8"},
    {"OddAlignment", [] { return with_key("general.alignment", 12); }, "multiple of 8"},
    {"HugeAlignment", [] { return with_key("general.alignment", 0x80000000); }, "multiple of 8"},
    {"ShortData", [] { return with_key("general.alignment", 4096).substr(0, 200); }, "bytes of data"},
    {"Overlap", [] { return with_two(32); }, "overlaps"},
    {"Misaligned", [] { return with_two(33); }, "alignment"},
    {"FarOffset", [] { return with_two(kHuge); }, "bytes of data"},
    {"WrappingOffset", [] { return with_two(~std::uint64_t{31}); }, "bytes of data"},
    {"UnknownTensorType",
     [] { return replaced(sample(), std::string_view("c\1\0\0\0\5\0\0\0\0\0\0\0", 13), std::uint32_t{4}); },
     "unknown type 4"},
    {"HugeDimension", [] { return replaced(sample(), std::string_view("a\2\0\0\0", 5), kHuge); },
     "dimension"},
    {"ProductOfDimensions", [] { return replaced(sample(), std::string_view("a\2\0\0\0", 5), kHuge / 2); },
     "larger than the file"},
    {"PartOfABlock", [] { return replaced(sample(), std::string_view("b\2\0\0\0", 5), std::uint64_t{33}); },
     "blocks of 32"},
    {"ManyDimensions",
     [] { return replaced(sample(), std::string_view("\1\0\0\0\0\0\0\0b", 9), std::uint32_t{5}); },
     "dimensions"},
    {"SameKey",
     [] {
       HeaderWriter header;
       header.add("k", 1U);
       header.add("k", 2U);
       return header.finish({});
     },
     "twice"},
    {"SameTensor",
     [] {
       std::vector<TensorToStore> tensors = {{"t", TensorType::f32, {}}, {"t", TensorType::f32, {}}};
       return HeaderWriter().finish(tensors).append(64, '\0');
     },
     "twice"},
};

INSTANTIATE_TEST_SUITE_P(Files, GgufHostile, ::testing::ValuesIn(kHostile), hostile_name);

class GgufFiles : public test::TemporaryFolder {};

TEST_F(GgufFiles, NameAValueOfTheWrongType) {
  test::put(folder / "x.gguf", sample());
  const GgufFile file(folder / "x.gguf");
  EXPECT_EQ(file.integer("count"), 7);
  EXPECT_EQ(file.number("count"), 7.0);
  EXPECT_EQ(file.text("absent"), std::nullopt);
  for (const auto& read : std::vector<std::function<void()>>{
           [&] { file.text("count"); }, [&] { file.integer("eps"); }, [&] { file.flag("count"); },
           [&] { file.texts("kinds"); }, [&] { file.integers("texts"); }, [&] { file.number("flag"); },
           [&] { file.numbers("texts"); }})
    EXPECT_NE(test::message_of<FileError>(read).find("must be"), std::string::npos);
}

}  // namespace
}  // namespace mantissa::gguf

#include "mantissa/files/io/safetensors.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cstring>
#include <map>
#include <numeric>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::io {
namespace {

using test::contents_of;
using test::message_of;
using test::put;

class Safetensors : public test::TemporaryFolder {
 protected:
  std::filesystem::path file() const { return folder / "weights.safetensors"; }
};

std::string with_length(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + std::string(header) + std::string(data);
}

TensorToWrite tensor_of(std::string name, const std::vector<float>& values, std::vector<std::int64_t> shape) {
  return {std::move(name), Dtype::f32, std::move(shape), std::as_bytes(std::span(values)), nullptr};
}

std::vector<float> counted(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

TEST_F(Safetensors, ReadsWhatItWrites) {
  const std::vector<float> a = counted(6), b = counted(1);
  const std::vector<TensorToWrite> tensors = {
      tensor_of("z", a, {2, 3}), tensor_of("a scalar", b, {}), {"nothing", Dtype::bf16, {0, 7}, {}, nullptr}};
  write_safetensors(file(), tensors, {{"format", "pt"}, {"quote", "\"\n\\"}});
  const SafetensorsReader reader(file());
  EXPECT_EQ(reader.path(), file());
  EXPECT_EQ(reader.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"quote", "\"\n\\"}}));
  ASSERT_EQ(reader.tensors().size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(reader.tensors()[i].name, tensors[i].name);
    EXPECT_EQ(reader.tensors()[i].dtype, tensors[i].dtype);
    EXPECT_EQ(reader.tensors()[i].shape, tensors[i].shape);
  }
  EXPECT_EQ(reader.tensors()[0].count(), 6);
  EXPECT_EQ(reader.tensors()[1].count(), 1);
  EXPECT_EQ(reader.tensors()[2].count(), 0);
  EXPECT_EQ(reader.find("b"), nullptr);
  std::vector<float> read(6);
  reader.read(*reader.find("z"), std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, a);
  reader.read(*reader.find("z"), std::as_writable_bytes(std::span(read).first(2)), 8);
  EXPECT_EQ(read[0], 3.0F);
  EXPECT_EQ(read[1], 4.0F);
}

TEST_F(Safetensors, EveryDtypeKeepsItsNameAndSize) {
  const std::map<std::string, std::size_t> sizes = {
      // bytes, as the format's documentation names them
      {"F64", 8},     {"F32", 4},     {"BF16", 2},        {"F16", 2},        {"F8_E4M3", 1},
      {"F8_E5M2", 1}, {"I64", 8},     {"I32", 4},         {"I16", 2},        {"I8", 1},
      {"U8", 1},      {"BOOL", 1},    {"U64", 8},         {"U32", 4},        {"U16", 2},
      {"C64", 8},     {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}};
  std::vector<TensorToWrite> tensors;
  const std::vector<std::byte> bytes(3 * 8);
  for (int i = 0; i <= static_cast<int>(Dtype::e5m2fnuz); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    tensors.push_back({std::string(safetensors_name(dtype)),
                       dtype,
                       {3},
                       std::span(bytes).first(3 * bytes_of(dtype)),
                       nullptr});
  }
  write_safetensors(file(), tensors);
  const SafetensorsReader reader(file());
  ASSERT_EQ(reader.tensors().size(), sizes.size());
  for (const TensorInfo& tensor : reader.tensors()) {
    ASSERT_TRUE(sizes.contains(tensor.name)) << tensor.name;
    EXPECT_EQ(safetensors_name(tensor.dtype), tensor.name);
    EXPECT_EQ(bytes_of(tensor.dtype), sizes.at(tensor.name)) << tensor.name;
    EXPECT_EQ(tensor.end - tensor.begin, 3 * bytes_of(tensor.dtype));
  }
}

TEST_F(Safetensors, TheDataStartsAtAMultipleOfEightBytes) {
  const std::vector<float> value = counted(1);
  for (std::size_t n = 1; n <= 9; ++n) {
    const std::vector<TensorToWrite> tensors = {tensor_of(std::string(n, 'x'), value, {1})};
    write_safetensors(file(), tensors);
    const std::string text = contents_of(file());
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), 8);
    EXPECT_EQ(length % 8, 0U);
    EXPECT_EQ(text.size(), 8 + length + 4);
    EXPECT_EQ(text.find_first_not_of(' ', text.rfind('}', 7 + length) + 1), 8 + length);
  }
}

TEST_F(Safetensors, AStreamedTensorHasTheBytesOfOneInMemory) {
  // More than one piece, and not a multiple of the piece size.
  const std::vector<float> values = counted(700'001);
  const std::vector<TensorToWrite> whole = {tensor_of("w", values, {700'001})};
  const std::uint64_t hash = write_safetensors(file(), whole);
  const std::string expected = contents_of(file());
  std::uint64_t next = 0;
  std::vector<TensorToWrite> streamed = {
      {"w", Dtype::f32, {700'001}, {}, [&](std::uint64_t offset, std::span<std::byte> out) {
         EXPECT_EQ(offset, next);
         next += out.size();
         std::memcpy(out.data(), std::as_bytes(std::span(values)).data() + offset, out.size());
       }}};
  EXPECT_EQ(write_safetensors(folder / "streamed", streamed), hash);
  EXPECT_EQ(contents_of(folder / "streamed"), expected);
  EXPECT_EQ(next, 700'001U * 4);
}

TEST_F(Safetensors, TheHashIsXxh64OfTheDataSection) {
  const std::vector<float> a = counted(300'000), b = counted(5);
  const std::vector<TensorToWrite> tensors = {tensor_of("a", a, {300'000}), tensor_of("b", b, {5})};
  std::vector<float> all = a;
  all.insert(all.end(), b.begin(), b.end());
  EXPECT_EQ(write_safetensors(file(), tensors, {{"any", "thing"}}),
            XXH64(all.data(), all.size() * sizeof(float), 0));
}

TEST_F(Safetensors, TensorsAreInFileOrderNotHeaderOrder) {
  put(file(),
      with_length(
          R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          "xy"));
  const SafetensorsReader reader(file());
  EXPECT_EQ(reader.tensors()[0].name, "a");
  EXPECT_EQ(reader.tensors()[1].name, "b");
}

TEST_F(Safetensors, IgnoresUndefinedKeys) {
  put(file(),
      with_length(
          R"({"__metadata__":null,"a":{"dtype":"U8","since":2,"by":"x","ok":true,"no":null,"f":1.5,"shape":[],"data_offsets":[0,1]}}  )",
          "x"));
  const SafetensorsReader reader(file());
  EXPECT_EQ(reader.tensors().size(), 1U);
  EXPECT_TRUE(reader.metadata().empty());
}

TEST_F(Safetensors, AFileWithoutTensorsIsValid) {
  write_safetensors(file(), {});
  EXPECT_TRUE(SafetensorsReader(file()).tensors().empty());
}

TEST_F(Safetensors, RejectsReadsOutsideATensor) {
  const std::vector<float> a = counted(2), b = counted(2);
  const std::vector<TensorToWrite> tensors = {tensor_of("a", a, {2}), tensor_of("b", b, {2})};
  write_safetensors(file(), tensors);
  const SafetensorsReader reader(file());
  std::vector<std::byte> out(8);
  EXPECT_THROW(reader.read(*reader.find("a"), out, 1), ShapeError);
  EXPECT_THROW(reader.read(*reader.find("a"), out, ~std::uint64_t{0}), ShapeError);
  EXPECT_NO_THROW(reader.read(*reader.find("a"), {}, 8));
}

TEST_F(Safetensors, ReportsAFileTruncatedWhileOpen) {
  const std::vector<float> values = counted(4);
  const std::vector<TensorToWrite> tensors = {tensor_of("a", values, {4})};
  write_safetensors(file(), tensors);
  const SafetensorsReader reader(file());
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 4);
  std::vector<std::byte> out(16);
  EXPECT_NE(message_of<FileError>([&] { reader.read(*reader.find("a"), out); }).find(file().string()),
            std::string::npos);
}

// A malformed file: the header, the number of data bytes after it, and a required part of the message besides
// the file's name.
struct Malformed {
  const char* name;
  std::string header;
  std::size_t data;
  const char* says;
};

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets,
                  std::string_view name = "w") {
  return "\"" + std::string(name) + R"(":{"dtype":)" + std::string(dtype) + R"(,"shape":)" +
         std::string(shape) + R"(,"data_offsets":)" + std::string(offsets) + "}";
}

std::string object(std::string_view inner) {
  return "{" + std::string(inner) + "}";
}

std::string ones(int n) {
  std::string list = "[1";
  for (int i = 1; i < n; ++i) list += ",1";
  return list + "]";
}

std::vector<Malformed> malformed() {
  const std::string f32 = R"("F32")";
  return {
      {"NotJson", "{this is not json}", 0, "not JSON"},
      {"CutJson", "{" + entry(f32, "[1]", "[0,4]"), 4, "not JSON"},
      {"TextAfterTheHeader", object(entry(f32, "[1]", "[0,4]")) + "x", 4, "not JSON"},
      {"ZerosAfterTheHeader", object(entry(f32, "[1]", "[0,4]")) + std::string(4, '\0'), 4, "not JSON"},
      {"BadUtf8", object(entry(f32, "[1]", "[0,4]", "\xff\xfe")), 4, "not JSON"},
      {"LeadingSpace", " " + object(entry(f32, "[1]", "[0,4]")), 4,
       "is not a checkpoint: the header of a safetensors file begins with '{'"},
      {"ListAtTheTop", "[1]", 0, "is not a checkpoint: the header of a safetensors file begins with '{'"},
      {"EmptyHeader", "", 0, "is not a checkpoint: the header of a safetensors file begins with '{'"},
      {"TensorIsANumber", R"({"w":1})", 0, "\"w\" is not an object"},
      {"TensorIsAList", R"({"w":[1]})", 0, "\"w\" has a list"},
      {"TensorIsNull", R"({"w":null})", 0, "\"w\" is not an object"},
      {"NoDtype", R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4, "\"w\" has no dtype"},
      {"NoShape", R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", 4, "\"w\" has no shape"},
      {"NoOffsets", R"({"w":{"dtype":"F32","shape":[1]}})", 4, "\"w\" has no data_offsets"},
      {"UnknownDtype", object(entry(R"("F31")", "[1]", "[0,4]")), 4, "\"w\" has the unknown dtype \"F31\""},
      {"LowerCaseDtype", object(entry(R"("f32")", "[1]", "[0,4]")), 4, "unknown dtype \"f32\""},
      {"DtypeIsANumber", object(entry("32", "[1]", "[0,4]")), 4, "\"w\" has a dtype of the wrong type"},
      {"ShapeIsANumber", object(entry(f32, "1", "[0,4]")), 4, "\"w\" has a shape of the wrong type"},
      {"ShapeHoldsText", object(entry(f32, R"(["1"])", "[0,4]")), 4, "\"w\" must have whole numbers"},
      {"ShapeHoldsAFraction", object(entry(f32, "[1.5]", "[0,4]")), 4, "\"w\" has \"1.5\" in its shape"},
      {"ShapeHoldsAList", object(entry(f32, "[[1]]", "[0,4]")), 4, "\"w\" is nested too deep"},
      {"NegativeSize", object(entry(f32, "[-1]", "[0,4]")), 4, "\"w\" has -1 in its shape"},
      {"TwoNegativeSizes", object(entry(f32, "[-1,-1]", "[0,4]")), 4, "\"w\" has -1 in its shape"},
      {"SizeBeyond63Bits", object(entry(f32, "[9223372036854775808]", "[0,4]")), 4,
       "\"w\" has 9223372036854775808"},
      {"SizeBeyond64Bits", object(entry(f32, "[18446744073709551616]", "[0,4]")), 4,
       "\"w\" has \"18446744073709551616\""},
      {"ProductWrapsToZero", object(entry(f32, "[4294967296,4294967296]", "[0,0]")), 0,
       "which exceeds any file"},
      {"BytesWrapToZero", object(entry(f32, "[4611686018427387904]", "[0,0]")), 0, "which exceeds any file"},
      {"TooManyDimensions", object(entry(f32, ones(65), "[0,4]")), 4, "more than 64 numbers in its shape"},
      {"OneOffset", object(entry(f32, "[1]", "[0]")), 4, "\"w\" has 1 data_offsets"},
      {"ThreeOffsets", object(entry(f32, "[1]", "[0,4,8]")), 4, "\"w\" has 3 data_offsets"},
      {"OffsetsAreAnObject", object(entry(f32, "[1]", "{}")), 4, "\"w\" is nested too deep"},
      {"NegativeOffset", object(entry(f32, "[1]", "[-4,0]")), 4, "\"w\" has -4 in its data_offsets"},
      {"OffsetsInReverse", object(entry(f32, "[1]", "[4,0]")), 4,
       "\"w\" ends at byte 0 before it begins at 4"},
      {"OutOfTheFile", object(entry(f32, "[2]", "[0,8]")), 4,
       "\"w\" ends at byte 8 of the data, but the file has 4"},
      {"OffsetNear64Bits", object(entry(f32, "[1]", "[9223372036854775803,9223372036854775807]")), 4,
       "\"w\" ends at byte"},
      {"TooFewBytes", object(entry(f32, "[2]", "[0,4]")), 4, "\"w\" has 4 bytes, but F32 [2] needs 8"},
      {"TooManyBytes", object(entry(R"("BF16")", "[1]", "[0,4]")), 4,
       "\"w\" has 4 bytes, but BF16 [1] needs 2"},
      {"Overlap", object(entry(f32, "[1]", "[0,4]", "a") + "," + entry(f32, "[1]", "[2,6]", "b")), 6,
       "\"b\" overlaps"},
      {"SameBytesTwice", object(entry(f32, "[1]", "[0,4]", "a") + "," + entry(f32, "[1]", "[0,4]", "b")), 4,
       "\"b\" overlaps"},
      {"Gap", object(entry(f32, "[1]", "[0,4]", "a") + "," + entry(f32, "[1]", "[8,12]", "b")), 12,
       "\"b\" leaves a gap of 4 bytes"},
      {"GapAtTheStart", object(entry(f32, "[1]", "[4,8]")), 8, "\"w\" leaves a gap of 4 bytes"},
      {"BytesLeftOver", object(entry(f32, "[1]", "[0,4]")), 5, "1 bytes after its last tensor"},
      {"NameTwice", object(entry(f32, "[1]", "[0,4]") + "," + entry(f32, "[1]", "[4,8]")), 8,
       "\"w\" occurs twice"},
      {"FieldTwice", R"({"w":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "\"w\" has dtype twice"},
      {"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0, "\"__metadata__\" occurs twice"},
      {"MetadataKeyTwice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "has \"a\" twice"},
      {"MetadataIsText", R"({"__metadata__":"pt"})", 0, "\"__metadata__\" is not an object"},
      {"MetadataHoldsANumber", R"({"__metadata__":{"a":1}})", 0, "\"a\", which is not text"},
      {"MetadataHoldsAnObject", R"({"__metadata__":{"a":{}}})", 0, "nested too deep"},
      {"DeeplyNested", R"({"w":)" + std::string(1'000'000, '['), 0, "\"w\" has a list"},
      {"DeeplyNestedUnknownField", R"({"w":{"x":)" + std::string(1'000'000, '['), 0, "\"w\" has a list"},
  };
}

class SafetensorsMalformed : public Safetensors, public ::testing::WithParamInterface<Malformed> {};

TEST_P(SafetensorsMalformed, IsRejectedWithOneMessageThatNamesTheFile) {
  put(file(), with_length(GetParam().header, std::string(GetParam().data, '\0')));
  const std::string message = message_of<FileError>([&] { SafetensorsReader reader(file()); });
  EXPECT_EQ(message.rfind(file().string() + ": ", 0), 0U) << message;
  EXPECT_NE(message.find(GetParam().says), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 400U + file().string().size()) << message;
}

INSTANTIATE_TEST_SUITE_P(Headers, SafetensorsMalformed, ::testing::ValuesIn(malformed()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(Safetensors, RejectsOtherKindsOfFiles) {
  const auto refused = [&](std::string_view contents) {
    put(file(), contents);
    return message_of<FileError>([&] { SafetensorsReader reader(file()); });
  };
  EXPECT_NE(refused("").find("0 bytes"), std::string::npos);
  EXPECT_NE(refused(std::string("\x08\0\0", 3)).find("3 bytes"), std::string::npos);
  EXPECT_NE(refused(std::string(8, '\xff')).find("18446744073709551615"), std::string::npos);
  EXPECT_NE(refused(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8))
                .find("100000001 bytes, above the limit of 100000000"),
            std::string::npos);
  EXPECT_NE(refused(std::string("\x09\0\0\0\0\0\0\0{}", 10)).find("is truncated"), std::string::npos);
  EXPECT_NE(refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\n").find("git lfs pull"),
            std::string::npos);
  EXPECT_NE(refused("PK\x03\x04zip and so on").find("is a checkpoint of PyTorch"), std::string::npos);
}

TEST_F(Safetensors, ReadsAHeaderWhoseLengthLooksLikeAPickle) {
  std::string header = R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.append(0x0280 - header.size(), ' ');
  put(file(), with_length(header, "x"));
  EXPECT_EQ(SafetensorsReader(file()).tensors().size(), 1U);
  put(file(), "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j{P and so on");
  EXPECT_NE(
      message_of<FileError>([&] { SafetensorsReader reader(file()); }).find("is a checkpoint of PyTorch"),
      std::string::npos);
}

TEST_F(Safetensors, RejectsPathsThatAreNotFiles) {
  const auto refused = [](const std::filesystem::path& path) {
    return message_of<FileError>([&] { SafetensorsReader reader(path); });
  };
  EXPECT_NE(refused(folder / "none").find("no such file"), std::string::npos);
  EXPECT_NE(refused(folder).find("not a regular file"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refused(folder / "pipe").find("not a regular file"), std::string::npos);
}

TEST_F(Safetensors, RejectsUnwritableTensorsBeforeTouchingAFile) {
  const std::vector<float> values = counted(4);
  const auto write = [&](std::vector<TensorToWrite> tensors) { write_safetensors(file(), tensors); };
  EXPECT_THROW(write({tensor_of("w", values, {5})}), ShapeError);
  EXPECT_THROW(write({tensor_of("w", values, {-4})}), ShapeError);
  EXPECT_THROW(write({tensor_of("w", {}, {4})}), ShapeError);
  EXPECT_THROW(write({tensor_of("w", values, {4}), tensor_of("w", values, {4})}), ConfigError);
  EXPECT_THROW(write({tensor_of("__metadata__", values, {4})}), ConfigError);
  EXPECT_THROW(write({tensor_of("\xff", values, {4})}), ConfigError);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_THROW(write_safetensors(folder / "none" / "file", {}), FileError);
}

TEST_F(Safetensors, AnExceptionInFillKeepsTheOldFile) {
  put(file(), "old");
  const std::vector<TensorToWrite> tensors = {
      {"w", Dtype::f32, {4}, {}, [](std::uint64_t, std::span<std::byte>) {
         throw std::runtime_error("stopped");
       }}};
  EXPECT_THROW(write_safetensors(file(), tensors), std::runtime_error);
  EXPECT_EQ(contents_of(file()), "old");
  EXPECT_FALSE(std::filesystem::exists(file().string() + ".partial"));
}

// A process limit stands in for a full disk: the write fails midway in the same way.
TEST_F(Safetensors, AFullDiskKeepsTheOldFileAndLeavesNoOther) {
  put(file(), "old");
  const std::vector<float> values(1 << 20);
  const std::vector<TensorToWrite> tensors = {tensor_of("w", values, {1 << 20})};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<ResourceError>([&] { write_safetensors(file(), tensors); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find(file().string()), std::string::npos) << message;
  EXPECT_EQ(contents_of(file()), "old");
  EXPECT_FALSE(std::filesystem::exists(file().string() + ".partial"));
}

}  // namespace
}  // namespace mantissa::io

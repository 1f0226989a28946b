#include "mantissa/files/io/checkpoint.h"
#include "mantissa/core/disk/owned.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::io {
namespace {

using test::contents_of;
using test::message_of;
using test::put;

class Checkpoint : public test::TemporaryFolder {
 protected:
  std::filesystem::path directory() const { return folder / "model"; }

  // Three weights of 16, 8 and 16 bytes.
  std::vector<TensorToWrite> weights() const {
    return {of("a", a, {2, 2}), of("b", b, {2}), of("c", c, {4})};
  }
  static TensorToWrite of(std::string name, const std::vector<float>& values,
                          std::vector<std::int64_t> shape) {
    return {std::move(name), Dtype::f32, std::move(shape), std::as_bytes(std::span(values)), nullptr};
  }
  std::uint64_t write(std::uint64_t shard_bytes) const {
    const std::vector<TensorToWrite> tensors = weights();
    ModelToWrite model;
    model.config_json = R"({"model_type":"llama"})";
    model.tensors = tensors;
    model.metadata = {{"mantissa.policy", "params=f32"}, {"mantissa.rounded_to", "bf16"}};
    model.shard_bytes = shard_bytes;
    return write_model(directory(), model);
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory())) {
      if (entry.path().filename() != disk::kOwnedList) names.insert(entry.path().filename());
    }
    return names;
  }

  const std::vector<float> a = {1, 2, 3, 4}, b = {5, 6}, c = {7, 8, 9, 10};
};

TEST_F(Checkpoint, AModelIsAConfigAndItsWeights) {
  write(5'000'000'000);
  EXPECT_EQ(files(), (std::set<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(contents_of(directory() / "config.json"), R"({"model_type":"llama"})");
  const WeightFiles read(directory());
  EXPECT_EQ(read.metadata(),
            (std::map<std::string, std::string>{
                {"format", "pt"}, {"mantissa.policy", "params=f32"}, {"mantissa.rounded_to", "bf16"}}));
  ASSERT_EQ(read.tensors().size(), 3U);
  EXPECT_EQ(read.tensors()[0].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(read.bytes(), 40U);
  std::vector<float> values(4);
  read.read_f32("c", values);
  EXPECT_EQ(values, c);
}

TEST_F(Checkpoint, WritesAdditionalFiles) {
  ModelToWrite model;
  model.config_json = "{}";
  model.generation_config_json = R"({"eos_token_id":2})";
  model.files = {{"tokenizer.json", "{\"version\":\"1.0\"}"}};
  write_model(directory(), model);
  EXPECT_EQ(files(), (std::set<std::string>{"config.json", "generation_config.json", "model.safetensors",
                                            "tokenizer.json"}));
  EXPECT_EQ(contents_of(directory() / "generation_config.json"), R"({"eos_token_id":2})");
}

TEST_F(Checkpoint, LargeModelsAreShardedWithAnIndex) {
  write(24);  // a and b exactly fill the first shard
  EXPECT_EQ(files(),
            (std::set<std::string>{"config.json", "model-00001-of-00002.safetensors",
                                   "model-00002-of-00002.safetensors", "model.safetensors.index.json"}));
  const auto index = nlohmann::json::parse(contents_of(directory() / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 40);
  EXPECT_EQ(index["weight_map"], (nlohmann::json{{"a", "model-00001-of-00002.safetensors"},
                                                 {"b", "model-00001-of-00002.safetensors"},
                                                 {"c", "model-00002-of-00002.safetensors"}}));
  for (const auto& path : {directory(), directory() / "model.safetensors.index.json"}) {
    const WeightFiles read(path);
    ASSERT_EQ(read.tensors().size(), 3U);
    EXPECT_EQ(read.metadata().at("format"), "pt");
    EXPECT_EQ(read.path_of("c").filename(), "model-00002-of-00002.safetensors");
    for (const auto& [name, expected] : {std::pair{"a", a}, {"b", b}, {"c", c}}) {
      std::vector<float> values(expected.size());
      read.read_f32(name, values);
      EXPECT_EQ(values, expected) << name;
    }
  }
}

TEST_F(Checkpoint, ATensorLargerThanAShardHasItsOwnShard) {
  write(1);
  EXPECT_EQ(WeightFiles(directory()).path_of("b").filename(), "model-00002-of-00003.safetensors");
}

TEST_F(Checkpoint, TheHashDependsOnlyOnTheValues) {
  std::vector<float> all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  const std::uint64_t expected = XXH64(all.data(), all.size() * sizeof(float), 0);
  for (const std::uint64_t shard_bytes : {1U, 24U, 1000U})
    EXPECT_EQ(write(shard_bytes), expected) << shard_bytes;
}

TEST_F(Checkpoint, WritingAgainReplacesTheWholeDirectory) {
  write(24);
  write(1000);
  EXPECT_EQ(files(), (std::set<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(Checkpoint, AFailedWriteKeepsTheOldModel) {
  write(1000);
  const std::vector<TensorToWrite> tensors = {
      {"a", Dtype::f32, {2}, {}, [](std::uint64_t, std::span<std::byte>) {
         throw std::runtime_error("stopped");
       }}};
  ModelToWrite model;
  model.tensors = tensors;
  EXPECT_THROW(write_model(directory(), model), std::runtime_error);
  EXPECT_EQ(WeightFiles(directory()).tensors().size(), 3U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(Checkpoint, RejectsTwoWeightsOfOneNameAlsoAcrossShards) {
  const std::vector<TensorToWrite> tensors = {of("a", a, {4}), of("a", a, {4})};
  ModelToWrite model;
  model.tensors = tensors;
  for (const std::uint64_t shard_bytes : {1U, 1000U}) {
    model.shard_bytes = shard_bytes;
    EXPECT_THROW(write_model(directory(), model), ConfigError);
  }
}

TEST_F(Checkpoint, UsesTheOnlySafetensorsFileOfADirectory) {
  write_safetensors(folder / "rwkv.safetensors", weights());
  EXPECT_EQ(WeightFiles(folder).tensors().size(), 3U);
  EXPECT_EQ(WeightFiles(folder / "rwkv.safetensors").tensors().size(), 3U);
  write_safetensors(folder / "other.safetensors", weights());
  EXPECT_NE(message_of<FileError>([&] { WeightFiles files(folder); }).find("2 safetensors files"),
            std::string::npos);
}

TEST_F(Checkpoint, ADirectoryWithoutWeightsIsReportedWithItsContents) {
  EXPECT_NE(message_of<FileError>([&] { WeightFiles files(folder); }).find("has no model.safetensors"),
            std::string::npos);
  put(folder / "pytorch_model.bin", "PK");
  EXPECT_NE(message_of<FileError>([&] { WeightFiles files(folder); }).find("too few for a zip archive"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { WeightFiles files(folder / "none"); }).find("no such file"),
            std::string::npos);
}

TEST_F(Checkpoint, RejectsAnIndexThatDoesNotMatchItsShards) {
  write_safetensors(folder / "x.safetensors", weights());
  const std::vector<TensorToWrite> other = {of("a", a, {4})};
  write_safetensors(folder / "y.safetensors", other);
  const auto refused = [&](std::string_view index) {
    put(folder / "model.safetensors.index.json", index);
    return message_of<FileError>([&] { WeightFiles files(folder); });
  };
  for (const auto& [index, says] : std::vector<std::pair<const char*, const char*>>{
           {"", "is empty"},
           {"{", "is truncated: its JSON does not end with its 1 bytes"},
           {"{]", "is not JSON from byte 2 on"},
           {"[]", "has no weight_map"},
           {"{}", "has no weight_map"},
           {R"({"weight_map":[]})", "has no weight_map"},
           {R"({"weight_map":{}})", "has no weight_map"},
           {R"({"weight_map":{"a":1}})", "does not name a file in its folder for \"a\""},
           {R"({"weight_map":{"a":"../x.safetensors"}})", "does not name a file in its folder for \"a\""},
           {R"({"weight_map":{"a":"/etc/passwd"}})", "does not name a file in its folder for \"a\""},
           {R"({"weight_map":{"a":".."}})", "does not name a file in its folder for \"a\""},
           {R"({"weight_map":{"a":""}})", "does not name a file in its folder for \"a\""},
           {R"({"weight_map":{"a":"z.safetensors"}})", "no such file"},
           {R"({"weight_map":{"d":"x.safetensors"}})",
            "assigns \"d\" to x.safetensors, which does not contain it"},
           {R"({"weight_map":{"a":"x.safetensors","b":"y.safetensors"}})", "is also in x.safetensors"},
           {R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})", "twice"}}) {
    EXPECT_NE(refused(index).find(says), std::string::npos) << index;
  }
  EXPECT_NE(refused(std::string(100'000, '[')).find("deeper than"), std::string::npos);
}

TEST_F(Checkpoint, ErrorsOfAReadNameTheTensor) {
  const std::vector<std::byte> bytes(8);
  const std::vector<TensorToWrite> tensors = {{"ids", Dtype::i64, {1}, bytes, nullptr}, of("a", a, {2, 2})};
  write_safetensors(folder / "model.safetensors", tensors);
  const WeightFiles read(folder);
  std::vector<float> one(1), three(3);
  EXPECT_NE(message_of<FileError>([&] { read.read_f32("b", one); }).find("no tensor \"b\""),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] { read.read_f32("a", three); }).find("\"a\" is [2, 2]"),
            std::string::npos);
  EXPECT_NE(message_of<DtypeError>([&] { read.read_f32("ids", one); }).find("\"ids\" is I64"),
            std::string::npos);
}

// Widening is exact: every 16-bit value against the definition of its format (docs/numerics.md, "Formats").
double value_of(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const auto mantissa = static_cast<double>(bits & ((1U << mantissa_bits) - 1));
  const double sign = bits >> (exponent_bits + mantissa_bits) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const double hidden = exponent == 0 ? 0 : std::ldexp(1, mantissa_bits);
  return sign * std::ldexp(mantissa + hidden, std::max(exponent, 1) - bias - mantissa_bits);
}

TEST_F(Checkpoint, ReadsEverySixteenBitValueExactly) {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::vector<TensorToWrite> tensors = {
      {"bf16", Dtype::bf16, {65536}, std::as_bytes(std::span(all)), nullptr},
      {"f16", Dtype::f16, {65536}, std::as_bytes(std::span(all)), nullptr}};
  write_safetensors(folder / "model.safetensors", tensors);
  const WeightFiles read(folder);
  for (const auto& [name, exponent_bits, mantissa_bits] : {std::tuple{"bf16", 8, 7}, {"f16", 5, 10}}) {
    std::vector<float> f32(all.size());
    std::vector<double> f64(all.size());
    read.read_f32(name, f32);
    read.read_f64(name, f64);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const double expected = value_of(i, exponent_bits, mantissa_bits);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(f32[i]) && std::isnan(f64[i])) << name << " " << i;
      } else {
        EXPECT_EQ(std::bit_cast<std::uint64_t>(static_cast<double>(f32[i])),
                  std::bit_cast<std::uint64_t>(expected))
            << name << " " << i;
        EXPECT_EQ(std::bit_cast<std::uint64_t>(f64[i]), std::bit_cast<std::uint64_t>(expected))
            << name << " " << i;
      }
    }
  }
}

TEST_F(Checkpoint, F64RoundsToNearestEvenInF32) {
  // Ties at 1 + 2^-24 and 1 + 3·2^-24, above the largest f32, below its smallest subnormal.
  const std::vector<double> values = {1 + 0x1p-24, 1 + 0x3p-24, 1 + 0x1.8p-24, 0x1.ffffffp127,
                                      0x1p-150,    0x1.8p-150,  -0.0};
  const std::vector<float> expected = {1, 1 + 0x1p-22F, 1 + 0x1p-23F, std::numeric_limits<float>::infinity(),
                                       0, 0x1p-149F,    -0.0F};
  const std::vector<TensorToWrite> tensors = {
      {"w", Dtype::f64, {7}, std::as_bytes(std::span(values)), nullptr}};
  write_safetensors(folder / "model.safetensors", tensors);
  const WeightFiles read(folder);
  std::vector<float> f32(7);
  std::vector<double> f64(7);
  read.read_f32("w", f32);
  read.read_f64("w", f64);
  EXPECT_EQ(f64, values);
  EXPECT_EQ(std::memcmp(f32.data(), expected.data(), 7 * sizeof(float)), 0);
}

TEST_F(Checkpoint, ReadsTensorsOfSeveralPieces) {
  // 1,200,001 values of 2 bytes: three pieces, the last one short.
  std::vector<std::uint16_t> values(1'200'001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i % 0x7f80);
  const std::vector<TensorToWrite> tensors = {
      {"w", Dtype::bf16, {1'200'001}, std::as_bytes(std::span(values)), nullptr}};
  write_safetensors(folder / "model.safetensors", tensors);
  std::vector<float> read(values.size());
  WeightFiles(folder).read_f32("w", read);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(read[i]) >> 16, values[i]) << i;
}

}  // namespace
}  // namespace mantissa::io

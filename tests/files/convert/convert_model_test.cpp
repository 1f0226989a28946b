// Rewriting of model directories and of states.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "files/convert/convert_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"

namespace mantissa::convert {
namespace {

using nlohmann::json;
using test::contents_of;
using test::message_of;
using test::put;

class ConvertModel : public Convert {
 protected:
  fs::path model() const { return folder / "model"; }
  /// Writes two shards, a tokenizer, pickles and a folder.
  void write_model() const {
    const std::vector<io::TensorToWrite> all = tensors();
    io::ModelToWrite m;
    m.config_json = R"({"model_type": "llama", "torch_dtype": "float32", "rope_theta": 10000.0,
                        "text_config": {"dtype": "float32"}})";
    m.generation_config_json = R"({"do_sample": true})";
    m.files = {{"tokenizer.json", "{}"}, {"pytorch_model.bin", "PK"}, {"README.md", "text"}};
    m.tensors = all;
    m.metadata = {{kPolicyKey, "params=f32"}};
    m.shard_bytes = 1'200'040;
    io::write_model(model(), m);
    fs::create_directories(model() / "original");
  }
};

TEST_F(ConvertModel, KeepsADirectoryAndNamesTheNewDtype) {
  write_model();
  const Result r = run(model(), folder / "out", {Scalar::bf16});
  EXPECT_EQ(r.copied, (std::vector<std::string>{"README.md", "config.json", "generation_config.json",
                                                "tokenizer.json"}));
  EXPECT_EQ(r.left_out, (std::vector<std::string>{"original/", "pytorch_model.bin"}));
  const json config = json::parse(contents_of(folder / "out/config.json"));
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["text_config"]["dtype"], "bfloat16");
  EXPECT_EQ(config["rope_theta"], 10000.0);
  EXPECT_EQ(contents_of(folder / "out/generation_config.json"),
            contents_of(model() / "generation_config.json"));
  const json index = json::parse(contents_of(folder / "out/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], r.bytes_out);
  EXPECT_EQ(r.bytes_out, 2 * values.size() + 8 * 3 + 2);
  const io::WeightFiles files(folder / "out");
  EXPECT_EQ(files.shards().size(), 2U);
  EXPECT_EQ(files.bytes(), r.bytes_out);
  for (const io::SafetensorsReader& shard : files.shards()) {
    EXPECT_EQ(shard.metadata().at("format"), "pt");
    EXPECT_EQ(shard.metadata().at(kPolicyKey), "params=f32");
  }
  // Without a format everything stays unchanged.
  run(model(), folder / "same", {});
  EXPECT_EQ(contents_of(folder / "same/config.json"), contents_of(model() / "config.json"));
}

TEST_F(ConvertModel, ReplacesOnlyModels) {
  write_model();
  EXPECT_THROW(run(model(), model(), {}, true), FileError);
  EXPECT_NE(message_of<FileError>([&] { run(model(), folder, {}, true); }).find("contains the input"),
            std::string::npos);
  fs::create_directories(folder / "home");
  put(folder / "home/letter", "dear");
  EXPECT_NE(message_of<FileError>([&] {
              run(model(), folder / "home", {}, true);
            }).find("home: is not replaced: it has no .mantissa.json"),
            std::string::npos);
  EXPECT_EQ(contents_of(folder / "home/letter"), "dear");
  fs::create_directories(folder / "empty");
  run(model(), folder / "empty", {Scalar::bf16});
  EXPECT_NE(message_of<FileError>([&] { run(model(), folder / "empty", {}); }).find("exists already"),
            std::string::npos);
  run(model(), folder / "empty", {Scalar::f16}, true);
  EXPECT_EQ(json::parse(contents_of(folder / "empty/config.json"))["torch_dtype"], "float16");
  EXPECT_FALSE(fs::exists(folder / "empty.partial"));
}

TEST_F(ConvertModel, LeavesNothingWhenStopped) {
  write_model();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(
      convert({io::open_model(model()), folder / "out", {Scalar::bf16}, false}, {}, stop.get_token()));
  EXPECT_FALSE(fs::exists(folder / "out"));
  EXPECT_FALSE(fs::exists(folder / "out.partial"));
}

TEST_F(ConvertModel, ConvertsTheMastersOfAState) {
  io::StateHeader header;
  header.step = 12;
  header.config_toml = "[run]\n";
  header.model_config = R"({"model_type": "llama", "torch_dtype": "float32"})";
  header.policy = "params=f32 compute=bf16";
  const std::vector<io::TensorToWrite> parts = {
      of("master.up_proj.weight", io::Dtype::f32, {kRows, kColumns}, std::as_bytes(std::span(values))),
      of("first_moment.up_proj.weight", io::Dtype::f32, {kRows, kColumns}, std::as_bytes(std::span(values)))};
  io::write_state(folder / "run", header, parts, 1);
  for (const fs::path& in : {folder / "run", folder / "run/state/step-00000012"}) {
    run(in, folder / "out", {Scalar::bf16}, fs::exists(folder / "out"));
    const io::WeightFiles files(folder / "out");
    ASSERT_EQ(files.tensors().size(), 1U);
    EXPECT_EQ(files.tensors()[0].name, "up_proj.weight");
    EXPECT_EQ(files.tensors()[0].dtype, io::Dtype::bf16);
    EXPECT_EQ(files.metadata().at(kPolicyKey), header.policy);
    EXPECT_EQ(files.metadata().at(kHistoryKey),
              "masters of the state of step 12; F32 to bf16, rounded to nearest");
    EXPECT_EQ(json::parse(contents_of(folder / "out/config.json"))["torch_dtype"], "bfloat16");
  }
}

TEST_F(ConvertModel, MultipliesEightBitWeightsByTheirScales) {
  // 3 × 5 codes of 1, 2, 3, …; a scale for the tensor, each row, or each block of 2 × 3.
  std::vector<std::uint8_t> codes;
  std::vector<double> numbers;
  for (int i = 0; i < 15; ++i) {
    codes.push_back(static_cast<std::uint8_t>(encode(i + 1, Scalar::e4m3)));
    numbers.push_back(round_to(i + 1, Scalar::e4m3));
  }
  const std::vector<float> scales = {0.5F, 3.0F, 0.1F, 7.0F};
  struct Case {
    std::vector<std::int64_t> shape;
    std::size_t (*of)(std::size_t row, std::size_t column);
  };
  const Case cases[] = {{{1}, [](std::size_t, std::size_t) { return std::size_t{0}; }},
                        {{}, [](std::size_t, std::size_t) { return std::size_t{0}; }},
                        {{3, 1}, [](std::size_t r, std::size_t) { return r; }},
                        {{3}, [](std::size_t r, std::size_t) { return r; }},
                        {{2, 2}, [](std::size_t r, std::size_t c) { return r / 2 * 2 + c / 3; }}};
  for (const Case& c : cases) {
    std::size_t count = 1;
    for (const std::int64_t n : c.shape) count *= static_cast<std::size_t>(n);
    const std::vector<io::TensorToWrite> all = {
        of("q_proj.weight", io::Dtype::e4m3, {3, 5}, std::as_bytes(std::span(codes))),
        of("q_proj.weight_scale_inv", io::Dtype::f32, c.shape, std::as_bytes(std::span(scales).first(count))),
        of("q_proj.input_scale", io::Dtype::f32, {1}, std::as_bytes(std::span(scales).first(1)))};
    io::ModelToWrite m;
    m.config_json =
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 3]}, "dtype": "bfloat16"})";
    m.tensors = all;
    fs::remove_all(model());
    io::write_model(model(), m);
    const Result r = run(model(), folder / "out", {Scalar::f32}, fs::exists(folder / "out"));
    const io::WeightFiles files(folder / "out");
    ASSERT_EQ(files.tensors().size(), 1U);
    std::vector<float> got(15);
    files.read_f32("q_proj.weight", got);
    for (std::size_t i = 0; i < 15; ++i)
      EXPECT_EQ(got[i], static_cast<float>(numbers[i]) * scales[c.of(i / 5, i % 5)]) << i;
    const json config = json::parse(contents_of(folder / "out/config.json"));
    EXPECT_FALSE(config.contains("quantization_config"));
    EXPECT_EQ(config["dtype"], "float32");
  }
}

TEST_F(ConvertModel, ReadsScalesThatArePowersOfTwo) {
  const std::vector<std::uint8_t> codes(3, static_cast<std::uint8_t>(encode(3, Scalar::e4m3)));
  const std::vector<std::uint8_t> scales = {127, 120, 0};
  const std::vector<io::TensorToWrite> all = {
      of("q_proj.weight", io::Dtype::e4m3, {3, 1}, std::as_bytes(std::span(codes))),
      of("q_proj.weight_scale", io::Dtype::e8m0, {3, 1}, std::as_bytes(std::span(scales)))};
  io::write_safetensors(folder / "in.safetensors", all);
  run(folder / "in.safetensors", folder / "out", {Scalar::f32});
  std::vector<float> got(3);
  io::WeightFiles(folder / "out").read_f32("q_proj.weight", got);
  EXPECT_EQ(got, (std::vector<float>{3.0F, 3 * 0x1p-7F, 3 * 0x1p-127F}));
}

TEST_F(ConvertModel, RejectsScalesThatDoNotFit) {
  const std::vector<std::uint8_t> codes(15);
  const std::vector<float> scales(4);
  const std::vector<io::TensorToWrite> all = {
      of("q_proj.weight", io::Dtype::e4m3, {3, 5}, std::as_bytes(std::span(codes))),
      of("q_proj.weight_scale", io::Dtype::f32, {2, 2}, std::as_bytes(std::span(scales)))};
  io::write_safetensors(folder / "in.safetensors", all);
  const std::string said =
      message_of<ShapeError>([&] { run(folder / "in.safetensors", folder / "out", {Scalar::bf16}); });
  EXPECT_EQ(said.find("q_proj.weight: is [3, 5], and its scale \"q_proj.weight_scale\" [2, 2] fits"), 0U)
      << said;
}

}  // namespace
}  // namespace mantissa::convert

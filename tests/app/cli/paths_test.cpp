// What commands make of paths that are not a usual model, and of the end of a path that they write.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli/run_program.h"

namespace mantissa {
namespace {

using testing::has;
using testing::mantissa;
using testing::read_all;
using testing::Result;
using testing::TemporaryFolder;
using testing::write;

/// A model in `r/model`.
class Paths : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(testing::train_tiny(folder, 2, "32-true").code, 0); }
  std::string refusal(const std::string& arguments) {
    const Result r = mantissa(folder, arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    return r.err;
  }
  TemporaryFolder folder;
};

TEST_F(Paths, TheEndOfTheOutputIsItsFormat) {
  for (const auto& [out, begins] : {std::pair{"m.gguf", "GGUF"}, std::pair{"m.pth", "PK"}}) {
    const Result r = mantissa(folder, std::string("convert r/model ") + out);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(read_all(folder / out).starts_with(begins)) << out;
  }
  ASSERT_EQ(mantissa(folder, "convert r/model other").code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "other/model.safetensors"));
  // llama.cpp writes its types in capitals.
  ASSERT_EQ(mantissa(folder, "convert r/model q.gguf --dtype Q8_0").code, 0) << read_all(folder / "err");
  ASSERT_EQ(mantissa(folder, "convert r/model small.gguf --dtype q8_0").code, 0);
  EXPECT_EQ(read_all(folder / "q.gguf"), read_all(folder / "small.gguf"));
  EXPECT_NE(read_all(folder / "q.gguf"), read_all(folder / "m.gguf"));
}

TEST_F(Paths, AFileOfWeightsIsTheModelOfTheConfigBesideIt) {
  std::filesystem::create_directory(folder / "d");
  ASSERT_EQ(mantissa(folder, "convert r/model d/w.pth").code, 0);
  const std::string alone = refusal("generate d/w.pth --prompt a");
  EXPECT_TRUE(has(alone, "d/w.pth: expected a model, got a file of weights without a config.json")) << alone;
  EXPECT_TRUE(has(alone, "Fix: put the model's config.json")) << alone;
  std::filesystem::copy(folder / "r/model/config.json", folder / "d/config.json");
  const std::string options = " --prompt Ada --max-new-tokens 4 --temperature 0";
  const Result file = mantissa(folder, "generate d/w.pth" + options);
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(file.out, mantissa(folder, "generate r/model" + options).out);
}

TEST_F(Paths, WeightsOfAnotherRwkvAreNamed) {
  const std::vector<float> zeros(4);
  const auto bytes = std::as_bytes(std::span(zeros));
  io::write_safetensors(
      folder / "rwkv.safetensors",
      std::vector{io::TensorToWrite{"emb.weight", io::Dtype::f32, {2, 2}, bytes, nullptr},
                  io::TensorToWrite{"blocks.0.att.time_decay", io::Dtype::f32, {4}, bytes, nullptr}});
  for (const char* command : {"explain rwkv.safetensors", "generate rwkv.safetensors --prompt a"}) {
    const std::string said = refusal(command);
    EXPECT_TRUE(has(said, "expected the weights of RWKV-7 (x070), got those of RWKV-4")) << said;
    EXPECT_TRUE(has(said, "mantissa inspect rwkv.safetensors")) << said;
  }
  EXPECT_EQ(mantissa(folder, "inspect rwkv.safetensors").code, 0);
}

TEST_F(Paths, AnAdapterIsConvertedAfterAMerge) {
  write(folder / "lora.toml",
        "[run]\nsteps = 1\n[model]\npath = \"r/model\"\n[data]\nsource = \"kk\"\ntokenizer = \"byte\"\n"
        "sequence_length = 32\n[batch]\nglobal_batch_size = 2\n[adapter]\nkind = \"lora\"\nrank = 2\n");
  ASSERT_EQ(mantissa(folder, "train lora.toml --out l --quiet").code, 0) << read_all(folder / "err");
  for (const char* in : {"l", "l/adapter"}) {
    for (const char* out : {"x.pth", "x"}) {
      const std::string said = refusal(std::string("convert ") + in + " " + out);
      EXPECT_TRUE(has(said, "Fix: add it into its base, and convert the result: mantissa merge /")) << said;
      EXPECT_TRUE(has(said, std::string("/r/model ") + in + " MERGED")) << said;
      EXPECT_FALSE(std::filesystem::exists(folder / out)) << in << " " << out;
    }
  }
  ASSERT_EQ(mantissa(folder, "merge r/model l merged").code, 0);
  EXPECT_EQ(mantissa(folder, "convert merged x.gguf").code, 0);
}

TEST_F(Paths, FieldsThatAModelDoesNotUseAreNotedWhereverAPlanIs) {
  nlohmann::json config = nlohmann::json::parse(read_all(folder / "r/model/config.json"));
  config["attention_dropout"] = 0.1;
  config["pretraining_tp"] = 2;
  write(folder / "r/model/config.json", config.dump());
  std::string toml = read_all(folder / "run.toml");
  const std::size_t begin = toml.find("[model]"), end = toml.find("[data]");
  write(folder / "run.toml", toml.replace(begin, end - begin, "[model]\npath = \"r/model\"\n"));
  const std::string texts[] = {mantissa(folder, "explain run.toml").out,
                               mantissa(folder, "explain run.toml --json").out,
                               mantissa(folder, "explain r/model").out,
                               mantissa(folder, "train run.toml --dry-run").out,
                               mantissa(folder, "train run.toml --dry-run --json").out,
                               mantissa(folder, "train run.toml --out n --json").out,
                               mantissa(folder, "train run.toml --out n --overwrite").out,
                               read_all(folder / "n/plan.txt")};
  for (const std::string& text : texts) {
    EXPECT_TRUE(has(text, "attention_dropout is read as 0")) << text;
    EXPECT_TRUE(has(text, "pretraining_tp is read as 1")) << text;
  }
}

}  // namespace
}  // namespace mantissa

// Training for the format that is served: the converted model computes as the run did.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"

namespace mantissa {
namespace {

using testing::has;
using testing::into;
using testing::TemporaryFolder;
using testing::tiny_config;

const std::vector<std::string> kSizes = {"model.hidden_size=64", "model.intermediate_size=128"};

api::Config config_of(const std::string& policy, int steps = 4, std::vector<std::string> more = {}) {
  more.insert(more.end(), kSizes.begin(), kSizes.end());
  return api::Config::parse(tiny_config(steps, policy), more);
}

class Served : public ::testing::Test {
 protected:
  api::Conversion convert(const std::string& in, const std::string& out, const std::string& dtype) const {
    api::ConvertOptions o;
    o.in = folder / in;
    o.out = folder / out;
    o.dtype = dtype;
    return api::convert(o);
  }
  void SetUp() override {
    std::ofstream text(folder / "text.txt");
    for (int i = 0; i < 40; ++i) text << "Kim said that person " << i << " is a knave or a knight. ";
  }
  double loss(const std::string& model, const std::string& policy) const {
    const std::string text = (folder / "text.txt").string();
    return api::evaluate(folder / model, {text}, "text", 64, 0, {policy, {}, {}}).loss;
  }
  TemporaryFolder folder;
};

TEST_F(Served, AConvertedFileIsExactAndHasTheLossOfTheRun) {
  for (const char* format : {"q4_0", "q8_0", "mxfp4"}) {
    for (const char* preset : {"32-true", "bf16-mixed"}) {
      SCOPED_TRACE(std::string(preset) + " " + format);
      const std::string policy = preset + std::string(" weights=") + format;
      const std::string name = preset + std::string(format), file = name + ".gguf";
      api::train(config_of(policy), into(folder / name));
      const api::Conversion done = convert(name, file, format);
      EXPECT_EQ(done.total.max_error, 0);
      EXPECT_EQ(done.total.vanished, 0U);
      EXPECT_TRUE(has(done.text, "trained for " + std::string(format))) << done.text;
      EXPECT_EQ(loss(file, preset), loss(name, policy));
      EXPECT_EQ(loss(file, policy), loss(name, policy)) << "rounded again";
      EXPECT_NE(loss(name, preset), loss(name, policy)) << "the masters are not rounded";
    }
  }
}

TEST_F(Served, OnlyTheFormatOfTheRunAndItsOwnMastersAreExact) {
  api::train(config_of("32-true weights=q4_0"), into(folder / "run"));
  EXPECT_GT(convert("run", "other.gguf", "q8_0").total.max_error, 0);
  convert("run", "half", "bf16");
  const api::Conversion from_half = convert("half", "half.gguf", "q4_0");
  EXPECT_GT(from_half.total.max_error, 0) << "bf16 has changed the masters";
  EXPECT_FALSE(has(from_half.text, "trained for"));
  api::train(config_of("32-true"), into(folder / "plain"));
  EXPECT_GT(convert("plain", "plain.gguf", "q4_0").total.max_error, 0);
}

TEST_F(Served, ConvertedDirectoriesOfBlockFormatsAreExact) {
  for (const char* format : {"mxfp4", "nvfp4"}) {
    SCOPED_TRACE(format);
    const std::string policy = std::string("32-true weights=") + format;
    api::train(config_of(policy), into(folder / format));
    const std::string out = std::string(format) + "-model";
    const api::Conversion done = convert(format, out, format);
    EXPECT_EQ(done.total.max_error, 0);
    EXPECT_EQ(loss(out, "32-true"), loss(format, policy));
  }
}

TEST_F(Served, StoppedRunsContinueWithTheSameBytes) {
  testing::expect_same_bytes_from(config_of("bf16-mixed weights=q4_0", 7), {3, 6});
}

TEST_F(Served, TrainingLowersTheLossOfEveryFormat) {
  for (const char* format : {"q4_0", "q8_0", "int4-32", "nf4", "mxfp4", "nvfp4"}) {
    SCOPED_TRACE(format);
    api::train(config_of(std::string("32-true weights=") + format, 40), into(folder / format));
    const std::vector<nlohmann::json> steps = testing::steps_of(folder / format);
    EXPECT_LT(steps.back()["loss"].get<double>(), steps.front()["loss"].get<double>() - 0.5);
  }
}

TEST_F(Served, AdaptersAreAnError) {
  api::train(config_of("32-true"), into(folder / "base"));
  try {
    const api::Config config = api::Config::parse(
        "[run]\nsteps = 2\n[model]\npath = \"" + (folder / "base/model").string() +
        "\"\n[data]\nsource = \"kk\"\nsequence_length = 32\n[adapter]\nkind = \"lora\"\n[precision]\npolicy = "
        "\"32-true weights=q4_0\"\n");
    api::train(config, into(folder / "adapter"));
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& e) {
    EXPECT_TRUE(has(e.what(), "weights=q4_0")) << e.what();
    EXPECT_TRUE(has(e.what(), "adapter.base")) << e.what();
  }
}

}  // namespace
}  // namespace mantissa

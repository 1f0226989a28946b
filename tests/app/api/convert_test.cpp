// Conversions of a trained model: the effect on its loss, and running models of every format.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/api/tiny.h"
#include "core/base/sanitized.h"
#include "mantissa/app/api/error.h"

namespace mantissa {
namespace {

using testing::into;
using testing::TemporaryFolder;
using testing::tiny_config;

class ConvertedModel : public ::testing::Test {
 protected:
  void SetUp() override { api::train(api::Config::parse(tiny_config(4, "32-true")), into(folder / "run")); }
  api::ConvertOptions options(const std::string& dtype, const std::string& out) const {
    api::ConvertOptions o;
    o.in = folder / "run";
    o.out = folder / out;
    o.dtype = dtype;
    o.data = {"kk"};
    o.sequence_length = 64;
    return o;
  }
  double loss(const std::filesystem::path& model) const {
    return api::evaluate(model, {"kk"}, "auto", 64, 0, {}, {}).loss;
  }

  TemporaryFolder folder;
};

TEST_F(ConvertedModel, RunInEveryFormatAndTheLossIsThatOfEval) {
  const double before = loss(folder / "run/model");
  double last = -1;
  for (const char* dtype : testing::cases<const char*>({"f64", "tf32", "bf16", "e4m3"}, 2)) {
    const api::Conversion c = api::convert(options(dtype, dtype));
    ASSERT_TRUE(c.effect) << dtype;
    EXPECT_EQ(c.effect->loss, before) << dtype;
    EXPECT_EQ(c.effect->converted_loss, loss(folder / dtype)) << dtype;
    EXPECT_EQ(c.effect->tokens, api::evaluate(folder / dtype, {"kk"}, "auto", 64, 0, {}, {}).tokens);
    // Fewer bits give a larger divergence, and no rounding gives none.
    EXPECT_GT(c.effect->kl, last) << dtype;
    EXPECT_GE(c.effect->max_kl, c.effect->kl) << dtype;
    last = c.effect->kl;
    const nlohmann::json json = nlohmann::json::parse(c.json);
    EXPECT_EQ(json["kl"], c.effect->kl);
    EXPECT_EQ(json["loss_change"], c.effect->converted_loss - c.effect->loss);
    EXPECT_EQ(json["tensors"].size(), c.tensors.size());
  }
}

TEST_F(ConvertedModel, OfAGgufFileIsComparedWithItsDequantizedValues) {
  // Rows of 32 values are whole blocks of q8_0.
  const std::vector<std::string> sizes = {"model.hidden_size=32", "model.intermediate_size=32"};
  const std::filesystem::path run = folder / "wide";
  api::train(api::Config::parse(tiny_config(4, "32-true"), sizes), into(run));
  api::ConvertOptions o = options("q8_0", "model.gguf");
  o.in = run;
  o.format = "gguf";
  const double before = loss(run / "model");
  const api::Conversion quantized = api::convert(o);
  ASSERT_TRUE(quantized.effect);
  EXPECT_EQ(quantized.effect->loss, before);
  EXPECT_GT(quantized.effect->kl, 0);
  // Without --dtype, the directory has the dequantized values.
  o = options("", "back");
  o.in = folder / "model.gguf";
  const api::Conversion back = api::convert(o);
  ASSERT_TRUE(back.effect);
  EXPECT_EQ(back.effect->loss, loss(folder / "back"));
  EXPECT_EQ(back.effect->loss, quantized.effect->converted_loss);
  EXPECT_EQ(back.effect->converted_loss, back.effect->loss);
  EXPECT_EQ(back.effect->kl, 0);
  o = options("bf16", "bf16");
  o.in = folder / "model.gguf";
  const api::Conversion rounded = api::convert(o);
  ASSERT_TRUE(rounded.effect);
  EXPECT_EQ(rounded.effect->loss, back.effect->loss);
  EXPECT_EQ(rounded.effect->converted_loss, loss(folder / "bf16"));
  EXPECT_GT(rounded.effect->kl, 0);
}

TEST_F(ConvertedModel, OfAStateIsComparedWithItsMasters) {
  const double before = loss(folder / "run/model");
  std::filesystem::remove_all(folder / "run/model");
  const api::Conversion c = api::convert(options("bf16", "bf16"));
  ASSERT_TRUE(c.effect);
  EXPECT_EQ(c.effect->loss, before);
  EXPECT_EQ(c.effect->converted_loss, loss(folder / "bf16"));
}

TEST_F(ConvertedModel, OptionsAreCheckedBeforeAnythingIsWritten) {
  api::ConvertOptions o = options("bf16", "out");
  o.data = {(folder / "nothing.txt").string()};
  EXPECT_THROW(api::convert(o), FileError);
  o = options("bf16", "out");
  o.in = folder / "run/model/model.safetensors";
  EXPECT_THROW(api::convert(o), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST_F(ConvertedModel, HasTheLossThatInspectPredicts) {
  const nlohmann::json said = nlohmann::json::parse(api::inspect(folder / "run/model").json);
  for (const char* dtype :
       {"bf16", "e4m3", "mxfp8", "mxfp8-e5m2", "mxfp6-e2m3", "mxfp6-e3m2", "mxfp4", "nvfp4"}) {
    api::ConvertOptions o = options(dtype, dtype);
    o.data.clear();
    const nlohmann::json done = nlohmann::json::parse(api::convert(o).json);
    const auto expect_same = [&](const nlohmann::json& casts, const nlohmann::json& losses) {
      for (const char* figure :
           {"max_error", "rms_error", "relative_error", "max_relative_error", "overflows", "vanished"})
        EXPECT_EQ(casts[dtype][figure], losses[figure]) << dtype << ' ' << figure;
    };
    expect_same(said["casts"], done["total"]);
    ASSERT_EQ(said["tensors"].size(), done["tensors"].size());
    for (std::size_t i = 0; i < done["tensors"].size(); ++i) {
      EXPECT_EQ(said["tensors"][i]["name"], done["tensors"][i]["name"]);
      expect_same(said["tensors"][i]["casts"], done["tensors"][i]);
    }
  }
}

TEST_F(ConvertedModel, DescribesItsOrigin) {
  api::ConvertOptions o = options("bf16", "half");
  o.data.clear();
  api::convert(o);
  o.in = folder / "half";
  o.out = folder / "wide";
  o.dtype = "f32";
  api::convert(o);
  const nlohmann::json json = nlohmann::json::parse(api::inspect(folder / "wide").json);
  const std::string origin = json["origin"];
  for (const char* part :
       {"written by mantissa under params=f32", "F32 to bf16, rounded to nearest; BF16 to f32",
        "last rounded to bf16", "every value is a bf16: the weights come from 16 bits"})
    EXPECT_NE(origin.find(part), std::string::npos) << origin;
  EXPECT_EQ(json["casts"]["bf16"]["max_error"], 0);
  EXPECT_GT(json["casts"]["e4m3"]["vanished_share"], 0);
  EXPECT_GT(json["casts"]["e4m3"]["relative_error"], 0);
}

}  // namespace
}  // namespace mantissa

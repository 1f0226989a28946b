// The scales of 8- and 4-bit tensors outlive their run: the model keeps the magnitudes they are computed
// from.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::api {
namespace {

using mantissa::testing::into;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

constexpr const char* kAmax = "mantissa.amax";

class ModelScales : public ::testing::Test {
 protected:
  std::filesystem::path model() const { return folder / "run/model"; }
  std::filesystem::path weights() const { return model() / "model.safetensors"; }
  Summary run(const std::string& policy) {
    config = tiny_config(6, policy);
    return train(Config::parse(config), into(folder / "run"));
  }
  double evaluated() const {
    const std::vector<std::string> set = {"run.out=" + (folder / "run").string()};
    return evaluate(Config::parse(config, set), 0).loss;
  }
  std::map<std::string, std::string> metadata() const { return io::SafetensorsReader(weights()).metadata(); }

  /// Writes the weights again with another entry, or without one.
  void set_amax(const std::optional<std::string>& text) const {
    const io::SafetensorsReader file(weights());
    std::vector<std::vector<std::byte>> bytes;
    std::vector<io::TensorToWrite> tensors;
    for (const io::TensorInfo& info : file.tensors()) {
      file.read(info, bytes.emplace_back(info.end - info.begin));
      tensors.push_back({info.name, info.dtype, info.shape, bytes.back(), nullptr});
    }
    std::map<std::string, std::string> meta = file.metadata();
    meta.erase(kAmax);
    if (text) meta[kAmax] = *text;
    io::write_safetensors(weights(), tensors, meta);
  }

  TemporaryFolder folder;
  std::string config;
};

TEST_F(ModelScales, AResumedRunMayKeepHistoriesOfAnotherLength) {
  const auto whole = [&](const char* policy) {
    return train(Config::parse(tiny_config(6, policy)), into(folder / policy)).weights_xxh64;
  };
  whole("fp8-hybrid");
  for (const char* policy : {"fp8-hybrid amax_history=4", "fp8-hybrid amax_history=2000"}) {
    const std::string expected = whole(policy);
    TrainOptions again = into(folder / "fp8-hybrid");
    again.resume = 3;  // a step at which all histories are equal
    EXPECT_EQ(train(Config::parse(tiny_config(6, policy)), again).weights_xxh64, expected) << policy;
  }
}

TEST_F(ModelScales, AModelIsEvaluatedUnderTheScalesThatItsRunEndedWith) {
  for (const char* policy : {"fp8-hybrid", "bf16-mixed compute=nvfp4 scaling=delayed",
                             "fp8-hybrid scale_margin=2", "transformer-engine-float16"}) {
    std::filesystem::remove_all(folder / "run");
    const Summary s = run(policy);
    // The same log-probabilities, summed in f64 row by row instead of together.
    EXPECT_NEAR(evaluated(), *s.validation_loss, 1e-12 * *s.validation_loss) << policy;
    set_amax(std::nullopt);
    EXPECT_GT(std::abs(evaluated() - *s.validation_loss), 1e-7) << policy;
  }
}

TEST_F(ModelScales, GenerationAndTracesReadThemToo) {
  run("fp8-hybrid");
  GenerateOptions g;
  g.prompt = "Ada said";
  g.max_new_tokens = 8;
  g.precision.policy = "fp8-hybrid";
  const Generation made = generate(model(), g);
  TraceOptions t;
  t.model = model();
  t.precision = g.precision;
  t.ids.push_back(made.prompt_ids);
  t.ids.front().insert(t.ids.front().end(), made.ids.begin(), made.ids.end());
  const Trace traced = trace(t);
  const Tensor& log_probs = traced.tensors.at(1);
  ASSERT_EQ(log_probs.name, "log_probs");
  std::vector<float> all(t.ids.front().size() - 1);
  std::memcpy(all.data(), log_probs.bytes.data(), log_probs.bytes.size());
  for (std::size_t i = 0; i < made.ids.size(); ++i)
    EXPECT_EQ(made.log_probs[i], all[made.prompt_ids.size() - 1 + i]) << i;
  set_amax(std::nullopt);
  EXPECT_NE(trace(t).tensors.at(1).bytes, log_probs.bytes);
}

TEST_F(ModelScales, ARunThatStartsFromTheModelBeginsWithThem) {
  run("fp8-hybrid");
  const auto first_loss = [&](const char* name) {
    const std::string text =
        std::regex_replace(tiny_config(2, "fp8-hybrid"), std::regex(R"(\[model\][^\[]*)"),
                           "[model]\npath = \"" + model().string() + "\"\n");
    return train(Config::parse(text), into(folder / name)).first_loss;
  };
  const double with = first_loss("with");
  set_amax(std::nullopt);
  EXPECT_NE(first_loss("without"), with);
}

TEST_F(ModelScales, TheEntryNamesTensorAndElement) {
  run("fp8-hybrid scale_margin=3");
  const nlohmann::json amax = nlohmann::json::parse(metadata().at(kAmax));
  EXPECT_GT(amax.at("model.layers.0.mlp.up_proj.weight:e4m3"), 0);
  EXPECT_EQ(amax.size(), 11U)
      << "seven weights; their inputs, of which q, k and v share one, and gate and up";
  for (const auto& [name, value] : amax.items())
    EXPECT_TRUE(name.ends_with(":e4m3")) << name << " of a gradient goes with the batch and the loss scale";
  std::filesystem::remove_all(folder / "run");
  for (const char* policy : {"bf16-mixed", "fp8-hybrid scaling=current", "bf16-mixed compute=mxfp8"}) {
    run(policy);
    EXPECT_FALSE(metadata().contains(kAmax)) << policy;
    std::filesystem::remove_all(folder / "run");
  }
}

TEST_F(ModelScales, AModelMadeFromAStateHasThoseOfTheRun) {
  run("fp8-hybrid scale_margin=2");
  const std::string amax = metadata().at(kAmax);
  ConvertOptions o;
  o.in = folder / "run/state/step-00000006";
  o.out = folder / "converted";
  convert(o);
  EXPECT_EQ(io::SafetensorsReader(o.out / "model.safetensors").metadata().at(kAmax), amax);
}

TEST_F(ModelScales, ADamagedEntryIsRefusedWhereItIsRead) {
  run("fp8-hybrid");
  GenerateOptions o;
  o.prompt = "a";
  o.max_new_tokens = 1;
  for (const char* text : {"", "{", "[1]", R"({"a": -1})", R"({"a": 0})", R"({"a": "1"})", R"({"a": null})",
                           R"({"a": 1e60})", R"({"a": 1, "a": 2})"}) {
    set_amax(text);
    o.precision.policy = "fp8-hybrid";
    try {
      generate(model(), o);
      ADD_FAILURE() << text << " was read";
    } catch (const FileError& e) {
      EXPECT_NE(std::string(e.what()).find("the metadata entry \"mantissa.amax\""), std::string::npos)
          << e.what();
    }
    o.precision.policy = "bf16-mixed";
    EXPECT_NO_THROW(generate(model(), o)) << text;
  }
  set_amax(R"({"another.tensor:e4m3": 3})");
  o.precision.policy = "fp8-hybrid";
  EXPECT_NO_THROW(generate(model(), o));
}

}  // namespace
}  // namespace mantissa::api

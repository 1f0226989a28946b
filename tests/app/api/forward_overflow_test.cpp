// Runs with a weight that makes a value beyond f16 in the forward pass: what the run tells, when it stops,
// and that the printed cures work. Steps and batches that are skipped on request.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

/// Multiplies a row of a weight of `model`, f32.
void enlarge(const std::filesystem::path& model, const std::string& name, std::size_t row, float factor) {
  const std::filesystem::path path = model / "model.safetensors";
  std::vector<std::vector<std::byte>> kept;
  std::vector<io::TensorToWrite> tensors;
  {
    const io::SafetensorsReader file(path);
    for (const io::TensorInfo& info : file.tensors()) {
      std::vector<std::byte>& bytes = kept.emplace_back(info.end - info.begin);
      file.read(info, bytes);
      if (info.name == name) {
        const auto width = static_cast<std::size_t>(info.shape.back());
        for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
          float x = 0;
          std::memcpy(&x, &bytes[4 * i], 4);
          x *= factor;
          std::memcpy(&bytes[4 * i], &x, 4);
        }
      }
      tensors.push_back({info.name, info.dtype, info.shape, {}, {}});
    }
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = kept[i];
  io::write_safetensors(path, tensors, {{"format", "pt"}});
}

class ForwardOverflow : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = train(Config::parse(tiny_config(2, "32-true")), into(folder_ / "base")).model;
    enlarge(model_, "model.layers.0.mlp.up_proj.weight", 17, 2e5F);
    enlarge(model_, "model.layers.0.mlp.gate_proj.weight", 17, 1e3F);
  }
  /// Returns the config that continues from the enlarged model.
  std::string config(int steps, const std::string& policy) const {
    std::string text = tiny_config(steps, policy);
    const std::size_t from = text.find("[model]"), to = text.find("[data]");
    return text.replace(from, to - from, "[model]\npath = \"" + model_.string() + "\"\n");
  }
  /// Continues a copy of the run `out` to step 12 with a cure.
  Summary resumed_with(const Cure& cure, const std::string& out) const {
    Precision precision;
    for (std::size_t i = 0; i + 1 < cure.arguments.size(); ++i) {
      if (cure.arguments[i] == "--rule") precision.rules.push_back(cure.arguments[i + 1]);
      if (cure.arguments[i] == "--precision") precision.policy = cure.arguments[i + 1];
    }
    const std::filesystem::path copy = folder_ / (out + "-cured");
    std::filesystem::remove_all(copy);
    std::filesystem::copy(folder_ / out, copy, std::filesystem::copy_options::recursive);
    TrainOptions options = into(copy);
    options.resume = 0;
    return train(Config::parse(config(12, "16-mixed"), {}, precision), options);
  }
  RunStopped stopped(const std::string& out, int steps, const std::string& policy,
                     const std::vector<std::string>& changes = {}) const {
    try {
      train(Config::parse(config(steps, policy), changes), into(folder_ / out));
    } catch (const RunStopped& e) {
      return e;
    }
    ADD_FAILURE() << "the run did not stop";
    return RunStopped("");
  }
  TemporaryFolder folder_;
  std::filesystem::path model_;
};

TEST_F(ForwardOverflow, StopsAfterThreeStepsAndNamesTheRowOfTheWeight) {
  const RunStopped e = stopped("a", 30, "16-mixed");
  EXPECT_EQ(e.message().find("step 3: the forward pass overflows for the 3rd step in a row, and a lower loss "
                             "scale cannot prevent it: model.layers.0.mlp swiglu forward "),
            0U)
      << e.message();
  EXPECT_TRUE(
      has(e.message(), " > 65504 (f16) in channel 17: row 17 of model.layers.0.mlp.up_proj.weight has rms "))
      << e.message();
  EXPECT_TRUE(has(e.message(), " times the median row's; data rows ")) << e.message();
  const RunStopped one = stopped("b", 30, "16-mixed", {"precision.loss_scale.forward_overflow_patience=1"});
  EXPECT_EQ(
      one.message().find("step 1: the forward pass overflows, and a lower loss scale cannot prevent it"), 0U)
      << one.message();
}

TEST_F(ForwardOverflow, InAnyChunkOfTokensIsReportedAsWithoutChunks) {
  // A chunk holds a quarter of a micro-batch, and every row overflows.
  const auto message = [&](const std::string& chunk) {
    return stopped("chunks-" + chunk, 2, "16-mixed",
                   {"data.sequence_length=64", "batch.global_batch_size=32", "batch.micro_batch_size=16",
                    "batch.recompute=block", "batch.chunk_tokens=" + chunk,
                    "precision.loss_scale.forward_overflow_patience=1"})
        .message();
  };
  const std::string whole = message("0");
  EXPECT_TRUE(has(whole, " and 16 more of ")) << whole;
  EXPECT_EQ(message("256"), whole);
}

TEST_F(ForwardOverflow, LogsTheStepsBeforeTheStop) {
  stopped("a", 30, "16-mixed", {"log.interval=1", "log.health_interval=0"});
  stopped("b", 30, "16-mixed", {"log.interval=100", "log.health_interval=0"});
  const auto steps_of = [&](const std::string& out) {
    std::vector<std::pair<int, bool>> steps;
    std::istringstream lines(read_all(folder_ / out / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json m = nlohmann::json::parse(line);
      steps.emplace_back(m["step"], m["skipped"]);
    }
    return steps;
  };
  EXPECT_EQ(steps_of("b"), (std::vector<std::pair<int, bool>>{{1, true}, {2, true}}));
  EXPECT_EQ(steps_of("b"), steps_of("a"));
}

TEST_F(ForwardOverflow, AWeightBeyondF16IsNamedWithItsElement) {
  const auto stop_of = [&](const std::string& tensor, const std::string& out) {
    const std::vector<std::string> untied = {"model.tie_word_embeddings=false"};
    model_ = train(Config::parse(tiny_config(2, "32-true"), untied), into(folder_ / (out + "-base"))).model;
    enlarge(model_, tensor, 11, 3e7F);
    return stopped(out, 30, "16-mixed", {"precision.loss_scale.forward_overflow_patience=1"}).message();
  };
  const std::string product = stop_of("model.layers.0.self_attn.v_proj.weight", "product");
  EXPECT_TRUE(has(product,
                  "model.layers.0.self_attn.v_proj matmul forward reads a weight beyond the range of f16: "
                  "model.layers.0.self_attn.v_proj.weight, row 11 column "))
      << product;
  EXPECT_TRUE(has(product, " (f16), the largest of ")) << product;
  // A logit of -inf is a probability of 0, so values that are not finite may appear only in later steps.
  const std::string head = stop_of("lm_head.weight", "head");
  EXPECT_TRUE(
      has(head, "lm_head log_prob forward reads a weight beyond the range of f16: lm_head.weight, row 11"))
      << head;
}

TEST_F(ForwardOverflow, AResumedRunStopsAtTheSameStepWithTheSameMessage) {
  const RunStopped first = stopped("a", 30, "16-mixed");
  TrainOptions options = into(folder_ / "a");
  options.resume = 0;
  const std::size_t lines = read_all(folder_ / "a/metrics.jsonl").size();
  try {
    train(Config::parse(config(30, "16-mixed")), options);
    ADD_FAILURE() << "the run did not stop";
  } catch (const RunStopped& e) {
    EXPECT_EQ(e.message(), first.message());
  }
  EXPECT_EQ(read_all(folder_ / "a/metrics.jsonl").size(), lines) << "no further step was counted";
}

TEST_F(ForwardOverflow, IsLeftToTheScaleWithoutPatience) {
  const RunStopped e = stopped("a", 60, "16-mixed",
                               {"precision.loss_scale.forward_overflow_patience=0",
                                "precision.loss_scale.initial_scale_power=4", "checkpoint.interval=0"});
  EXPECT_TRUE(has(e.message(), "the loss scale is at its minimum of 1")) << e.message();
}

TEST_F(ForwardOverflow, CuresAreTriedAndWork) {
  const RunStopped e = stopped("a", 12, "16-mixed");
  ASSERT_GE(e.cures().size(), 2U);
  for (const Cure& cure : e.cures()) {
    if (!cure.effect.empty()) continue;
    EXPECT_TRUE(cure.tested);
    const Summary s = resumed_with(cure, "a");
    EXPECT_EQ(s.steps, 12);
    EXPECT_GE(s.skipped, 2) << "those before the stop";
    EXPECT_LE(s.skipped, 6) << "the scale may still have to fall";
  }
}

/// A rule after which the gradients overflow in every step cures nothing, though the run does not stop at
/// once.
TEST_F(ForwardOverflow, ACureIsTestedOnlyIfStepsAreApplied) {
  const Summary base = train(Config::parse(tiny_config(2, "32-true")), into(folder_ / "head-base"));
  enlarge(base.model, "model.embed_tokens.weight", 32, 3e6F);
  model_ = base.model;
  const RunStopped e = stopped("h", 12, "16-mixed");
  ASSERT_FALSE(e.cures().empty());
  ASSERT_TRUE(e.cures().front().tested) << e.what();
  for (const Cure& cure : e.cures()) {
    if (!cure.tested) continue;
    EXPECT_LE(resumed_with(cure, "h").skipped, 6) << cure.arguments.back();
  }
}

TEST_F(ForwardOverflow, SkipsOrContinuesOnRequest) {
  const RunStopped skips = stopped("skip", 6, "16-true loss_scale=none", {"run.on_nonfinite=skip"});
  EXPECT_EQ(skips.message().find("step 6: the loss of the last step is "), 0U) << skips.message();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "skip/model"));
  const Summary goes_on = train(Config::parse(config(6, "16-true loss_scale=none"),
                                              std::vector<std::string>{"run.on_nonfinite=continue"}),
                                into(folder_ / "continue"));
  EXPECT_EQ(goes_on.skipped, 0);
  EXPECT_FALSE(goes_on.model.empty());
  EXPECT_NE(stopped("patience", 6, "16-mixed").message().find("the forward pass overflows"),
            std::string::npos);
  const Summary scaled =
      train(Config::parse(config(6, "16-mixed"), std::vector<std::string>{"run.on_nonfinite=continue"}),
            into(folder_ / "scaled"));
  EXPECT_EQ(scaled.steps, 6);
  EXPECT_EQ(scaled.skipped, 6);
}

/// A skipped batch changes nothing, and the schedule does not count its step.
TEST(SkipBatches, ChangeNothingAtTheirSteps) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& out, const std::string& steps) {
    return train(
        Config::parse(tiny_config(6, "bf16-mixed"), std::vector<std::string>{"run.skip_batches=" + steps}),
        into(folder / out));
  };
  const Summary s = run("a", "2,4-5");
  EXPECT_EQ(s.skipped, 3);
  EXPECT_EQ(s.steps, 6);
  std::istringstream lines(read_all(folder / "a/metrics.jsonl"));
  std::int64_t tokens = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (!json.contains("loss")) continue;
    const std::int64_t step = json["step"];
    const bool passed = step == 2 || step == 4 || step == 5;
    EXPECT_EQ(json["skipped"], passed) << step;
    EXPECT_EQ(json["loss"].is_null(), passed) << step;
    if (!passed) tokens += 4 * 32;
    EXPECT_EQ(json["tokens"], tokens);
  }
  EXPECT_NE(run("b", "2").weights_xxh64, s.weights_xxh64);
  EXPECT_EQ(run("c", "2,5,4").weights_xxh64, s.weights_xxh64);
}

}  // namespace
}  // namespace mantissa::api

// The numeric health of runs: measured without changing a bit, equal to what the weights show, silent if
// nothing is lost, and with a cure that works.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/api/tiny.h"
#include "core/numeric/round_block.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::api {
namespace {

using mantissa::testing::has;
using mantissa::testing::into;
using mantissa::testing::read_all;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::tiny_config;

/// Returns the health of each step that has one, by step.
std::map<std::int64_t, nlohmann::json> health_of(const std::filesystem::path& run) {
  std::map<std::int64_t, nlohmann::json> all;
  if (!std::filesystem::exists(run / "health.jsonl")) return all;
  std::istringstream lines(read_all(run / "health.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    EXPECT_TRUE(all.emplace(json["step"], json["health"]).second)
        << "step " << json["step"] << " is there twice";
  }
  return all;
}

/// Returns the values of a tensor of a safetensors file.
std::vector<double> values_of(const std::filesystem::path& path, const std::string& name) {
  const io::SafetensorsReader file(path);
  const io::TensorInfo* info = file.find(name);
  EXPECT_NE(info, nullptr) << name;
  const Scalar type = *io::scalar_of(info->dtype);
  std::vector<std::byte> bytes(info->end - info->begin);
  file.read(*info, bytes);
  std::vector<double> values;
  for (std::size_t i = 0; i < bytes.size(); i += bytes_of(type)) {
    std::uint64_t code = 0;
    std::memcpy(&code, bytes.data() + i, bytes_of(type));
    values.push_back(decode(code, type));
  }
  return values;
}

Summary run(const std::filesystem::path& out, int steps, const std::string& policy,
            std::vector<std::string> changes) {
  return train(Config::parse(tiny_config(steps, policy), changes), into(out));
}

TEST(Health, ChangesNoBit) {
  const TemporaryFolder folder;
  for (const std::string policy :
       {"32-true", "16-mixed", "bf16-true", "bf16-true rounding=stochastic optimizer=bf16",
        "16-true kahan=true", "fp8-hybrid", "bf16-mixed compute=nvfp4", "64-true"}) {
    std::vector<Summary> runs;
    for (const std::string interval : {"0", "1", "2"}) {
      runs.push_back(run(folder / (policy + interval), 4, policy, {"log.health_interval=" + interval}));
      EXPECT_EQ(std::filesystem::exists(folder / (policy + interval) / "start.safetensors"), interval != "0");
    }
    EXPECT_EQ(runs[0].weights_xxh64, runs[1].weights_xxh64) << policy;
    EXPECT_EQ(runs[0].weights_xxh64, runs[2].weights_xxh64) << policy;
    EXPECT_TRUE(health_of(folder / (policy + "0")).empty());
    EXPECT_EQ(health_of(folder / (policy + "2")).size(), 2U);
    // The measured steps of both runs have the same figures.
    EXPECT_EQ(health_of(folder / (policy + "1")).at(4), health_of(folder / (policy + "2")).at(4)) << policy;
  }
}

TEST(Health, IsThatOfTheIntervalAndTheLastStep) {
  const TemporaryFolder folder;
  run(folder / "a", 5, "bf16-mixed", {"log.health_interval=3", "log.interval=4"});
  const auto health = health_of(folder / "a");
  ASSERT_EQ(health.size(), 2U);
  EXPECT_TRUE(health.contains(3));
  EXPECT_TRUE(health.contains(5));
}

/// Histograms would be most of the bytes of a run's logs.
TEST(Health, HasHistogramsInEveryTenthMeasurement) {
  const TemporaryFolder folder;
  run(folder / "r", 12, "bf16-mixed", {"log.health_interval=1"});
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(folder / "r")) {
    if (has(file.path().filename().string(), "tfevents")) events += read_all(file);
  }
  const auto times = [&](const std::string& tag) {
    std::size_t n = 0;
    for (std::size_t at = events.find(tag); at != std::string::npos; at = events.find(tag, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(times("weights/model.norm.weight"), 3U) << "of steps 1, 11 and 12";
  EXPECT_EQ(times("weight_absmax/model.norm.weight"), 12U);
}

/// The share of weights that have the value of the start is what the files show, and after one step these are
/// the weights whose update was lost or zero.
TEST(Health, OfUnmovedWeightsIsWhatTheFilesShow) {
  const TemporaryFolder folder;
  for (const std::string policy : {"bf16-true", "16-true", "32-true", "bf16-true kahan=true"}) {
    for (const int steps : {1, 4}) {
      const std::filesystem::path out = folder / (policy + std::to_string(steps));
      // No weight decay, so that the embeddings of absent tokens have no update.
      const Summary s = run(out, steps, policy,
                            {"optimizer.lr=1e-4", "optimizer.weight_decay=0", "schedule.warmup_steps=0",
                             "log.health_interval=1", "model.initializer_range=0.1"});
      const nlohmann::json health = health_of(out).at(steps);
      double lost = 0;
      for (const auto& [name, h] : health.items()) {
        const std::vector<double> before = values_of(out / "start.safetensors", name),
                                  after = values_of(s.model / "model.safetensors", name);
        std::size_t same = 0;
        double absmax = 0;
        for (std::size_t i = 0; i < before.size(); ++i) {
          same += before[i] == after[i];
          absmax = std::max(absmax, std::abs(after[i]));
        }
        // Figures have nine digits.
        EXPECT_NEAR(h["never_moved"].get<double>(),
                    static_cast<double>(same) / static_cast<double>(before.size()), 1e-6)
            << policy << name;
        EXPECT_NEAR(h["weight_absmax"].get<double>(), absmax, 1e-6 * absmax) << name;
        if (steps == 1) {
          EXPECT_LE(h["updates_lost"], h["never_moved"]) << name;
        }
        if (steps == 1 && name != "model.embed_tokens.weight") {
          EXPECT_EQ(h["updates_lost"], h["never_moved"]) << policy << name;
        }
        lost = std::max(lost, h["updates_lost"].get<double>());
      }
      if (policy == "bf16-true") {
        EXPECT_EQ(health["model.norm.weight"]["updates_lost"], 1);
      }
      if (policy == "32-true") {
        EXPECT_LT(lost, 0.01);
      }
    }
  }
}

/// The rows of the embedding whose tokens do not occur have no gradient, only weight decay.
TEST(Health, CountsNoLossOfWeightDecayAlone) {
  const TemporaryFolder folder;
  const auto lost = [&](const std::string& policy, const std::string& decay) {
    const std::filesystem::path out = folder / (policy + decay);
    run(out, 1, policy,
        {"optimizer.lr=1e-4", "optimizer.weight_decay=" + decay, "schedule.warmup_steps=0",
         "log.health_interval=1", "model.initializer_range=0.1", "model.tie_word_embeddings=false"});
    return health_of(out).at(1)["model.embed_tokens.weight"]["updates_lost"].get<double>();
  };
  for (const std::string policy : {"bf16-true", "bf16-true kahan=true"}) {
    const double decayed = lost(policy, "0.1");
    EXPECT_GT(decayed, 0.05) << policy;
    EXPECT_LT(decayed, 0.5) << policy << ": the bytes from 128 on do not occur in the puzzles";
    // The decay may move an element that the step alone does not move.
    EXPECT_NEAR(decayed, lost(policy, "0"), 0.02) << policy;
  }
}

TEST(Health, IsInAFileOfItsOwnAndLinesOfMetricsAreShort) {
  const TemporaryFolder folder;
  run(folder / "r", 3, "fp8-hybrid", {"log.health_interval=1", "model.num_hidden_layers=6"});
  EXPECT_EQ(health_of(folder / "r").size(), 3U);
  std::istringstream lines(read_all(folder / "r/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LT(line.size(), 2000U);
    EXPECT_FALSE(nlohmann::json::parse(line).contains("health")) << line;
  }
  TrainOptions again = into(folder / "r");
  again.overwrite = true;
  train(Config::parse(tiny_config(3, "fp8-hybrid"), {"log.health_interval=0"}), again);
  EXPECT_FALSE(std::filesystem::exists(folder / "r/health.jsonl")) << "of the run that was replaced";
}

TEST(Health, GoesOnInAResumedRun) {
  const TemporaryFolder folder;
  const std::vector<std::string> changes = {"log.health_interval=1", "optimizer.lr=1e-4"};
  const Config config = Config::parse(tiny_config(6, "bf16-true"), changes);
  train(config, into(folder / "whole"));
  std::stop_source stop;
  Events events;
  events.on_step = [&](const Step& s) {
    if (s.step == 3) stop.request_stop();
  };
  train(config, into(folder / "parts"), events, stop.get_token());
  TrainOptions resumed = into(folder / "parts");
  resumed.resume = 0;
  train(config, resumed);
  EXPECT_EQ(read_all(folder / "parts/health.jsonl"), read_all(folder / "whole/health.jsonl"));
  resumed.resume = 3;
  train(config, resumed);
  EXPECT_EQ(read_all(folder / "parts/health.jsonl"), read_all(folder / "whole/health.jsonl"))
      << "the lines after the state are written again";
}

TEST(Health, OfGradientsBelowTheirFormat) {
  const TemporaryFolder folder;
  const auto flushed = [&](const std::string& scale) {
    run(folder / scale, 1, "bf16-mixed grads=f16 loss_scale=" + scale,
        {"log.health_interval=1", "schedule.warmup_steps=0"});
    return health_of(folder / scale).at(1)["model.layers.0.mlp.gate_proj.weight"];
  };
  const nlohmann::json low = flushed("0.00000095367431640625"), high = flushed("1024");
  EXPECT_GT(low["grads_flushed"], 0.5);
  EXPECT_LT(high["grads_flushed"], 0.01);
  EXPECT_EQ(low["grads_saturated"], 0);
  EXPECT_GT(high["grad_absmax"], 0);
}

/// The copies of step 1 are those of the first weights, those of step 2 of the weights after one step.
TEST(Health, OfCopiesInBlocksIsThatOfEachBlock) {
  const TemporaryFolder folder;
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  for (const BlockFormat format : kBlockFormats) {
    const BlockTraits t = traits(format);
    const std::string policy = "bf16-mixed compute=" + std::string(t.name);
    // The rate of step 1 is the same in runs of one and of two steps.
    const std::vector<std::string> every = {"log.health_interval=1", "schedule.warmup_steps=0",
                                            "schedule.name=constant"};
    const std::filesystem::path out = folder / std::string(t.name);
    const Summary one = run(out / "1", 1, policy, every), two = run(out / "2", 2, policy, every);
    const auto health = health_of(out / "2");
    const std::vector<double> first = values_of(out / "2" / "start.safetensors", name),
                              second = values_of(one.model / "model.safetensors", name);
    for (const int step : {1, 2}) {
      const std::vector<double>& w = step == 1 ? first : second;
      double amax = 0;
      for (const double x : w) amax = std::max(amax, std::abs(x));
      // nvfp4's tensor scale is that of the step's weights.
      const float scale = t.power_of_two_scale ? 1 : nvfp4_tensor_scale(static_cast<float>(amax));
      const std::size_t width = io::SafetensorsReader(one.model / "model.safetensors").find(name)->shape[1];
      const std::size_t rows = w.size() / width;
      double vanished = 0;
      for (const bool along_rows : {false, true}) {
        std::size_t zeros = 0;
        const std::size_t lines = along_rows ? width : rows, length = along_rows ? rows : width;
        for (std::size_t line = 0; line < lines; ++line) {
          for (std::size_t from = 0; from < length; from += static_cast<std::size_t>(t.block)) {
            std::vector<float> block;
            for (std::size_t i = from; i < std::min(length, from + static_cast<std::size_t>(t.block)); ++i)
              block.push_back(static_cast<float>(along_rows ? w[i * width + line] : w[line * width + i]));
            std::vector<float> rounded = block;
            mantissa::testing::round_block(format, rounded.data(), rounded.size(), scale);
            for (std::size_t i = 0; i < block.size(); ++i) zeros += block[i] != 0 && rounded[i] == 0;
          }
        }
        vanished = std::max(vanished, static_cast<double>(zeros) / static_cast<double>(w.size()));
      }
      const nlohmann::json& h = health.at(step).at(name);
      EXPECT_NEAR(h.at("vanished").get<double>(), vanished, 1e-8) << t.name << step;
      EXPECT_LT(h.at("saturated").get<double>(), 0.02) << t.name << step;
      EXPECT_LE(h.at("least_scale").get<double>(), h.at("most_scale").get<double>()) << t.name;
      EXPECT_EQ(h.contains("scale"), !t.power_of_two_scale) << t.name;
      if (!t.power_of_two_scale) {
        EXPECT_NEAR(h.at("scale").get<double>(), scale, 1e-6 * scale) << step;
      }
    }
  }
}

TEST(Health, FindsUpdatesThatBf16LosesAndACureThatWorks) {
  const TemporaryFolder folder;
  const std::vector<std::string> small = {"optimizer.lr=1e-6", "schedule.warmup_steps=0",
                                          "log.health_interval=1"};
  const Summary sick = run(folder / "sick", 4, "bf16-true", small);
  ASSERT_EQ(sick.findings.size(), 2U);  // of matrices and of vectors
  EXPECT_TRUE(has(sick.findings[0].text, " of the updates of the ")) << sick.findings[0].text;
  EXPECT_TRUE(has(sick.findings[0].text, "the learning rate is 8.7e-07")) << sick.findings[0].text;
  ASSERT_EQ(sick.findings[0].cures.size(), 3U) << "wider masters, stochastic rounding, a compensation";
  for (const Cure& cure : sick.findings[0].cures) {
    Precision precision;
    std::vector<std::string> changes = small;
    for (std::size_t i = 1; i + 1 < cure.arguments.size(); i += 2)
      (cure.arguments[i] == "--rule" ? precision.rules : changes).push_back(cure.arguments[i + 1]);
    TrainOptions options = into(folder / "sick");
    options.overwrite = true;
    const Summary cured = train(Config::parse(tiny_config(4, "bf16-true"), changes, precision), options);
    for (const Warning& w : cured.findings)
      EXPECT_TRUE(has(w.text, "vectors") || has(w.text, "vector")) << w.text;
  }
  for (const std::string policy :
       {"32-true", "bf16-mixed", "bf16-true rounding=stochastic", "bf16-true kahan=true"})
    EXPECT_TRUE(run(folder / policy, 4, policy, {"log.health_interval=1"}).findings.empty()) << policy;
}

/// Selected values are logged without a change of bits, and a resumed run continues their file.
TEST(Observations, AreThoseOfTheSelectedValues) {
  const TemporaryFolder folder;
  const std::vector<std::string> some = {"log.observe=model.layers.0.mlp; *: op=softmax pass=backward",
                                         "log.observe_interval=2"};
  const Summary seen = run(folder / "a", 5, "bf16-mixed", some);
  EXPECT_EQ(run(folder / "b", 5, "bf16-mixed", {}).weights_xxh64, seen.weights_xxh64);
  EXPECT_FALSE(std::filesystem::exists(folder / "b/observations.jsonl"));
  std::istringstream lines(read_all(folder / "a/observations.jsonl"));
  std::map<std::int64_t, int> count;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json o = nlohmann::json::parse(line);
    ++count[o["step"]];
    const std::string scope = o["scope"];
    EXPECT_TRUE(scope.find("model.layers.0.mlp") == 0 || o["pass"] == "backward") << line;
    std::uint64_t elements = 0;
    for (const auto& [exponent, n] : o["binades"].items()) elements += n.get<std::uint64_t>();
    const double zeros = o["zeros"].get<double>() * o["count"].get<double>();
    EXPECT_NEAR(static_cast<double>(elements) + zeros, o["count"].get<double>(), 0.5) << line;
    const bool inside = o["op"] == "attention" || o["op"] == "log_prob";  // some lines tell of P, dS, dlogits
    if (o["format"] == "bf16" && (!inside || o.contains("max_ulp"))) {
      EXPECT_LE(o["max_ulp"], 0.5) << line;
    }
  }
  ASSERT_EQ(count.size(), 3U);  // steps 1, 2 and 4
  EXPECT_EQ(count[1], count[2]);
  EXPECT_EQ(count[2], count[4]);

  TrainOptions resumed = into(folder / "a");
  resumed.resume = 3;
  const std::string whole = read_all(folder / "a/observations.jsonl");
  train(Config::parse(tiny_config(5, "bf16-mixed"), some), resumed);
  EXPECT_EQ(read_all(folder / "a/observations.jsonl"), whole);

  std::ofstream(folder / "a/observations.jsonl", std::ios::binary) << std::string(60, '\0') << '\n' << whole;
  std::string notes;
  Events events;
  events.on_note = [&](const std::string& note) { notes += note + '\n'; };
  train(Config::parse(tiny_config(5, "bf16-mixed"), some), resumed, events);
  EXPECT_EQ(read_all(folder / "a/observations.jsonl"), whole);
  EXPECT_TRUE(has(notes, "observations.jsonl: 1 line that a crash had damaged was removed")) << notes;
}

TEST(Health, IsForeseenByExplain) {
  const auto warnings = [](const std::string& policy, const std::string& lr) {
    const Plan plan =
        explain(Config::parse(tiny_config(4, policy), std::vector<std::string>{"optimizer.lr=" + lr}));
    std::vector<std::string> some;
    for (const std::string& w : plan.warnings) {
      if (has(w, "will be lost")) some.push_back(w);
    }
    return some;
  };
  EXPECT_EQ(warnings("bf16-true", "1e-6").size(), 2U);
  const std::vector<std::string> gains = warnings("bf16-true", "1e-3");
  ASSERT_EQ(gains.size(), 1U);
  EXPECT_TRUE(has(gains[0], "about 100 % of the updates of 3 gains")) << gains[0];
  EXPECT_TRUE(has(gains[0], "just below 1 are 0.0039 apart")) << gains[0];
  EXPECT_TRUE(warnings("bf16-true", "3e-3").empty());
  for (const std::string policy :
       {"32-true", "bf16-mixed", "bf16-true rounding=stochastic", "bf16-true kahan=true"})
    EXPECT_TRUE(warnings(policy, "1e-6").empty()) << policy;
}

}  // namespace
}  // namespace mantissa::api

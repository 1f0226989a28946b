#include "mantissa/train/explain/explained.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/runtime/device.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::explain {
namespace {

constexpr const char* kConfig = R"(
run = { steps = 10 }
model = { hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 2, vocab_size = 64, max_position_embeddings = 128 }
data = { source = "memory", sequence_length = 32 }
batch = { global_batch_size = 4, micro_batch_size = 2 }
precision = { policy = "16-mixed", rules = ["lm_head: compute=f32", "model.norm: compute=f16"] }
)";

Explained training(std::span<const forecast::Target> targets = {}) {
  const config::RunConfig config = config::parse_config(kConfig, "config.toml");
  const config::Told told{{"a note of the config"}, {"a warning of the config"}};
  return explain_training(config, weights::find_model(config.model).config, mantissa::testing::best_device(),
                          told, targets);
}

Explained generation(std::span<const forecast::Target> targets = {}) {
  const config::RunConfig config = config::parse_config(kConfig, "config.toml");
  return explain_generation(weights::find_model(config.model), precision::Policy::parse("bf16-mixed"),
                            mantissa::testing::best_device(), {}, targets);
}

/// The common contents of both renderings of a plan.
void expect_both_print(const Explained& e) {
  const std::string text = to_text(e);
  const nlohmann::json json = nlohmann::json::parse(to_json(e));
  EXPECT_NE(text.find("policy  " + e.title + "\n"), std::string::npos);
  EXPECT_NE(text.find(e.line), std::string::npos);
  EXPECT_EQ(json["policy"]["preset"], e.preset);
  EXPECT_EQ(json["policy"]["line"], e.line);
  EXPECT_EQ(json["ops"].size(), e.rows.size());
  EXPECT_EQ(json["memory"]["peak"], e.peak_bytes);
  EXPECT_EQ(json["warnings"], e.warnings);
  EXPECT_EQ(json["notes"], e.notes);
  EXPECT_EQ(json["targets"].size(), e.targets.size());
  for (const std::string& warning : e.warnings) EXPECT_NE(text.find("warning " + warning), std::string::npos);
  for (const std::string& note : e.notes) EXPECT_NE(text.find("note    " + note), std::string::npos);
  for (const There& there : e.targets) EXPECT_NE(text.find(there.target.description), std::string::npos);
  for (const plan::PlanRow& row : e.rows) EXPECT_NE(text.find(row.op), std::string::npos) << row.op;
}

TEST(Explained, TrainingIsPrintedAlikeAsTextAndAsJson) {
  const std::vector<forecast::Target> targets = {forecast::find_target("a100"),
                                                 forecast::find_target("v100")};
  const Explained e = training(targets);
  ASSERT_TRUE(e.training);
  EXPECT_FALSE(e.generation);
  EXPECT_TRUE(e.fits);
  EXPECT_EQ(e.warnings.front(), "a warning of the config");
  EXPECT_EQ(e.notes.front(), "a note of the config");
  expect_both_print(e);
  const nlohmann::json json = nlohmann::json::parse(to_json(e));
  EXPECT_EQ(json["seconds_per_step"], e.seconds);
  EXPECT_EQ(json["largest_micro_batch_size"], e.training->largest_micro_batch_size);
  EXPECT_EQ(json["casts"].size(), static_cast<std::size_t>(e.training->casts_left.count));
  EXPECT_EQ(json["targets"][1]["peak_bytes"], e.targets[1].peak_bytes);
}

TEST(Explained, ATargetIsPlannedForEveryStageOfARun) {
  // The second stage needs much more memory than the first.
  const auto staged = [](const char* last) {
    const config::RunConfig config = config::parse_config(
        "[run]\n[[run.stage]]\nsteps = 8\nsequence_length = 32\n[[run.stage]]\nsteps = 4\nsequence_length "
        "= " +
            std::string(last) +
            "\nglobal_batch_size = 1\n[model]\nhidden_size = 16\nintermediate_size = 24\n"
            "num_hidden_layers = 2\nnum_attention_heads = 2\nvocab_size = 64\nmax_position_embeddings = "
            "65536\n[data]\nsource = \"memory\"\n[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n"
            "[precision]\npolicy = \"32-true\"\n",
        "config.toml");
    forecast::Target small = forecast::find_target("h100");
    small.memory_bytes = 2e7;
    const std::vector<forecast::Target> targets = {small};
    return explain_training(config, weights::find_model(config.model).config,
                            mantissa::testing::best_device(), {}, targets);
  };
  const Explained fits = staged("64"), fails = staged("32768");
  const There &yes = fits.targets.front(), &no = fails.targets.front();
  ASSERT_EQ(yes.stages.size(), 2U);
  EXPECT_TRUE(yes.fits);
  EXPECT_GT(yes.stages[0].sequences_that_fit, yes.stages[1].sequences_that_fit);
  EXPECT_EQ(yes.limiting_stage, 1U);
  EXPECT_EQ(yes.sequences_that_fit, yes.stages[1].sequences_that_fit);
  EXPECT_DOUBLE_EQ(yes.total_seconds, 8 * yes.stages[0].seconds + 4 * yes.stages[1].seconds);
  EXPECT_NE(to_text(fits).find("0.02 GB on h100: yes, by stage\n          stage 1, "), std::string::npos)
      << to_text(fits);

  EXPECT_TRUE(no.stages[0].fits);
  EXPECT_FALSE(no.stages[1].fits);
  EXPECT_FALSE(no.fits);
  EXPECT_EQ(no.peak_bytes, no.stages[1].peak_bytes);
  EXPECT_EQ(no.sequences_that_fit, 0);
  const std::string text = to_text(fails);
  EXPECT_NE(text.find(": no, not even one sequence at a time: that needs "), std::string::npos) << text;
  EXPECT_NE(text.find("unknown on h100: stage 2 does not fit"), std::string::npos) << text;
  const nlohmann::json json = nlohmann::json::parse(to_json(fails))["targets"][0];
  EXPECT_EQ(json["limiting_stage"], 2);
  EXPECT_EQ(json["stages"][0]["fits"], true);
  EXPECT_EQ(json["stages"][1]["fits"], false);
  EXPECT_TRUE(json["seconds_per_step"].is_null() && json["seconds_total"].is_null()) << json;
}

TEST(Explained, GenerationIsPrintedAlikeAsTextAndAsJson) {
  const std::vector<forecast::Target> targets = {forecast::find_target("a100")};
  const Explained e = generation(targets);
  ASSERT_TRUE(e.generation);
  EXPECT_FALSE(e.training);
  expect_both_print(e);
  const nlohmann::json json = nlohmann::json::parse(to_json(e));
  EXPECT_EQ(json["seconds_per_token"], e.seconds);
  EXPECT_EQ(json["memory"]["cache"], e.generation->cache);
  EXPECT_EQ(json["targets"][0]["fits"], e.targets[0].fits);
}

TEST(Explained, EveryProductNamesItsUnitOnTheSet) {
  config::RunConfig config = config::parse_config(kConfig, "config.toml");
  config.policy = precision::Policy::parse("bf16-mixed");
  config.batch.micro_batch_size = 4;  // 128 tokens: too many for the kernel of few rows
  const model::ModelConfig model = weights::find_model(config.model).config;
  for (const kernels::Simd simd : kernels::kSimds) {
    if (!kernels::is_supported(simd) || simd == kernels::Simd::amx_model) continue;
    const auto device = runtime::cpu({.simd = simd});
    const Explained e = explain_training(config, model, *device, {});
    const bool tiles = simd == kernels::Simd::amx, pairs = tiles || simd == kernels::Simd::avx512_bf16;
    const std::string unit = tiles ? "TDPBF16PS" : "VDPBF16PS";
    const nlohmann::json json = nlohmann::json::parse(to_json(e));
    ASSERT_EQ(e.units.size(), e.rows.size());
    for (std::size_t i = 0; i < e.rows.size(); ++i) {
      const plan::PlanRow& row = e.rows[i];
      EXPECT_EQ(row.products.empty(), row.order.empty()) << row.op;
      EXPECT_EQ(json["ops"][i].value("unit", ""), e.units[i]);
      if (row.order.empty()) continue;
      EXPECT_EQ(e.units[i], pairs ? unit : "FMA") << row.op;
    }
    EXPECT_EQ(json["machine"]["units"].size(), 1U);
    const std::string text = to_text(e);
    EXPECT_NE(text.find(pairs ? "units   " + unit + "  bf16 in matmul" : "units   FMA "), std::string::npos)
        << text;
    const Explained decode = explain_generation({model, {}}, config.policy, *device, {});
    EXPECT_EQ(to_text(decode).find("matmul (few rows)") != std::string::npos, pairs) << to_text(decode);
  }
}

TEST(Explained, PartsOfAGenerationsMemorySumToItsPeak) {
  const Explained e = generation();
  const Generation& g = *e.generation;
  EXPECT_GT(g.process, 0U);
  EXPECT_EQ(g.weights + g.cache + g.work + g.tables + g.process, e.peak_bytes);
  const nlohmann::json memory = nlohmann::json::parse(to_json(e))["memory"];
  std::size_t sum = 0;
  for (const char* part : {"weights", "cache", "work", "tables", "process"})
    sum += memory[part].get<std::size_t>();
  EXPECT_EQ(sum, memory["peak"].get<std::size_t>());
}

TEST(Explained, ARuleThatMatchesNothingIsReportedAsTheErrorOfTheRun) {
  config::RunConfig config = config::parse_config(kConfig, "config.toml");
  EXPECT_EQ(training().refusal, "");
  config.policy = config.policy.with_rule("model.layer.*: compute=f32", "--rule 1");
  const Explained e = explain_training(config, weights::find_model(config.model).config,
                                       mantissa::testing::best_device(), {});
  EXPECT_NE(e.refusal.find("model.layer.*"), std::string::npos);
  EXPECT_EQ(std::ranges::count(e.warnings, e.refusal + "; an error of train"), 1);
  EXPECT_EQ(std::ranges::count(e.warnings, e.refusal), 0) << "the warning is not repeated";
}

TEST(Explained, EveryListedOpIsMatchedByARuleOrTheErrorNamesTheRuleThatDecides) {
  config::RunConfig config = config::parse_config(kConfig, "config.toml");
  const model::ModelConfig model = weights::find_model(config.model).config;
  std::set<std::string> refused;
  for (const char* policy :
       {"fp8-hybrid", "bf16-true rounding=stochastic", "bf16-mixed compute=mxfp4", "32-true"}) {
    config.policy = precision::Policy::parse(policy);
    const Explained e = explain_training(config, model, mantissa::testing::best_device(), {});
    std::set<std::string> ops;
    for (const plan::PlanRow& row : e.rows) ops.insert(row.op);
    for (const std::string& op : ops) {
      const auto ruled = config.policy.with_rule("*: op=" + op + " compute=f32", "--rule 1");
      for (const std::string& warning : plan::rule_warnings(programs::lower_run(config, model), ruled, 10)) {
        if (warning.find("matches nothing") == std::string::npos) continue;
        refused.insert(op);
        EXPECT_NE(warning.find("Fix: "), std::string::npos) << warning;
      }
    }
    const std::string text = to_text(e);
    const bool scaled = ops.contains("quantize");
    EXPECT_EQ(text.find("\nquantize  writes an operand in the format with scales") != std::string::npos,
              scaled)
        << text;
  }
  EXPECT_EQ(refused, (std::set<std::string>{"adamw", "cast", "moments", "quantize"}));
}

TEST(Explained, AChangedPresetKeepsItsNameAndF16WithoutALossScaleIsAWarning) {
  config::RunConfig config = config::parse_config(kConfig, "config.toml");
  const model::ModelConfig model = weights::find_model(config.model).config;
  const auto explained = [&](const char* policy) {
    config.policy = precision::Policy::parse(policy);
    return explain_training(config, model, mantissa::testing::best_device(), {});
  };
  const auto warns = [](const Explained& e) {
    return std::ranges::any_of(e.warnings, [](const std::string& w) {
      return w.starts_with("gradients in f16 have no loss scale");
    });
  };
  const Explained bare = explained("16-mixed loss_scale=none");
  EXPECT_NE(to_text(bare).find("policy  16-mixed loss_scale=none\n"), std::string::npos);
  EXPECT_NE(to_text(training()).find("policy  16-mixed with rules\n"), std::string::npos);
  EXPECT_TRUE(warns(bare));
  EXPECT_FALSE(warns(explained("16-mixed")));
  EXPECT_FALSE(warns(explained("bf16-mixed")));
}

}  // namespace
}  // namespace mantissa::explain

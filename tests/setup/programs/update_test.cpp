// Update programs of a model: their rows in explain, the effect of rules, and their memory.
#include <gtest/gtest.h>

#include <limits>

#include "engine/runtime/device.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::programs {
namespace {

config::RunConfig config_of(const std::string& optimizer, const std::string& policy,
                            const std::string& groups = "") {
  const std::string text =
      "[run]\nsteps = 9\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 2\n"
      "num_attention_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\nsequence_length = 32\n"
      "[batch]\nglobal_batch_size = 4\n[optimizer]\nname = \"" +
      optimizer + "\"\n" + groups;
  config::PrecisionArguments precision;
  precision.policy = policy.substr(0, policy.find(';'));
  for (std::size_t at = policy.find(';'); at != std::string::npos; at = policy.find(';', at + 1))
    precision.rules.push_back(policy.substr(at + 1, policy.find(';', at + 1) - at - 1));
  return config::parse_config(text, "run.toml", {}, precision);
}

plan::Program program(const std::string& optimizer, const std::string& policy,
                      const std::string& groups = "") {
  const config::RunConfig config = config_of(optimizer, policy, groups);
  return compile_training(config, weights::find_model(config.model).config, 4,
                          mantissa::testing::best_device());
}

std::string rows_of(const std::string& optimizer, const std::string& policy) {
  return plan::plan_table(plan::plan_rows(program(optimizer, policy)), graph::Phase::finish);
}

TEST(UpdateRows, HaveTheFormatsOfAllParameters) {
  const auto update = [](const char* policy) { return rows_of("adamw", policy); };
  EXPECT_EQ(update("bf16-mixed"), R"(scope      op        store  mul   acc   out      decided by
optimizer  adamw     f32    –     f32   f32+bf16 bf16-mixed
optimizer  moments   f32    –     f32   f32      bf16-mixed
)");
  EXPECT_EQ(update("bf16-true optimizer=bf16 kahan=true; model.norm: params=f32 optimizer=f32"),
            R"(scope      op        store    mul   acc   out      decided by
optimizer  adamw     bf16+f32 –     f32   bf16+f32 policy line+--rule 1
optimizer  moments   bf16+f32 –     f32   bf16+f32 policy line+--rule 1
optimizer  kahan     bf16     –     f32   bf16     policy line
)");
  EXPECT_EQ(update("32-true; *norm*: op=update compute=bf16; *: pass=update compute=bf16"),
            R"(scope      op        store  mul   acc   out      decided by
optimizer  adamw     f32    –     bf16  f32      --rule 2
optimizer  moments   f32    –     bf16  f32      32-true
)");
  EXPECT_EQ(update("32-true compute=f16; *: compute=bf16"),
            R"(scope      op        store  mul   acc   out      decided by
optimizer  adamw     f32    –     f32   f32+bf16 policy line
optimizer  moments   f32    –     f32   f32      policy line
)") << "what says nothing of the update leaves its arithmetic";
  const std::vector<plan::PlanRow> rows =
      plan::plan_rows(program("adamw", "bf16-true optimizer=bf16 rounding=stochastic"));
  EXPECT_EQ(rows[rows.size() - 2].kernel,
            "one sweep: clip, update, copy; values below f32 rounded stochastically, keyed by seed, step, "
            "name and element");
}

TEST(UpdateRows, HaveTheWeightsForEvaluation) {
  const std::string groups = "ema_decay = 0.999\n";
  const std::vector<plan::PlanRow> rows = plan::plan_rows(program("adamw", "bf16-true", groups));
  EXPECT_EQ(plan::plan_table(rows, graph::Phase::finish),
            R"(scope      op        store  mul   acc   out      decided by
optimizer  adamw     bf16   –     f32   bf16     bf16-true
optimizer  moments   f32    –     f32   f32      bf16-true
optimizer  average   f32    –     f32   f32      bf16-true
)");
  EXPECT_EQ(rows.back().kernel, "read by eval; rounded to bf16 for validation and the saved model");
  EXPECT_EQ(plan::plan_rows(program("adamw", "bf16-mixed", groups)).back().kernel,
            "read by validation, eval and the saved model");
}

TEST(UpdateRows, HaveEachRuleOfUpdateAndItsProducts) {
  EXPECT_EQ(rows_of("muon", "bf16-mixed"), R"(scope      op        store  mul   acc   out      decided by
optimizer  adamw     f32    –     f32   f32+bf16 bf16-mixed
optimizer  muon      f32    –     f32   f32+bf16 bf16-mixed
optimizer  matmul    f32    f32   f32   f32      bf16-mixed
optimizer  moments   f32    –     f32   f32      bf16-mixed
)");
  EXPECT_EQ(
      rows_of("muon", "bf16-mixed;{match = \"*\", op = \"matmul\", pass = \"update\", compute = \"bf16\"}"),
      R"(scope      op        store  mul   acc      out      decided by
optimizer  adamw     f32    –     f32      f32+bf16 bf16-mixed
optimizer  muon      f32    –     f32      f32+bf16 bf16-mixed
optimizer  matmul    f32    bf16  f32 tile f32      --rule 1
optimizer  moments   f32    –     f32      f32      bf16-mixed
)");
  EXPECT_EQ(rows_of("sgd", "32-true"), R"(scope      op        store  mul   acc   out      decided by
optimizer  sgd       f32    –     f32   f32      32-true
)");
}

std::vector<std::string> warnings(const std::string& optimizer, const std::string& policy) {
  const config::RunConfig config = config_of(optimizer, policy);
  return plan::rule_warnings(programs::lower_run(config, weights::find_model(config.model).config),
                             config.policy, 9);
}

TEST(UpdateRules, MatchOnlyStepsThatTheOptimizerHas) {
  const std::string products = ";{match = \"*\", op = \"matmul\", pass = \"update\", compute = \"bf16\"}";
  EXPECT_TRUE(warnings("muon", "32-true" + products).empty());
  ASSERT_EQ(warnings("adamw", "32-true" + products).size(), 1U);
  EXPECT_NE(warnings("adamw", "32-true" + products)[0].find("matches nothing"), std::string::npos);
  EXPECT_TRUE(warnings("lion", "32-true;*norm*: op=update compute=bf16").empty());
  EXPECT_TRUE(warnings("adafactor", "bf16-true;*norm*: optimizer=tf32").empty());
  // sgd without momentum does not keep moments.
  ASSERT_EQ(warnings("sgd", "bf16-true;*norm*: optimizer=tf32").size(), 1U);
  EXPECT_NE(warnings("sgd", "bf16-true;*norm*: optimizer=tf32")[0].find("changes nothing"),
            std::string::npos);
}

TEST(UpdateMemory, IsThatOfTheStatesThatAnOptimizerDeclares) {
  const auto moments = [](const std::string& optimizer, const std::string& policy) {
    return forecast::forecast_memory(program(optimizer, policy), 0).moments;
  };
  const std::size_t masters = forecast::forecast_memory(program("adamw", "32-true"), 0).masters;
  EXPECT_EQ(moments("adamw", "32-true"), 2 * masters);
  // Buffers are aligned to 64 bytes.
  const double gaps = 64 * static_cast<double>(program("adamw", "32-true").slots.size());
  EXPECT_NEAR(static_cast<double>(moments("adamw", "bf16-true optimizer=bf16 rounding=stochastic")),
              static_cast<double>(masters), gaps);
  EXPECT_EQ(moments("lion", "32-true"), masters);
  EXPECT_EQ(moments("sgd", "32-true"), 0U);
  EXPECT_LT(moments("adafactor", "32-true"), masters / 4);
  EXPECT_EQ(moments("ademamix", "32-true"), 3 * masters);
  EXPECT_EQ(moments("adan", "32-true"), 4 * masters);
  const auto averaged = [&](const std::string& policy) {
    return forecast::forecast_memory(program("lion", policy, "ema_decay = 0.9\n"), 0).moments;
  };
  EXPECT_EQ(averaged("32-true"), 2 * masters);
  // With what a validation keeps aside.
  EXPECT_NEAR(static_cast<double>(averaged("bf16-true")), 2.5 * static_cast<double>(masters), 2 * gaps);
  EXPECT_GT(moments("muon", "32-true"), masters);
  EXPECT_LT(moments("muon", "32-true"), 2 * masters);
  EXPECT_NEAR(
      static_cast<double>(forecast::forecast_memory(program("lion", "bf16-true kahan=true"), 0).compensation),
      static_cast<double>(masters) / 2, gaps);
}

TEST(UpdateGroups, FreezeScaleAndDecay) {
  const std::string groups =
      "[[optimizer.group]]\nmatch = \"model.layers\"\nfreeze = true\n"
      "[[optimizer.group]]\nmatch = \"*.mlp\"\nfreeze = false\nlr_scale = 0.5\n"
      "[[optimizer.group]]\nmatch = \"lm_head\"\nweight_decay = 0.3\n";
  const config::RunConfig config = config_of("adamw", "32-true", groups);
  const std::vector<programs::RunPart> parts = programs::compile_parts(
      config, weights::find_model(config.model).config, mantissa::testing::best_device());
  const plan::Program& p = *parts.at(0).program;
  for (const plan::Slot& slot : p.slots) {
    const bool frozen =
        slot.name.find("layers") != std::string::npos && slot.name.find("mlp") == std::string::npos;
    EXPECT_EQ(slot.gradient == plan::kNoBuffer, frozen) << slot.name;
    EXPECT_EQ(p.update->find("first_moment." + slot.name) == plan::kNoBuffer, frozen) << slot.name;
  }
  /// A number that the update of `parameter` reads, where the schedule's rate is 1.
  const auto number = [&](const std::string& parameter, const std::string& kind) {
    for (const plan::Step& s : p.update->steps) {
      if (s.scope != parameter) continue;
      for (const plan::Operand& o : s.inputs) {
        for (const optim::Number& n : parts[0].numbers) {
          if (n.name == p.update->buffer(o.buffer).name && n.name.starts_with(kind)) return n.of({.lr = 1});
        }
      }
    }
    return std::numeric_limits<double>::quiet_NaN();
  };
  EXPECT_EQ(number("model.layers.1.mlp.up_proj.weight", "adamw.lr"), 0.5);
  EXPECT_EQ(number("model.embed_tokens.weight", "adamw.lr"), 1);
  EXPECT_EQ(number("model.layers.1.mlp.up_proj.weight", "adamw.keep"), 1 - 0.5 * 0.1);
  EXPECT_EQ(number("model.embed_tokens.weight", "adamw.keep"), 1 - 0.1);
  EXPECT_EQ(number("lm_head.weight", "adamw.keep"), 1 - 0.3);
  EXPECT_EQ(number("model.norm.weight", "adamw.keep"), 1) << "vectors do not decay";
  EXPECT_THROW(program("adamw", "32-true", "[[optimizer.group]]\nmatch = \"model.layer\"\nlr_scale = 2\n"),
               ConfigError);
}

/// RWKV-LM's configure_optimizers(): att.w0 has twice the rate; tensors whose name contains ".weight" and
/// that have two dimensions larger than 1 decay. In its names the low-rank matrices (w1, w2, …), r_k and the
/// mixtures x_r, … do not end with ".weight".
TEST(UpdateGroups, OfTheRwkvExampleAreThoseOfRwkvLm) {
  const std::vector<std::string> small = {"model.hidden_size=128", "model.num_hidden_layers=2",
                                          "model.vocab_size=256"};
  const config::RunConfig config = config::load_config(MANTISSA_SOURCE_DIR "/examples/rwkv7.toml", small);
  const model::ModelConfig model = weights::find_model(config.model).config;
  const graph::Graph graph = model::build_log_prob(model, 4, 4, true);
  int decays = 0, doubled = 0;
  for (const graph::ValueId p : graph.parameters()) {
    const std::string& name = graph.value(p).name;
    const optim::GroupSettings settings = optim::settings_of(config.optimizer.groups, name);
    const bool low_rank = name.find("_lora.") != std::string::npos;
    std::int64_t wide = 0;
    for (std::size_t d = 0; d < graph.value(p).shape.rank(); ++d)
      wide += graph.value(p).shape.dim(d).size > 1;
    const bool decays_there = name.ends_with(".weight") && !low_rank && wide >= 2;
    const bool decays_here = graph.value(p).shape.rank() >= 2 && settings.weight_decay.value_or(1) != 0;
    EXPECT_EQ(decays_here, decays_there) << name;
    EXPECT_EQ(settings.lr_scale, name.ends_with(".w_lora.lora.2.bias") ? 2 : 1) << name;
    decays += decays_here;
    doubled += settings.lr_scale == 2;
  }
  EXPECT_EQ(decays, 2 + 2 * 6) << "the embedding, the head, and r, k, v, o, key and value of each layer";
  EXPECT_EQ(doubled, 2);
}

}  // namespace
}  // namespace mantissa::programs

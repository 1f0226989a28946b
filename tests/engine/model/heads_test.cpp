// The heads that give one number for each token, and the entropies: their place in the graphs, their formats
// under every policy, and reward models in config.json.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/tiny_families.h"
#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/optim/update_graph.h"
#include "mantissa/precision/policy/presets.h"

namespace mantissa::model::heads_test {
namespace {

using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::Segments;
using mantissa::testing::tiny_families;
using mantissa::testing::tiny_llama;
using mantissa::testing::TinyFamily;

constexpr std::int64_t kHidden = 16;  // of tiny_llama

std::vector<std::string> names_of(const graph::Graph& graph) {
  std::vector<std::string> names;
  for (const graph::ValueId p : graph.parameters()) names.push_back(graph.value(p).name);
  return names;
}

bool has(const graph::Graph& graph, std::string_view output) {
  return std::ranges::any_of(graph.outputs(), [&](const auto& o) { return o.first == output; });
}

TEST(Heads, OfARewardModelReplaceTheLanguageModels) {
  for (const bool tied : {false, true}) {
    const ModelConfig language = tiny_llama(tied), scores = reward_model(language);
    const graph::Graph graph = build_scores(scores, 8, 8, true);
    std::vector<std::string> names = names_of(build_log_prob(language, 8, 8, true));
    ASSERT_EQ(names.back() == "lm_head.weight", !tied);
    if (!tied) names.pop_back();
    names.push_back("score.weight");
    EXPECT_EQ(names_of(graph), names);
    EXPECT_TRUE(has(graph, "value"));
    EXPECT_FALSE(has(graph, "log_prob"));
    EXPECT_EQ(graph.value(graph.find("score.weight")).shape, (Shape{1, kHidden}));
    EXPECT_EQ(scores.parameters(), language.parameters() - (tied ? 0 : 29 * kHidden) + kHidden);
  }
}

TEST(Heads, OfACriticShareTheTrunk) {
  const ModelConfig config = tiny_llama(true);
  std::vector<std::string> names = names_of(build_log_prob(config, 8, 8, true));
  names.push_back("value_head.weight");
  const graph::Graph graph = build_log_prob(config, 8, 8, true, {}, {.value = true});
  EXPECT_EQ(names_of(graph), names);
  EXPECT_NE(graph.find("dvalue"), graph::kNone);
  EXPECT_EQ(build_log_prob(config, 8, 8, false, {}, {.value = true}).find("dvalue"), graph::kNone);
}

TEST(Heads, AreInitiallyAlmostZero) {
  const Segments rows({4});
  const Compiled c(build_scores(reward_model(tiny_llama(true, 29, {{"hidden_size", 1024}})), 4, 4, true),
                   precision::Policy::parse("64-true"), options_for(rows));
  const auto& slot = c.program.slots.back();
  ASSERT_EQ(slot.name, "score.weight");
  double squares = 0;
  for (const double w : c.values(slot.master_buffer, 1024)) squares += w * w;
  // The square root of the mean of n squares has the standard deviation σ / √(2n).
  constexpr double kStd = 1.0 / 1025;
  EXPECT_NEAR(std::sqrt(squares / 1024), kStd, 5 * kStd / std::sqrt(2.0 * 1024));
}

TEST(Heads, EntropiesExistWhereTheyAreAskedFor) {
  const ModelConfig config = tiny_llama(true);
  for (const Entropy entropy : {Entropy::none, Entropy::computed, Entropy::trained}) {
    const graph::Graph graph = build_log_prob(config, 8, 8, true, {}, {.entropy = entropy});
    EXPECT_EQ(has(graph, "entropy"), entropy != Entropy::none);
    EXPECT_EQ(graph.find("dentropy") != graph::kNone, entropy == Entropy::trained);
  }
}

/// The number is the f32 sum of factors that the policy rounds, as the head's; block formats and 8-bit
/// scales, which Linear layers multiply in, do not apply.
TEST(Heads, GiveUnroundedNumbersUnderEveryPolicy) {
  const Segments rows({6, 3});
  for (const precision::Preset& preset : precision::presets()) {
    SCOPED_TRACE(preset.name);
    const precision::Policy policy = precision::Policy::parse(std::string(preset.name));
    Compiled c(build_log_prob(tiny_llama(false, 29, {{"hidden_size", 64}, {"intermediate_size", 64}}), 9, 9,
                              true, {}, {.value = true}),
               policy, options_for(rows));
    const Data data(rows.tokens, 29, 3);
    data.feed(c, 0, data.ids.size());
    c.executor->run(graph::Phase::forward, rows.extent());
    const plan::BufferId id = c.program.required("value");
    const Scalar arithmetic = policy.arithmetic();
    EXPECT_EQ(c.program.buffer(id).type, arithmetic);
    const auto step = std::ranges::find(c.program.steps, "value_head", &plan::Step::scope);
    ASSERT_NE(step, c.program.steps.end());
    EXPECT_EQ(step->outputs.front(), id) << "the number is rounded";
    ASSERT_EQ(step->rounded, arithmetic);
    for (const plan::Operand& o : step->inputs) EXPECT_FALSE(c.program.buffer(o.buffer).scaled);
    const auto head = std::ranges::find(c.program.steps, "lm_head", &plan::Step::scope);
    for (const std::size_t i : {0U, 1U}) EXPECT_EQ(step->inputs[i].operand, head->inputs[i].operand);
    bool any = false;
    for (const double v : c.values("value", 9)) any = any || (std::isfinite(v) && v != 0);
    EXPECT_TRUE(any);
  }
}

TEST(Heads, AreNotHiddenMatricesForMuon) {
  for (const optim::Parameter& p :
       optim::trained_parameters(build_scores(reward_model(tiny_llama(true)), 8, 8, true)))
    EXPECT_EQ(p.hidden_matrix, p.name.ends_with("proj.weight")) << p.name;
}

TEST(Heads, AreTrainedAsAWholeBesideAnAdapter) {
  ModelConfig config = reward_model(tiny_llama(true));
  auto adapter = std::make_shared<Adapter>();
  for (const LinearLayer& layer : linear_layers(config)) adapter->layers[layer.scope] = {3, 4};
  EXPECT_FALSE(adapter->layers.contains("score"));
  adapter->heads = {std::string(kScoreHead)};
  config.adapter = adapter;
  config.base = QuantFormat::int8;
  const graph::Graph graph = build_scores(config, 8, 8, true);
  for (const graph::ValueId p : graph.parameters()) {
    const graph::Value& value = graph.value(p);
    const bool trained = value.name == "score.weight" || value.name.find("lora_") != std::string::npos;
    EXPECT_EQ(value.trainable, trained) << value.name;
    EXPECT_EQ(value.fixed, !trained) << value.name;
    const bool linear = !trained && value.name.ends_with("proj.weight");
    EXPECT_EQ(held_in_blocks(config)(value.name).has_value(), linear) << value.name;
  }
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

TEST(RewardModel, GivesNoProbabilities) {
  const ModelConfig config = reward_model(tiny_llama(true));
  const std::function<void()> calls[] = {
      [&] { build_log_prob(config, 8, 8, false); }, [&] { build_logits(config, 8, 8, false); },
      [&] { build_selected_logits(config, 8, 8, 2); }, [&] { build_decode(config, 8, 2, 8); }};
  for (const auto& call : calls) {
    EXPECT_EQ(refusal(call),
              "this model is a reward model (LlamaForSequenceClassification): it scores texts, and gives no "
              "probabilities of tokens. Fix: use a language model; train.objective = \"reward\" trains a "
              "reward model");
  }
}

class RewardModels : public ::testing::TestWithParam<TinyFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, RewardModels, ::testing::ValuesIn(tiny_families()),
                         [](const auto& i) { return i.param.name; });

TEST_P(RewardModels, AreReadBackFromTheirConfigs) {
  const ModelConfig language = parse_model_config(GetParam().config, "config.json");
  EXPECT_FALSE(language.scores);
  const nlohmann::json json = to_json(reward_model(language), "float32");
  EXPECT_EQ(json["architectures"], nlohmann::json({language.family->classifier}));
  EXPECT_TRUE(std::string(language.family->classifier).ends_with("ForSequenceClassification"));
  const ModelConfig back = parse_model_config(json, "config.json");
  EXPECT_TRUE(back.scores);
  EXPECT_EQ(names_of(build_forward(back)), names_of(build_forward(reward_model(language))));
  EXPECT_FALSE(parse_model_config(to_json(language, "float32"), "config.json").scores);
}

TEST(RewardModel, HasOneLabel) {
  nlohmann::json json = to_json(reward_model(tiny_llama(true)), "float32");
  json["id2label"] = {{"0", "bad"}, {"1", "good"}};
  EXPECT_EQ(refusal([&] { parse_model_config(json, "M/config.json"); }),
            "M/config.json: \"architectures\" is LlamaForSequenceClassification with 2 labels; only "
            "classifiers of one label, reward models, are supported");
  json.erase("id2label");
  EXPECT_NE(refusal([&] { parse_model_config(json, "M/config.json"); }).find("with 2 labels"),
            std::string::npos);
  json["num_labels"] = 1;
  EXPECT_TRUE(parse_model_config(json, "M/config.json").scores);
}

}  // namespace
}  // namespace mantissa::model::heads_test

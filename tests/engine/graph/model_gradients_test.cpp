// Gradients of whole models of every family against central differences, in f64.
#include <gtest/gtest.h>

#include "engine/graph/differences.h"
#include "engine/model/tiny_families.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/graphs.h"

namespace mantissa::graph::model_gradients_test {
namespace {

using mantissa::graph::testing::check_gradients;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::Segments;
using mantissa::testing::tiny_families;
using mantissa::testing::TinyFamily;

/// Gives matrices normal values in place of zeros, which hide gradients, and of numbers so small that a norm
/// of them is far from linear.
Graph with_normal_matrices(Graph graph) {
  for (const ValueId p : graph.parameters()) {
    Value& value = graph.value(p);
    const bool matrix =
        value.shape.count() > value.shape.last() && value.name.find("lora_") == std::string::npos;
    if (matrix && value.init.kind != Init::Kind::normal) value.init = {Init::Kind::normal, 0.3};
  }
  return graph;
}

/// The step of the differences: kinks, and choices of other experts, are rare within it.
double step_of(const model::ModelConfig& config) {
  const bool steps = config.model_type == "rwkv7" || config.source.contains("num_experts_per_tok");
  return steps ? 0x1p-20 : 0x1p-11;
}

class ModelGradients : public ::testing::TestWithParam<TinyFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, ModelGradients, ::testing::ValuesIn(tiny_families()),
                         [](const auto& i) { return i.param.name; });

TEST_P(ModelGradients, AreTheDerivatives) {
  const model::ModelConfig config = model::parse_model_config(GetParam().config, GetParam().name);
  const Segments rows({10, 7});  // longer than the windows and the original contexts
  Compiled c(with_normal_matrices(model::build_log_prob(config, rows.tokens, 10, true)),
             precision::Policy::parse("64-true"), options_for(rows));
  c.randomize_vectors();
  const Data data(rows.tokens, config.vocab_size, 3);
  data.feed(c, 0, data.ids.size());
  check_gradients(c, "log_prob", data.d, rows, 256, step_of(config));
}

TEST_P(ModelGradients, OfScoresAreTheDerivatives) {
  const model::ModelConfig config =
      model::reward_model(model::parse_model_config(GetParam().config, GetParam().name));
  const Segments rows({10, 7});
  Graph graph = with_normal_matrices(model::build_scores(config, rows.tokens, 10, true));
  graph.value(graph.find("score.weight")).init.std = 0.5;
  Compiled c(std::move(graph), precision::Policy::parse("64-true"), options_for(rows));
  c.randomize_vectors();
  const Data data(rows.tokens, config.vocab_size, 3);
  for (std::size_t t = 0; t < data.ids.size(); ++t) {
    c.integers("ids")[t] = data.ids[t];
    c.set(c.program.required("dvalue"), t, data.d[t]);
  }
  check_gradients(c, "value", data.d, rows, 256, step_of(config));
}

// DoRA's norms are constants of its gradient, which is therefore not the derivative.
TEST_P(ModelGradients, OfAdaptersAreTheDerivativesAndThoseOfTheBaseAreNotComputed) {
  model::ModelConfig config = model::parse_model_config(GetParam().config, GetParam().name);
  auto adapter = std::make_shared<model::Adapter>();
  adapter->rslora = true;
  for (const model::LinearLayer& layer : model::linear_layers(config)) adapter->layers[layer.scope] = {3, 4};
  for (const model::LinearLayer& layer : model::expert_layers(config)) adapter->layers[layer.scope] = {3, 4};
  config.adapter = adapter;
  const Segments rows({10, 7});
  Graph graph = with_normal_matrices(model::build_log_prob(config, rows.tokens, 10, true));
  for (const ValueId p : graph.parameters()) {
    Value& value = graph.value(p);
    ASSERT_EQ(value.trainable, adapter->owns(value.name)) << value.name;
    if (value.name.ends_with("lora_B.weight")) value.init = {Init::Kind::normal, 0.3};
  }
  Compiled c(std::move(graph), precision::Policy::parse("64-true"), options_for(rows));
  c.randomize_vectors();
  const Data data(rows.tokens, config.vocab_size, 3);
  data.feed(c, 0, data.ids.size());
  check_gradients(c, "log_prob", data.d, rows, 64, step_of(config));
}

TEST(ModelGradients, OfInitialStatesAreTheDerivatives) {
  const auto tiny = mantissa::testing::tiny_models(mantissa::testing::facts_of("rwkv7")).front();
  model::ModelConfig config = model::parse_model_config(tiny.config, tiny.name);
  auto adapter = std::make_shared<model::Adapter>();
  adapter->states = true;
  config.adapter = adapter;
  const Segments rows({10, 7});
  Graph graph = with_normal_matrices(model::build_log_prob(config, rows.tokens, 10, true));
  std::size_t states = 0;
  for (const ValueId p : graph.parameters()) {
    const Value& value = graph.value(p);
    ASSERT_EQ(value.trainable, value.name.ends_with(".initial_state")) << value.name;
    states += value.trainable ? 1 : 0;
  }
  ASSERT_EQ(states, static_cast<std::size_t>(config.num_hidden_layers));
  Compiled c(std::move(graph), precision::Policy::parse("64-true"), options_for(rows));
  c.randomize_vectors();
  const Data data(rows.tokens, config.vocab_size, 3);
  data.feed(c, 0, data.ids.size());
  check_gradients(c, "log_prob", data.d, rows, 256, step_of(config));
}

}  // namespace
}  // namespace mantissa::graph::model_gradients_test

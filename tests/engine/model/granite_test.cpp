// Where Granite multiplies, and what then rounds: the places of transformers.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/engine/model/config.h"
#include "mantissa/engine/model/graphs.h"

namespace mantissa::model {
namespace {

graph::Graph graph_of(const nlohmann::json& more) {
  nlohmann::json config = {{"model_type", "granite"},    {"vocab_size", 29},
                           {"hidden_size", 16},          {"intermediate_size", 20},
                           {"num_hidden_layers", 2},     {"num_attention_heads", 4},
                           {"embedding_multiplier", 12}, {"attention_multiplier", 0.5}};
  config.update(more);
  return build_log_prob(parse_model_config(config, "config.json"), 4, 4, false);
}

struct Multiplier {
  double factor;
  graph::Role role;  // of the result
  bool operator==(const Multiplier&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Multiplier& m) {
  return out << m.factor << " role " << static_cast<int>(m.role);
}

std::map<std::string, Multiplier> multipliers(const graph::Graph& g) {
  std::map<std::string, Multiplier> found;
  for (const graph::Node& node : g.nodes()) {
    if (node.op->id == std::string_view("scale"))
      found[node.scope] = {node.attributes.number("factor"), g.value(node.outputs.front()).role};
  }
  return found;
}

TEST(Granite, MultipliesTheStreamOnceAndEachBranchBeforeItIsAdded) {
  const graph::Graph g = graph_of({{"residual_multiplier", 0.25}, {"logits_scaling", 8}});
  const Multiplier branch{0.25, graph::Role::compute};
  const std::map<std::string, Multiplier> expected = {{"model.embed_tokens", {12, graph::Role::residual}},
                                                      {"model.layers.0.self_attn", branch},
                                                      {"model.layers.0.mlp", branch},
                                                      {"model.layers.1.self_attn", branch},
                                                      {"model.layers.1.mlp", branch},
                                                      {"lm_head", {0.125, graph::Role::compute}}};
  EXPECT_EQ(multipliers(g), expected);
  for (const graph::Node& node : g.nodes()) {
    if (node.op->id == std::string_view("attention")) {
      EXPECT_EQ(node.attributes.number("scale"), 0.5);
    }
  }
}

TEST(Granite, LeavesOutMultiplicationsByOne) {
  const graph::Graph g = graph_of({{"embedding_multiplier", 1.0}});
  EXPECT_EQ(multipliers(g), (std::map<std::string, Multiplier>{}));
}

}  // namespace
}  // namespace mantissa::model

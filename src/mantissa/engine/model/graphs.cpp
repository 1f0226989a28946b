#include "mantissa/engine/model/graphs.h"

#include <fmt/format.h>

#include <cassert>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/autodiff.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/network.h"

namespace mantissa::model {
namespace {

using graph::Graph;

void check_positions(const ModelConfig& config, std::int64_t positions) {
  if (!config.positions_are_limited || positions <= config.max_position_embeddings) return;
  throw ConfigError(
      "sequences of {} tokens are longer than the {} learned positions of this {} model; shorten "
      "data.sequence_length, or the prompt and --max-new-tokens",
      positions, config.max_position_embeddings, config.model_type);
}

void check_language_model(const ModelConfig& config) {
  if (!config.scores) return;
  throw ConfigError(
      "this model is a reward model ({}): it scores texts, and gives no probabilities of tokens. "
      "Fix: use a language model; train.objective = \"reward\" trains a reward model",
      config.family->classifier);
}

/// Returns what the head multiplies by its weight.
ValueId head_input(NetworkBuilder& b, const Head& head, ValueId x) {
  return head.scale == 1 ? x : b.ops.multiple(head.scope, x, head.scale);
}

/// Computes the complete logits of the head, for traces and sampling.
ValueId logits_of(NetworkBuilder& b, const Head& head, ValueId x) {
  const ValueId logits = b.ops.logits(head.scope, x, head.weight);
  return head.soft_cap == 0 ? logits : b.ops.soft_cap(head.scope, logits, head.soft_cap);
}

/// Computes one number for each token [tokens, 1], by a head called `scope`.
ValueId number_of(NetworkBuilder& b, std::string_view scope, ValueId x) {
  const std::int64_t hidden = b.ops.graph().value(x).shape.last();
  const ValueId weight =
      b.parameter(fmt::format("{}.weight", scope), {1, hidden},
                  {.kind = graph::Init::Kind::normal, .std = 1 / static_cast<double>(hidden + 1)});
  const ValueId value = b.ops.score(std::string(scope), x, weight);
  b.ops.graph().mark_output("value", value);
  return value;
}

/// The outputs from which the backward pass of a graph starts, with the inputs that hold their gradients.
class Seeds {
 public:
  Seeds(Graph& graph, bool train) : graph_(graph), train_(train) {}

  void add(const char* name, ValueId output) {
    if (!train_) return;
    seeds_.push_back({output, graph_.add_value({.name = name,
                                                .kind = graph::ValueKind::input,
                                                .role = graph::Role::arithmetic,
                                                .shape = graph_.value(output).shape})});
  }
  void differentiate() const {
    if (train_) graph::differentiate(graph_, seeds_);
  }

 private:
  Graph& graph_;
  bool train_;
  std::vector<graph::Seed> seeds_;
};

/// Returns the part of each token in the load-balancing loss [tokens].
ValueId balance_of(NetworkBuilder& b, double weight) {
  std::vector<ValueId> choices, inputs;
  for (const NetworkBuilder::Router& router : b.routers) choices.push_back(router.choice);
  const std::int64_t experts = b.ops.graph().value(b.routers.front().logits).shape.last();
  inputs.push_back(b.ops.node("expert_shares", "balance", choices, {{"experts", experts}}).front());
  for (const NetworkBuilder::Router& router : b.routers) inputs.push_back(router.logits);
  return b.ops.node("balance", "balance", inputs, {{"weight", weight}}).front();
}

/// Sets which parameters get gradients and updates. `fixed`: none is updated.
void mark_parameters(Graph& graph, const ModelConfig& config, const Frozen& frozen, bool fixed) {
  for (const ValueId p : graph.parameters()) {
    graph::Value& value = graph.value(p);
    const bool base = config.adapter != nullptr && !config.adapter->owns(value.name);
    if (base || (frozen && frozen(value.name))) value.trainable = false;
    value.fixed = base || fixed;
  }
}

Graph build(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train,
            bool with_logits, const Frozen& frozen, const Extras& extras) {
  check_language_model(config);
  check_positions(config, positions);
  Graph graph;
  const Sequences kept{extras.carried, positions, extras.carried > 0};
  NetworkBuilder b(graph, tokens, positions, kept, config.adapter.get());
  b.set_dropout(extras.dropout);
  Seeds seeds(graph, train);
  const ValueId ids = b.ops.token_input("ids");
  const ValueId targets = b.ops.token_input("targets");
  const ValueId x = config.network->trunk(b, ids);
  const Head head = config.network->head(b);
  const ValueId scaled = head_input(b, head, x);
  if (with_logits) graph.mark_output("logits", logits_of(b, head, scaled));
  const bool entropy = extras.entropy != Entropy::none;
  const ValueId log_prob = b.ops.log_prob(head.scope, scaled, head.weight, targets, head.soft_cap, entropy,
                                          extras.l2wrap, extras.z_loss);
  graph.mark_output("log_prob", log_prob);
  graph.mark_output("lse", b.ops.lse_of(log_prob));
  seeds.add("dlog_prob", log_prob);
  if (entropy) {
    graph.mark_output("entropy", b.ops.entropy_of(log_prob));
    if (extras.entropy == Entropy::trained) seeds.add("dentropy", b.ops.entropy_of(log_prob));
  }
  if (extras.value) seeds.add("dvalue", number_of(b, kValueHead, x));
  if (extras.balance != 0 && !b.routers.empty()) {
    const ValueId balance = balance_of(b, extras.balance);
    graph.mark_output("balance", balance);
    seeds.add("dbalance", balance);
  }
  graph.set_positions(positions);
  mark_parameters(graph, config, frozen, !train || with_logits);  // a trace has gradients, but no update
  seeds.differentiate();
  return graph;
}

/// Builds the graph of the logits of `count` tokens.
Graph build_selected(const ModelConfig& config, std::int64_t tokens, std::int64_t positions,
                     std::int64_t count, Sequences kept) {
  check_language_model(config);
  check_positions(config, positions);
  Graph graph;
  NetworkBuilder b(graph, tokens, positions, kept, config.adapter.get());
  const ValueId ids = b.ops.token_input("ids");
  b.choose(b.ops.row_input("rows", count));
  const ValueId x = config.network->trunk(b, ids);
  assert(!graph.value(x).shape.has_tokens() && "the network selects the chosen rows");
  const Head head = config.network->head(b);
  graph.mark_output("logits", logits_of(b, head, head_input(b, head, x)));
  for (const ValueId p : graph.parameters()) graph.value(p).fixed = true;
  graph.set_positions(positions);
  return graph;
}

}  // namespace

Graph build_log_prob(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train,
                     const Frozen& frozen, const Extras& extras) {
  return build(config, tokens, positions, train, false, frozen, extras);
}

Graph build_scores(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train,
                   const Frozen& frozen, const DropoutRates& dropout) {
  check_positions(config, positions);
  Graph graph;
  NetworkBuilder b(graph, tokens, positions, {}, config.adapter.get());
  b.set_dropout(dropout);
  Seeds seeds(graph, train);
  const ValueId ids = b.ops.token_input("ids");
  seeds.add("dvalue", number_of(b, kScoreHead, config.network->trunk(b, ids)));
  graph.set_positions(positions);
  mark_parameters(graph, config, frozen, !train);
  seeds.differentiate();
  return graph;
}

Graph build_forward(const ModelConfig& config) {
  return config.scores ? build_scores(config, 1, 1, false) : build_log_prob(config, 1, 1, false);
}

Graph build_logits(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train) {
  return build(config, tokens, positions, train, true, {}, {});
}

Graph build_selected_logits(const ModelConfig& config, std::int64_t tokens, std::int64_t positions,
                            std::int64_t rows) {
  return build_selected(config, tokens, positions, rows, {});
}

Graph build_decode(const ModelConfig& config, std::int64_t tokens, std::int64_t slots,
                   std::int64_t capacity) {
  return build_selected(config, tokens, capacity, slots, {slots, capacity});
}

}  // namespace mantissa::model

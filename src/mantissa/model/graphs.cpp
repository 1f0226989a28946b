#include "mantissa/model/graphs.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/graph/autodiff.h"
#include "mantissa/model/network.h"

namespace mantissa::model {
namespace {

using graph::Graph;

void check_positions(const ModelConfig& config, std::int64_t positions) {
  if (!config.positions_are_limited || positions <= config.max_position_embeddings) return;
  throw ConfigError(
      fmt::format("sequences of {} tokens are longer than the {} learned positions of this {} model; shorten "
                  "data.sequence_length, or the prompt and --max-new-tokens",
                  positions, config.max_position_embeddings, config.model_type));
}

/// Computes the complete logits of the head, for traces and sampling.
ValueId logits_of(NetworkBuilder& b, const Head& head, ValueId x) {
  const ValueId logits = b.ops.logits(head.scope, x, head.weight);
  return head.soft_cap == 0 ? logits : b.ops.soft_cap(head.scope, logits, head.soft_cap);
}

Graph build(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train,
            bool with_logits, const Frozen& frozen) {
  check_positions(config, positions);
  Graph graph;
  NetworkBuilder b(graph, tokens, positions, {}, config.adapter.get());
  const ValueId ids = b.ops.token_input("ids");
  const ValueId targets = b.ops.token_input("targets");
  const ValueId seed = train ? b.ops.token_numbers("dlog_prob") : graph::kNone;
  const ValueId x = config.network->trunk(b, ids);
  const Head head = config.network->head(b);
  if (with_logits) graph.mark_output("logits", logits_of(b, head, x));
  const ValueId log_prob = b.ops.log_prob(head.scope, x, head.weight, targets, head.soft_cap);
  graph.mark_output("log_prob", log_prob);
  graph.mark_output("lse", graph.node(graph.value(log_prob).producer).outputs[1]);
  graph.set_positions(positions);
  for (const ValueId p : graph.parameters()) {
    graph::Value& value = graph.value(p);
    const bool base = config.adapter != nullptr && !config.adapter->owns(value.name);
    if (base || (frozen && frozen(value.name))) value.trainable = false;
    value.fixed = base || !train || with_logits;  // a trace computes gradients, but no update
  }
  if (train) graph::differentiate(graph, log_prob, seed);
  return graph;
}

/// Builds the graph of the logits of `count` tokens.
Graph build_selected(const ModelConfig& config, std::int64_t tokens, std::int64_t positions,
                     std::int64_t count, Cache cache) {
  check_positions(config, positions);
  Graph graph;
  NetworkBuilder b(graph, tokens, positions, cache, config.adapter.get());
  const ValueId ids = b.ops.token_input("ids");
  const ValueId rows = b.ops.row_input("rows", count);
  const ValueId chosen = b.ops.select(config.network->last_scope(), config.network->trunk(b, ids), rows);
  graph.mark_output("logits", logits_of(b, config.network->head(b), chosen));
  for (const ValueId p : graph.parameters()) graph.value(p).fixed = true;
  graph.set_positions(positions);
  return graph;
}

}  // namespace

Graph build_log_prob(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train,
                     const Frozen& frozen) {
  return build(config, tokens, positions, train, false, frozen);
}

Graph build_logits(const ModelConfig& config, std::int64_t tokens, std::int64_t positions, bool train) {
  return build(config, tokens, positions, train, true, {});
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

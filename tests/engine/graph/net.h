// Small graphs that end in a number, to check gradients with.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "engine/runtime/program.h"
#include "mantissa/engine/graph/autodiff.h"
#include "mantissa/engine/graph/builder.h"

namespace mantissa::graph::testing {

using mantissa::testing::Segments;

constexpr std::int64_t kNetTokens = 7, kNetWidth = 8, kNetVocabulary = 11;

inline const Segments& batch() {
  static const Segments rows({4, 3});
  return rows;
}

/// Ends in the log-probability of the targets, which makes a number of any [tokens, kNetWidth].
class Net {
 public:
  Net() : b(graph, kNetTokens) {
    ids = b.token_input("ids");
    targets = b.token_input("targets");
    seed = b.token_numbers("dlog_prob");
  }
  ValueId weight(const std::string& name, Shape shape) {
    return b.parameter(name, std::move(shape), {Init::Kind::normal, 0.5});
  }
  /// An input with a gradient: rows of a trained table.
  ValueId trained(const std::string& name, std::int64_t width = kNetWidth) {
    return b.gather(name, ids, weight(fmt::format("{}.weight", name), {kNetVocabulary, width}));
  }
  Graph finish(ValueId x, double soft_cap = 0) {
    const ValueId head = weight("head.weight", {kNetVocabulary, graph.value(x).shape.last()});
    const ValueId log_prob = b.log_prob("head", x, head, targets, soft_cap);
    graph.mark_output("log_prob", log_prob);
    differentiate(graph, std::array{Seed{log_prob, seed}});
    return std::move(graph);
  }

  Graph graph;
  Builder b;
  ValueId ids = kNone, targets = kNone, seed = kNone;
};

}  // namespace mantissa::graph::testing

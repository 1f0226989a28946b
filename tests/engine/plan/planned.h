// The plan of a tiny Llama under a policy.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/runtime/program.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/rules.h"

namespace mantissa::plan {

inline Program plan_for(const precision::Policy& policy, const CompileOptions& options = {16, 16}) {
  return compile(model::build_log_prob(mantissa::testing::tiny_llama(false), 16, 16, true), policy, options,
                 {});
}

/// Assigns the formats of a policy to the graph's values.
inline Lower lowering_of(graph::Graph graph) {
  return
      [graph = std::move(graph)](const precision::Policy& policy) { return assign_formats(graph, policy); };
}

/// The first step of this op at this scope.
inline const Step* find_step(const Program& p, std::string_view scope, std::string_view op,
                             graph::Phase phase = graph::Phase::forward) {
  const auto it = std::find_if(p.steps.begin(), p.steps.end(), [&](const Step& s) {
    return s.scope == scope && s.op->op == op && s.phase == phase;
  });
  return it == p.steps.end() ? nullptr : &*it;
}

/// The first row of this op at this scope in the forward pass.
inline PlanRow find_row(const std::vector<PlanRow>& rows, std::string_view scope, std::string_view op) {
  const auto it = std::find_if(rows.begin(), rows.end(), [&](const PlanRow& r) {
    return r.scope == scope && r.op == op && r.pass == "forward";
  });
  return it == rows.end() ? PlanRow() : *it;
}

}  // namespace mantissa::plan

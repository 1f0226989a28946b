#include "mantissa/setup/programs/update.h"

#include "mantissa/engine/plan/compile.h"

namespace mantissa::programs {

optim::UpdateGraph update_graph(const UpdateSource& source, const precision::Policy& policy) {
  std::vector<optim::Parameter> parameters = source.parameters;
  for (optim::Parameter& p : parameters) p.compensated = policy.compensates(p.name);
  return optim::build_update(*source.optimizer, source.settings, parameters);
}

std::vector<optim::Number> add_update(plan::Program& training, const UpdateSource& source,
                                      const runtime::Device& device) {
  optim::UpdateGraph graph = update_graph(source, training.policy);
  plan::CompileOptions options;
  options.updates = &training;
  training.update = std::make_shared<const plan::Program>(
      plan::compile(graph.graph, training.policy, options, device.host()));
  return std::move(graph.numbers);
}

}  // namespace mantissa::programs

#include <algorithm>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/objective/objective.h"
#include "mantissa/setup/objective/preference.h"

namespace mantissa::objective {
namespace {

Outputs outputs_of(const runtime::Session& session, std::int64_t tokens) {
  const auto optional = [&](std::string_view name) -> std::optional<runtime::Values> {
    if (session.program().find(name) == plan::kNoBuffer) return std::nullopt;
    return session.read(name, tokens);
  };
  const runtime::Values none({}, session.program().arithmetic, 1, nullptr);
  return {optional("log_prob").value_or(none), optional("entropy"), optional("value"), optional("balance")};
}

/// Writes the seeds of one micro-batch to the program's inputs.
void write_seeds(runtime::Session& session, const MicroBatch& micro, Objective& objective,
                 const Outputs* outputs) {
  struct Input {
    std::string_view name;
    std::vector<double> seeds;
  };
  Input inputs[] = {{"dlog_prob", {}}, {"dentropy", {}}, {"dvalue", {}}, {"dbalance", {}}};
  const auto tokens = static_cast<std::size_t>(micro.batch.tokens());
  for (Input& input : inputs) {
    if (session.program().find(input.name) != plan::kNoBuffer) input.seeds.assign(tokens, 0);
  }
  objective.seeds(micro, outputs, {inputs[0].seeds, inputs[1].seeds, inputs[2].seeds, inputs[3].seeds});
  for (const Input& input : inputs) {
    if (!input.seeds.empty()) session.write(input.name, std::span<const double>(input.seeds));
  }
}

/// Returns true if the backward phase computes the log-probabilities.
bool joined(const plan::Program& program) {
  return std::ranges::any_of(program.steps,
                             [](const plan::Step& s) { return s.phase == graph::Phase::evaluate; });
}

}  // namespace

void run(runtime::Session& session, const MicroBatch& micro, Objective& objective, Pass pass,
         bool accumulate) {
  const bool train = pass == Pass::train;
  if (train && !objective.seeds_known() && joined(session.program()))
    throw InternalError("the objective needs log-probabilities before the backward phase computes them");
  Extent extent = micro.batch.extent();
  extent.trains = train;
  session.feed(micro.batch);
  if (train && objective.seeds_known()) write_seeds(session, micro, objective, nullptr);
  session.run(graph::Phase::forward, extent);
  if (train && !objective.seeds_known()) {
    const Outputs outputs = outputs_of(session, extent.tokens);
    write_seeds(session, micro, objective, &outputs);
  }
  session.run(train ? graph::Phase::backward : graph::Phase::evaluate, extent, accumulate);
  objective.observe(micro, outputs_of(session, extent.tokens));
}

double answer_log_prob(const MicroBatch& micro, const Outputs& outputs, std::size_t begin,
                       std::size_t length) {
  std::vector<double> values(length);
  for (std::size_t t = 0; t < length; ++t) values[t] = outputs.log_prob[begin + t];
  return masked_sum(values, micro.batch.weights().subspan(begin, length));
}

double mean(const std::vector<double>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return count == 0 ? 0
                    : kernels::chunked_sum(values.data(), Scalar::f64, count) / static_cast<double>(count);
}

}  // namespace mantissa::objective

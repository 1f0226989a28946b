// Passes over rows under weights that are not trained in them: those of a fixed model (fixed_model.h), or
// those in training before a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/arena.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/engine/runtime/weights.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/text/rows/row.h"

namespace mantissa::train {

/// Results of a forward pass for each input of some rows.
struct TokenValues {
  std::vector<double> log_probs;  // of the target; 0 without one; empty if the program has none
  std::vector<double> values;     // of a value or score head; empty without one
};

/// Returns for each of `rows` the sum of the log-probabilities of its targets with a weight.
std::vector<double> row_log_probs(const TokenValues& values, const text::StepData& rows);

/// Runs the program of programs::compile_log_probs() or compile_scores() with any weights.
class LogProbs {
 public:
  LogProbs(std::shared_ptr<const plan::Program> program, const config::RunConfig& config);

  const plan::Program& program() const { return *program_; }
  std::shared_ptr<const plan::Program> shared_program() const { return program_; }
  /// Sets the weights and the memory of the passes; null releases them.
  void bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena);
  /// Sets the ranks that call of() alike: each runs some of the micro-batches. Null: one rank.
  void share(comm::Communicator* ranks) { ranks_ = ranks; }

  /// Returns the values of the inputs of `rows`, or null if a stop came first, of which all ranks must know.
  std::optional<TokenValues> of(const text::StepData& rows, const std::stop_token& stop);

 private:
  std::optional<TokenValues> of_items(const text::StepData& rows, std::int64_t first, std::int64_t last,
                                      const std::stop_token& stop);

  std::shared_ptr<const plan::Program> program_;
  comm::Communicator* ranks_ = nullptr;
  std::int64_t micro_batch_, leaf_;
  std::uint64_t seed_;
  std::optional<runtime::Session> session_;
};

}  // namespace mantissa::train

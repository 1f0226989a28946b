// Log-probabilities of rows under weights that are not trained in the pass: those of a reference model, or
// those in training before a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/arena.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/engine/runtime/weights.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/row.h"

namespace mantissa::train {

/// Results of a forward pass for each input of some rows.
struct TokenValues {
  std::vector<double> log_probs;  // of the target; 0 without one
  std::vector<double> values;     // of a value head; empty without one
};

/// Runs the program of programs::compile_log_probs() with any weights.
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

/// The model from which an objective measures the divergence of the one in training: its starting weights, or
/// another model with the same vocabulary. Under an adapter, the starting weights are the adapter's base,
/// which needs no memory of its own; otherwise the reference has the weights that its program reads, without
/// masters. Tensors with scales have the scales of the model in training. So the log-probabilities have the
/// bits of the training pass as long as the weights are equal.
class Reference {
 public:
  /// `source` is the source of the run's model, `path` a model directory or "" for the starting weights.
  /// Throws ConfigError if a model at `path` has another vocabulary. The weights are read in bind().
  Reference(const config::RunConfig& config, const weights::ModelSource& source, const std::string& path,
            const runtime::Device& device);

  /// Sets the ranks that call of() alike.
  void share(comm::Communicator& ranks);
  /// Takes the policy of the step after `step` steps.
  void begin_part(std::int64_t step);
  /// Returns true if the reference reads the weights in training.
  bool shares_weights() const { return shares_; }
  const plan::Program& program() const { return log_probs_->program(); }
  std::shared_ptr<const plan::Program> shared_program() const { return log_probs_->shared_program(); }
  /// Returns the bytes of the reference's own weights.
  std::size_t bytes() const;
  /// Sets the weights in training and the memory of the passes; null releases both.
  void bind(const std::shared_ptr<runtime::WeightSet>& weights, std::shared_ptr<runtime::Arena> arena);
  /// Returns the values of the inputs of `rows`, or null if a stop came first.
  std::optional<TokenValues> of(const text::StepData& rows, const std::stop_token& stop);

 private:
  config::RunConfig config_;
  weights::ModelSource source_;  // whose mapped files the weights may use
  bool shares_;
  const runtime::Device& device_;
  std::int64_t part_ = 0;
  comm::Communicator* ranks_ = nullptr;
  std::optional<LogProbs> log_probs_;
  std::shared_ptr<runtime::WeightSet> weights_, training_;
};

}  // namespace mantissa::train
